//! How far an endpoint is: what the kernel has measured of a connection's handshake.
//!
//! From the SYN to its answer (RFC 6298 §2.2's first sample): no wait of this thread and no work of the
//! server is in it.

use std::os::fd::AsRawFd as _;

use tokio::net::TcpStream;

/// The time to the peer of a new connection and back, in microseconds; `None` where the kernel does not
/// say.
#[allow(unsafe_code)]
pub(super) fn of(tcp: &TcpStream) -> Option<u32> {
    // SAFETY: a structure of integers, of which any bits are a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, and both pointers are valid for the call.
    let failed = unsafe {
        libc::getsockopt(
            tcp.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (failed == 0 && info.tcpi_rtt > 0).then_some(info.tcpi_rtt)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_new_connection_knows_how_far_its_peer_is() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        // Nobody is a second away from itself.
        assert!(of(&tcp).is_some_and(|micros| micros < 1_000_000));
    }
}
