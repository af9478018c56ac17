//! `/clusters`: the endpoints of each cluster and their state.

use std::sync::Arc;

use maglor_balance as balance;
use maglor_balance::guard::concurrency::ConcurrencyLimit;
use maglor_config::Origination;
use serde_json::{Value, json};

use crate::control::app::App;
use crate::upstream::Cluster;

pub(super) fn describe(app: &App) -> Value {
    let mut clusters: Vec<_> = app.clusters().iter().collect();
    clusters.sort_by(|a, b| a.name().cmp(b.name()));
    json!({ "clusters": clusters.into_iter().map(cluster).collect::<Vec<_>>() })
}

fn cluster(cluster: &Arc<Cluster>) -> Value {
    let endpoints = cluster.endpoints();
    let view = endpoints.balancer().view();
    let guard = cluster.guard();
    let tls = cluster.config().tls.as_ref().map(|tls| match tls {
        Origination::Mesh(_) => "mesh",
        Origination::Names(_) => "names",
    });
    let described = view.endpoints().iter().zip(endpoints.targets());
    let each = described.map(|(endpoint, target)| {
        json!({
            "address": target.address,
            "host": target.host.as_deref(),
            "weight": endpoint.weight,
            "priority": endpoint.priority,
            "locality": endpoint.locality.as_ref().map(locality),
            "outstanding": target.stats.outstanding(),
            "places_taken": target.places_taken(),
            "healthy": target.stats.is_healthy(),
            "ejected": target.stats.is_ejected(),
            "draining": target.stats.is_draining(),
        })
    });
    json!({
        "name": cluster.name().as_ref(),
        "policy": cluster.config().policy.to_string(),
        "tls": tls,
        "panic": view.in_panic(),
        "available": view.available(),
        "requests": guard.requests.active(),
        "waiting": guard.waiting(),
        "connections": guard.connections.active(),
        "waiting_for_connection": guard.connections.waiting(),
        "circuit_breaker": guard.breaker().map(|breaker| breaker.phase().name()),
        "concurrency_limit": guard.concurrency().map(ConcurrencyLimit::limit),
        "endpoints": each.collect::<Vec<_>>(),
    })
}

/// Formats a locality as `REGION/ZONE/NODE`, without trailing unknown parts.
fn locality(locality: &balance::Locality) -> String {
    let parts = [&locality.region, &locality.zone, &locality.sub_zone];
    let text = parts.map(AsRef::as_ref).join("/");
    text.trim_end_matches('/').to_owned()
}
