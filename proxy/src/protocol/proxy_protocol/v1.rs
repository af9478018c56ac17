//! Version 1: one line of text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use bytes::{BufMut, BytesMut};

use super::{Addresses, Error, Pair, Parsed, pair};

/// First bytes of a header.
pub(super) const PREFIX: &[u8] = b"PROXY ";
/// Maximum length of a header in bytes, including CRLF.
const MAX: usize = 107;

/// Appends a version 1 header. If the addresses are of different families, both are written as IPv6.
pub fn encode(addresses: Option<&Addresses>, out: &mut BytesMut) {
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

/// Parses a header from bytes that begin like one.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Error> {
    let window = &bytes[..bytes.len().min(MAX)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if window.len() < MAX {
            Ok(Parsed::Incomplete)
        } else {
            Err(Error::Malformed("version 1 line longer than 107 bytes"))
        };
    };
    let line = window[..end]
        .strip_suffix(b"\r")
        .and_then(|line| line.strip_prefix(PREFIX))
        .ok_or(Error::Malformed("version 1 line not ended by CRLF"))?;
    Ok(Parsed::Header {
        len: end + 1,
        addresses: parse_fields(line)?,
    })
}

/// Parses the fields between `PROXY ` and CRLF.
fn parse_fields(line: &[u8]) -> Result<Option<Addresses>, Error> {
    // After UNKNOWN any text is ignored.
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
        "TCP4" => ip::<Ipv4Addr>,
        "TCP6" => ip::<Ipv6Addr>,
        _ => {
            return Err(Error::Malformed(
                "version 1 protocol not TCP4, TCP6 or UNKNOWN",
            ));
        }
    };
    let (source, destination) = (parse_ip(next()?)?, parse_ip(next()?)?);
    let (source_port, destination_port) = (port(next()?)?, port(next()?)?);
    if fields.next().is_some() {
        return Err(Error::Malformed("version 1 line has too many fields"));
    }
    Ok(Some(Addresses {
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
    }))
}

fn ip<T: FromStr + Into<IpAddr>>(field: &str) -> Result<IpAddr, Error> {
    let ip = field
        .parse::<T>()
        .map_err(|_| Error::Malformed("version 1 address"))?;
    Ok(ip.into().to_canonical())
}

fn port(field: &str) -> Result<u16, Error> {
    // Rejects a sign or a leading zero, which the standard parser would accept.
    let digits = field.bytes().all(|b| b.is_ascii_digit());
    if !digits || (field.len() > 1 && field.starts_with('0')) {
        return Err(Error::Malformed("version 1 port"));
    }
    field
        .parse()
        .map_err(|_| Error::Malformed("version 1 port"))
}
