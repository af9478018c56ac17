//! PROXY protocol, versions 1 (text) and 2 (binary), decoded and encoded.
//!
//! A load balancer sends this header before the data of a connection to report the client's address:
//! <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>. [`parse`] and the encoders do no I/O;
//! [`read_header`] feeds the parser from a socket. The caller sets deadlines.
//!
//! Invariant: bytes after the header are never consumed, and bytes that are not a header are never interpreted. A
//! connection is either refused, or its bytes are forwarded unchanged.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, BytesMut};
use maglor_config::cluster::ProxyProtocolOut;
use maglor_config::listener::ProxyProtocolIn;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

pub use self::v1::encode as encode_v1;
pub use self::v2::encode as encode_v2;

#[cfg(test)]
mod tests;
mod v1;
mod v2;

/// Both addresses of a connection, as the sender of the header sees them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Addresses {
    /// Address of the client.
    pub source: SocketAddr,
    /// Address that the client connected to.
    pub destination: SocketAddr,
}

/// Result of parsing the first bytes of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parsed {
    /// There is no PROXY header.
    Absent,
    /// A complete header.
    Header {
        /// Length of the header in bytes.
        len: usize,
        /// Addresses in the header; `None` for LOCAL and UNKNOWN, where the socket's own addresses apply.
        addresses: Option<Addresses>,
    },
    /// The beginning of a header; also if there are no bytes yet.
    Incomplete,
}

/// Reason why a connection's PROXY header was not read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer closed before the header was complete.
    #[error("connection closed before the end of the header")]
    Closed,
    /// The socket failed.
    #[error("cannot read the header: {0}")]
    Io(#[from] io::Error),
    /// The bytes begin like a header but are not a valid one.
    #[error("malformed header: {0}")]
    Malformed(&'static str),
    /// A header is required, but there is none.
    #[error("no header, but the listener requires one")]
    Missing,
}

/// Parses a header at the beginning of `bytes`.
///
/// # Errors
/// `Error::Malformed` if the bytes begin like a header but are not a valid one.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Error> {
    if begins_with(bytes, v2::SIGNATURE) {
        v2::parse(bytes)
    } else if begins_with(bytes, v1::PREFIX) {
        v1::parse(bytes)
    } else {
        Ok(Parsed::Absent)
    }
}

/// Reads the header from the socket according to `mode`.
///
/// `buf` may hold bytes already read, and holds the bytes after the header when this returns. With
/// [`ProxyProtocolIn::Accept`] the client must send first: until its first bytes have arrived, it is unknown whether
/// they are a header. If the future is dropped, the bytes read stay in `buf`.
///
/// # Errors
/// If the header is malformed, or missing although required, or if the connection ends too early.
pub(crate) async fn read_header(
    tcp: &mut TcpStream,
    buf: &mut BytesMut,
    mode: ProxyProtocolIn,
) -> Result<Option<Addresses>, Error> {
    if mode == ProxyProtocolIn::Off {
        return Ok(None);
    }
    loop {
        match parse(buf)? {
            Parsed::Header { len, addresses } => {
                buf.advance(len);
                return Ok(addresses);
            }
            Parsed::Absent if mode == ProxyProtocolIn::Require => return Err(Error::Missing),
            Parsed::Absent => return Ok(None),
            Parsed::Incomplete => {}
        }
        if tcp.read_buf(buf).await? == 0 {
            return Err(Error::Closed);
        }
    }
}

/// Appends a header of the version that the cluster is configured to send. Without addresses it is LOCAL or UNKNOWN,
/// because the connection is the proxy's own.
pub(crate) fn encode(version: ProxyProtocolOut, addresses: Option<&Addresses>, out: &mut BytesMut) {
    match version {
        ProxyProtocolOut::V1 => encode_v1(addresses, out),
        ProxyProtocolOut::V2 => encode_v2(addresses, out),
    }
}

/// Returns whether either of the two is a prefix of the other.
fn begins_with(bytes: &[u8], prefix: &[u8]) -> bool {
    let n = bytes.len().min(prefix.len());
    bytes[..n] == prefix[..n]
}

/// Two addresses of one family.
enum Pair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

/// Converts the addresses to one family.
fn pair(source: IpAddr, destination: IpAddr) -> Pair {
    fn v6(ip: IpAddr) -> Ipv6Addr {
        match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        }
    }
    match (source.to_canonical(), destination.to_canonical()) {
        (IpAddr::V4(s), IpAddr::V4(d)) => Pair::V4(s, d),
        (s, d) => Pair::V6(v6(s), v6(d)),
    }
}
