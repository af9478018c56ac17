//! Stream sockets, TCP and Unix, as one type.
//!
//! After `accept` and `connect` the data path needs only what both have: `recv`, `send`, `splice`, `shutdown`, epoll.
//! Therefore a Unix socket is held as tokio's [`TcpStream`], and reads and writes need no case distinction. Addresses
//! and options, which only TCP has, are used only where the listener's or endpoint's [`Address`] is an IP address.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net as unix;
use std::time::Duration;

use maglor_config::{Address, UnixAddress};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener};

/// Pause before another attempt to connect to a full backlog: a Unix listener refuses immediately instead of
/// queueing (unix(7): `EAGAIN`).
const FULL: Duration = Duration::from_millis(5);

/// A listening socket before it is handed to a worker.
#[derive(Debug)]
pub(crate) enum Listening {
    Tcp(std::net::TcpListener),
    Unix(unix::UnixListener),
}

/// A listening socket of a worker.
#[derive(Debug)]
pub(crate) enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    /// Registers the socket; must be called within the worker's runtime.
    pub(crate) fn new(socket: Listening) -> io::Result<Self> {
        Ok(match socket {
            Listening::Tcp(socket) => Self::Tcp(TcpListener::from_std(socket)?),
            Listening::Unix(socket) => Self::Unix(UnixListener::from_std(socket)?),
        })
    }

    /// Accepts a connection. If several workers share a Unix socket, one of them gets it.
    pub(crate) async fn accept(&self) -> io::Result<TcpStream> {
        match self {
            Self::Tcp(socket) => Ok(socket.accept().await?.0),
            Self::Unix(socket) => adopt(socket.accept().await?.0.into_std()?),
        }
    }

    /// Returns the connections in the backlog, by direct system calls: tokio would not accept before its reactor
    /// reports a connection.
    pub(crate) fn waiting(self) -> impl Iterator<Item = io::Result<TcpStream>> {
        let socket = match self {
            Self::Tcp(socket) => socket.into_std().map(Listening::Tcp).ok(),
            Self::Unix(socket) => socket.into_std().map(Listening::Unix).ok(),
        };
        std::iter::from_fn(move || match socket.as_ref()? {
            Listening::Tcp(socket) => {
                let (tcp, _) = socket.accept().ok()?;
                let nonblocking = tcp.set_nonblocking(true);
                Some(nonblocking.and_then(|()| TcpStream::from_std(tcp)))
            }
            Listening::Unix(socket) => Some(adopt(socket.accept().ok()?.0)),
        })
    }
}

/// Connects to an address. The caller sets a timeout.
pub(crate) async fn connect(address: &Address) -> io::Result<TcpStream> {
    match address {
        Address::Ip(address) => TcpStream::connect(*address).await,
        Address::Unix(address) => loop {
            match connect_unix(address) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(FULL).await;
                }
                connected => return adopt(connected?.into()),
            }
        },
    }
}

/// Connects to a Unix socket without blocking: succeeds or fails immediately.
fn connect_unix(address: &UnixAddress) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&sock_addr(address)?)?;
    Ok(socket)
}

/// Returns whether a process listens on a Unix socket.
pub(crate) fn is_live(address: &UnixAddress) -> bool {
    match connect_unix(address) {
        Ok(_) => true,
        // No listener, or no socket.
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
        ),
    }
}

/// Returns the address for system calls of socket2.
pub(crate) fn sock_addr(address: &UnixAddress) -> io::Result<SockAddr> {
    match address.path() {
        Some(path) => SockAddr::unix(path),
        // An abstract name begins with a NUL in place of `@`.
        None => SockAddr::unix(format!("\0{}", &address.as_str()[1..])),
    }
}

fn adopt(stream: unix::UnixStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    TcpStream::from_std(OwnedFd::from(stream).into())
}
