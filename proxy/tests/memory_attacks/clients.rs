//! Connections that send arbitrary bytes and read nothing.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

/// Receive buffer of a client that does not read, in bytes.
pub(crate) const RECEIVED: usize = 4096;
/// Maximum time to send bytes on a connection.
const PATIENCE: Duration = Duration::from_millis(200);
const ANSWER: Duration = Duration::from_secs(5);

/// Raises the limit of descriptors, for many connections.
pub(crate) fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Connects, with a receive buffer of this size.
pub(crate) fn connect(address: SocketAddr, received: Option<usize>) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    if let Some(bytes) = received {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.connect_timeout(&address.into(), ANSWER)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER))?;
    Ok(stream)
}

/// Returns whether a small request is answered with 200.
pub(crate) fn ask(stream: &mut TcpStream) -> bool {
    let asked = stream.write_all(b"GET / HTTP/1.1\r\nhost: victim\r\n\r\n");
    let mut seen = Vec::new();
    let mut buffer = [0; 1024];
    while asked.is_ok() && !seen.ends_with(b"\r\n\r\nvictim") {
        match stream.read(&mut buffer) {
            Ok(read @ 1..) => seen.extend_from_slice(&buffer[..read]),
            _ => return false,
        }
        if seen.len() > 64 && !seen.starts_with(b"HTTP/1.1 200") {
            return false;
        }
    }
    seen.starts_with(b"HTTP/1.1 200")
}

#[allow(dead_code, reason = "not every program that has this file uses it")]
/// Sends as much as the peer accepts in a short time, and discards the rest.
pub(crate) fn send(stream: &mut TcpStream, mut bytes: &[u8]) {
    let until = Instant::now() + PATIENCE;
    stream.set_nonblocking(true).unwrap();
    while !bytes.is_empty() && Instant::now() < until {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => return,
        }
    }
}

#[allow(dead_code, reason = "not every program that has this file uses it")]
/// Opens connections that send these bytes and read nothing.
pub(crate) fn silent(address: SocketAddr, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        // The proxy may have stopped accepting.
        let Ok(mut stream) = connect(address, Some(RECEIVED)) else {
            break;
        };
        send(&mut stream, bytes);
        streams.push(stream);
    }
    streams
}

/// A connection of a mesh workload, which reads only until the handshake is complete.
pub(crate) struct Member {
    stream: TcpStream,
    tls: ClientConnection,
}

impl Member {
    pub(crate) fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let mut stream = connect(address, Some(RECEIVED))?;
        let name = ServerName::try_from("a.test").unwrap();
        let mut tls = ClientConnection::new(Arc::clone(config), name).unwrap();
        tls.set_buffer_limit(None);
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        Ok(Self { stream, tls })
    }

    /// Sends everything; an error is the end of the connection.
    #[allow(dead_code, reason = "not every program that has this file uses it")]
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(bytes)?;
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.stream)?;
        }
        Ok(())
    }

    #[allow(dead_code, reason = "not every program that has this file uses it")]
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        let mut encrypted = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut encrypted).unwrap();
        }
        send(&mut self.stream, &encrypted);
    }
}

/// Returns the first message of a TLS client.
pub(crate) fn hello(config: &Arc<ClientConfig>) -> Vec<u8> {
    let name = ServerName::try_from("a.test").unwrap();
    let mut tls = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut bytes = Vec::new();
    tls.write_tls(&mut bytes).unwrap();
    bytes
}
