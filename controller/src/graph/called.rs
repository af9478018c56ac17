//! Tracks the Services that a Deployment's pods call, so that its new pods can request them in advance.
//!
//! The list has hysteresis: a port that was called once is remembered for some time, so the list changes when a
//! workload calls other Services, and not whenever calls pause.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maglor_balance::Time;
use maglor_xds::MOST_AHEAD;

use crate::index::Called;
use crate::index::facts::Key;
use crate::index::topology::port_of_cluster;

/// Idle time after which a port counts as no longer called.
const REMEMBERED: Duration = Duration::from_secs(900);

/// The format used between replicas: lists of `NAMESPACE/SERVICE:PORT`, by the `NAMESPACE/NAME` of the owner of the
/// calling pods.
pub(crate) type Words = BTreeMap<String, Vec<String>>;

/// The Services that workloads call.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Called ports of Services and the time of the last call, by owner of the calling pods.
    known: BTreeMap<Key, BTreeMap<(Key, u16), Time>>,
    /// The reports of other replicas.
    elsewhere: Called,
    reported: Called,
}

fn key(text: &str) -> Option<Key> {
    let (namespace, name) = text.split_once('/')?;
    Some(Key::new(namespace, name))
}

impl Calls {
    /// Records that a pod of this owner has called a cluster. At most [`MOST_AHEAD`] ports are remembered.
    pub(super) fn note(&mut self, maker: &Key, cluster: &str, now: Time) {
        let Some(port) = port_of_cluster(cluster) else {
            return;
        };
        let known = self.known.entry(maker.clone()).or_default();
        if known.len() < MOST_AHEAD || known.contains_key(&port) {
            known.insert(port, now);
        }
    }

    /// Returns the calls that proxies have reported to this replica.
    pub(super) fn own(&self) -> Words {
        let words = self.known.iter().map(|(maker, ports)| {
            let ports = ports
                .keys()
                .map(|(service, port)| format!("{service}:{port}"));
            (maker.to_string(), ports.collect())
        });
        words.collect()
    }

    /// Replaces the calls reported to other replicas; unreadable entries are skipped.
    pub(super) fn set_elsewhere(&mut self, others: &[Words]) {
        let read = |text: &str| {
            let (service, port) = text.rsplit_once(':')?;
            Some((key(service)?, port.parse::<u16>().ok()?))
        };
        let mut elsewhere = Called::new();
        for (maker, ports) in others.iter().flatten() {
            let Some(maker) = key(maker) else { continue };
            let ports = ports.iter().filter_map(|port| read(port));
            elsewhere.entry(maker).or_default().extend(ports);
        }
        self.elsewhere = elsewhere;
    }

    /// Returns the list to publish; `None` if it has not changed.
    pub(super) fn follow(&mut self, now: Time) -> Option<Called> {
        for ports in self.known.values_mut() {
            ports.retain(|_, last| now.saturating_since(*last) < REMEMBERED);
        }
        self.known.retain(|_, ports| !ports.is_empty());
        let known = self.known.iter();
        let mut called: Called = known
            .map(|(maker, ports)| (maker.clone(), ports.keys().cloned().collect()))
            .collect();
        for (maker, ports) in &self.elsewhere {
            let all: &mut BTreeSet<_> = called.entry(maker.clone()).or_default();
            let more = ports.iter().filter(|port| !all.contains(*port)).cloned();
            let room = MOST_AHEAD.saturating_sub(all.len());
            let more: Vec<_> = more.take(room).collect();
            all.extend(more);
        }
        if called == self.reported {
            return None;
        }
        self.reported.clone_from(&called);
        Some(called)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn the_list_changes_when_another_service_is_called() {
        let (mut calls, web) = (Calls::default(), Key::new("shop", "web"));
        assert_eq!(calls.follow(at(0)), None);
        calls.note(&web, "cart.shop.svc.cluster.local:80", at(0));
        calls.note(&web, "cart.shop.svc.cluster.local:80/v2", at(0));
        calls.note(&web, "passthrough", at(0));
        let reported = calls.follow(at(1)).unwrap();
        assert_eq!(reported[&web], [(Key::new("shop", "cart"), 80)].into());
        assert_eq!(calls.follow(at(500)), None, "a pause");
        calls.note(&web, "db.shop.svc.cluster.local:5432", at(600));
        assert_eq!(calls.follow(at(600)).unwrap()[&web].len(), 2);
        let reported = calls.follow(at(1000)).unwrap();
        assert_eq!(reported[&web], [(Key::new("shop", "db"), 5432)].into());
        assert_eq!(calls.follow(at(1500)), Some(Called::new()));
    }

    #[test]
    fn replicas_share_the_calls_of_their_own_proxies() {
        let (mut one, mut other) = (Calls::default(), Calls::default());
        let web = Key::new("shop", "web");
        one.note(&web, "cart.shop.svc.x:80", at(0));
        other.note(&web, "db.shop.svc.x:5432", at(0));
        let odd = Words::from([
            ("unknown".to_owned(), vec!["a/b:1".to_owned()]),
            ("a/b".to_owned(), vec!["c".to_owned(), "a/c:x".to_owned()]),
        ]);
        one.set_elsewhere(&[other.own(), odd]);
        let reported = one.follow(at(1)).unwrap();
        let db = (Key::new("shop", "db"), 5432);
        assert_eq!(reported[&web], [(Key::new("shop", "cart"), 80), db].into());
        // Reports from other replicas are not forwarded, which would cause loops.
        assert_eq!(one.own()["shop/web"], ["shop/cart:80"]);
        one.set_elsewhere(&[]);
        assert_eq!(one.follow(at(2)).unwrap()[&web].len(), 1);
    }

    #[test]
    fn the_number_of_reported_targets_is_bounded() {
        let (mut calls, web) = (Calls::default(), Key::new("shop", "web"));
        for service in 0..1000 {
            calls.note(&web, &format!("s{service}.shop.svc.x:80"), at(0));
        }
        assert_eq!(calls.follow(at(0)).unwrap()[&web].len(), MOST_AHEAD);
        // Published entries are kept, so that the list does not change constantly if a workload calls more ports than
        // fit.
        calls.note(&web, "other.shop.svc.x:80", at(1));
        assert_eq!(calls.follow(at(1)), None);
    }
}
