//! Checks all Services of `ProxyService`s for many Services periodically, at the cost of a few lists. Only Services
//! with pending or existing changes are then reconciled one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{Operator, ROUND};
use crate::index::facts::Key;
use crate::proxy_service::auto::Calls;
use crate::proxy_service::observed::Claim;
use crate::proxy_service::scope::{Candidate, Land};
use crate::proxy_service::survey::{Entry, status, urgent};

/// Number of rounds for which observations are kept in the status, so that noise causes no writes: a minute by
/// default.
const SHOWN: u32 = 6;

/// The time and the reported result of the last survey.
#[derive(Debug)]
pub(super) struct Rounds {
    pub(super) due: Instant,
    reported: BTreeMap<Key, (Instant, Value)>,
}

impl Rounds {
    pub(super) fn new() -> Self {
        Self {
            due: Instant::now(),
            reported: BTreeMap::new(),
        }
    }
}

impl Operator {
    /// Checks all Services that a `ProxyService` for many applies to.
    pub(super) async fn round(&mut self) {
        let next = match self.look_around().await {
            Ok(true) => self.pause,
            Ok(false) => ROUND,
            Err(error) => {
                tracing::warn!(%error, "reconciliation of ProxyServices failed; retrying");
                self.pause
            }
        };
        self.rounds.due = Instant::now() + next;
    }

    /// Runs a survey; returns whether there is such a `ProxyService`.
    async fn look_around(&mut self) -> Result<bool, kube::Error> {
        let land = self.server.land().await?;
        for key in land.left() {
            self.attend_soon(key);
        }
        for claim in land.finished() {
            if self.writes() {
                self.server.release(&claim.key).await?;
            }
        }
        let candidates = land.candidates();
        let governed: BTreeSet<&Key> = candidates.iter().map(|one| &one.key).collect();
        let known = &self.known;
        self.advisor
            .retain(|key| governed.contains(key) || known.contains(key));
        // If the data of a replica is missing, no Service is evaluated.
        if let Some(calls) = self.advisor.calls().await.cloned() {
            let entries = self.look_at(&candidates, &calls);
            self.report(&land, entries).await?;
        }
        Ok(land.wide().next().is_some())
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
            // Services with the same pods share a vertex: one stands for all of them.
            let vertex = topology.services.get(key);
            let stands = vertex.is_none_or(|vertex| *vertex == key.to_string());
            let calls = calls.get(&key.to_string()).copied();
            if candidate.made {
                self.attend_soon(key.clone());
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
                    self.attend_soon(key.clone());
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
        self.rounds.reported.retain(|key, _| there.contains(key));
        for claim in land.wide() {
            let entries = entries.remove(&claim.key).unwrap_or_default();
            let status = status(claim, entries);
            let urgent = urgent(&status);
            let last = self.rounds.reported.get(&claim.key);
            let fresh = last.is_some_and(|(at, said)| at.elapsed() < shown && *said == urgent);
            if fresh || !self.writes() {
                continue;
            }
            self.server.write_status(claim, status).await?;
            let now = Instant::now();
            self.rounds
                .reported
                .insert(claim.key.clone(), (now, urgent));
        }
        Ok(())
    }
}

/// The fields that identify a version of a resource, without its status.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Version {
    uid: String,
    generation: Option<i64>,
    deleting: bool,
}

impl Version {
    pub(super) fn of(claim: &Claim) -> Self {
        Self {
            uid: claim.uid.clone(),
            generation: claim.generation,
            deleting: claim.deleting,
        }
    }

    /// Returns whether it is being deleted.
    pub(super) fn is_leaving(&self) -> bool {
        self.deleting
    }
}
