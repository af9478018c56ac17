//! Length of a socket's send queue: bytes written and not acknowledged by the peer (`SIOCOUTQ`, tcp(7)).
//!
//! A socket is writable again when a third of its send buffer is free, which may be a megabyte: progress of a slow
//! reader is visible in the length of the queue earlier than in writability.

use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

/// Time after which a connection with unsent data and no progress ends, regardless of traffic in the other direction.
/// It is about the time after which the kernel abandons a peer that acknowledges nothing (`tcp_retries2`, ip-sysctl);
/// the kernel never abandons a peer that acknowledges but does not read.
const PROGRESS: Duration = Duration::from_secs(15 * 60);

/// Limits the time without progress of a connection (`TCP_USER_TIMEOUT`, tcp(7), RFC 5482).
pub(crate) fn limit(tcp: &TcpStream) -> io::Result<()> {
    SockRef::from(tcp).set_tcp_user_timeout(Some(PROGRESS))
}

/// Returns the number of bytes in the send queue; `None` if the kernel does not report it.
#[allow(unsafe_code)]
pub(crate) fn unacknowledged(tcp: &TcpStream) -> Option<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: for a socket the kernel writes one `int`, and the pointer is valid for the call.
    let failed = unsafe { libc::ioctl(tcp.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    (failed == 0).then_some(bytes)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_queue_is_as_long_as_the_peer_has_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = TcpStream::connect(listener.local_addr().unwrap());
        let (sender, accepted) = tokio::join!(to, listener.accept());
        let (sender, mut reader) = (sender.unwrap(), accepted.unwrap().0);
        assert_eq!(unacknowledged(&sender), Some(0));
        let piece = [0; 64 * 1024];
        while sender.try_write(&piece).is_ok() {}
        let full = unacknowledged(&sender).unwrap();
        assert!(full > 0);
        // Less than a third of the buffer is free, so nothing can be written.
        let mut read = 0;
        while unacknowledged(&sender).unwrap() == full {
            let mut piece = [0; 16 * 1024];
            read += reader.read(&mut piece).await.unwrap();
        }
        assert!(read > 0);
    }
}
