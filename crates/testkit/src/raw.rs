//! HTTP/1.1 written by hand, on blocking sockets: the test controls every byte.
//!
//! The client ([`RawHttp1`]) is strict: a response that a lenient parser would accept fails the
//! test. The server ([`RawServer`]) sends any bytes, so that a proxy can be tested with responses
//! that no HTTP library would produce.
//!
//! All reads and writes have the deadline of [`crate::TIMEOUT`].

mod client;
mod connection;
mod response;
mod server;

pub use client::RawHttp1;
pub use connection::RawConnection;
pub use response::{Framing, RawResponse};
pub use server::RawServer;
