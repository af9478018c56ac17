//! HPACK, the encoding of fields in HTTP/2 (RFC 7541).
//!
//! Received fields are decoded into the text of a `Fields`, as one HTTP/1.1 line for each field. Sent fields use only
//! the static table, so that encoding needs no state.

mod decoder;
mod encode;
mod huffman;
mod name;
mod table;

pub(crate) use decoder::Decoder;
pub(super) use decoder::{Line, Space};
pub(super) use encode::{Target, field, request, status};
pub(super) use name::{Name, is_value};
pub(super) use table::FIELDS;

#[cfg(test)]
#[path = "hpack_tests.rs"]
mod tests;
