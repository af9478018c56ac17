//! Routing by the current configuration: selects the filter chain, route and rate limit of a connection or request.

pub(crate) mod listener;
pub(crate) mod on_demand;
mod path_index;
pub(crate) mod rate_limit;
pub(crate) mod route;
