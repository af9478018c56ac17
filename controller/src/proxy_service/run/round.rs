//! Periodically checks all Services of `ProxyService`s without a `targetRef`, at the cost of a few lists. Only
//! Services with pending or existing changes are then reconciled individually.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::Operator;
use crate::index::facts::Key;
use crate::proxy_service::api::land;
use crate::proxy_service::auto::Calls;
use crate::proxy_service::scope::{Candidate, Land};
use crate::proxy_service::survey::{Entry, status, urgent};
use crate::proxy_service::watched::Unit;
use crate::reconcile::Again;

/// Number of rounds for which observations are kept in the status, so that noise does not cause writes; a minute by
/// default.
const SHOWN: u32 = 6;

/// The reported results of the last survey and their time, by `ProxyService`.
pub(super) type Reported = BTreeMap<Key, (Instant, Value)>;

impl Operator {
    /// Checks all Services to which a `ProxyService` without a `targetRef` applies. Returns when to check them again.
    pub(super) async fn survey(&mut self) -> Result<Again, kube::Error> {
        let land = land(&self.watched, &self.root);
        for key in land.left() {
            self.watches.reconcile(Unit::Service(key));
        }
        for claim in land.finished() {
            self.server.release(&claim.key).await?;
        }
        let candidates = land.candidates();
        let governed: BTreeSet<Key> = {
            let candidates = candidates.iter().map(|one| one.key.clone());
            candidates.chain(land.owned()).collect()
        };
        self.advisor.retain(|key| governed.contains(key));
        // No Service is evaluated if the data of any replica is missing.
        if let Some(calls) = self.advisor.calls().await.cloned() {
            let entries = self.look_at(&candidates, &calls);
            self.report(&land, entries).await?;
        }
        Ok(land.wide().next().map(|_| self.pause))
    }

    /// Evaluates each called Service, grouped by the `ProxyService` that applies to it.
    fn look_at(
        &mut self,
        candidates: &[Candidate<'_>],
        calls: &BTreeMap<String, Calls>,
    ) -> BTreeMap<Key, Vec<Entry>> {
        let topology = self.advisor.topology();
        let mut reported: BTreeMap<Key, Vec<Entry>> = BTreeMap::new();
        for candidate in candidates {
            let key = &candidate.key;
            // Services with the same pods share a vertex, so that only one of them is evaluated.
            let vertex = topology.services.get(key);
            let stands = vertex.is_none_or(|vertex| *vertex == key.to_string());
            let calls = calls.get(&key.to_string()).copied();
            if candidate.made {
                self.watches.reconcile(Unit::Service(key.clone()));
            } else if !stands || calls.is_none() {
                continue;
            }
            let mut entry = Entry {
                service: key.clone(),
                current: candidate.current,
                reason: None,
                view: None,
            };
            if candidate.made {
                entry.view = self.advisor.view(key);
            } else if let Some(refusal) = candidate.refusal() {
                entry.reason = Some(refusal.reason());
            } else {
                let calls = calls.unwrap_or_default();
                let advice = self.advisor.glance(candidate, &topology, calls);
                entry.view = advice.view;
                if advice.choice != candidate.current {
                    self.watches.reconcile(Unit::Service(key.clone()));
                }
            }
            let holder = candidate.claim.key.clone();
            reported.entry(holder).or_default().push(entry);
        }
        reported
    }

    async fn report(
        &mut self,
        land: &Land,
        mut entries: BTreeMap<Key, Vec<Entry>>,
    ) -> Result<(), kube::Error> {
        let shown: Duration = self.pause * SHOWN;
        let there: BTreeSet<&Key> = land.wide().map(|claim| &claim.key).collect();
        self.reported.retain(|key, _| there.contains(key));
        for claim in land.wide() {
            let entries = entries.remove(&claim.key).unwrap_or_default();
            let status = status(claim, entries);
            let urgent = urgent(&status);
            let last = self.reported.get(&claim.key);
            let fresh = last.is_some_and(|(at, said)| at.elapsed() < shown && *said == urgent);
            if fresh {
                continue;
            }
            self.cached.write_status(claim, status).await?;
            let now = Instant::now();
            self.reported.insert(claim.key.clone(), (now, urgent));
        }
        Ok(())
    }
}
