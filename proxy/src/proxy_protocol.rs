//! PROXY protocol, versions 1 (text) and 2 (binary), read and written.
//!
//! The header that a load balancer puts in front of a connection's bytes to say who the client is:
//! <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>. [`parse`] and the encoders do no
//! I/O; [`read_header`] feeds the parser from a socket. Deadlines are the caller's.
//!
//! Invariant: what follows the header is never consumed, and what is not a header is never
//! interpreted: a connection is either refused or its bytes are passed on unchanged.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use bytes::{Buf, BufMut, BytesMut};
use maglor_config::cluster::ProxyProtocolOut;
use maglor_config::listener::ProxyProtocolIn;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

#[cfg(test)]
mod tests;

/// First bytes of a version 1 header.
const V1_PREFIX: &[u8] = b"PROXY ";
/// Longest version 1 header, CRLF included.
const V1_MAX: usize = 107;
/// First bytes of a version 2 header.
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, length.
const V2_HEAD: usize = 16;
/// Addresses and TLVs of a version 2 header: above it the header is refused. The format allows
/// 65535; headers seen in practice, a client certificate's names included, stay below 1 KiB.
const V2_MAX_BODY: usize = 4096;
/// TLV that holds the checksum of the header.
const TLV_CRC32C: u8 = 0x03;

/// Both ends of the connection as the sender of the header saw it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Addresses {
    /// The client.
    pub source: SocketAddr,
    /// Where the client connected to.
    pub destination: SocketAddr,
}

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parsed {
    /// No PROXY header.
    Absent,
    /// A whole header.
    Header {
        /// Bytes that it takes.
        len: usize,
        /// `None` for LOCAL and UNKNOWN: the socket's own addresses hold.
        addresses: Option<Addresses>,
    },
    /// The beginning of a header, or nothing yet.
    Incomplete,
}

/// Why a connection's PROXY header was not read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer closed before the header was complete.
    #[error("PROXY protocol: connection closed before the end of the header")]
    Closed,
    /// The socket failed.
    #[error("PROXY protocol: reading the header: {0}")]
    Io(#[from] io::Error),
    /// Begins as a header but is none.
    #[error("PROXY protocol: malformed header: {0}")]
    Malformed(&'static str),
    /// A header is required and there is none.
    #[error("PROXY protocol: no header; the listener requires one")]
    Missing,
}

/// Reads a header from the beginning of `bytes`.
///
/// # Errors
/// [`Error::Malformed`] when the bytes begin as a header and break its rules.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Error> {
    if begins_with(bytes, V2_SIGNATURE) {
        parse_v2(bytes)
    } else if begins_with(bytes, V1_PREFIX) {
        parse_v1(bytes)
    } else {
        Ok(Parsed::Absent)
    }
}

