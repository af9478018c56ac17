//! Detects the protocol of a connection from its first bytes, without consuming them.
//!
//! Bytes are read into a buffer that is passed to the next layer. The parsers do no I/O, and the caller sets
//! deadlines. [`ChainSelector`] chooses the filter chain of a connection.

use std::io;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

pub use self::client_hello::ClientHelloParser;
pub(crate) use self::protocol::detect;
pub use self::protocol::{Protocol, protocol};
pub(crate) use self::select::ChainSelector;
pub(crate) use self::server_first::{First, ServerFirst, first_to_speak};

mod client_hello;
mod protocol;
mod select;
mod server_first;
#[cfg(test)]
mod tests;

/// Maximum length of a ClientHello in bytes: one record of the largest size with its header, and some more in case it
/// is split into several.
const MAX_CLIENT_HELLO: usize = 18 * 1024;
/// Initial capacity of the buffer for a ClientHello in bytes. Typical ones have 0.2 to 1.8 KiB.
const CLIENT_HELLO: usize = 2 * 1024;
/// Record type of a handshake, and the major version that SSL 3 and all versions of TLS share.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];
/// The first bytes of an HTTP/2 client.
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Result of comparing bytes with a protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Detected {
    /// There are too few bytes to decide.
    More,
    /// The bytes do not match the protocol.
    No,
    /// The bytes match the protocol.
    Yes,
}

/// Properties of a ClientHello by which filter chains are selected and clients refused.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClientHello {
    /// Server name (SNI) in lower case; `None` if the client sends none.
    pub server_name: Option<String>,
    /// ALPN protocols that the client offers, the preferred one first.
    pub alpn: Vec<Vec<u8>>,
    /// Whether the client signals that it supports TLS 1.3 but offers less (RFC 7507), which an attacker in between
    /// may have caused.
    pub is_fallback: bool,
}

/// Error in reading a ClientHello.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer closed before its first message was complete.
    #[error("connection closed before the end of the TLS ClientHello")]
    Closed,
    /// The socket failed.
    #[error("cannot read the TLS ClientHello: {0}")]
    Io(#[from] io::Error),
    /// The message begins as TLS but is not a ClientHello.
    #[error("malformed TLS ClientHello: {0}")]
    Malformed(&'static str),
    /// The message is longer than any reasonable ClientHello.
    #[error("TLS ClientHello longer than {MAX_CLIENT_HELLO} bytes")]
    TooLong,
}

/// Returns whether `bytes` begin with the preface of HTTP/2.
pub fn http2_preface(bytes: &[u8]) -> Detected {
    begins_with(bytes, HTTP2_PREFACE)
}

/// Returns whether `bytes` begin with a line of a protocol other than HTTP, such as `HELO a SMTP`. Returns false
/// while the line is incomplete, and for a line that may be HTTP/0.9.
pub(crate) fn other_protocol(bytes: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b'\n', bytes) else {
        return false;
    };
    let mut words = bytes[..end].trim_ascii_end().split(|&byte| byte == b' ');
    let Some(version) = words.next_back() else {
        return false;
    };
    let is_http = version.len() >= 5 && version[..5].eq_ignore_ascii_case(b"HTTP/");
    words.count() >= 2 && !is_http
}

/// Returns whether `bytes` begin as a TLS handshake.
pub fn tls(bytes: &[u8]) -> Detected {
    begins_with(bytes, &TLS_HANDSHAKE)
}

fn begins_with(bytes: &[u8], prefix: &[u8]) -> Detected {
    let n = bytes.len().min(prefix.len());
    match bytes[..n] == prefix[..n] {
        false => Detected::No,
        true if n < prefix.len() => Detected::More,
        true => Detected::Yes,
    }
}

/// Reads the ClientHello at the beginning of a connection; `None` if the connection does not use TLS.
///
/// `buf` may hold bytes already read. On return it holds all that was read, including the ClientHello; dropping
/// the future keeps them too. The call does not return while a client waits for the server to send first.
///
/// # Errors
/// If the connection ends before its first message is complete, or if the message begins as TLS and is malformed.
pub(crate) async fn read_client_hello(
    tcp: &mut TcpStream,
    buf: &mut BytesMut,
) -> Result<Option<ClientHello>, Error> {
    let mut parser = ClientHelloParser::default();
    let mut parsed = 0;
    if buf.is_empty() {
        buf.reserve(CLIENT_HELLO);
    }
    loop {
        match tls(buf) {
            Detected::More => {}
            Detected::No => return Ok(None),
            Detected::Yes => {
                if let Some(hello) = parser.push(&buf[parsed..])? {
                    return Ok(Some(hello));
                }
                parsed = buf.len();
            }
        }
        if tcp.read_buf(buf).await? == 0 {
            return Err(Error::Closed);
        }
    }
}
