//! Parser of a ClientHello: its server name and protocols (RFC 8446 §4.1.2, RFC 6066 §3, RFC 7301 §3.1).
//!
//! The parser of rustls is not used, because the message may be for another server: a client with versions, ciphers
//! or extensions that rustls would reject is forwarded nevertheless. If the proxy terminates TLS, rustls parses the
//! message again.

use std::net::IpAddr;

use super::{ClientHello, Error, MAX_CLIENT_HELLO, TLS_HANDSHAKE};

/// Length of a record's header, in bytes.
const HEADER: usize = 5;
/// Number of bytes before the body of a handshake message: its type and length.
const MESSAGE_HEADER: usize = 4;
/// Handshake type of a ClientHello.
const CLIENT_HELLO: u8 = 1;
/// Extension types, and the type of a name that is a host name.
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;
const HOST_NAME: u8 = 0;
/// Cipher suite by which a client signals that it supports more than it offers (RFC 7507).
const FALLBACK: [u8; 2] = [0x56, 0x00];
const TLS13: [u8; 2] = [3, 4];

/// Parses a ClientHello from pieces, without I/O.
#[derive(Debug, Default)]
pub struct ClientHelloParser {
    taken: usize,
    /// The received part of a record's header.
    header: Vec<u8>,
    /// Number of bytes of the current record that are still missing.
    left: usize,
    /// The payloads of the records received so far.
    message: Vec<u8>,
}

impl ClientHelloParser {
    /// Adds bytes; returns the ClientHello when it is complete. Bytes after it are ignored.
    ///
    /// # Errors
    /// If the bytes are not the beginning of a ClientHello, or if there are too many.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<Option<ClientHello>, Error> {
        while !bytes.is_empty() {
            let before = bytes.len();
            let whole = match self.left {
                0 => self.begin_record(&mut bytes)?,
                _ => self.extend(&mut bytes)?,
            };
            self.taken += before - bytes.len();
            if whole {
                let body = &self.message[MESSAGE_HEADER..];
                return parse_client_hello(body).map(Some);
            }
            if self.taken > MAX_CLIENT_HELLO {
                return Err(Error::TooLong);
            }
        }
        Ok(None)
    }

    /// Consumes bytes of a record's header. A message never ends in a header.
    fn begin_record(&mut self, bytes: &mut &[u8]) -> Result<bool, Error> {
        self.header.extend(take(bytes, HEADER - self.header.len()));
        let [kind, major, _, high, low] = self.header[..] else {
            return Ok(false);
        };
        if [kind, major] != TLS_HANDSHAKE {
            return Err(Error::Malformed("another record before its end"));
        }
        self.left = usize::from(u16::from_be_bytes([high, low]));
        self.header.clear();
        Ok(false)
    }

    /// Consumes bytes of the message; returns whether it is complete.
    fn extend(&mut self, bytes: &mut &[u8]) -> Result<bool, Error> {
        let part = take(bytes, self.left);
        self.left -= part.len();
        self.message.extend(part);
        let Some([kind, length @ ..]) = self.message.first_chunk::<MESSAGE_HEADER>() else {
            return Ok(false);
        };
        if *kind != CLIENT_HELLO {
            return Err(Error::Malformed("another message"));
        }
        let length = length.iter().fold(0, |sum, b| sum << 8 | usize::from(*b));
        let whole = MESSAGE_HEADER + length;
        if whole > MAX_CLIENT_HELLO {
            return Err(Error::TooLong);
        }
        self.message.truncate(whole);
        Ok(self.message.len() == whole)
    }
}

/// Removes up to `n` bytes from the front and returns them.
fn take<'a>(bytes: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(n.min(bytes.len()));
    *bytes = rest;
    taken
}

/// Parses the body of the message.
fn parse_client_hello(body: &[u8]) -> Result<ClientHello, Error> {
    let cut = Error::Malformed("a length does not fit");
    let (suites, extensions) = Reader(body).suites_and_extensions().ok_or(cut)?;
    let (mut name, mut alpn, mut versions) = (None, None, None);
    let mut rest = Reader(extensions);
    while !rest.0.is_empty() {
        let mut extension = || Some((rest.number(2)?, rest.vector(2)?));
        let cut = || Error::Malformed("an extension is cut off");
        let (kind, value) = extension().ok_or_else(cut)?;
        // If an extension is sent twice, the server could use one and this proxy the other.
        let twice = match u16::try_from(kind) {
            Ok(SERVER_NAME) => name.replace(server_name(value).ok_or_else(cut)?).is_some(),
            Ok(ALPN) => alpn.replace(protocols(value).ok_or_else(cut)?).is_some(),
            Ok(SUPPORTED_VERSIONS) => versions.replace(value).is_some(),
            _ => false,
        };
        if twice {
            return Err(Error::Malformed("an extension stands there twice"));
        }
    }
    let has = |list: &[u8], item: [u8; 2]| list.as_chunks().0.contains(&item);
    let offers_tls13 = versions.is_some_and(|list| has(list.get(1..).unwrap_or_default(), TLS13));
    Ok(ClientHello {
        server_name: name.flatten(),
        alpn: alpn.unwrap_or_default(),
        is_fallback: has(suites, FALLBACK) && !offers_tls13,
    })
}

/// Returns the requested host in lower case. IP addresses are not allowed in this extension and are ignored, as is
/// any text that is not a valid host name.
fn server_name(value: &[u8]) -> Option<Option<String>> {
    let mut whole = Reader(value);
    let mut names = Reader(whole.vector(2)?);
    let mut host = None;
    while !names.0.is_empty() {
        let (kind, name) = (names.number(1)?, names.vector(2)?);
        // If there are two names, the server could use the other one (RFC 6066 §3).
        if kind == usize::from(HOST_NAME) && host.replace(name).is_some() {
            return None;
        }
    }
    let host = host.and_then(|name| str::from_utf8(name).ok());
    let host = host.filter(|name| !name.is_empty() && name.is_ascii());
    let host = host.filter(|name| name.parse::<IpAddr>().is_err());
    whole
        .0
        .is_empty()
        .then(|| host.map(str::to_ascii_lowercase))
}

/// Returns the protocols of ALPN, in the client's order.
fn protocols(value: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut names = Reader(Reader(value).vector(2)?);
    let mut found = Vec::new();
    while !names.0.is_empty() {
        found.push(names.vector(1)?.to_vec());
    }
    Some(found)
}

/// Reader of TLS numbers and vectors (RFC 8446 §3).
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a number of `width` bytes, at most two.
    fn number(&mut self, width: usize) -> Option<usize> {
        let bytes = self.bytes(width)?.iter();
        Some(bytes.fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    }

    /// Reads bytes that are prefixed with their length, which has `width` bytes.
    fn vector(&mut self, width: usize) -> Option<&'a [u8]> {
        let length = self.number(width)?;
        self.bytes(length)
    }

    /// Returns the cipher suites and extensions of a ClientHello's body. Before TLS 1.2 extensions may be missing.
    fn suites_and_extensions(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        const VERSION_AND_RANDOM: usize = 2 + 32;
        self.bytes(VERSION_AND_RANDOM)?;
        self.vector(1)?; // session
        let suites = self.vector(2)?;
        self.vector(1)?; // compression
        let extensions = match self.0.is_empty() {
            true => &[],
            false => self.vector(2)?,
        };
        Some((suites, extensions))
    }
}
