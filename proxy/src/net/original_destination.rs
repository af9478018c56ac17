//! Where a redirected connection was going: `SO_ORIGINAL_DST`.
//!
//! The kernel's connection tracking remembers the destination that nftables (or iptables) has replaced
//! by the listener's, see `maglor-proxy init`.

use std::net::SocketAddr;

use socket2::SockRef;
use tokio::net::TcpStream;

/// The destination before the redirection, or `None` for a connection that was made to the listener
/// itself: forwarded to its destination, it would come back.
pub(crate) fn original_destination(tcp: &TcpStream) -> Option<SocketAddr> {
    let local = canonical(tcp.local_addr().ok()?);
    let socket = SockRef::from(tcp);
    // A listener on `[::]` has IPv4 connections, too, which the kernel keeps with the others of IPv4.
    let original = match local {
        SocketAddr::V4(_) => socket.original_dst_v4(),
        SocketAddr::V6(_) => socket.original_dst_v6(),
    };
    // An error: nothing tracks this connection, so that nothing has redirected it.
    let original = canonical(original.ok()?.as_socket()?);
    (original != local).then_some(original)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
