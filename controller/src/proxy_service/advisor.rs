//! Asks all replicas what callers report, for those Services whose proxies are left to the decision rule.

use std::sync::Arc;
use std::time::Duration;

use maglor_balance::Time;
use maglor_mcg::rule::Limits;
use tokio::time::Instant;

use super::auto::{Advice, Auto, Calls, Seen};
use super::observed::Observed;
use crate::graph::Graphs;
use crate::graph::parts::{Part, current};
use crate::graph::replicas::Replicas;
use crate::index::facts::Key;

/// What the replicas have heard is asked for again after this.
const FRESH: Duration = Duration::from_secs(5);

/// See the module's documentation.
pub(super) struct Advisor {
    replicas: Replicas,
    graphs: Arc<Graphs>,
    auto: Auto,
    begun: Instant,
    heard: Option<(Instant, Vec<Vec<Part>>)>,
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

    /// Another replica writes now.
    pub(super) fn clear(&mut self) {
        self.auto.clear();
    }

    /// Whether a Service is left to the rule, and so has to be looked at again and again.
    pub(super) fn governs(&self, service: &Key) -> bool {
        self.auto.governs(service)
    }

    /// What is advised for a Service; `None` where that is not asked for, or nothing can be said now.
    pub(super) async fn advice(&mut self, service: &Key, seen: &Observed) -> Option<Advice> {
        let claim = seen.claims.iter().find(|claim| !claim.deleting);
        let spec = claim.and_then(|claim| claim.spec.as_ref().ok());
        let Some(spec) = spec.filter(|spec| spec.is_auto()) else {
            self.auto.forget(service);
            return None;
        };
        let current = seen.current();
        let seen = Seen {
            servers: match seen.selected()?.proxied {
                true => seen.target_endpoints.len(),
                false => seen.endpoints.len(),
            },
            proxies: spec.replicas(),
            current,
            collaborative: spec.sidecar_policies() && seen.collaborative,
            dry_run: spec.dry_run(),
        };
        let calls = self.calls(service).await?;
        let nanos = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Some(
            self.auto
                .look(service, Time::from_nanos(nanos), seen, calls),
        )
    }

    /// What callers report, unless a replica does not say what it has heard.
    async fn calls(&mut self, service: &Key) -> Option<Calls> {
        let fresh = |(at, _): &(Instant, Vec<Vec<Part>>)| at.elapsed() < FRESH;
        if !self.heard.as_ref().is_some_and(fresh) {
            let others = self.replicas.ask::<Vec<Part>>("/graph?parts").await;
            let others = others.ok().filter(|others| others.missing == 0)?;
            let mut all = others.all;
            all.push(self.graphs.parts());
            self.heard = Some((Instant::now(), all));
        }
        let (_, heard) = self.heard.as_ref()?;
        Some(Calls::of(&self.graphs.vertex(service), current(heard)))
    }
}
