//! Frames of HTTP/2, written by hand.
//!
//! Each line of a case is a command:
//!
//! | command | frame |
//! | --- | --- |
//! | `headers STREAM FLAGS; name: value; …` | HEADERS with these fields, each a literal without indexing |
//! | `get STREAM FLAGS; name: value; …` | the same after `GET`, `http`, `/c` and the authority `a` |
//! | `post STREAM FLAGS; name: value; …` | the same with `POST` |
//! | `frame TYPE FLAGS STREAM TEXT` | any frame; numbers are hexadecimal, the text has the escapes of the tables |
//! | `raw TEXT` | these bytes |
//! | `bare` | nothing; the client's preface and SETTINGS are left out (only as the first command) |
//!
//! Flags of HEADERS: `e` ends the stream, `h` ends the head, `-` none. After the case, in the same
//! write, follows a good request on stream 101 (hexadecimal): it shows whether the connection still
//! serves.
//!
//! Expected outcomes; those of a stream refer to stream 1:
//!
//! | words | meaning |
//! | --- | --- |
//! | `ok: A` | the origin served it as this request (`METHOD host target bytes-of-body`); the connection serves |
//! | `400` or `400 431` | a response of the proxy with one of these; the connection serves |
//! | `reset 1` or `reset 1 5` | RST_STREAM with one of these codes; the connection serves |
//! | `goaway 1` or `goaway 1 9` | GOAWAY with one of these codes, and the end of the connection |
//! | `closed` | the end of the connection, with GOAWAY or without |
//! | `ignored` | nothing; the connection serves |

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::framed::{Framed, word};
use super::table::unescape;
use super::{Case, Recorder};
use crate::TIMEOUT;
use crate::raw::{RawConnection, RawHttp1};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FENCE: u32 = 0x101;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

/// Sends a case to `proxy`, and reads until nothing is received for `patience`, or the outcome is
/// certain.
///
/// # Panics
///
/// If there is no connection to the proxy, or the case is malformed.
#[must_use]
pub fn run(case: &Case, proxy: SocketAddr, origin: &Recorder, patience: Duration) -> Framed {
    let socket = TcpStream::connect_timeout(&proxy, TIMEOUT).expect("the proxy listens");
    let client = RawHttp1::try_over(socket).expect("a fresh socket");
    let mut client = client.into_connection();
    // A proxy that rejects early may have closed before all is written.
    let _ = client.send(bytes(case));
    let expects_end = case.expected.starts_with("goaway") || case.expected == "closed";
    Framed::observe(case, client, origin, patience, expects_end, read)
}

/// Reads a frame; `None` at the end of the connection.
fn read(seen: &mut Framed, client: &mut RawConnection) -> Option<()> {
    let head = client.read_exact(9).ok()?;
    let &[l0, l1, l2, kind, flags, s0, s1, s2, s3] = &head[..] else {
        return None;
    };
    let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
    let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
    let payload = client.read_exact(length).ok()?;
    match (kind, stream) {
        (SETTINGS, 0) if flags & ACK == 0 => {
            let _ = client.send(frame(SETTINGS, ACK, 0, b""));
        }
        (GOAWAY, _) => seen.goaway = word(&payload, 4),
        (RST_STREAM, 1) if seen.status.is_none() => seen.reset = word(&payload, 0),
        (HEADERS, 1) if seen.status.is_none_or(|status| status < 200) => {
            seen.status = Some(status(&payload));
        }
        (HEADERS, FENCE) => seen.serves = true,
        _ => {}
    }
    Some(())
}

/// Compares with the expected outcome.
///
/// # Errors
///
/// The difference.
pub fn check(case: &Case, seen: &Framed) -> Result<(), String> {
    seen.check(case, seen.none_arrived())
}

