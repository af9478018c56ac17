//! Encodes fields as field blocks (RFC 7541, section 6.2.2).
//!
//! Names that are common in responses are encoded as indices of the static table; everything else is written
//! literally. A dynamic table would save bytes but need a lookup for each field, and the Huffman code a shift for
//! each character.

use bytes::BytesMut;
use http::StatusCode;

use crate::protocol::fields::Known;

/// Representation of a literal that is not added to a table.
const LITERAL: u8 = 0x00;
/// Representation of a literal that no intermediary may add to a table either (section 7.1.3).
const NEVER: u8 = 0x10;
/// Length in bytes below which a cookie could be guessed, if an intermediary compressed it together with other data.
const SHORT_COOKIE: usize = 20;
/// Length from which a string's length needs more than one byte.
const MOST: usize = 0x7f;
/// Number of bytes that the form of a field and two long lengths have at most.
const LENGTHS: usize = 12;

/// Appends `:status`.
pub(in crate::protocol::http2) fn status(status: StatusCode, out: &mut BytesMut) {
    let number = match status.as_u16() {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            out.extend_from_slice(&[LITERAL | 8]);
            string(status.as_str().as_bytes(), out);
            return;
        }
    };
    out.extend_from_slice(&[0x80 | number]);
}

/// The pseudo-header fields of a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::protocol::http2) struct Target<'a> {
    pub(in crate::protocol::http2) method: &'a [u8],
    pub(in crate::protocol::http2) https: bool,
    pub(in crate::protocol::http2) authority: &'a [u8],
    pub(in crate::protocol::http2) path: &'a [u8],
}

/// Appends `:method`, `:scheme`, `:authority` and `:path`.
pub(in crate::protocol::http2) fn request(target: Target<'_>, out: &mut BytesMut) {
    match target.method {
        b"GET" => out.extend_from_slice(&[0x80 | 2]),
        b"POST" => out.extend_from_slice(&[0x80 | 3]),
        method => {
            out.extend_from_slice(&[LITERAL | 2]);
            string(method, out);
        }
    }
    out.extend_from_slice(&[0x80 | if target.https { 7 } else { 6 }]);
    out.extend_from_slice(&[LITERAL | 1]);
    string(target.authority, out);
    if target.path == b"/" {
        return out.extend_from_slice(&[0x80 | 4]);
    }
    out.extend_from_slice(&[LITERAL | 4]);
    string(target.path, out);
}

/// Appends a field; its name is converted to lower case.
pub(in crate::protocol::http2) fn field(
    known: Known,
    name: &[u8],
    value: &[u8],
    out: &mut BytesMut,
) {
    let form = match known {
        Known::SetCookie => NEVER,
        // Long cookies are hard to guess, and a table saves most of their bytes.
        Known::Cookie if value.len() < SHORT_COOKIE => NEVER,
        Known::Other if name.eq_ignore_ascii_case(b"authorization") => NEVER,
        _ => LITERAL,
    };
    out.reserve(name.len() + value.len() + LENGTHS);
    match number(known, name) {
        Some(number @ ..15) => out.extend_from_slice(&[form | number]),
        // Indices of the static table are at most 61, so that one further byte suffices.
        Some(number) => out.extend_from_slice(&[form | 15, number - 15]),
        None => {
            out.extend_from_slice(&[form]);
            length(name.len(), out);
            let start = out.len();
            out.extend_from_slice(name);
            out[start..].make_ascii_lowercase();
        }
    }
    string(value, out);
}

/// Returns the index of a name in the static table.
fn number(known: Known, name: &[u8]) -> Option<u8> {
    Some(match known {
        Known::ContentLength => 28,
        Known::ContentType => 31,
        Known::Cookie => 32,
        Known::Date => 33,
        Known::Location => 46,
        Known::RetryAfter => 53,
        Known::Server => 54,
        Known::SetCookie => 55,
        Known::UserAgent => 58,
        Known::Other => match name {
            b"accept" => 19,
            b"accept-encoding" => 16,
            b"accept-language" => 17,
            b"accept-ranges" => 18,
            b"age" => 21,
            b"authorization" => 23,
            b"cache-control" => 24,
            b"content-encoding" => 26,
            b"etag" => 34,
            b"expires" => 36,
            b"last-modified" => 44,
            b"vary" => 59,
            b"via" => 60,
            _ => return None,
        },
        _ => return None,
    })
}

fn string(text: &[u8], out: &mut BytesMut) {
    length(text.len(), out);
    out.extend_from_slice(text);
}

/// Appends the length of a string (section 5.1).
#[inline]
fn length(bytes: usize, out: &mut BytesMut) {
    // It fits into a byte.
    match bytes < MOST {
        true => out.extend_from_slice(&[bytes as u8]),
        false => long_length(bytes - MOST, out),
    }
}

#[cold]
fn long_length(mut rest: usize, out: &mut BytesMut) {
    out.extend_from_slice(&[MOST as u8]);
    while rest >= 0x80 {
        out.extend_from_slice(&[rest as u8 | 0x80]);
        rest >>= 7;
    }
    out.extend_from_slice(&[rest as u8]);
}
