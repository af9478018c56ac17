//! Clusters at run time: which endpoints there are, which is picked, how it is reached.

mod cluster;
mod connect;
mod dns;
mod guard;
mod http1;
mod http2;
mod open;
mod pool;
mod room;
mod send;

pub(crate) use cluster::{Cluster, Clusters, Endpoints, Picked, Seat, Target};
pub(crate) use connect::connect;
pub(crate) use dns::Resolver;
pub(crate) use guard::{Guard, Place};
pub(crate) use http1::Connection;
pub(crate) use http2::{Http2, LocalExecutor};
pub(crate) use open::Open;
pub(crate) use pool::{Pool, Pools};
pub(crate) use room::Room;
pub(crate) use send::Sender;
