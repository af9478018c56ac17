//! What was changed, and who knows of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// The changes of a run.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    changes: Vec<Change>,
    /// By Service: the changes that somebody does not know of yet.
    open: HashMap<u32, Vec<usize>>,
}

/// One pod became ready, or stopped being so.
#[derive(Debug)]
struct Change {
    address: String,
    ready: bool,
    /// When the API server had answered; before that it may be known already.
    accepted: Option<Instant>,
    /// The proxies that use its Service and have not heard of it.
    missing: HashSet<u32>,
    last_heard: Option<Instant>,
}

impl Ledger {
    /// A change is about to be made; its number.
    pub(super) fn begin(
        &mut self,
        service: u32,
        address: &str,
        ready: bool,
        users: &[u32],
    ) -> usize {
        let change = self.changes.len();
        self.changes.push(Change {
            address: address.to_owned(),
            ready,
            accepted: None,
            missing: users.iter().copied().collect(),
            last_heard: None,
        });
        self.open.entry(service).or_default().push(change);
        change
    }

    /// The API server has taken it.
    pub(super) fn accepted(&mut self, change: usize, now: Instant) {
        self.changes[change].accepted = Some(now);
    }

    /// A proxy was told the ready endpoints of a Service.
    pub(super) fn heard(
        &mut self,
        proxy: u32,
        service: u32,
        ready: &HashSet<String>,
        now: Instant,
    ) {
        let Some(open) = self.open.get_mut(&service) else {
            return;
        };
        open.retain(|&number| {
            let change = &mut self.changes[number];
            if ready.contains(&change.address) == change.ready && change.missing.remove(&proxy) {
                change.last_heard = Some(now);
            }
            !change.missing.is_empty()
        });
    }

    /// Changes that somebody does not know of.
    pub(super) fn unknown(&self) -> usize {
        self.open.values().map(Vec::len).sum()
    }

    /// For each change that all know of: from the API server's answer until the last one knew; zero where all
    /// knew before the answer had arrived. Ascending.
    pub(super) fn delays(&self) -> Vec<Duration> {
        let delays = self.changes.iter().filter_map(|change| {
            let (accepted, heard) = (change.accepted?, change.last_heard?);
            let all = change.missing.is_empty();
            all.then(|| heard.saturating_duration_since(accepted))
        });
        let mut delays: Vec<_> = delays.collect();
        delays.sort_unstable();
        delays
    }

    /// How many changes there were.
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }
}

/// Who uses which Service.
pub(super) fn users(used_by: impl Iterator<Item = (u32, Vec<u32>)>) -> BTreeMap<u32, Vec<u32>> {
    let mut users: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (proxy, services) in used_by {
        for service in services {
            users.entry(service).or_default().push(proxy);
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_known_when_its_last_user_knows() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let ready = |addresses: &[&str]| addresses.iter().map(|&one| one.to_owned()).collect();
        let mut ledger = Ledger::default();
        let change = ledger.begin(7, "10.0.0.1:80", false, &[1, 2]);
        ledger.accepted(change, at(10));
        ledger.heard(1, 7, &ready(&["10.0.0.1:80"]), at(12));
        ledger.heard(1, 8, &ready(&[]), at(13));
        assert_eq!((ledger.unknown(), ledger.delays()), (1, vec![]));
        ledger.heard(1, 7, &ready(&["10.0.0.2:80"]), at(14));
        assert_eq!(ledger.unknown(), 1, "the other one does not know");
        ledger.heard(2, 7, &ready(&["10.0.0.2:80"]), at(30));
        assert_eq!(ledger.unknown(), 0);
        assert_eq!(ledger.delays(), [Duration::from_millis(20)]);
    }
}
