//! A server that presents one certificate after the other.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::Shown;
use super::credulous::server_config;
use crate::TIMEOUT;

type Current = Arc<Mutex<Option<Arc<ServerConfig>>>>;

/// A server of HTTP/1.1 over TLS that serves each request on a separate connection. It listens as
/// long as the process.
#[derive(Debug)]
pub struct Impostor {
    address: SocketAddr,
    current: Current,
}

impl Impostor {
    /// Listens on a free port.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let current = Current::default();
        let shared = Arc::clone(&current);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let config = shared.lock().unwrap().clone();
                thread::spawn(move || config.and_then(|config| serve(socket, config)));
            }
        });
        Self { address, current }
    }

    /// Returns the address on which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the certificate that it presents from now on.
    ///
    /// # Panics
    ///
    /// If the key cannot be used.
    pub fn show(&self, shown: &Shown) {
        *self.current.lock().unwrap() = Some(server_config(shown));
    }
}

fn serve(socket: TcpStream, config: Arc<ServerConfig>) -> Option<()> {
    socket.set_read_timeout(Some(TIMEOUT)).ok()?;
    let session = ServerConnection::new(config).ok()?;
    let mut stream = StreamOwned::new(session, socket);
    let (mut head, mut piece) = (Vec::new(), [0; 4096]);
    while !head.ends_with(b"\r\n\r\n") {
        let length = stream.read(&mut piece).ok().filter(|length| *length > 0)?;
        head.extend_from_slice(&piece[..length]);
    }
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    stream.write_all(answer).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}
