//! Load feedback: reports of a server's load from its own proxy to the clients' proxies.
//!
//! [`queue_protocol`] is the wire format, [`channel`] the client's end, [`reporting`] the server's. The server's end
//! is called twice for each request: when it arrives and when it ends.

pub(crate) mod calls;
pub(crate) mod channel;
pub(crate) mod queue_protocol;
pub(crate) mod reporting;
pub(crate) mod upstreams;
