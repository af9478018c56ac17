//! Clusters at run time: their endpoints, the choice of an endpoint, and connections to endpoints.

pub(crate) mod cluster;
mod connect;
mod dns;
pub(crate) mod grpc;
mod pool;
pub(crate) mod relay;
mod rtt;

pub(crate) use cluster::endpoints::{Endpoints, Resolved};
pub(crate) use cluster::guard::{ClusterSlot, Guard};
pub(crate) use cluster::original_destination::Destinations;
pub(crate) use cluster::target::{Seat, Target};
pub(crate) use cluster::{ClientMesh, ClientTls, Cluster, Clusters, Picked};
pub(crate) use connect::{connect, connect_channel, connect_for_control, connect_to_enrol};
pub(crate) use dns::Resolver;
pub(crate) use pool::http1::Connection;
pub(crate) use pool::multiplexed::Multiplexed;
pub(crate) use pool::room::{Open, Room};
pub(crate) use pool::{Pool, Pools, Sender};
