//! Clusters at run time: which endpoints there are, which is picked, how it is reached.

mod attempt;
mod cluster;
mod connect;
mod dns;
mod endpoints;
mod guard;
mod http1;
mod http2;
mod link;
mod multiplexed;
mod open;
mod original;
mod pool;
mod quality;
mod room;
mod round_trip;
mod send;
mod target;

pub(crate) use cluster::{ClientMesh, ClientTls, Cluster, Clusters, Picked};
pub(crate) use connect::{connect, connect_for_control, connect_to_enrol};
pub(crate) use dns::Resolver;
pub(crate) use endpoints::{Endpoints, Resolved};
pub(crate) use guard::{Guard, Place};
pub(crate) use http1::Connection;
pub(crate) use http2::{Answer, Http2};
pub(crate) use link::Heard;
pub(crate) use multiplexed::Multiplexed;
pub(crate) use open::Open;
pub(crate) use original::Destinations;
pub(crate) use pool::{Pool, Pools};
pub(crate) use room::Room;
pub(crate) use send::Sender;
pub(crate) use target::{Seat, Target};
