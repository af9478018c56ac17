//! The smallest correct HTTP codecs that load generator and origin need.
//!
//! They know only the messages of the scenarios: bodyless `GET` requests, and `200` answers
//! with a known length. Whatever else arrives is an error, and makes the run invalid.

pub mod h1;
pub mod h2;
