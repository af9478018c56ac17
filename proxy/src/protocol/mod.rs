//! Protocols on the wire: parsing and encoding of messages, independent of routes and clusters.
//!
//! [`fields`] and [`message`] are common to all HTTP versions. [`http2`] and [`mesh_transport`], whose connections have
//! many streams, share [`streams`] and what it uses: [`outbox`], [`receive_buffer`], [`read_budget`], [`flood_limits`] and
//! [`keepalive`].

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
pub(crate) mod response_flag;
pub(crate) mod streams;
