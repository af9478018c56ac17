//! Validates the raw configuration: every rule beyond types.
//!
//! One function per block takes the raw block and its place, reports every error, and returns the validated block, or
//! `None` if the block is unusable. It never stops at the first error. There is one file per block; `rule` holds the
//! shared rules.
//!
//! Blocks refer to others by name: clusters are checked before routes, and routes before listeners. [`Scope`] carries
//! the names that later blocks refer to.

mod access_log;
mod authorization;
mod bootstrap;
mod cluster;
mod control_plane;
mod endpoint;
mod filter_chain;
mod guard;
mod headers;
mod health;
mod host;
mod http;
mod identity;
mod listener;
mod listener_context;
mod load_reports;
mod outlier;
mod overlap;
mod own_port;
mod pattern;
mod reach;
mod references;
mod route;
mod rule;
mod sidecar;
mod tcp;
mod tls;
mod tracing;
mod unix_listener;
mod variables;

use std::sync::Arc;

pub use pattern::matches_empty;
pub(crate) use references::{Known, Scope};
pub(crate) use tracing::tracing;

use crate::report::At;
use crate::{Cluster, Config, Endpoint, RouteTable, raw};

/// Validates a whole configuration. The caller must check the report: with an error in it, the
/// result must not be used.
pub(crate) fn document(raw: &raw::Document, at: &At<'_>, known: Known) -> Config {
    let made = sidecar::clusters(&raw.listeners);
    let scope = Scope::new(raw, &made, known);
    let mut clusters = cluster::all(&raw.clusters, &at.field("clusters"), &scope);
    clusters.extend(cluster::made(&made, &scope));
    let tables = route::tables(&raw.route_tables, &at.field("route_tables"), &scope);
    let listeners = listener::all(raw, at, &scope, &tables);
    let admin = bootstrap::admin(raw, at);
    let control_plane = control_plane::control_plane(raw, at, &scope);
    let identity = identity::identity(raw, at, &scope);
    let tracing = tracing(raw, at, &scope);
    overlap::check(&listeners, admin.as_ref(), at);
    own_port::check(&raw.clusters, admin.as_ref(), at);
    sidecar::names(raw, &made, at);
    scope.warn_unused(raw, at);
    Config {
        workers: bootstrap::workers(raw, at),
        admin,
        log_level: bootstrap::log_level(raw),
        access_log: access_log::settings(raw, at),
        tracing,
        stories: raw.stories.unwrap_or(true),
        identity,
        control_plane,
        drain_timeout: bootstrap::drain_timeout(raw, at),
        outbound_grace: bootstrap::outbound_grace(raw, at),
        memory_budget: bootstrap::memory_budget(raw, at),
        listeners: listeners.into_iter().map(|(_, l)| Arc::new(l)).collect(),
        clusters,
    }
}

/// Validates a single cluster.
pub(crate) fn one_cluster(raw: &raw::Cluster, at: &At<'_>, scope: &Scope<'_>) -> Option<Cluster> {
    cluster::one(raw, at, &mut rule::Unique::default(), scope)
}

/// Validates endpoints without their cluster.
pub(crate) fn endpoints(raw: &[raw::Short<raw::Endpoint>], at: &At<'_>) -> Vec<Endpoint> {
    endpoint::all(raw, at)
}

/// Validates a single listener.
pub(crate) fn one_listener(
    raw: &raw::Listener,
    at: &At<'_>,
    scope: &Scope<'_>,
) -> Option<crate::Listener> {
    let tables = route::Tables::default();
    listener::one(raw, at, &mut rule::Unique::default(), scope, &tables)
}

/// Validates a single route table.
pub(crate) fn one_table(
    raw: &raw::RouteTable,
    at: &At<'_>,
    scope: &Scope<'_>,
) -> Option<RouteTable> {
    let name = rule::name(raw.name.as_ref(), at, "a table is asked for by its name")?;
    let hosts = at.field("virtual_hosts");
    Some(route::table(name, &raw.virtual_hosts, &hosts, scope))
}
