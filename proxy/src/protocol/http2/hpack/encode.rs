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

/// Appends a field; its name is converted to lower case.
pub(in crate::protocol::http2) fn field(
    known: Known,
    name: &[u8],
    value: &[u8],
    out: &mut BytesMut,
) {
    let form = match known {
        Known::SetCookie => NEVER,
        _ => LITERAL,
    };
    match number(known, name) {
        Some(number) => integer(form, 4, number, out),
        None => {
            out.extend_from_slice(&[form]);
            integer(0, 7, name.len(), out);
            let start = out.len();
            out.extend_from_slice(name);
            out[start..].make_ascii_lowercase();
        }
    }
    string(value, out);
}

/// Returns the index of a name in the static table.
fn number(known: Known, name: &[u8]) -> Option<usize> {
    Some(match known {
        Known::ContentLength => 28,
        Known::ContentType => 31,
        Known::Date => 33,
        Known::Location => 46,
        Known::RetryAfter => 53,
        Known::Server => 54,
        Known::SetCookie => 55,
        Known::Other => match name {
            b"accept-ranges" => 18,
            b"age" => 21,
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
    integer(0, 7, text.len(), out);
    out.extend_from_slice(text);
}

/// Appends a number that begins in the lower bits of the byte `form` (section 5.1).
fn integer(form: u8, prefix: u32, number: usize, out: &mut BytesMut) {
    let most = (1 << prefix) - 1;
    if number < most {
        // The value fits into a byte.
        out.extend_from_slice(&[form | number as u8]);
        return;
    }
    out.extend_from_slice(&[form | most as u8]);
    let mut rest = number - most;
    while rest >= 0x80 {
        out.extend_from_slice(&[rest as u8 | 0x80]);
        rest >>= 7;
    }
    out.extend_from_slice(&[rest as u8]);
}
