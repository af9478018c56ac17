//! Collects the callers' reports from all replicas, and computes recommendations for Services in automatic mode.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::Time;
use maglor_service_graph::policy_choice::{Choice, Limits, View};
use tokio::time::Instant;

use super::auto::{Advice, Auto, Calls, Seen};
use super::observed::Observed;
use super::refusal;
use super::scope::Candidate;
use super::survey::may_collaborate;
use crate::graph::Graphs;
use crate::graph::parts::current;
use crate::graph::replicas::Replicas;
use crate::index::facts::Key;
use crate::index::topology::Topology;

/// Time for which the replicas' reports are used before they are requested again.
const FRESH: Duration = Duration::from_secs(5);

/// Computes recommendations for Services in automatic mode.
pub(super) struct Advisor {
    replicas: Replicas,
    graphs: Arc<Graphs>,
    auto: Auto,
    begun: Instant,
    /// When the reports were received, and the reports by vertex; `None` if there are none.
    heard: Option<(Instant, BTreeMap<String, Calls>)>,
}

impl Advisor {
    pub(super) fn new(replicas: Replicas, graphs: Arc<Graphs>, limits: Limits) -> Self {
        Self {
            replicas,
            graphs,
            auto: Auto::new(limits),
            begun: Instant::now(),
            heard: None,
        }
    }

    /// Returns whether a Service is in automatic mode and therefore has to be checked periodically.
    pub(super) fn governs(&self, service: &Key) -> bool {
        self.auto.governs(service)
    }

    /// Removes all Services except those for which `stays` is true.
    pub(super) fn retain(&mut self, stays: impl Fn(&Key) -> bool) {
        self.auto.retain(stays);
    }

    /// Returns the last observations of a Service; `None` if there are none.
    pub(super) fn view(&self, service: &Key) -> Option<View> {
        self.auto.view(service)
    }

    /// Returns the current topology.
    pub(super) fn topology(&self) -> Arc<Topology> {
        self.graphs.topology()
    }

    /// Returns the recommendation for a Service; `None` if it is not in automatic mode, or if there is currently no
    /// data.
    pub(super) async fn advice(&mut self, service: &Key, seen: &Observed) -> Option<Advice> {
        let claim = seen.claims.iter().find(|claim| !claim.deleting);
        let spec = claim.and_then(|claim| Some((claim, claim.spec.as_ref().ok()?)));
        let Some((claim, spec)) = spec.filter(|(_, spec)| spec.is_auto()) else {
            self.auto.forget(service);
            return None;
        };
        let current = seen.current();
        let available = seen.rollout().available;
        let seen = Seen {
            servers: match seen.selected()?.proxied {
                true => seen.target_endpoints.len(),
                false => seen.endpoints.len(),
            },
            proxies: match current {
                Choice::ProxyService => u32::try_from(available).unwrap_or(u32::MAX),
                _ => spec.first_replicas(),
            },
            current,
            collaborative: spec.sidecar_policies() && seen.collaborative,
            // A change that is not possible does not count as pending, and does not use up a change of other
            // Services.
            dry_run: spec.dry_run() || refusal::of(seen).is_some(),
            wide: claim.wide(),
        };
        let vertex = self.graphs.vertex(service);
        let calls = self.calls().await?.get(&vertex);
        let calls = calls.copied().unwrap_or_default();
        let now = self.now();
        Some(self.auto.look(service, now, &seen, calls))
    }

    /// Returns the recommendation for a Service without created objects. Sends no requests about the Service to the
    /// API server.
    pub(super) fn glance(
        &mut self,
        candidate: &Candidate<'_>,
        topology: &Topology,
        calls: Calls,
    ) -> Advice {
        let (service, spec) = (&candidate.key, candidate.spec);
        let servers = topology.servers.get(service).copied().unwrap_or_default();
        let seen = Seen {
            servers: usize::try_from(servers.count).unwrap_or(usize::MAX),
            proxies: spec.first_replicas(),
            current: candidate.current,
            collaborative: may_collaborate(spec, servers.meshed, candidate.spoken_for),
            dry_run: spec.dry_run(),
            wide: candidate.claim.wide(),
        };
        let now = self.now();
        self.auto.look(service, now, &seen, calls)
    }

    fn now(&self) -> Time {
        let nanos = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::from_nanos(nanos)
    }

    /// Returns the callers' reports by vertex; `None` if the data of any replica is missing.
    pub(super) async fn calls(&mut self) -> Option<&BTreeMap<String, Calls>> {
        let fresh = |(at, _): &(Instant, BTreeMap<String, Calls>)| at.elapsed() < FRESH;
        if !self.heard.as_ref().is_some_and(fresh) {
            let parts = self.replicas.parts(&self.graphs).await;
            let parts = Some(parts).filter(|parts| parts.missing == 0)?;
            self.heard = Some((Instant::now(), Calls::by_vertex(current(&parts.all))));
        }
        self.heard.as_ref().map(|(_, calls)| calls)
    }
}
