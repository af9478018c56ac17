//! The strict HTTP/1.1 client.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::connection::RawConnection;
use super::response::RawResponse;
use crate::TIMEOUT;

/// A client that sends exactly the given bytes and parses responses strictly.
///
/// Its methods panic, at the line of the test, where those of [`RawConnection`] return an error.
///
/// ```no_run
/// # let address = "127.0.0.1:80".parse().unwrap();
/// use maglor_testkit::RawHttp1;
///
/// let mut client = RawHttp1::connect(address);
/// client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
/// assert_eq!(client.response().status, 200);
/// client.assert_closed();
/// ```
#[derive(Debug)]
pub struct RawHttp1 {
    connection: RawConnection,
}

#[allow(
    clippy::missing_panics_doc,
    reason = "all of them panic if the other end does not do what the test expects"
)]
impl RawHttp1 {
    /// Connects in plain text.
    #[must_use]
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        let connection = RawConnection::new(connect(address)).expect("a fresh socket");
        Self { connection }
    }

    /// Connects to a Unix socket: the bytes are the same as over TCP, so that it is handled as a
    /// TCP connection.
    #[must_use]
    #[track_caller]
    pub fn connect_unix(path: &std::path::Path) -> Self {
        let socket = std::os::unix::net::UnixStream::connect(path);
        let socket =
            socket.unwrap_or_else(|error| panic!("cannot connect to {}: {error}", path.display()));
        let socket = TcpStream::from(std::os::fd::OwnedFd::from(socket));
        let connection = RawConnection::new(socket).expect("a fresh socket");
        Self { connection }
    }

    /// Connects from an address of this machine, for example `127.0.0.2`.
    #[must_use]
    #[track_caller]
    pub fn connect_from(source: std::net::IpAddr, address: SocketAddr) -> Self {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None);
        let socket = socket.expect("a socket");
        let source = SocketAddr::new(source, 0);
        socket
            .bind(&source.into())
            .expect("an address of this machine");
        socket
            .connect_timeout(&address.into(), TIMEOUT)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        let connection = RawConnection::new(socket.into()).expect("a fresh socket");
        Self { connection }
    }

    /// Connects with TLS; the handshake takes place with the first bytes.
    #[must_use]
    #[track_caller]
    pub fn connect_tls(address: SocketAddr, name: &str, config: Arc<ClientConfig>) -> Self {
        let socket = connect(address);
        let name = ServerName::try_from(name.to_owned()).expect("a DNS name or an address");
        let session = ClientConnection::new(config, name).expect("a TLS session");
        let stream = StreamOwned::new(session, socket.try_clone().expect("a second handle"));
        let connection = RawConnection::over(socket, stream).expect("a fresh socket");
        Self { connection }
    }

    /// Sends bytes.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        if let Err(error) = self.connection.send(bytes) {
            panic!("cannot send: {error}");
        }
    }

    /// Sends `GET PATH` on a connection that stays open, and reads the response.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> RawResponse {
        self.request(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
    }

    /// Sends GET with `Host: localhost`, which pages for operators of an admin port require.
    #[track_caller]
    pub fn get_local(&mut self, path: &str) -> RawResponse {
        self.request(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
    }

    /// Sends a request and reads the response, whose framing depends on the request's method.
    #[track_caller]
    pub fn request(&mut self, request: impl AsRef<[u8]>) -> RawResponse {
        let request = request.as_ref();
        self.send(request);
        let end = request.iter().position(|&byte| byte == b' ').unwrap_or(0);
        let method = String::from_utf8_lossy(&request[..end]).into_owned();
        self.response_to(&method)
    }

    /// Reads one response to a GET; an interim one (1xx) counts as a response.
    #[track_caller]
    pub fn response(&mut self) -> RawResponse {
        self.response_to("GET")
    }

    /// Reads one response to a request with another method.
    #[track_caller]
    pub fn response_to(&mut self, method: &str) -> RawResponse {
        match RawResponse::read(&mut self.connection, method) {
            Ok(response) => response,
            Err(error) => panic!("no response to {method}: {error}"),
        }
    }

    /// Creates a client over a connected socket, for callers that count failures instead of
    /// panicking.
    #[must_use]
    pub fn try_over(socket: TcpStream) -> Option<Self> {
        let connection = RawConnection::new(socket).ok()?;
        Some(Self { connection })
    }

    /// Reads one response to a request with this method.
    ///
    /// # Errors
    ///
    /// If there is none, or it is malformed.
    pub fn try_response(&mut self, method: &str) -> std::io::Result<RawResponse> {
        RawResponse::read(&mut self.connection, method)
    }

    /// Reads responses up to the final one, and returns the interim ones as well.
    #[track_caller]
    pub fn final_response(&mut self) -> (Vec<RawResponse>, RawResponse) {
        let mut interim = Vec::new();
        loop {
            let response = self.response();
            // 101 is final: what follows is another protocol.
            if response.status >= 200 || response.status == 101 {
                return (interim, response);
            }
            interim.push(response);
        }
    }

    /// Checks that the peer closes now, without another byte.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        match self.connection.read_to_end() {
            Ok(rest) if rest.is_empty() => {}
            Ok(rest) => panic!("before the end came \"{}\"", rest.escape_ascii()),
            // A close that crossed bytes of ours.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("not closed: {error}"),
        }
    }

    /// Checks that nothing is received for some time, and the connection stays open.
    #[track_caller]
    pub fn assert_silent(&mut self, time: Duration) {
        match self.connection.is_silent_for(time) {
            Ok(true) => {}
            Ok(false) => panic!("not silent for {time:?}"),
            Err(error) => panic!("not open for {time:?}: {error}"),
        }
    }

    /// Returns the underlying connection, whose methods return errors.
    pub fn connection(&mut self) -> &mut RawConnection {
        &mut self.connection
    }

    /// Returns the underlying connection.
    #[must_use]
    pub fn into_connection(self) -> RawConnection {
        self.connection
    }
}

#[track_caller]
fn connect(address: SocketAddr) -> TcpStream {
    match TcpStream::connect_timeout(&address, TIMEOUT) {
        Ok(socket) => socket,
        Err(error) => panic!("cannot connect to {address}: {error}"),
    }
}