/// Returns all bytes that the client writes.
fn bytes(case: &Case) -> Vec<u8> {
    let mut bytes = Vec::new();
    if case.commands().next() != Some("bare") {
        bytes.extend_from_slice(PREFACE);
        bytes.extend_from_slice(&frame(SETTINGS, 0, 0, b""));
    }
    for command in case.commands() {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        match word {
            "headers" => bytes.extend(headers(rest, "")),
            "get" => bytes.extend(headers(rest, "GET")),
            "post" => bytes.extend(headers(rest, "POST")),
            "raw" => bytes.extend(unescape(rest)),
            "frame" => {
                let mut words = rest.splitn(4, ' ');
                let mut number = || {
                    let word = words.next().unwrap_or_default();
                    u32::from_str_radix(word, 16).expect("a hexadecimal number")
                };
                let (kind, flags, stream) = (number(), number(), number());
                let payload = unescape(words.next().unwrap_or_default());
                bytes.extend(frame(kind as u8, flags as u8, stream, &payload));
            }
            "bare" => {}
            _ => panic!("{}: no command \"{word}\"", case.name),
        }
    }
    let mut fence = Vec::new();
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "after"),
        (":path", "/after"),
    ] {
        literal(name.as_bytes(), value.as_bytes(), &mut fence);
    }
    bytes.extend(frame(HEADERS, 5, FENCE, &fence));
    bytes
}

/// Encodes `STREAM FLAGS; name: value; …` after the pseudo-header fields of a request with this
/// method.
fn headers(text: &str, method: &str) -> Vec<u8> {
    let mut parts = text.split("; ");
    let (stream, flags) = parts
        .next()
        .and_then(|head| head.split_once(' '))
        .expect("STREAM FLAGS");
    let stream = u32::from_str_radix(stream, 16).expect("a hexadecimal number");
    let flag = |name, bit| if flags.contains(name) { bit } else { 0 };
    let mut block = Vec::new();
    if !method.is_empty() {
        for (name, value) in [
            (":method", method),
            (":scheme", "http"),
            (":path", "/c"),
            (":authority", "a"),
        ] {
            literal(name.as_bytes(), value.as_bytes(), &mut block);
        }
    }
    for field in parts {
        // The first colon may be a pseudo-header field's.
        let from = usize::from(field.starts_with(':') && !field.starts_with(": "));
        let colon = from + field[from..].find(':').expect("name: value");
        let value = &field[colon + 1..];
        let value = value.strip_prefix(' ').unwrap_or(value);
        literal(&unescape(&field[..colon]), &unescape(value), &mut block);
    }
    frame(HEADERS, flag('e', 1) | flag('h', 4), stream, &block)
}

/// Appends a literal field without indexing, with a new name (RFC 7541, section 6.2.2).
fn literal(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    for text in [name, value] {
        match text.len() {
            length @ 0..127 => out.push(length as u8),
            length => {
                out.push(127);
                let mut rest = length - 127;
                while rest >= 128 {
                    out.push((rest % 128) as u8 | 128);
                    rest /= 128;
                }
                out.push(rest as u8);
            }
        }
        out.extend_from_slice(text);
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// Returns the status at the beginning of a field block; 0 if it is in a form that no server here
/// uses.
fn status(mut block: &[u8]) -> u16 {
    const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    while let [0x20..=0x3f, rest @ ..] = block {
        block = rest;
    }
    match block {
        [first @ 0x88..=0x8e, ..] => INDEXED[usize::from(first - 0x88)],
        // Its name is known; the value is text, or Huffman code.
        [0x08 | 0x18 | 0x48..=0x4e, 3, digits @ ..] => {
            let digits = digits
                .get(..3)
                .and_then(|digits| std::str::from_utf8(digits).ok());
            digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
        }
        [0x08 | 0x18 | 0x48..=0x4e, length @ 0x82..=0x83, code @ ..] => {
            let mut bits = code
                .iter()
                .take(usize::from(length & 0x7f))
                .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
            bits <<= 32 - 8 * u32::from(length & 0x7f);
            let mut number = 0;
            for _ in 0..3 {
                // 0 to 2 have five bits, the others six, from 011001 on.
                let five = bits >> 27;
                let (digit, used) = match five {
                    0..=2 => (five, 5),
                    _ => ((bits >> 26) - 0x19 + 3, 6),
                };
                number = number * 10 + digit as u16;
                bits <<= used;
            }
            number
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read_in_each_form() {
        assert_eq!(status(&[0x88]), 200);
        assert_eq!(status(&[0x3f, 0x20, 0x8c]), 400);
        assert_eq!(status(b"\x48\x03431"), 431);
        // 405 and 503 in Huffman code: 011010 00000 011011, 011011 00000 011001.
        assert_eq!(
            status(&[0x48, 0x83, 0b0110_1000, 0b0000_1101, 0b1111_1111]),
            405
        );
        assert_eq!(
            status(&[0x08, 0x83, 0b0110_1100, 0b0000_1100, 0b1111_1111]),
            503
        );
    }
}
