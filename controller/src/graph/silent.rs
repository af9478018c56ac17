//! Counts the reports that connected proxies omit, because there was no load.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use maglor_balance::Time;

use super::averages::Reported;
use super::{Graphs, State};
use crate::index::topology::Topology;

/// A proxy, by node id, and the account with which it has authenticated.
type Client = (String, Option<String>);

/// The open streams of proxies that omit reports without load. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Silent(Arc<Mutex<BTreeMap<Client, usize>>>);

/// An open stream, until it is dropped.
struct Stream {
    of: Silent,
    client: Client,
}

impl Silent {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<Client, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut streams = self.of.streams();
        if let Some(count) = streams.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                streams.remove(&self.client);
            }
        }
    }
}

impl Graphs {
    /// Counts missing reports of a proxy as reports without load until the returned value is dropped. `account` is the
    /// service account with which it has authenticated.
    pub(crate) fn omits_empty(&self, node: &str, account: Option<&str>) -> Box<dyn Send> {
        let client = (node.to_owned(), account.map(str::to_owned));
        let of = self.silent.clone();
        if is_own(&self.topology(), &client) {
            // What it has not reported to another replica, or while it was disconnected, is in its next report.
            let now = self.now();
            self.state().reported_at.insert(node.to_owned(), now);
        }
        *of.streams().entry(client.clone()).or_default() += 1;
        Box::new(Stream { of, client })
    }

    /// Counts the reports that have been due and were omitted.
    pub(super) fn count_silent(&self) {
        self.count_silent_at(self.now());
    }

    pub(super) fn count_silent_at(&self, now: Time) {
        let Some(interval) = self.settings.interval else {
            return;
        };
        let topology = self.topology();
        let streams = self.silent.streams();
        let mut state = self.state();
        let clients = streams.keys();
        for (node, _) in clients.filter(|client| is_own(&topology, client)) {
            state.count_silent(node, interval, now);
        }
    }
}

/// Returns whether a client may report: a proxy reports about its own pod only.
fn is_own(topology: &Topology, (node, account): &Client) -> bool {
    let account = account.as_deref();
    account.is_none_or(|account| topology.account_of(node) == Some(account))
}

impl State {
    /// Counts the omitted reports of a proxy. A report that is late by less than half of the interval may still arrive.
    fn count_silent(&mut self, node: &str, interval: Duration, now: Time) {
        let Some(last) = self.reported_at.get_mut(node) else {
            self.reported_at.insert(node.to_owned(), now);
            return;
        };
        let mut at = *last;
        let nothing = Reported::default();
        while now.saturating_since(at) >= interval.mul_f64(1.5) {
            at = at + interval;
            self.recent.note(node, (at, interval), None, &[]);
            self.recent.averages.take(node, (at, interval), &nothing);
            self.averages.take(node, (at, interval), &nothing);
        }
        self.reported_at.insert(node.to_owned(), at);
    }
}
