//! Version 2: binary.

use std::mem::replace;
use std::net::{IpAddr, SocketAddr};

use bytes::{BufMut, BytesMut};

use super::{Addresses, Error, Pair, Parsed, pair};

/// First bytes of a header.
pub(super) const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Length in bytes of the signature, version and command, family, and length.
const HEAD: usize = 16;
/// Maximum length in bytes of addresses and TLVs; a header with more is rejected. The format allows 65535; headers
/// seen in practice, including those with the names of a client certificate, stay below 1 KiB.
const MAX_BODY: usize = 4096;
/// TLV that holds the checksum of the header.
const TLV_CRC32C: u8 = 0x03;

/// Appends a version 2 header. If the addresses are of different families, both are written as IPv6.
pub fn encode(addresses: Option<&Addresses>, out: &mut BytesMut) {
    out.put_slice(SIGNATURE);
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

/// Parses a header from bytes that begin like one.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Error> {
    let Some(head) = bytes.first_chunk::<HEAD>() else {
        return match bytes.get(SIGNATURE.len()) {
            Some(byte) => command(*byte).map(|_| Parsed::Incomplete),
            None => Ok(Parsed::Incomplete),
        };
    };
    let [.., version_command, family, len_high, len_low] = *head;
    let command = command(version_command)?;
    let len = HEAD + usize::from(u16::from_be_bytes([len_high, len_low]));
    if len > HEAD + MAX_BODY {
        return Err(Error::Malformed("version 2 header longer than 4096 bytes"));
    }
    let Some(header) = bytes.get(..len) else {
        return Ok(Parsed::Incomplete);
    };
    let addresses = match command {
        // The sender's own connection (such as a health check): the rest is skipped.
        Command::Local => None,
        Command::Proxy => parse_body(family, header)?,
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

/// Parses addresses and TLVs of a complete `header`.
fn parse_body(family: u8, header: &[u8]) -> Result<Option<Addresses>, Error> {
    const SHORT: Error = Error::Malformed("version 2 header too short for its addresses");
    let body = &header[HEAD..];
    let (addresses, tlvs) = match (family >> 4, family & 0xf) {
        (0..=3, 3..) | (4.., _) => {
            return Err(Error::Malformed("version 2 address family or transport"));
        }
        // Unspecified family: the boundary between addresses and TLVs is unknown.
        (0, _) | (_, 0) => return Ok(None),
        (1, _) => {
            let (block, tlvs) = body.split_first_chunk::<12>().ok_or(SHORT)?;
            (Some(inet(block)), tlvs)
        }
        (2, _) => {
            let (block, tlvs) = body.split_first_chunk::<36>().ok_or(SHORT)?;
            (Some(inet6(block)), tlvs)
        }
        // A Unix socket has no address that the proxy could use.
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

/// Splits off an IPv6 address; IPv4-mapped becomes IPv4.
fn split_ip(block: &[u8]) -> (IpAddr, &[u8]) {
    let (ip, rest) = block.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
    (IpAddr::from(*ip).to_canonical(), rest)
}

/// Checks the TLVs from `at` to the end of the header, and verifies the header's checksum if there is one.
fn check_tlvs(header: &[u8], mut at: usize) -> Result<(), Error> {
    let mut checked = false;
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
            if replace(&mut checked, true) {
                return Err(Error::Malformed("version 2 header has two checksums"));
            }
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

/// Computes the CRC-32C of the concatenated parts, bit by bit, because headers are short and rarely have a checksum.
pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    !parts.iter().copied().flatten().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (POLYNOMIAL * (crc & 1))
        })
    })
}
