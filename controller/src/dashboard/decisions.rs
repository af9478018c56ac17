//! The decisions of operators with their reasons: the statuses of placement and tuning policies and of
//! Proxy-Services, as any replica has written them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::dashboard::page::Move;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Decisions, moves};
use crate::crd::{PlacementPolicy, ProxyService, ServicePlacement, TuningPolicy};
use crate::reconcile::cache::{self, Cache, Watch};

/// The watched policies.
pub(crate) struct Watched {
    placement: Cache<PlacementPolicy>,
    proxies: Cache<ProxyService>,
    tuning: Cache<TuningPolicy>,
}

/// Watches the policies; the returned future keeps them up to date.
pub(crate) fn watch(client: &Client) -> (Watched, impl Future<Output = ()> + use<>) {
    let (placement, first) = cache::alone(Watch::new(vec![Api::all(client.clone())]));
    let (proxies, second) = cache::alone(Watch::new(vec![Api::all(client.clone())]));
    let (tuning, third) = cache::alone(Watch::new(vec![Api::all(client.clone())]));
    let watched = Watched {
        placement,
        proxies,
        tuning,
    };
    let followed = async move {
        tokio::join!(first, second, third);
    };
    (watched, followed)
}

impl Decisions for Watched {
    fn version(&self) -> u64 {
        let mut versions = versions(&self.placement);
        versions.extend(self::versions(&self.proxies));
        versions.extend(self::versions(&self.tuning));
        versions.sort();
        let mut hasher = DefaultHasher::new();
        versions.hash(&mut hasher);
        // Exact in JavaScript.
        hasher.finish() >> 12
    }

    fn all(&self) -> Vec<Value> {
        let mut all = values("PlacementPolicy", &self.placement);
        all.extend(values("ProxyService", &self.proxies));
        all.extend(values("TuningPolicy", &self.tuning));
        all.sort_by_cached_key(|one| (one["kind"].to_string(), one["name"].to_string()));
        all
    }

    fn moves(&self) -> Option<Vec<Move>> {
        let policies = self.placement.all();
        let statuses: Vec<_> = policies
            .iter()
            .filter_map(|policy| policy.status.as_ref())
            .collect();
        if statuses.is_empty() {
            return None;
        }
        let services = statuses.iter().flat_map(|status| &status.services);
        Some(services.flat_map(of_service).take(moves::MOST).collect())
    }
}

/// Returns the moves of a service, one for each replica.
fn of_service(service: &ServicePlacement) -> Vec<Move> {
    if service.wanted.is_empty() {
        return Vec::new();
    }
    let reason = match service.reason.is_empty() {
        true => service.state.clone(),
        false => format!("{}: {}", service.state, service.reason),
    };
    moves::between(&service.name, (&service.nodes, &service.wanted), &reason)
}

fn versions<K: cache::Watched>(cache: &Cache<K>) -> Vec<(String, String)> {
    let all = cache.all();
    let versions = all.iter().map(|object| {
        let meta = object.meta();
        (
            meta.uid.clone().unwrap_or_default(),
            meta.resource_version.clone().unwrap_or_default(),
        )
    });
    versions.collect()
}

fn values<K: cache::Watched + Serialize + Resource>(kind: &str, cache: &Cache<K>) -> Vec<Value> {
    let all = cache.all();
    let values = all.iter().map(|object| {
        let mut status = json!(**object)["status"].take();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        if let Some(status) = status.as_object_mut() {
            status.remove("conditions");
        }
        let name = match object.namespace() {
            Some(namespace) => format!("{namespace}/{}", object.name_any()),
            None => object.name_any(),
        };
        let summary = conditions.iter().rev().find_map(|condition| {
            let message = condition["message"]
                .as_str()
                .filter(|message| !message.is_empty());
            message.map(str::to_owned)
        });
        let mut value =
            json!({"kind": kind, "name": name, "conditions": conditions, "status": status});
        if let Some(summary) = summary {
            value["summary"] = summary.into();
        }
        value
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_service_without_a_plan_stays() {
        let nodes = |node: &str| BTreeMap::from([(node.to_owned(), 1)]);
        let service = ServicePlacement {
            name: "shop/cart".to_owned(),
            state: "Planned".to_owned(),
            nodes: nodes("a"),
            wanted: nodes("b"),
            ..ServicePlacement::default()
        };
        let expected = Move {
            vertex: "shop/cart".to_owned(),
            from: "a".to_owned(),
            to: "b".to_owned(),
            reason: "Planned".to_owned(),
        };
        assert_eq!(of_service(&service), [expected]);
        let settled = ServicePlacement {
            wanted: BTreeMap::new(),
            ..service
        };
        assert!(of_service(&settled).is_empty());
    }
}
