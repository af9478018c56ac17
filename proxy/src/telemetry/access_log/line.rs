//! Writes the lines of the access log directly into the buffer, without copying values of fields first.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use maglor_config::{AccessLogField, AccessLogKey, AccessLogPart};

use maglor_identity::SpiffeId;

use crate::telemetry::record::{Entry, direction_name, millis, timestamp};

/// The value of a field.
enum Value<'a> {
    /// Bytes from a client.
    Bytes(&'a [u8]),
    None,
    /// A number, formatted as in JSON.
    Number(serde_json::Number),
    /// A text of the proxy itself, formatted while it is written.
    Text(fmt::Arguments<'a>),
}

fn bytes_of(text: Option<&str>) -> Option<&[u8]> {
    text.map(str::as_bytes)
}

/// Calls a function with the value of a field.
fn with_value(entry: &Entry<'_>, field: AccessLogField, write: impl FnOnce(Value<'_>)) {
    let upstream = entry.upstream;
    let bytes = match field {
        AccessLogField::Client => return write(Value::Text(format_args!("{}", entry.client))),
        AccessLogField::DurationMs => {
            let number = serde_json::Number::from_f64(millis(entry.took));
            return write(number.map_or(Value::None, Value::Number));
        }
        AccessLogField::ResponseMs => {
            let number = entry.responded.map(millis);
            let number = number.and_then(serde_json::Number::from_f64);
            return write(number.map_or(Value::None, Value::Number));
        }
        AccessLogField::Protocol => return write(Value::Text(format_args!("{:?}", entry.version))),
        AccessLogField::ResponseBytes => return write(Value::Number(entry.response_bytes.into())),
        AccessLogField::Status => return write(Value::Number(entry.status.as_u16().into())),
        AccessLogField::Time => return write(Value::Text(format_args!("{}", timestamp()))),
        AccessLogField::Attempts => return write(Value::Number(entry.attempts.into())),
        AccessLogField::Upstream => {
            return match upstream {
                Some((address, _)) => write(Value::Text(format_args!("{address}"))),
                None => write(Value::None),
            };
        }
        AccessLogField::TraceId => {
            return match entry.trace_id {
                Some(id) => write(Value::Text(format_args!("{id}"))),
                None => write(Value::None),
            };
        }
        AccessLogField::Cluster => bytes_of(upstream.map(|(_, cluster)| &**cluster)),
        AccessLogField::Direction => bytes_of(Some(direction_name(entry.direction))),
        AccessLogField::Error => bytes_of(entry.error),
        AccessLogField::Flag => bytes_of(Some(entry.flag.as_str())),
        AccessLogField::ForwardedFor => entry.forwarded_for,
        AccessLogField::Host => entry.host,
        AccessLogField::Listener => bytes_of(Some(entry.listener)),
        AccessLogField::Method => bytes_of(Some(entry.method.as_str())),
        AccessLogField::Peer => bytes_of(entry.peer.map(SpiffeId::as_str)),
        AccessLogField::Referer => entry.referer,
        AccessLogField::RequestId => entry.request_id,
        AccessLogField::Target => Some(entry.target),
        AccessLogField::UserAgent => entry.user_agent,
    };
    write(bytes.map_or(Value::None, Value::Bytes));
}

/// Writes a JSON object that contains the given fields, in their order.
pub(super) fn json(out: &mut Vec<u8>, keys: &[AccessLogKey], entry: &Entry<'_>) {
    for (at, key) in keys.iter().enumerate() {
        out.push(if at == 0 { b'{' } else { b',' });
        out.extend_from_slice(key.json.as_bytes());
        with_value(entry, key.field, |value| json_value(out, value));
    }
    out.extend_from_slice(b"}\n");
}

// Writing to memory does not fail in this module.
fn json_value(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::None => out.extend_from_slice(b"null"),
        Value::Number(number) => drop(write!(out, "{number}")),
        Value::Text(text) => {
            out.push(b'"');
            let _ = Json(out).write_fmt(text);
            out.push(b'"');
        }
        Value::Bytes(bytes) => {
            out.push(b'"');
            for chunk in bytes.utf8_chunks() {
                let _ = Json(out).write_str(chunk.valid());
                if !chunk.invalid().is_empty() {
                    out.extend_from_slice("\u{fffd}".as_bytes());
                }
            }
            out.push(b'"');
        }
    }
}

/// Escapes the content of a JSON string (RFC 8259, section 7).
struct Json<'a>(&'a mut Vec<u8>);

impl fmt::Write for Json<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => self.0.extend_from_slice(&[b'\\', byte]),
                b'\n' => self.0.extend_from_slice(b"\\n"),
                b'\r' => self.0.extend_from_slice(b"\\r"),
                b'\t' => self.0.extend_from_slice(b"\\t"),
                0..0x20 => drop(write!(self.0, "\\u{byte:04x}")),
                byte => self.0.push(byte),
            }
        }
        Ok(())
    }
}

/// Writes a text with fields inserted; bytes sent by a client cannot end the line.
pub(super) fn template(out: &mut Vec<u8>, parts: &[AccessLogPart], entry: &Entry<'_>) {
    for part in parts {
        match part {
            AccessLogPart::Field(field) => {
                with_value(entry, *field, |value| text_value(out, value));
            }
            AccessLogPart::Text(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
    out.push(b'\n');
}

fn text_value(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::None => out.push(b'-'),
        Value::Number(number) => drop(write!(out, "{number}")),
        Value::Text(text) => drop(out.write_fmt(text)),
        Value::Bytes(bytes) => drop(write!(out, "{}", bytes.escape_ascii())),
    }
}
