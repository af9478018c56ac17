//! Admin pages about discovery: sessions, receipts and resources.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use maglor_balance::Time;
use maglor_xds::decode::{self, DecodeError};
use maglor_xds::grpc_server::SessionReport;
use maglor_xds::server::{Cache, ChangeId, Delivery, Protocol, Receipt};
use maglor_xds::{Health, Inbound, Kind, Listener, ServedEndpoint};
use serde_json::{Value, json};

/// Default number of receipts on the page.
const RECEIPTS: usize = 100;

/// Returns the name of a protocol in metrics and admin pages.
pub(crate) fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Delta => "delta",
        Protocol::StateOfTheWorld => "sotw",
    }
}

pub(crate) fn session(session: &SessionReport) -> Value {
    let subscribed = session.subscribed.iter().filter(|(_, count)| *count > 0);
    let subscribed: serde_json::Map<String, Value> = subscribed
        .map(|(kind, count)| (kind.to_string(), json!(count)))
        .collect();
    let nacks = session.nacks.iter();
    let nacks: Vec<Value> = nacks
        .map(|nack| json!({"kind": nack.kind.to_string(), "reason": &*nack.reason, "change": nack.change.0}))
        .collect();
    json!({
        "node": &*session.node,
        "identity": session.peer.identity.as_ref().map(ToString::to_string),
        "address": session.peer.address.to_string(),
        "protocol": protocol_name(session.protocol),
        "seconds": session.age.as_secs(),
        "subscribed": subscribed,
        "nacks": nacks,
    })
}

/// Returns the most recent changes, newest first; all retained ones if `all`.
pub(crate) fn receipts(cache: &Cache, all: bool) -> Vec<Receipt> {
    let most = if all { usize::MAX } else { RECEIPTS };
    let last = cache.receipts().iter().rev().take(most);
    last.cloned().collect()
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

pub(crate) fn receipt(receipt: &Receipt, now: Time) -> Value {
    let delivery = |delivery: &Delivery| {
        let since = |at: Time| millis(at.saturating_since(receipt.made));
        let answer = delivery.outcome.as_ref();
        let refused = answer.and_then(|(_, result)| result.as_ref().err());
        json!({
            "node": &*delivery.node,
            "sent_ms": since(delivery.sent),
            "answered": answer.is_some(),
            "answered_ms": answer.map(|(at, _)| since(*at)),
            "refused": refused.map(|reason| &**reason),
        })
    };
    json!({
        "change": receipt.change.0,
        "kind": receipt.kind.to_string(),
        "name": &*receipt.name,
        "age_seconds": now.saturating_since(receipt.made).as_secs(),
        "complete": receipt.is_complete(),
        "took_ms": receipt.took().map(millis),
        "deliveries": receipt.deliveries.iter().map(delivery).collect::<Vec<_>>(),
    })
}

/// A copy of a resource in the cache, taken while the cache is locked.
pub(crate) struct Body {
    name: Arc<str>,
    body: Bytes,
    changed: ChangeId,
    version: Option<String>,
}

/// Returns a resource in the cache; `None` if there is none of that name.
pub(crate) fn body(cache: &Cache, kind: Kind, name: &str) -> Option<Body> {
    let (body, changed) = cache.body(kind, name)?;
    Some(Body {
        name: name.into(),
        body: body.clone(),
        changed,
        version: cache.version(kind, name).map(str::to_owned),
    })
}

/// Returns all resources of a kind, by name.
pub(crate) fn bodies(cache: &Cache, kind: Kind) -> Vec<Body> {
    let names = cache.names(kind);
    let mut bodies: Vec<_> = names.filter_map(|name| body(cache, kind, name)).collect();
    bodies.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    bodies
}

/// Returns the kind, name and version of all resources, or of those of one kind.
pub(crate) fn listed(cache: &Cache, wanted: Option<Kind>) -> Vec<(Kind, Arc<str>, Option<String>)> {
    let kinds = Kind::ALL.into_iter();
    let kinds = kinds.filter(|kind| wanted.is_none_or(|wanted| wanted == *kind));
    let all = kinds.flat_map(|kind| {
        let version = move |name: &str| cache.version(kind, name).map(str::to_owned);
        cache
            .names(kind)
            .map(move |name| (kind, Arc::clone(name), version(name)))
    });
    all.collect()
}

/// Formats [`listed`] resources, ordered by kind and name.
pub(crate) fn resources(mut listed: Vec<(Kind, Arc<str>, Option<String>)>) -> Vec<Value> {
    let place = |kind: &Kind| Kind::ALL.iter().position(|one| one == kind);
    listed.sort_unstable_by(|(kind, name, _), (other, its, _)| {
        (place(kind), name).cmp(&(place(other), its))
    });
    let each = listed.into_iter();
    each.map(|(kind, name, version)| {
        json!({"kind": kind.to_string(), "name": &*name, "version": version})
    })
    .collect()
}

/// Formats a resource as in the configuration file.
///
/// # Errors
/// If the resource cannot be decoded, which would be a bug in the encoder.
pub(crate) fn resource(kind: Kind, resource: &Body) -> Result<Value, DecodeError> {
    let Body {
        name,
        body,
        changed,
        version,
    } = resource;
    // The cache's name of a per-client variant differs from the name in the resource itself.
    let (own, of) = name.split_once('#').unwrap_or((name, ""));
    let (node, zone) = (of.strip_prefix("node/"), of.strip_prefix("zone/"));
    let namespace = (!of.is_empty() && node.is_none() && zone.is_none()).then_some(of);
    let words = match kind {
        Kind::Bundle => decode::bundle(own, body)?.to_pem().into(),
        Kind::Cluster => json!(decode::cluster(own, body)?.raw),
        Kind::Endpoints => decode::endpoints(own, body)?.iter().map(endpoint).collect(),
        Kind::Inbound => {
            let (inbound, ahead) = decode::inbound(own, body)?;
            let mut value = shown_inbound(inbound);
            if !ahead.is_empty() {
                value["ahead"] = json!(ahead);
            }
            value
        }
        Kind::Listener => listener(&decode::listener(own, body)?),
        Kind::Routes => json!(decode::routes(own, body)?),
    };
    Ok(without_nulls(json!({
        "kind": kind.to_string(),
        "name": own,
        "namespace": namespace,
        "node": node,
        "zone": zone,
        "change": changed.0,
        "version": version,
        "resource": words,
    })))
}

/// Removes null fields.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            fields
                .map(|(name, value)| (name, without_nulls(value)))
                .collect()
        }
        other => other,
    }
}

fn endpoint(endpoint: &ServedEndpoint) -> Value {
    let mut value = json!(endpoint.described);
    let health = match endpoint.health {
        Health::Draining => "draining",
        Health::Healthy => "healthy",
        Health::Unhealthy => "unhealthy",
    };
    value["health"] = health.into();
    value
}

/// Formats an `Inbound` without private keys, which admin clients must not see.
fn shown_inbound(mut inbound: Inbound) -> Value {
    let chains = inbound.gateway.iter_mut().flat_map(|port| &mut port.chains);
    for certificate in chains.flat_map(|chain| &mut chain.certificates) {
        "(not shown)".clone_into(&mut certificate.private_key);
    }
    json!(inbound)
}

fn listener(listener: &Listener) -> Value {
    match listener {
        Listener::Http { routes, bytes } => json!({"routes": routes, "bytes": bytes}),
        Listener::Inline(table) => json!({"table": table}),
        Listener::Tcp { cluster } => json!({"bytes": cluster}),
    }
}
