//! The ledger of changes, and which clients have received them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// The changes of a run.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    changes: Vec<Change>,
    /// By Service: the changes that a client has not received yet, or whose EndpointSlice was not
    /// observed.
    open: HashMap<u32, Vec<usize>>,
}

/// A pod became ready, or unready.
#[derive(Debug)]
struct Change {
    address: String,
    ready: bool,
    /// When the API server responded; it may be observed before that.
    accepted: Option<Instant>,
    /// When the API server reported the EndpointSlice with it.
    published: Option<Instant>,
    /// The proxies that use its Service and have not received it.
    missing: HashSet<u32>,
    last_heard: Option<Instant>,
}

/// The delays of changes, each list ascending. Of two times from different connections the later
/// event may be observed first: then it is zero.
#[derive(Debug, Default)]
pub(super) struct Delays {
    /// From the API server's response until the last proxy received it.
    pub(super) whole: Vec<Duration>,
    /// From the API server's response until it reported the EndpointSlice: Kubernetes' part.
    pub(super) kubernetes: Vec<Duration>,
    /// From there until the last proxy received it: our part.
    pub(super) ours: Vec<Duration>,
}

impl Ledger {
    /// Records that a change is about to be made; returns its number.
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
            published: None,
            missing: users.iter().copied().collect(),
            last_heard: None,
        });
        self.open.entry(service).or_default().push(change);
        change
    }

    /// Records that the API server has accepted it.
    pub(super) fn accepted(&mut self, change: usize, now: Instant) {
        self.changes[change].accepted = Some(now);
    }

    /// Records the ready endpoints of a Service reported by the API server, as far as one of its
    /// slices contains them.
    pub(super) fn published(
        &mut self,
        service: u32,
        endpoints: &HashMap<String, bool>,
        now: Instant,
    ) {
        let ready = |address: &str| endpoints.get(address).copied();
        self.learn(service, ready, |change| {
            change.published.get_or_insert(now);
        });
    }

    /// Records that a proxy has received the ready endpoints of a Service.
    pub(super) fn heard(
        &mut self,
        proxy: u32,
        service: u32,
        ready: &HashSet<String>,
        now: Instant,
    ) {
        let ready = |address: &str| Some(ready.contains(address));
        self.learn(service, ready, |change| {
            if change.missing.remove(&proxy) {
                change.last_heard = Some(now);
            }
        });
    }

    /// Updates the changes of a Service that are visible in its endpoints.
    fn learn(
        &mut self,
        service: u32,
        ready: impl Fn(&str) -> Option<bool>,
        note: impl Fn(&mut Change),
    ) {
        let Some(open) = self.open.get_mut(&service) else {
            return;
        };
        open.retain(|&number| {
            let change = &mut self.changes[number];
            if ready(&change.address) == Some(change.ready) {
                note(change);
            }
            !change.missing.is_empty() || change.published.is_none()
        });
    }

    /// Returns the number of changes from this number on that a client has not received.
    pub(super) fn unknown(&self, from: usize) -> usize {
        let changes = self.changes.iter().skip(from);
        changes.filter(|change| !change.missing.is_empty()).count()
    }

    /// Returns the number of changes that a client has not received, or whose EndpointSlice was not
    /// observed.
    pub(super) fn open(&self) -> usize {
        self.open.values().map(Vec::len).sum()
    }

    /// Returns the delays of the changes from this number on that all clients have received.
    pub(super) fn delays(&self, from: usize) -> Delays {
        let known = self.changes.iter().skip(from);
        let known = known.filter(|change| change.missing.is_empty());
        let mut delays = Delays::default();
        for change in known {
            let (Some(accepted), Some(heard)) = (change.accepted, change.last_heard) else {
                continue;
            };
            delays.whole.push(heard.saturating_duration_since(accepted));
            if let Some(published) = change.published {
                let kubernetes = published.saturating_duration_since(accepted);
                delays.kubernetes.push(kubernetes);
                delays.ours.push(heard.saturating_duration_since(published));
            }
        }
        delays.whole.sort_unstable();
        delays.kubernetes.sort_unstable();
        delays.ours.sort_unstable();
        delays
    }

    /// Returns the number of changes.
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }
}

/// Returns the clients that use each Service.
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
        let slice = |ready| HashMap::from([("10.0.0.1:80".to_owned(), ready)]);
        let mut ledger = Ledger::default();
        let change = ledger.begin(7, "10.0.0.1:80", false, &[1, 2]);
        ledger.published(7, &slice(true), at(9));
        ledger.accepted(change, at(10));
        ledger.heard(1, 7, &ready(&["10.0.0.1:80"]), at(12));
        ledger.heard(1, 8, &ready(&[]), at(13));
        assert_eq!((ledger.unknown(0), ledger.delays(0).whole), (1, vec![]));
        ledger.heard(1, 7, &ready(&["10.0.0.2:80"]), at(14));
        assert_eq!(ledger.unknown(0), 1, "the other one does not know");
        ledger.published(7, &HashMap::new(), at(24));
        ledger.published(7, &slice(false), at(25));
        ledger.published(7, &slice(false), at(26));
        ledger.heard(2, 7, &ready(&["10.0.0.2:80"]), at(30));
        assert_eq!((ledger.unknown(0), ledger.open()), (0, 0));
        let delays = ledger.delays(0);
        let ms = |ms| vec![Duration::from_millis(ms)];
        assert_eq!(delays.whole, ms(20));
        assert_eq!((delays.kubernetes, delays.ours), (ms(15), ms(5)));
        assert!(ledger.delays(1).whole.is_empty());
    }

    #[test]
    fn the_first_client_does_not_wait_for_others() {
        let now = Instant::now();
        let slice = HashMap::from([("10.0.0.1:80".to_owned(), false)]);
        let mut ledger = Ledger::default();
        let change = ledger.begin(7, "10.0.0.1:80", false, &[1]);
        ledger.accepted(change, now);
        ledger.heard(1, 7, &HashSet::new(), now + Duration::from_millis(1));
        assert_eq!((ledger.unknown(0), ledger.open()), (0, 1));
        ledger.published(7, &slice, now + Duration::from_millis(2));
        assert_eq!(ledger.open(), 0);
        assert_eq!(ledger.delays(0).ours, [Duration::ZERO]);
    }
}
