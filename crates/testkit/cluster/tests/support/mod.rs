//! Shared code of the tests on a cluster: an installed mesh, its applications, and requests to them.

pub(crate) mod api_server;
pub(crate) mod attacker;
pub(crate) mod installed;
pub(crate) mod load;
pub(crate) mod round_trip;
pub(crate) mod shop;
