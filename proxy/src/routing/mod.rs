//! What the configuration in force decides of a connection or request: filter chain, route, rate limit.

pub(crate) mod listener;
pub(crate) mod on_demand;
pub(crate) mod rate_limit;
pub(crate) mod route;
