//! Sockets and byte streams, and fair scheduling of a worker's connections.

pub(crate) mod client_address;
pub(crate) mod fairness;
pub(crate) mod io;
pub(crate) mod original_destination;
pub(crate) mod own_connections;
pub(crate) mod send_queue;
pub(crate) mod socket;
pub(crate) mod tcp;
