//! Original destination of a redirected connection: `SO_ORIGINAL_DST`.
//!
//! The kernel's connection tracking records the destination that nftables (or iptables) has replaced with the
//! listener's address; see `maglor-proxy init`.

use std::net::SocketAddr;

use socket2::SockRef;
use tokio::net::TcpStream;

/// Returns the destination before the redirection, or `None` for a direct connection to the listener. Forwarding the
/// latter to its destination would create a loop.
pub(crate) fn original_destination(tcp: &TcpStream) -> Option<SocketAddr> {
    let local = canonical(tcp.local_addr().ok()?);
    let socket = SockRef::from(tcp);
    // A listener on `[::]` also accepts IPv4 connections, which the kernel tracks as IPv4.
    let original = match local {
        SocketAddr::V4(_) => socket.original_dst_v4(),
        SocketAddr::V6(_) => socket.original_dst_v6(),
    };
    // An error means that the connection is not tracked, and therefore was not redirected.
    let original = canonical(original.ok()?.as_socket()?);
    (original != local).then_some(original)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
