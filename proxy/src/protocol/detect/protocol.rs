//! Distinguishes HTTP from other protocols by a connection's first bytes.
//!
//! A connection that is mistaken for HTTP gets a 400 response; HTTP that is not recognized only lacks routes and
//! metrics. Therefore ambiguous input is treated as bytes. A request line is recognized only with its version (RFC
//! 9112, section 3), since Redis and others have commands that begin like methods.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt as _;

use super::{Detected, http2_preface, tls};
use crate::net::io::Stream;
use crate::protocol::mesh_transport;

/// Length in bytes from which a request line is recognized without its version.
const LONG_LINE: usize = 8 * 1024;
/// Maximum length of a method; the longest registered one has 17 letters.
const MAX_METHOD: usize = 32;
/// Size of the first read in bytes, sufficient for most first requests.
const FIRST_READ: usize = 2048;

/// Protocol of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// Any other protocol.
    Bytes,
    /// HTTP/1.0 or HTTP/1.1.
    Http1,
    /// HTTP/2, by its preface.
    Http2,
    /// Requests of another mesh member, by ALPN (docs/transport.md).
    MeshTransport,
    /// Nothing was received in time: the server is expected to send first.
    Silent,
    /// TLS.
    Tls,
}

impl Protocol {
    /// All protocols, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::Bytes,
        Self::Http1,
        Self::Http2,
        Self::MeshTransport,
        Self::Silent,
        Self::Tls,
    ];

    /// Returns the name of the protocol in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::MeshTransport => "mux",
            Self::Silent => "silent",
            Self::Tls => "tls",
        }
    }

    /// Returns whether routes apply to the protocol.
    #[must_use]
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http1 | Self::Http2 | Self::MeshTransport)
    }
}

/// Returns the protocol with which the bytes begin; `None` if there are too few bytes to decide.
pub fn protocol(bytes: &[u8]) -> Option<Protocol> {
    let candidates = [
        (http2_preface(bytes), Protocol::Http2),
        (tls(bytes), Protocol::Tls),
        (http1(bytes), Protocol::Http1),
    ];
    let found = candidates.iter().find(|(is, _)| *is == Detected::Yes);
    match found {
        Some((_, protocol)) => Some(*protocol),
        None if candidates.iter().any(|(is, _)| *is == Detected::More) => None,
        None => Some(Protocol::Bytes),
    }
}

/// Returns whether bytes begin with an HTTP/1 request line. A CONNECT line does not count, since arbitrary bytes
/// follow it.
fn http1(bytes: &[u8]) -> Detected {
    // A recipient ignores empty lines before the first request (RFC 9112, section 2.2).
    let line = match bytes {
        [b'\r', b'\n', rest @ ..] => rest,
        [b'\r'] | [] => return Detected::More,
        _ => bytes,
    };
    let Some(space) = memchr::memchr(b' ', line) else {
        let method = line.len() <= MAX_METHOD && line.iter().all(|&byte| is_method(byte));
        return if method { Detected::More } else { Detected::No };
    };
    let (method, rest) = (&line[..space], &line[space + 1..]);
    if !(1..=MAX_METHOD).contains(&method.len()) || !method.iter().all(|&byte| is_method(byte)) {
        return Detected::No;
    }
    if method == b"CONNECT" {
        return Detected::No;
    }
    let end = rest
        .iter()
        .position(|&byte| byte == b' ' || !is_target(byte));
    match end {
        None if line.len() > LONG_LINE => Detected::Yes,
        None => Detected::More,
        Some(end) if end > 0 && rest[end] == b' ' => version(&rest[end + 1..]),
        Some(_) => Detected::No,
    }
}

/// Returns whether bytes begin with an HTTP/1 version.
fn version(bytes: &[u8]) -> Detected {
    let expected = b"HTTP/1.";
    let n = bytes.len().min(expected.len());
    match bytes[..n] == expected[..n] {
        false => Detected::No,
        true if n < expected.len() => Detected::More,
        true => Detected::Yes,
    }
}

/// Returns whether a byte may be part of a method. Registered methods consist of capital letters and hyphens;
/// connections with other methods are rare and treated as bytes.
fn is_method(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte == b'-'
}

