//! Destinations whose server sends first, such as MySQL's or SMTP's.
//!
//! Only the first connection to such a destination waits for `detection_timeout`. If the server sends something
//! before the client does, the destination is remembered, and later connections to it are forwarded as bytes
//! immediately. A remembered destination whose client sends first is forgotten again.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use hashbrown::HashMap;
use maglor_balance::Time;
use tokio::io::AsyncReadExt as _;

use super::{Detected, http2_preface};
use crate::net::io::{Io, Stream};

/// Maximum number of destinations that a worker remembers; the least recently used one is replaced.
const MOST: usize = 1024;
/// Nanoseconds after which an unused destination is forgotten, because its address may then belong to another server.
const REMEMBERED_NANOS: u64 = 600 * 1_000_000_000;
/// Number of bytes that distinguish a greeting from a response. The header of an HTTP/2 frame is the longest prefix
/// that is compared.
const ENOUGH: usize = 9;
/// Type of a SETTINGS frame (RFC 9113, section 6.5).
const SETTINGS: u8 = 4;

/// The side of a connection that sends first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum First {
    /// The client.
    Client,
    /// The server, as its protocol requires.
    Server,
}

/// Destinations whose server sends first, and when they were last used.
#[derive(Debug, Default)]
pub(crate) struct ServerFirst(RefCell<HashMap<SocketAddr, Time>>);

impl ServerFirst {
    /// Returns whether the server at `destination` has recently sent first.
    pub(crate) fn contains(&self, destination: SocketAddr, now: Time) -> bool {
        let mut known = self.0.borrow_mut();
        let Some(used) = known.get_mut(&destination) else {
            return false;
        };
        let age = now.as_nanos().saturating_sub(used.as_nanos());
        *used = now;
        age < REMEMBERED_NANOS
    }

    /// Records that the server at `destination` has sent first.
    pub(crate) fn learn(&self, destination: SocketAddr, now: Time) {
        let mut known = self.0.borrow_mut();
        if known.len() >= MOST && !known.contains_key(&destination) {
            let oldest = known.iter().min_by_key(|(_, used)| **used);
            if let Some(oldest) = oldest.map(|(destination, _)| *destination) {
                known.remove(&oldest);
            }
        }
        known.insert(destination, now);
    }

    /// Records that the client of `destination` has sent first.
    pub(crate) fn forget(&self, destination: SocketAddr) {
        self.0.borrow_mut().remove(&destination);
    }
}

/// Waits until one side sends data or closes, and returns this side; `None` for a server whose bytes do not prove
/// that it always sends first. Data that was read becomes the stream's prefix.
///
/// # Errors
/// If a connection fails.
pub(crate) async fn first_to_speak(
    client: &mut Stream,
    server: &mut Stream,
) -> io::Result<Option<First>> {
    tokio::select! {
        biased;
        // If both have sent, the client may already have responded to a greeting.
        first = beginning(server) => Ok(is_greeting(&first?).then_some(First::Server)),
        first = beginning(client) => first.map(|_| Some(First::Client)),
    }
}

/// Returns the first bytes of a stream, which are empty at its end. If the future is dropped, no bytes are lost.
async fn beginning(stream: &mut Stream) -> io::Result<Bytes> {
    if !stream.prefix.is_empty() {
        return Ok(stream.prefix.clone());
    }
    if let Io::Tcp(tcp) = &stream.io {
        let mut first = [0; ENOUGH];
        let n = tcp.peek(&mut first).await?;
        return Ok(Bytes::copy_from_slice(&first[..n]));
    }
    let mut read = BytesMut::new();
    stream.io.read_buf(&mut read).await?;
    stream.prefix = read.freeze();
    Ok(stream.prefix.clone())
}

/// Returns whether a server that begins with these bytes sends first by its protocol. HTTP/1 servers send 408 to idle
/// clients, TLS servers an alert, and HTTP/2 servers may send SETTINGS immediately.
fn is_greeting(bytes: &[u8]) -> bool {
    let frame = |bytes: &[u8]| bytes[3] == SETTINGS && bytes[5..ENOUGH] == [0; 4];
    let record = |bytes: &[u8]| (0x14..=0x17).contains(&bytes[0]) && bytes[1] == 3;
    bytes.len() >= ENOUGH
        && !bytes.starts_with(b"HTTP/")
        && !record(bytes)
        && !frame(bytes)
        && http2_preface(bytes) != Detected::Yes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn destination(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn greetings_are_distinguished_from_answers() {
        for greeting in [
            &b"220 mail.example.com ESMTP\r\n"[..],
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"\x4a\0\0\0\x0a8.0.36\0",
            b"RFB 003.008\n",
            b"+OK POP3 ready\r\n",
        ] {
            assert!(is_greeting(greeting), "{greeting:?}");
        }
        for answer in [
            &b"HTTP/1.1 408 Request Timeout\r\n"[..],
            b"HTTP/1.0 400 Bad Request\r\n",
            b"\0\0\x12\x04\0\0\0\0\0\0\x03",
            b"\0\0\0\x04\0\0\0\0\0",
            b"\x15\x03\x03\0\x02\x02\x28\0\0",
            b"220",
            b"",
        ] {
            assert!(!is_greeting(answer), "{answer:?}");
        }
    }

    #[test]
    fn destinations_are_remembered_while_they_are_used() {
        let known = ServerFirst::default();
        known.learn(destination(1), at(0));
        assert!(!known.contains(destination(2), at(0)));
        assert!(known.contains(destination(1), at(599)));
        assert!(known.contains(destination(1), at(1198)));
        assert!(!known.contains(destination(1), at(1798)));
        known.learn(destination(1), at(1800));
        known.forget(destination(1));
        assert!(!known.contains(destination(1), at(1800)));
    }

    #[test]
    fn the_least_recently_used_makes_room() {
        let known = ServerFirst::default();
        for port in 1..=MOST as u16 {
            known.learn(destination(port), Time::from_nanos(port.into()));
        }
        assert!(known.contains(destination(1), at(1)));
        known.learn(destination(9999), at(1));
        assert!(known.contains(destination(1), at(1)));
        assert!(!known.contains(destination(2), at(1)));
        assert_eq!(known.0.borrow().len(), MOST);
    }
}
