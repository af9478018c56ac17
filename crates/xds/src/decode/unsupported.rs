//! Rejects fields of Envoy that Maglor does not implement.
//!
//! The generated types contain only the fields that Maglor reads; `prost` drops all others. The tables of this module
//! list those of the others that would change the behaviour: which requests match, where they are sent, what is sent,
//! retried or answered, and after what time. Fields without such an effect (statistics, logs, tracing, sizes of
//! buffers) are in no table and are ignored, as are fields that a later version of Envoy adds; docs/xds.md lists them.

mod cluster;
mod endpoints;
mod headers;
mod listener;
mod route;

pub(super) use cluster::{CLUSTER, HTTP_OPTIONS};
pub(super) use endpoints::ASSIGNMENT;
pub(super) use listener::{HTTP_CONNECTION_MANAGER, LISTENER, ROUTER, TCP_PROXY};
pub(super) use route::ROUTE_CONFIGURATION;

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::Fault;

/// The unsupported fields of a message, by field number and name.
pub(super) struct Message {
    rejected: &'static [(u32, &'static str, When)],
    /// Fields that are messages themselves; the name of a repeated one ends with `[]`.
    nested: &'static [(u32, &'static str, &'static Message)],
}

/// The values of a field that are rejected.
#[derive(Clone, Copy)]
enum When {
    /// Any value: the presence of the field has an effect.
    Present,
    /// Any value but zero, `false` and the empty text, message or wrapper.
    NotDefault,
    /// Any number but these.
    Not(&'static [u64]),
    /// Any text but this one.
    NotText(&'static str),
}

/// Returns a fault if an encoded message contains an unsupported field.
pub(super) fn refuse(message: &Message, body: &[u8]) -> Result<(), Fault> {
    for (at, (number, value)) in Fields(body).enumerate() {
        let rejected = message.rejected.iter().find(|field| field.0 == number);
        if let Some((_, name, when)) = rejected
            && when.rejects(&value)
        {
            return Err(fault(&place(name, number, body, at), *when));
        }
        let nested = message.nested.iter().find(|field| field.0 == number);
        if let (Some((_, name, inner)), Value::Bytes(bytes)) = (nested, value) {
            refuse(inner, bytes).map_err(|fault| fault.within(&place(name, number, body, at)))?;
        }
    }
    Ok(())
}

fn fault(field: &str, when: When) -> Fault {
    match when {
        When::NotText(text) => Fault::new(field, format!("only `{text}` is supported")),
        When::Present | When::NotDefault | When::Not(_) => Fault::unsupported(field),
    }
}

/// Returns the name of the field at `at` of all fields in `body`, with its index if it is repeated.
fn place(name: &str, number: u32, body: &[u8], at: usize) -> String {
    match name.strip_suffix("[]") {
        None => name.to_owned(),
        Some(name) => {
            let before = Fields(body).take(at).filter(|field| field.0 == number);
            format!("{name}[{}]", before.count())
        }
    }
}

impl When {
    fn rejects(self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Self::Present, _) | (_, Value::Other) => true,
            (Self::NotText(text), Value::Bytes(bytes)) => *bytes != text.as_bytes(),
            (Self::Not(known), Value::Number(number)) => !known.contains(number),
            (_, Value::Number(number)) => *number != 0,
            (_, Value::Bytes(bytes)) => !bytes.is_empty(),
        }
    }
}

/// An encoded value.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// Iterates over the fields of an encoded message, up to the first that is malformed.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let (number, wire) = decode_key(&mut self.0).ok()?;
        let value = match wire {
            WireType::Varint => Value::Number(decode_varint(&mut self.0).ok()?),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut self.0).ok()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Value::Bytes(bytes)
            }
            other => {
                skip_field(other, number, &mut self.0, DecodeContext::default()).ok()?;
                Value::Other
            }
        };
        Some((number, value))
    }
}

#[cfg(test)]
#[path = "unsupported_tests.rs"]
mod tests;
