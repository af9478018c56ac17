//! A connection with a buffer for bytes read ahead.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::SockRef;

use crate::TIMEOUT;

/// The transport of a connection: a socket, or TLS over one.
trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// One end of a connection. Its methods return errors instead of panicking.
pub struct RawConnection {
    stream: Box<dyn Stream>,
    /// The underlying socket, for its options.
    socket: TcpStream,
    /// Bytes read from the socket and not consumed yet.
    buffer: Vec<u8>,
}

impl std::fmt::Debug for RawConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawConnection")
            .field("socket", &self.socket)
            .field("buffer", &self.buffer.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}

impl RawConnection {
    pub(super) fn new(socket: TcpStream) -> io::Result<Self> {
        let stream = socket.try_clone()?;
        Self::over(socket, stream)
    }

    pub(super) fn over(
        socket: TcpStream,
        stream: impl Read + Write + Send + 'static,
    ) -> io::Result<Self> {
        // A Unix socket has no address, and nothing to delay.
        if socket.local_addr().is_ok() {
            socket.set_nodelay(true)?;
        }
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            stream: Box::new(stream),
            socket,
            buffer: Vec::new(),
        })
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    ///
    /// If the connection is gone.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Returns the local address.
    ///
    /// # Errors
    ///
    /// If the connection is gone.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// If the peer is gone or does not read.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// Reads up to and including `end`.
    ///
    /// # Errors
    ///
    /// If the connection ends before, or nothing is received.
    pub fn read_until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            let found = self.buffer[searched..]
                .windows(end.len())
                .position(|window| window == end);
            if let Some(at) = found {
                return Ok(self.buffer.drain(..searched + at + end.len()).collect());
            }
            searched = self.buffer.len().saturating_sub(end.len() - 1);
            if self.fill()? == 0 {
                let got = self.buffer.escape_ascii();
                let end = end.escape_ascii();
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    format!("closed before \"{end}\", after \"{got}\""),
                ));
            }
        }
    }

    /// Reads the head of a message: everything up to the empty line.
    ///
    /// # Errors
    ///
    /// If the connection ends before, or nothing is received.
    pub fn read_head(&mut self) -> io::Result<String> {
        let head = self.read_until(b"\r\n\r\n")?;
        String::from_utf8(head).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// Reads exactly `length` bytes.
    ///
    /// # Errors
    ///
    /// If the connection ends before, or nothing is received.
    pub fn read_exact(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            if self.fill()? == 0 {
                let got = self.buffer.len();
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    format!("closed after {got} of {length} bytes"),
                ));
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    /// Reads exactly these bytes.
    ///
    /// # Errors
    ///
    /// If other bytes are received; the error shows both.
    pub fn expect(&mut self, expected: impl AsRef<[u8]>) -> io::Result<()> {
        let expected = expected.as_ref();
        let got = self.read_exact(expected.len())?;
        if got == expected {
            return Ok(());
        }
        let (expected, got) = (expected.escape_ascii(), got.escape_ascii());
        Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("expected \"{expected}\", got \"{got}\""),
        ))
    }

    /// Reads until the peer closes.
    ///
    /// # Errors
    ///
    /// If it does not, or resets the connection.
    pub fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Reads the available bytes, at least one; none at the end of the connection.
    ///
    /// # Errors
    ///
    /// If the connection is reset, or nothing is received.
    pub fn read_some(&mut self) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() {
            self.fill()?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Waits for `time`; returns true if nothing was received and the connection was not closed.
    ///
    /// # Errors
    ///
    /// If the connection breaks.
    pub fn is_silent_for(&mut self, time: Duration) -> io::Result<bool> {
        if !self.buffer.is_empty() {
            return Ok(false);
        }
        self.socket.set_read_timeout(Some(time))?;
        let read = self.fill();
        self.socket.set_read_timeout(Some(TIMEOUT))?;
        match read {
            Ok(_) => Ok(false),
            Err(error) if is_timeout(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Closes the sending side; reading continues.
    ///
    /// # Errors
    ///
    /// If the connection is gone.
    pub fn finish_sending(&mut self) -> io::Result<()> {
        self.stream.flush()?;
        self.socket.shutdown(Shutdown::Write)
    }

    /// Makes the end of this connection a reset instead of an orderly close.
    ///
    /// # Errors
    ///
    /// If the socket refuses the option.
    pub fn reset_on_close(&mut self) -> io::Result<()> {
        SockRef::from(&self.socket).set_linger(Some(Duration::ZERO))
    }

    /// Limits the kernel's receive buffer, and so the bytes accepted while the socket is not read.
    ///
    /// # Errors
    ///
    /// If the socket refuses the option.
    pub fn limit_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(&self.socket).set_recv_buffer_size(bytes)
    }

    /// Reads the available bytes, at least one unless the connection has ended.
    fn fill(&mut self) -> io::Result<usize> {
        let mut piece = [0; 64 * 1024];
        let length = loop {
            match self.stream.read(&mut piece) {
                Ok(length) => break length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    let got = self.buffer.escape_ascii();
                    return Err(io::Error::new(
                        ErrorKind::TimedOut,
                        format!("nothing more came after \"{got}\""),
                    ));
                }
                Err(error) => return Err(error),
            }
        };
        self.buffer.extend_from_slice(&piece[..length]);
        Ok(length)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}
