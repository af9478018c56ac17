//! The smallest correct HTTP codecs for load generator and origin.
//!
//! They support only the messages of the scenarios: bodyless `GET` requests, and `200` answers with
//! a known length. Any other message is an error, and makes the run invalid.

pub(crate) mod h1;
pub(crate) mod h2;
