//! HPACK, the encoding of fields in HTTP/2 (RFC 7541).
//!
//! Received fields are decoded into the text of a `Fields`, where they stay: a line of HTTP/1.1 for each field.
//! Sent fields use the static table alone, so that the two ends share no state.

mod decoder;
mod encode;
mod huffman;
mod name;
mod table;

pub(crate) use decoder::Decoder;
pub(super) use decoder::{Line, Space};
pub(super) use encode::{field, status};
pub(super) use name::Name;

#[cfg(test)]
#[path = "hpack_tests.rs"]
mod tests;
