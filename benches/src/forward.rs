//! The minimal proxy: forwards bytes from one socket to another without parsing them.
//!
//! Its cost is that of sockets and of waking up on this machine, a lower bound for any proxy in a
//! separate process; the cost of a proxy above it is its own. One thread, each connection with a
//! separate upstream connection, and per message the four calls that any forwarder makes: wait,
//! receive, send, and wait again.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::error::{Doing, Result};

const BUFFER: usize = 64 * 1024;
const EVENTS: usize = 1024;

/// The listening addresses, and the destination of each.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Addresses to listen on.
    #[arg(long, required = true)]
    pub from: Vec<SocketAddr>,
    /// For each of them in turn, where its bytes go.
    #[arg(long, required = true)]
    pub to: Vec<SocketAddr>,
}

/// Returns the command that starts `binary`, which has [`run`] as a role, to forward from the first
/// to the second address of each of `from_to`.
pub fn command(
    binary: &Path,
    from_to: impl IntoIterator<Item = (SocketAddr, SocketAddr)>,
) -> Command {
    let mut command = Command::new(binary);
    command.arg("forward");
    for (from, to) in from_to {
        command.args(["--from", &from.to_string(), "--to", &to.to_string()]);
    }
    command
}

/// Forwards until killed.
///
/// # Errors
/// An address is taken, or the system cannot wait for sockets.
pub fn run(options: &Options) -> Result<()> {
    let mut forwarder = Forwarder::listen(options).doing("listen")?;
    let mut events = Events::with_capacity(EVENTS);
    loop {
        match forwarder.poll.poll(&mut events, None) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                return Err(error).doing("wait for sockets");
            }
            Err(_) => continue,
            Ok(()) => {}
        }
        for event in &events {
            forwarder.take(event.token().0, event.is_writable());
        }
    }
}

#[derive(Debug)]
struct Forwarder {
    poll: Poll,
    listeners: Vec<(TcpListener, SocketAddr)>,
    /// The two sides of a connection are adjacent: 2n towards the client, 2n + 1 towards the
    /// server.
    sides: Vec<Option<Side>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Side {
    stream: TcpStream,
    /// Bytes that its socket has not accepted yet; meanwhile the other side is not read.
    unsent: Vec<u8>,
}

impl Forwarder {
    fn listen(options: &Options) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listeners = Vec::new();
        for (&from, &to) in options.from.iter().zip(&options.to) {
            let mut listener = TcpListener::bind(from)?;
            let token = Token(listeners.len());
            poll.registry()
                .register(&mut listener, token, Interest::READABLE)?;
            listeners.push((listener, to));
        }
        Ok(Self {
            poll,
            listeners,
            sides: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; BUFFER],
        })
    }

    fn take(&mut self, token: usize, writable: bool) {
        let Some(side) = token.checked_sub(self.listeners.len()) else {
            return self.accept(token);
        };
        let sent = !writable || self.flush(side).is_ok();
        if !sent || self.forward(side).is_err() {
            self.close(side);
        }
    }

    /// Accepts all waiting connections; one without an upstream is closed.
    fn accept(&mut self, listener: usize) {
        let (listener, to) = &self.listeners[listener];
        let to = *to;
        let mut taken = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            taken.push(stream);
        }
        for downstream in taken {
            if let Ok(upstream) = TcpStream::connect(to) {
                let _ = self.add([downstream, upstream]);
            }
        }
    }

    fn add(&mut self, streams: [TcpStream; 2]) -> io::Result<()> {
        let first = self.free.pop().unwrap_or(self.sides.len());
        if first == self.sides.len() {
            self.sides.extend([None, None]);
        }
        for (side, mut stream) in streams.into_iter().enumerate() {
            stream.set_nodelay(true)?;
            let token = Token(self.listeners.len() + first + side);
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, token, both)?;
            let unsent = Vec::new();
            self.sides[first + side] = Some(Side { stream, unsent });
        }
        Ok(())
    }

    /// Forwards the data of `from`, until it is drained or the other side accepts no more.
    fn forward(&mut self, from: usize) -> io::Result<()> {
        let (left, right) = self.sides.split_at_mut(from | 1);
        let (down, up) = (left.last_mut(), right.first_mut());
        let (Some(Some(down)), Some(Some(up))) = (down, up) else {
            return Ok(());
        };
        let (from, to) = if from & 1 == 0 {
            (down, up)
        } else {
            (up, down)
        };
        while to.unsent.is_empty() {
            let read = match from.stream.read(&mut self.buffer) {
                Err(error) if waits(&error) => return Ok(()),
                other => other?,
            };
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            to.send(&self.buffer[..read])?;
            // Not full: it is drained, and the system will notify of more.
            if read < self.buffer.len() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends the remaining bytes, and continues to read the side that waited for that.
    fn flush(&mut self, side: usize) -> io::Result<()> {
        let Some(Some(to)) = self.sides.get_mut(side) else {
            return Ok(());
        };
        if to.unsent.is_empty() {
            return Ok(());
        }
        let left = std::mem::take(&mut to.unsent);
        to.send(&left)?;
        self.forward(side ^ 1)
    }

    fn close(&mut self, side: usize) {
        let first = side & !1;
        let gone = [first, first + 1].map(|side| self.sides.get_mut(side).and_then(Option::take));
        if gone.iter().any(Option::is_some) {
            self.free.push(first);
        }
    }
}

impl Side {
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if waits(&error) => {
                    self.unsent.extend_from_slice(bytes);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns whether an operation would block; also on a socket that is not connected yet.
fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected
    )
}

#[cfg(test)]
mod tests {
    use std::net;
    use std::thread;

    use super::*;
    use crate::ports;

    /// More than sockets hold, so that both sides have to wait for each other.
    const BYTES: usize = 16 << 20;

    /// An echo server with a forwarder in front of it.
    fn echo_behind_a_forwarder() -> SocketAddr {
        let server = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (from, to) = (ports::free().unwrap(), server.local_addr().unwrap());
        let options = Options {
            from: vec![from],
            to: vec![to],
        };
        thread::spawn(move || run(&options));
        thread::spawn(move || {
            for stream in server.incoming() {
                let mut stream = stream.unwrap();
                let mut answer = stream.try_clone().unwrap();
                thread::spawn(move || io::copy(&mut stream, &mut answer));
            }
        });
        while net::TcpStream::connect(from).is_err() {
            thread::yield_now();
        }
        from
    }

    #[test]
    fn hands_on_every_byte_however_slowly_it_is_taken() {
        let address = echo_behind_a_forwarder();
        let sent: Vec<u8> = (0..BYTES).map(|at| (at / 251) as u8).collect();
        let mut stream = net::TcpStream::connect(address).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let text = sent.clone();
        let writing = thread::spawn(move || writer.write_all(&text));
        let mut got = vec![0; BYTES];
        stream.read_exact(&mut got).unwrap();
        writing.join().unwrap().unwrap();
        assert!(got == sent);
    }

    #[test]
    fn a_side_that_closes_takes_the_other_with_it_and_makes_room() {
        let address = echo_behind_a_forwarder();
        for _ in 0..100 {
            let mut stream = net::TcpStream::connect(address).unwrap();
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            stream.shutdown(net::Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
    }
}
