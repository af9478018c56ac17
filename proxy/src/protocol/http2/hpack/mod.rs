//! HPACK, the form of fields in HTTP/2 (RFC 7541).
//!
//! What the peer sends is decoded into the text of a `Fields`, where it stays: a line of HTTP/1.1 for each
//! field. What is sent uses the static table alone, so that the two ends have no state to share.

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
