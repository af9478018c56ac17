//! Validates forwarding routes. Redirects and direct responses are in `redirect`.

use std::time::Duration;

use http::StatusCode;
use maglor_balance as balance;

use super::{hash, redirect, retry, rewrite};
use crate::check::Scope;
use crate::check::headers::{self, Message};
use crate::check::rule::{self, DAY, SECOND, Unique};
use crate::report::At;
use crate::route::{Destination, Forward, RouteAction, RouteMatch, WeightedCluster};
use crate::{raw, yaml};

pub(in crate::check) fn action(
    raw: &raw::Route,
    at: &At<'_>,
    matches: &RouteMatch,
    scope: &Scope<'_>,
) -> Option<RouteAction> {
    let set = [
        ("cluster", raw.cluster.is_some()),
        ("clusters", !raw.clusters.is_empty()),
        ("redirect", raw.redirect.is_some()),
        ("direct_response", raw.direct_response.is_some()),
    ];
    let kind = rule::exactly_one(&set, at)?;
    if !matches!(kind, "cluster" | "clusters") {
        only_forwarded(raw, at, kind);
    }
    match (&raw.redirect, &raw.direct_response) {
        (Some(raw), _) => {
            redirect::redirect(raw, &at.field("redirect"), &matches.path).map(RouteAction::Redirect)
        }
        (None, Some(raw)) => {
            redirect::direct(raw, &at.field("direct_response")).map(RouteAction::Direct)
        }
        (None, None) => {
            let forward = forward(raw, at, matches, scope);
            Some(RouteAction::Forward(Box::new(forward)))
        }
    }
}

/// Rejects fields that have no effect without a cluster.
fn only_forwarded(raw: &raw::Route, at: &At<'_>, kind: &str) {
    let set = [
        ("rewrite", raw.rewrite.is_some()),
        ("hash_policy", !raw.hash_policy.is_empty()),
        ("timeout", raw.timeout.is_some()),
        ("retry", raw.retry.is_some()),
        ("hedge", raw.hedge.is_some()),
        ("request_buffer_limit", raw.request_buffer_limit.is_some()),
        ("mirror", !raw.mirror.is_empty()),
        ("sticky", raw.sticky.is_some()),
        ("request_headers", raw.request_headers.is_some()),
    ];
    for (name, _) in set.iter().filter(|(_, there)| *there) {
        at.field(name)
            .error(format!(
                "`{name}` has no effect with `{kind}`: nothing is forwarded"
            ))
            .on_key()
            .help(format!("remove `{name}`"));
    }
}

fn forward(raw: &raw::Route, at: &At<'_>, matches: &RouteMatch, scope: &Scope<'_>) -> Forward {
    let timeout = &at.field("timeout");
    let timeout = rule::time(raw.timeout, timeout, 15 * SECOND, Duration::ZERO..=30 * DAY);
    let place = &at.field("rewrite");
    let changed = raw.rewrite.as_ref();
    let hashing = hash::policy(&raw.hash_policy, &at.field("hash_policy"));
    let (clusters, targets) = clusters(raw, at, scope);
    warn_of_clusters(raw, at, matches, &targets);
    retry::combinations(raw, &targets, at, scope);
    let set = raw.retry.as_ref().map(|raw| &raw.0);
    let retry = retry::retry(set, timeout, &at.field("retry"), scope);
    let hedge = raw.hedge.as_ref();
    let hedge = hedge.map(|raw| retry::hedge(&raw.0, &retry, timeout, &at.field("hedge")));
    let buffer = &at.field("request_buffer_limit");
    Forward {
        clusters,
        path_rewrite: changed.and_then(|raw| rewrite::path(raw, place, &matches.path, scope)),
        host_rewrite: changed.and_then(|raw| rewrite::host(raw, place)),
        hash_policy: hashing,
        timeout: (!timeout.is_zero()).then_some(timeout),
        retry,
        hedge,
        request_buffer_limit: rule::size(raw.request_buffer_limit, buffer, 64 << 10, 0..=64 << 20),
        mirrors: retry::mirrors(&raw.mirror, &at.field("mirror"), scope),
        sticky: retry::sticky(raw, at),
    }
}