/// Reads the header from the socket as `mode` asks.
///
/// `buf` may hold bytes already read, and holds the bytes after the header when this returns. With
/// [`ProxyProtocolIn::Accept`] the client must speak first: until its first bytes have come nobody
/// knows whether they are a header. Dropping the future keeps what was read in `buf`.
///
/// # Errors
/// When the header is malformed, missing though required, or the connection ends too early.
pub async fn read_header(
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

/// Writes a header of the version that a cluster asks for. Without addresses it says LOCAL or
/// UNKNOWN: the connection is the proxy's own.
pub fn encode(version: ProxyProtocolOut, addresses: Option<&Addresses>, out: &mut BytesMut) {
    match version {
        ProxyProtocolOut::V1 => encode_v1(addresses, out),
        ProxyProtocolOut::V2 => encode_v2(addresses, out),
    }
}

/// Writes a version 1 header. Addresses of two families are both written as IPv6.
pub fn encode_v1(addresses: Option<&Addresses>, out: &mut BytesMut) {
    let Some(Addresses {
        source,
        destination,
    }) = addresses
    else {
        out.put_slice(b"PROXY UNKNOWN\r\n");
        return;
    };
    let (sport, dport) = (source.port(), destination.port());
    let line = match pair(source.ip(), destination.ip()) {
        Pair::V4(s, d) => format!("PROXY TCP4 {s} {d} {sport} {dport}\r\n"),
        Pair::V6(s, d) => format!("PROXY TCP6 {s} {d} {sport} {dport}\r\n"),
    };
    out.put_slice(line.as_bytes());
}

/// Writes a version 2 header. Addresses of two families are both written as IPv6.
pub fn encode_v2(addresses: Option<&Addresses>, out: &mut BytesMut) {
    out.put_slice(V2_SIGNATURE);
    let Some(Addresses {
        source,
        destination,
    }) = addresses
    else {
        // LOCAL, unspecified family, no body.
        out.put_slice(&[0x20, 0x00, 0, 0]);
        return;
    };
    match pair(source.ip(), destination.ip()) {
        Pair::V4(s, d) => {
            out.put_slice(&[0x21, 0x11, 0, 12]);
            out.put_slice(&s.octets());
            out.put_slice(&d.octets());
        }
        Pair::V6(s, d) => {
            out.put_slice(&[0x21, 0x21, 0, 36]);
            out.put_slice(&s.octets());
            out.put_slice(&d.octets());
        }
    }
    out.put_u16(source.port());
    out.put_u16(destination.port());
}

/// Whether one of the two is the beginning of the other.
fn begins_with(bytes: &[u8], prefix: &[u8]) -> bool {
    let n = bytes.len().min(prefix.len());
    bytes[..n] == prefix[..n]
}

/// Two addresses of one family.
enum Pair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

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

// === version 1 ===

fn parse_v1(bytes: &[u8]) -> Result<Parsed, Error> {
    let window = &bytes[..bytes.len().min(V1_MAX)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if window.len() < V1_MAX {
            Ok(Parsed::Incomplete)
        } else {
            Err(Error::Malformed("version 1 line longer than 107 bytes"))
        };
    };
    let line = window[..end]
        .strip_suffix(b"\r")
        .and_then(|line| line.strip_prefix(V1_PREFIX))
        .ok_or(Error::Malformed("version 1 line not ended by CRLF"))?;
    Ok(Parsed::Header {
        len: end + 1,
        addresses: parse_v1_fields(line)?,
    })
}

/// What is between `PROXY ` and CRLF.
fn parse_v1_fields(line: &[u8]) -> Result<Option<Addresses>, Error> {
    // After UNKNOWN anything may follow and is ignored.
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        return Ok(None);
    }
    let line = str::from_utf8(line).map_err(|_| Error::Malformed("version 1 line not ASCII"))?;
    let mut fields = line.split(' ');
    let mut next = || {
        fields
            .next()
            .ok_or(Error::Malformed("version 1 line too short"))
    };
    let parse_ip = match next()? {
        "TCP4" => v1_ip::<Ipv4Addr>,
        "TCP6" => v1_ip::<Ipv6Addr>,
        _ => {
            return Err(Error::Malformed(
                "version 1 protocol not TCP4, TCP6 or UNKNOWN",
            ));
        }
    };
    let (source, destination) = (parse_ip(next()?)?, parse_ip(next()?)?);
    let (source_port, destination_port) = (v1_port(next()?)?, v1_port(next()?)?);
    if fields.next().is_some() {
        return Err(Error::Malformed("version 1 line has too many fields"));
    }
    Ok(Some(Addresses {
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
    }))
}

fn v1_ip<T: FromStr + Into<IpAddr>>(field: &str) -> Result<IpAddr, Error> {
    let ip = field
        .parse::<T>()
        .map_err(|_| Error::Malformed("version 1 address"))?;
    Ok(ip.into().to_canonical())
}

fn v1_port(field: &str) -> Result<u16, Error> {
    // No sign and no leading zero, which the standard parser would take.
    let digits = field.bytes().all(|b| b.is_ascii_digit());
    if !digits || (field.len() > 1 && field.starts_with('0')) {
        return Err(Error::Malformed("version 1 port"));
    }
    field
        .parse()
        .map_err(|_| Error::Malformed("version 1 port"))
}

// === version 2 ===

fn parse_v2(bytes: &[u8]) -> Result<Parsed, Error> {
    let Some(head) = bytes.first_chunk::<V2_HEAD>() else {
        return match bytes.get(V2_SIGNATURE.len()) {
            Some(byte) => command(*byte).map(|_| Parsed::Incomplete),
            None => Ok(Parsed::Incomplete),
        };
    };
    let [.., version_command, family, len_high, len_low] = *head;
    let command = command(version_command)?;
    let len = V2_HEAD + usize::from(u16::from_be_bytes([len_high, len_low]));
    if len > V2_HEAD + V2_MAX_BODY {
        return Err(Error::Malformed("version 2 header longer than 4096 bytes"));
    }
    let Some(header) = bytes.get(..len) else {
        return Ok(Parsed::Incomplete);
    };
    let addresses = match command {
        // The sender's own connection (a health check): whatever follows is skipped.
        Command::Local => None,
        Command::Proxy => parse_v2_body(family, header)?,
    };
    Ok(Parsed::Header { len, addresses })
}

