//! A slow relay between two sockets.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Delays of a relay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slow {
    /// Delay before the first byte from the client is passed on.
    pub(crate) first: Duration,
    /// Delay after each piece from the server, of at most 16 KiB.
    pub(crate) piece: Duration,
}

/// Relays connections until the process ends; returns its address.
pub(crate) fn relay(server: SocketAddr, slow: Slow) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let server = connect(server);
                let (up, down) = (client.try_clone(), server.try_clone());
                let (up, down) = (up.unwrap(), down.unwrap());
                std::thread::spawn(move || pass(down, client, Duration::ZERO, slow.piece));
                pass(up, server, slow.first, Duration::ZERO);
            });
        }
    });
    address
}

/// Connects with a small buffer, so that unread bytes stay with the server.
fn connect(server: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    socket.connect(&server.into()).unwrap();
    socket.into()
}

fn pass(mut from: TcpStream, mut to: TcpStream, first: Duration, piece: Duration) {
    let mut buffer = vec![0; 16 * 1024];
    let mut waited = false;
    while let Ok(1..) = from.peek(&mut buffer[..1]) {
        if !std::mem::replace(&mut waited, true) {
            std::thread::sleep(first);
        }
        let n = from.read(&mut buffer).unwrap_or(0);
        if n == 0 || to.write_all(&buffer[..n]).is_err() {
            break;
        }
        std::thread::sleep(piece);
    }
    let _ = to.shutdown(Shutdown::Write);
}
