//! Load feedback: how busy a server is, from its own proxy to those who send it requests.
//!
//! [`queue_protocol`] is the wire, [`channel`] the client's end of it, [`reporting`] the server's. A request meets the
//! server's end twice: when it arrives and when it ends.

pub(crate) mod calls;
pub(crate) mod channel;
pub(crate) mod queue_protocol;
pub(crate) mod reporting;
pub(crate) mod upstreams;