enum Command {
    Local,
    Proxy,
}

fn command(version_command: u8) -> Result<Command, Error> {
    match version_command {
        0x20 => Ok(Command::Local),
        0x21 => Ok(Command::Proxy),
        _ => Err(Error::Malformed("version 2 version or command")),
    }
}

/// Addresses and TLVs of a whole `header`.
fn parse_v2_body(family: u8, header: &[u8]) -> Result<Option<Addresses>, Error> {
    const SHORT: Error = Error::Malformed("version 2 header too short for its addresses");
    let body = &header[V2_HEAD..];
    let (addresses, tlvs) = match (family >> 4, family & 0xf) {
        (0..=3, 3..) | (4.., _) => {
            return Err(Error::Malformed("version 2 address family or transport"));
        }
        // Unspecified: nobody knows where addresses end and TLVs begin.
        (0, _) | (_, 0) => return Ok(None),
        (1, _) => {
            let (block, tlvs) = body.split_first_chunk::<12>().ok_or(SHORT)?;
            (Some(inet(block)), tlvs)
        }
        (2, _) => {
            let (block, tlvs) = body.split_first_chunk::<36>().ok_or(SHORT)?;
            (Some(inet6(block)), tlvs)
        }
        // UNIX socket: no address that the proxy could use.
        (3, _) => (None, body.get(216..).ok_or(SHORT)?),
    };
    check_tlvs(header, header.len() - tlvs.len())?;
    Ok(addresses)
}

fn inet(block: &[u8; 12]) -> Addresses {
    let [s0, s1, s2, s3, d0, d1, d2, d3, sp0, sp1, dp0, dp1] = *block;
    let (source, destination) = ([s0, s1, s2, s3], [d0, d1, d2, d3]);
    Addresses {
        source: SocketAddr::from((source, u16::from_be_bytes([sp0, sp1]))),
        destination: SocketAddr::from((destination, u16::from_be_bytes([dp0, dp1]))),
    }
}

fn inet6(block: &[u8; 36]) -> Addresses {
    let (source, rest) = split_ip(block);
    let (destination, ports) = split_ip(rest);
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    Addresses {
        source: SocketAddr::new(source, port(0)),
        destination: SocketAddr::new(destination, port(2)),
    }
}

/// An IPv6 address in front, and the rest; IPv4-mapped becomes IPv4.
fn split_ip(block: &[u8]) -> (IpAddr, &[u8]) {
    let (ip, rest) = block.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
    (IpAddr::from(*ip).to_canonical(), rest)
}

/// Walks the TLVs from `at` to the end of the header, and verifies its checksum if it has one.
fn check_tlvs(header: &[u8], mut at: usize) -> Result<(), Error> {
    while let Some(tlv) = header.get(at..).filter(|rest| !rest.is_empty()) {
        let Some([kind, len_high, len_low]) = tlv.first_chunk() else {
            return Err(Error::Malformed("version 2 TLV cut off"));
        };
        let len = usize::from(u16::from_be_bytes([*len_high, *len_low]));
        let value = at + 3..at + 3 + len;
        let Some(bytes) = header.get(value.clone()) else {
            return Err(Error::Malformed("version 2 TLV longer than the header"));
        };
        if *kind == TLV_CRC32C {
            let expected = bytes.try_into().map(u32::from_be_bytes).ok();
            let parts = [&header[..value.start], &[0; 4], &header[value.end..]];
            if expected != Some(crc32c(&parts)) {
                return Err(Error::Malformed("version 2 checksum"));
            }
        }
        at = value.end;
    }
    Ok(())
}

/// CRC-32C of the parts one after the other. Bit by bit: headers are short and rarely checksummed.
fn crc32c(parts: &[&[u8]]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    !parts.iter().copied().flatten().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (POLYNOMIAL * (crc & 1))
        })
    })
}