/// Returns the clusters of a route with their weights, and the raw blocks of those that exist.
fn clusters<'a>(
    raw: &raw::Route,
    at: &At<'_>,
    scope: &Scope<'a>,
) -> (Vec<WeightedCluster>, Vec<&'a raw::Cluster>) {
    if let Some(name) = &raw.cluster {
        let target = scope.resolve_cluster(name, &at.field("cluster"));
        let whole = WeightedCluster {
            destination: Destination::Cluster(name.as_str().into()),
            weight: 1,
            request_headers: None,
            response_headers: None,
        };
        return (vec![whole], target.into_iter().collect());
    }
    let (mut clusters, mut targets) = (Vec::new(), Vec::new());
    let (mut seen, list) = (Unique::default(), at.field("clusters"));
    for (i, raw) in raw.clusters.iter().enumerate() {
        let at = list.index(i);
        if let Some(name) = &raw.name {
            seen.check(name, &at.field("name"), "the cluster");
            targets.extend(scope.resolve_cluster(name, &at.field("name")));
        }
        clusters.extend(share(raw, &at));
    }
    if !clusters.is_empty() && clusters.iter().all(|c| c.weight == 0) {
        list.error("all weights are 0: no cluster would receive requests")
            .when_readable()
            .help("set the weight of at least one cluster above 0");
    }
    (clusters, targets)
}

/// Validates a share of a route's requests.
fn share(raw: &raw::ClusterWeight, at: &At<'_>) -> Option<WeightedCluster> {
    let weight = rule::number(raw.weight, &at.field("weight"), 1, 0..=1_000_000);
    let (request, response) = (at.field("request_headers"), at.field("response_headers"));
    let request_headers = headers::rules(raw.request_headers.as_ref(), &request, Message::Request);
    let response_headers =
        headers::rules(raw.response_headers.as_ref(), &response, Message::Response);
    let destination = match (&raw.name, raw.status) {
        (Some(name), None) => Destination::Cluster(name.as_str().into()),
        (None, Some(status)) => {
            let status = rule::number(Some(status), &at.field("status"), 500, 400..=599);
            Destination::Answer(StatusCode::from_u16(u16::try_from(status).ok()?).ok()?)
        }
        (Some(_), Some(_)) => {
            at.field("status")
                .error("`name` and `status` are mutually exclusive")
                .on_key();
            return None;
        }
        (None, None) => {
            at.missing("name", "write `name: CLUSTER`");
            return None;
        }
    };
    Some(WeightedCluster {
        destination,
        weight,
        request_headers,
        response_headers,
    })
}

fn warn_of_clusters(
    raw: &raw::Route,
    at: &At<'_>,
    matches: &RouteMatch,
    targets: &[&raw::Cluster],
) {
    let hashes = |c: &raw::Cluster| {
        c.policy
            .as_ref()
            .is_some_and(balance::PolicySpec::uses_hash)
    };
    let name = |c: &raw::Cluster| c.name.as_deref().map(yaml::short).unwrap_or_default();
    let policy = |c: &raw::Cluster| c.policy.clone().unwrap_or_default();
    match targets.iter().find(|c| hashes(c)) {
        None if !raw.hash_policy.is_empty() && !targets.is_empty() => {
            let (name, policy) = (name(targets[0]), policy(targets[0]));
            at.field("hash_policy")
                .warning(format!(
                    "`hash_policy` has no effect: the policy of cluster `{name}`, {policy}, does not hash requests"
                ))
                .on_key()
                .help(
                    "set `policy: maglev` or `ring-hash` on the cluster, or remove `hash_policy`",
                );
        }
        Some(cluster) if raw.hash_policy.is_empty() => {
            let (name, policy) = (name(cluster), policy(cluster));
            at.warning(format!(
                "cluster `{name}` hashes requests ({policy}), but the route has no `hash_policy`"
            ))
            .when_readable()
            .help("add for example `hash_policy: [{source_address: true}]`");
        }
        _ => {}
    }
    let http1 = |c: &&&raw::Cluster| matches!(c.spoken(), raw::UpstreamProtocol::Http1);
    if let Some(cluster) = targets.iter().find(http1).filter(|_| matches.grpc) {
        at.warning(format!(
            "gRPC is sent to cluster `{}` over HTTP/1.1",
            name(cluster)
        ))
        .when_readable()
        .help("set `protocol: http2` on the cluster");
    }
}
