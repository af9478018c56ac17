//! The decisions of operators with their reasons: the statuses of placement and tuning policies and of
//! Proxy-Services, as any replica has written them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kube::{Api, Client, Resource, ResourceExt};
use maglor_dashboard::Move;
use serde::Serialize;
use serde_json::{Value, json};

use crate::crd::{PlacementPolicy, ProxyService, ServicePlacement, TuningPolicy};
use crate::reconcile::cache::{self, Cache, Watch};

/// Maximum number of moves.
const MOST_MOVES: usize = 500;

/// The watched policies.
#[derive(Clone)]
pub(crate) struct Watched {
    placement: Cache<PlacementPolicy>,
    proxies: Cache<ProxyService>,
    tuning: Cache<TuningPolicy>,
}

/// The decisions; none without Kubernetes, where no operator runs.
#[derive(Clone, Default)]
pub(crate) struct Decisions(Option<Watched>);

impl From<Watched> for Decisions {
    fn from(watched: Watched) -> Self {
        Self(Some(watched))
    }
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

impl Decisions {
    /// Returns a number that changes with the decisions.
    pub(crate) fn version(&self) -> u64 {
        let Some(watched) = &self.0 else { return 0 };
        let mut versions = versions(&watched.placement);
        versions.extend(self::versions(&watched.proxies));
        versions.extend(self::versions(&watched.tuning));
        versions.sort();
        let mut hasher = DefaultHasher::new();
        versions.hash(&mut hasher);
        // Exact in JavaScript.
        hasher.finish() >> 12
    }

    /// Returns the statuses as objects, ordered by kind and name.
    pub(crate) fn all(&self) -> Vec<Value> {
        let Some(watched) = &self.0 else {
            return Vec::new();
        };
        let mut all = values("PlacementPolicy", &watched.placement);
        all.extend(values("ProxyService", &watched.proxies));
        all.extend(values("TuningPolicy", &watched.tuning));
        all.sort_by_cached_key(|one| (one["kind"].to_string(), one["name"].to_string()));
        all
    }

    /// Returns the planned moves of all placement policies; `None` if there is no policy with a status.
    pub(crate) fn moves(&self) -> Option<Vec<Move>> {
        let policies = self.0.as_ref()?.placement.all();
        let statuses: Vec<_> = policies
            .iter()
            .filter_map(|policy| policy.status.as_ref())
            .collect();
        if statuses.is_empty() {
            return None;
        }
        let services = statuses.iter().flat_map(|status| &status.services);
        Some(services.flat_map(moves).take(MOST_MOVES).collect())
    }
}

/// Returns the moves of a service, one for each replica.
fn moves(service: &ServicePlacement) -> Vec<Move> {
    if service.wanted.is_empty() || service.wanted == service.nodes {
        return Vec::new();
    }
    let more = |than: &BTreeMap<String, u32>, of: &BTreeMap<String, u32>| {
        let nodes = of.iter().flat_map(|(node, count)| {
            let other = than.get(node).copied().unwrap_or(0);
            std::iter::repeat_n(node.clone(), count.saturating_sub(other) as usize)
        });
        nodes.collect::<Vec<String>>()
    };
    let (from, to) = (
        more(&service.wanted, &service.nodes),
        more(&service.nodes, &service.wanted),
    );
    let reason = match service.reason.is_empty() {
        true => service.state.clone(),
        false => format!("{}: {}", service.state, service.reason),
    };
    let pairs = from.into_iter().zip(to);
    pairs
        .map(|(from, to)| Move {
            vertex: service.name.clone(),
            from,
            to,
            reason: reason.clone(),
        })
        .collect()
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
    use super::*;

    fn nodes(counts: &[(&str, u32)]) -> BTreeMap<String, u32> {
        let counts = counts.iter();
        counts
            .map(|(node, count)| ((*node).to_owned(), *count))
            .collect()
    }

    #[test]
    fn each_moved_replica_is_a_move() {
        let service = ServicePlacement {
            name: "shop/cart".to_owned(),
            state: "Planned".to_owned(),
            nodes: nodes(&[("a", 3), ("b", 1)]),
            wanted: nodes(&[("b", 2), ("c", 2)]),
            ..ServicePlacement::default()
        };
        let ends: Vec<_> = moves(&service)
            .into_iter()
            .map(|one| (one.from, one.to))
            .collect();
        let expected =
            [("a", "b"), ("a", "c"), ("a", "c")].map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(ends, expected);
        let settled = ServicePlacement {
            wanted: service.nodes.clone(),
            ..service
        };
        assert!(moves(&settled).is_empty());
        assert_eq!(Decisions::default().moves(), None);
    }
}
