//! Fields of Envoy that Maglor does not implement are rejected by name if they would change the behaviour, and accepted
//! if they would not.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod clusters;
mod endpoints;
mod listeners;
mod routes;

use maglor_xds::{Message, decode};

/// A field in the message to which `path` leads by field numbers.
pub(crate) fn at(path: &[u32], field: &[u8]) -> Vec<u8> {
    path.iter().rev().fold(field.to_vec(), |inner, number| {
        let mut outer = Vec::new();
        prost::encoding::bytes::encode(*number, &inner, &mut outer);
        outer
    })
}

/// A message with one more field.
pub(crate) fn with(message: &impl Message, path: &[u32], field: &[u8]) -> Vec<u8> {
    [message.encode_to_vec(), at(path, field)].concat()
}

pub(crate) fn number(number: u32, value: u64) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::uint64::encode(number, &value, &mut field);
    field
}

pub(crate) fn flag(number: u32) -> Vec<u8> {
    self::number(number, 1)
}

pub(crate) fn text(number: u32, value: &str) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::string::encode(number, &value.to_owned(), &mut field);
    field
}

/// Asserts that a result is an error that contains each of `parts`; without parts, that it is none.
pub(crate) fn expect<T>(result: Result<T, decode::DecodeError>, parts: &[&str], case: &str) {
    match result {
        Ok(_) => assert!(parts.is_empty(), "{case} was accepted"),
        Err(error) => {
            let error = error.to_string();
            assert!(!parts.is_empty(), "{case}: {error}");
            for part in parts {
                assert!(error.contains(part), "{case}: {error}");
            }
        }
    }
}
