//! Round-trip time to an endpoint, as measured by the kernel at a connection's handshake.
//!
//! The time from the SYN to the SYN-ACK (the first sample of RFC 6298 §2.2) includes neither delays of this thread
//! nor work of the server.

use std::os::fd::AsRawFd as _;

use tokio::net::TcpStream;

/// Returns the round-trip time to the peer of a new connection in microseconds; `None` if the kernel does not
/// report it.
#[allow(unsafe_code)]
pub(super) fn of(tcp: &TcpStream) -> Option<u32> {
    // SAFETY: a structure of integers, for which all bit patterns are valid.
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
        // Loopback round trips take less than a second.
        assert!(of(&tcp).is_some_and(|micros| micros < 1_000_000));
    }
}
