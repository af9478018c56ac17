//! What is on the wire: bytes to messages and back, without routes and clusters.
//!
//! [`fields`] and [`message`] are what all versions of HTTP have in common. [`outbox`], [`receive_buffer`],
//! [`read_budget`], [`flood_limits`] and [`keepalive`] are what [`http2`] and [`mesh_transport`] share: connections of
//! many streams.

pub(crate) mod detect;
pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod flood_limits;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod keepalive;
pub(crate) mod mesh_transport;
pub(crate) mod message;
pub(crate) mod outbox;
pub(crate) mod proxy_protocol;
pub(crate) mod read_budget;
pub(crate) mod receive_buffer;
