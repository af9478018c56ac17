//! Clusters at run time: which endpoints there are, which is picked, how it is reached.

mod cluster;
mod connect;
mod dns;
mod http1;
mod http2;
mod open;
mod pool;

pub(crate) use cluster::{Cluster, Clusters, Picked, Target};
pub(crate) use connect::connect;
pub(crate) use dns::Resolver;
pub(crate) use http1::{Connection, exchange};
pub(crate) use http2::{Http2, LocalExecutor, Unanswered, http2_request};
pub(crate) use open::Open;
pub(crate) use pool::{Pool, Pools};