/// Returns whether a byte may be part of a request target: visible characters, and non-ASCII bytes that clients
/// should have encoded.
fn is_target(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f
}

/// Reads from a connection until its protocol is known, but no longer than `limit`. All bytes read become the
/// stream's prefix.
///
/// # Errors
/// If the socket fails. It is not an error if the client has finished sending.
pub(crate) async fn detect(stream: &mut Stream, limit: Duration) -> io::Result<Protocol> {
    if let Some(alpn) = stream.io.alpn() {
        match alpn {
            b"h2" => return Ok(Protocol::Http2),
            mesh_transport::ALPN => return Ok(Protocol::MeshTransport),
            b"http/1.1" | b"http/1.0" => return Ok(Protocol::Http1),
            _ => {}
        }
    }
    let mut seen = BytesMut::from(std::mem::take(&mut stream.prefix));
    let read = tokio::time::timeout(limit, read_until_clear(stream, &mut seen)).await;
    let silent = seen.is_empty();
    stream.prefix = seen.freeze();
    match read {
        Ok(protocol) => protocol,
        Err(_) if silent => Ok(Protocol::Silent),
        Err(_) => Ok(Protocol::Bytes),
    }
}

async fn read_until_clear(stream: &mut Stream, seen: &mut BytesMut) -> io::Result<Protocol> {
    loop {
        if let Some(protocol) = protocol(seen) {
            return Ok(protocol);
        }
        if !stream.io.is_tls() {
            // No buffer is allocated until the client sends data.
            stream.io.tcp().readable().await?;
        }
        seen.reserve(FIRST_READ);
        if stream.io.read_buf(seen).await? == 0 {
            return Ok(Protocol::Bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: Option<Protocol>) {
        let text = String::from_utf8_lossy(bytes);
        assert_eq!(protocol(bytes), expected, "{text:?}");
    }

    #[test]
    fn requests_are_http() {
        for line in [
            "GET / HTTP/1.1\r\n",
            "GET / HTTP/1.0\n",
            "\r\nPOST /a?b HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "GET http://a/b HTTP/1.1",
            "VERSION-CONTROL /x HTTP/1.",
            "GET /\u{e9} HTTP/1.1",
        ] {
            check(line.as_bytes(), Some(Protocol::Http1));
        }
        check(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0",
            Some(Protocol::Http2),
        );
        check(b"\x16\x03\x01\x02\0", Some(Protocol::Tls));
        let mut long = b"GET /".to_vec();
        long.resize(LONG_LINE + 1, b'a');
        check(&long, Some(Protocol::Http1));
    }

    #[test]
    fn everything_else_is_bytes() {
        for bytes in [
            "GET /\r\n",
            "GET  / HTTP/1.1",
            "GET key\r\n",
            "get / HTTP/1.1",
            "CONNECT a:443 HTTP/1.1\r\n",
            "GET / HTTP/2.0\r\n",
            "PRI * HTTP/2.0\r\n\r\nXX",
            "HELO mail.example.com\r\n",
            "EHLO a b HTTPX",
            "SSH-2.0-OpenSSH_9.2\r\n",
            "*1\r\n$4\r\nPING\r\n",
            "\u{3}\0\0\u{13}",
            "\0",
            " GET / HTTP/1.1",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG",
            "\rGET / HTTP/1.1",
        ] {
            check(bytes.as_bytes(), Some(Protocol::Bytes));
        }
    }

    /// The result for the beginning of some data is either the result for the whole data, or none.
    #[test]
    fn a_beginning_never_misleads() {
        for whole in [
            &b"DELETE /index.html HTTP/1.1\r\nhost: a\r\n\r\n"[..],
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"PROPFIND /index.html HTTP/1.1\r\n",
            b"\x16\x03\x01",
            b"\r\nGET / HTTP/1.1\r\n",
            b"PING\r\n",
        ] {
            let last = protocol(whole);
            assert!(last.is_some());
            for n in 0..whole.len() {
                let early = protocol(&whole[..n]);
                assert!(early.is_none() || early == last, "{n}: {early:?} {last:?}");
            }
        }
    }
}
