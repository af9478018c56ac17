//! Frames of the mesh transport (docs/transport.md), written by hand, from a workload of the mesh.
//!
//! Each line of a case is a command:
//!
//! | command | frame |
//! | --- | --- |
//! | `get STREAM FLAGS; name: value; …` | HEAD with `GET /c HTTP/1.1`, `host: a` and these fields |
//! | `post STREAM FLAGS; name: value; …` | the same with `POST` |
//! | `head STREAM FLAGS TEXT` | HEAD with this text |
//! | `frame KIND FLAGS STREAM TEXT` | any frame; numbers are hexadecimal, the text has the escapes of the tables |
//! | `raw TEXT` | these bytes |
//! | `times N COMMAND` | the command N times |
//! | `streams N COMMAND` | the command N times, with `#` for a stream number that increases from 1 |
//!
//! Flags of `get`, `post` and `head`: `e` ends the stream, `m` means that the text continues, `2`
//! that the request was HTTP/2, `-` none. After the case, in the same write, follows a good request
//! on a separate stream: it shows whether the connection still serves.
//!
//! Expected outcomes; those of a stream refer to stream 1:
//!
//! | words | meaning |
//! | --- | --- |
//! | `ok: A` | the origin served it as this request (`METHOD host target bytes-of-body`); the connection serves |
//! | `400` or `400 431` | a response of the proxy with one of these; the connection serves |
//! | `reset 3` or `reset 2 3` | RESET with one of these reasons; the connection serves |
//! | `goaway 3` or `goaway 3 5` | GOAWAY with one of these reasons, and the end of the connection |
//! | `ignored` | nothing; the connection serves |

use std::time::Duration;

use super::framed::{Framed, word};
use super::table::unescape;
use super::{Case, Recorder};
use crate::raw::RawConnection;

const FENCE: u32 = 0x0100_0000;
const HEAD: u8 = 1;
const RESET: u8 = 3;
const GOAWAY: u8 = 7;
const END: u8 = 1;
const MORE: u8 = 2;
const HTTP2: u8 = 4;

/// Sends a case over a member's connection, and reads until nothing is received for `patience`, or
/// the outcome is certain.
///
/// # Panics
///
/// If the case is malformed.
#[must_use]
pub fn run(
    case: &Case,
    mut client: RawConnection,
    origin: &Recorder,
    patience: Duration,
) -> Framed {
    // A proxy that rejects early may have closed before all is written.
    let _ = client.send(bytes(case));
    let expects_end = case.expected.starts_with("goaway");
    Framed::observe(case, client, origin, patience, expects_end, read)
}

/// Reads a frame; `None` at the end of the connection.
fn read(seen: &mut Framed, client: &mut RawConnection) -> Option<()> {
    let head = client.read_exact(8).ok()?;
    let &[l0, l1, kind, _, s0, s1, s2, s3] = &head[..] else {
        return None;
    };
    let stream = u32::from_be_bytes([s0, s1, s2, s3]);
    let payload = client
        .read_exact(u16::from_be_bytes([l0, l1]).into())
        .ok()?;
    match (kind, stream) {
        (GOAWAY, _) => seen.goaway = word(&payload, 4),
        (RESET, 1) if seen.status.is_none() => seen.reset = word(&payload, 0),
        (HEAD, 1) if seen.status.is_none_or(|status| status < 200) => {
            seen.status = Some(status(&payload));
        }
        (HEAD, FENCE) => seen.serves = status(&payload) == 200,
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
    seen.check(case, seen.closed && !seen.serves)
}

/// Returns all bytes that the client writes.
fn bytes(case: &Case) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in case.commands() {
        command(case, line, &mut bytes);
    }
    let fence = b"GET /after HTTP/1.1\r\nhost: after\r\n\r\n";
    bytes.extend(frame(HEAD, END, FENCE, fence));
    bytes
}

fn command(case: &Case, line: &str, bytes: &mut Vec<u8>) {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "get" => bytes.extend(request("GET", rest)),
        "post" => bytes.extend(request("POST", rest)),
        "head" => {
            let mut words = rest.splitn(3, ' ');
            let stream = number(words.next());
            let flags = flags(words.next().unwrap_or_default());
            let text = unescape(words.next().unwrap_or_default());
            bytes.extend(frame(HEAD, flags, stream, &text));
        }
        "frame" => {
            let mut words = rest.splitn(4, ' ');
            let mut byte = || number(words.next());
            let (kind, flags, stream) = (byte() as u8, byte() as u8, byte());
            let payload = unescape(words.next().unwrap_or_default());
            bytes.extend(frame(kind, flags, stream, &payload));
        }
        "raw" => bytes.extend(unescape(rest)),
        "times" | "streams" => {
            let (count, line) = rest.split_once(' ').expect("N COMMAND");
            for stream in 1..=count.parse::<u32>().expect("a number") {
                match word {
                    "times" => command(case, line, bytes),
                    _ => command(case, &line.replace('#', &format!("{stream:x}")), bytes),
                }
            }
        }
        _ => panic!("{}: no command \"{word}\"", case.name),
    }
}

/// Encodes `STREAM FLAGS; name: value; …`.
fn request(method: &str, text: &str) -> Vec<u8> {
    let mut parts = text.split("; ");
    let first = parts.next().unwrap_or_default();
    let (stream, letters) = first.split_once(' ').expect("STREAM FLAGS");
    let mut head = format!("{method} /c HTTP/1.1\r\nhost: a\r\n").into_bytes();
    for field in parts {
        head.extend(unescape(field));
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    frame(HEAD, flags(letters), number(Some(stream)), &head)
}

fn number(word: Option<&str>) -> u32 {
    u32::from_str_radix(word.unwrap_or_default(), 16).expect("a hexadecimal number")
}

fn flags(letters: &str) -> u8 {
    let flag = |letter, bit| if letters.contains(letter) { bit } else { 0 };
    flag('e', END) | flag('m', MORE) | flag('2', HTTP2)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a length of two bytes");
    let head = [
        &length.to_be_bytes()[..],
        &[kind, flags],
        &stream.to_be_bytes(),
    ]
    .concat();
    [&head, payload].concat()
}

/// Returns the status of a head in the text of HTTP/1.1; 0 if it is invalid.
fn status(head: &[u8]) -> u16 {
    let digits = head
        .get(9..12)
        .and_then(|digits| str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
