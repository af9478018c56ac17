//! Merges the observations of several controller replicas.
//!
//! A proxy reports to the replica to which it is connected. When it reconnects to another replica, the old one keeps
//! its average for some time. Therefore only the most recent part of each proxy counts.

use std::collections::{BTreeMap, BTreeSet};

use maglor_balance::Time;
use maglor_service_graph::{self as service_graph, Spread, Times, Traffic};
use serde::{Deserialize, Serialize};

use super::report_limits::{ReportLimits, scaled};
use super::snapshot::MOST;
use super::{Edge, Snapshot};

/// A proxy's report of an edge.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Part {
    /// The proxy's node id.
    pub proxy: String,
    /// The age of the proxy's last report, in seconds.
    pub age_seconds: f64,
    /// Whether these are requests that the proxy accepts for its own service, rather than calls.
    pub taken: bool,
    /// Whether these are calls to a version of a service: `to` is the version's cluster.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub version: bool,
    /// Retries per second, included in the calls; only over the last seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<f64>,
    /// The number of endpoints that the proxy has ejected; only over the last seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ejected: Option<u32>,
    /// Calls by mutual TLS, and all calls, of the last report with any; connections if there were no calls. `None` if the
    /// proxy does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_tls: Option<(f64, f64)>,
    /// The proxy's private resident memory in bytes; only over the last seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The traffic of the proxy on the edge.
    #[serde(flatten)]
    pub edge: Edge,
    /// The distribution of the proxy's response times: upper bounds in milliseconds, each with the calls per second
    /// between the previous bound and this one ([`maglor_service_graph::Times`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<(Option<f64>, f64)>,
    /// The spread of the means of the proxy's intervals: the fields of [`Spread`], in their order.
    #[serde(default)]
    pub spread: (f64, f64, f64, f64),
}

/// The requests of a proxy, to all destinations.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ProxyLoad {
    /// The proxy's node id.
    pub proxy: String,
    /// The age of the proxy's last report, in seconds.
    pub age_seconds: f64,
    /// Requests per second; 0 for a proxy that has reported no requests.
    pub rps: f64,
    /// Mean response time of the requests in milliseconds.
    pub latency_ms: f64,
}

/// Returns each proxy once, as in its most recent report to any replica.
#[must_use]
pub fn latest(replicas: Vec<Vec<ProxyLoad>>) -> BTreeMap<String, ProxyLoad> {
    let mut all: BTreeMap<String, ProxyLoad> = BTreeMap::new();
    for load in replicas.into_iter().flatten() {
        match all.get_mut(&load.proxy) {
            Some(known) if known.age_seconds <= load.age_seconds => {}
            Some(known) => *known = load,
            None => drop(all.insert(load.proxy.clone(), load)),
        }
    }
    all
}

impl Part {
    /// Returns the calls of one proxy to one service.
    pub(super) fn new(part: &service_graph::Part<'_>, now: Time) -> Self {
        let (from, to) = (part.from.to_owned(), part.to.to_owned());
        Self {
            proxy: part.proxy.to_owned(),
            age_seconds: now.saturating_since(part.at).as_secs_f64(),
            taken: false,
            version: false,
            retries: None,
            ejected: None,
            mutual_tls: None,
            memory_bytes: None,
            edge: Edge::new(from, to, part.traffic),
            times: part.times.ranges().collect(),
            spread: {
                let spread = &part.spread;
                (spread.intervals, spread.calls, spread.sum, spread.squares)
            },
        }
    }
}

impl Edge {
    /// Returns the traffic of the edge without its ends.
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            rps: self.rps,
            latency_ms: self.latency_ms,
            failures: self.failures,
            bytes_per_second: self.bytes_per_second,
            connections: self.connections_per_second,
            in_flight: self.in_flight,
        }
    }

    /// Sums two edges. Quantiles cannot be added: if both are known, the result is the larger one, which the quantile
    /// of the sum does not exceed.
    fn plus(&self, other: &Self) -> Self {
        let sum = self.traffic().plus(other.traffic());
        let larger = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        Self {
            p50_ms: larger(self.p50_ms, other.p50_ms),
            p99_ms: larger(self.p99_ms, other.p99_ms),
            ..Self::new(self.from.clone(), self.to.clone(), sum)
        }
    }
}

impl Snapshot {
    /// Adds the snapshot that another replica has stored at about the same time. A proxy that has reconnected between
    /// the two snapshots then counts twice.
    pub fn add(&mut self, other: &Self) {
        for edge in &other.edges {
            let same = |own: &&mut Edge| own.from == edge.from && own.to == edge.to;
            match self.edges.iter_mut().find(same) {
                Some(own) => *own = own.plus(edge),
                None => self.edges.push(edge.clone()),
            }
        }
        for service in &other.services {
            let same = |own: &&mut super::Service| own.name == service.name;
            match self.services.iter_mut().find(same) {
                Some(own) => {
                    own.rps += service.rps;
                    own.pending += service.pending;
                }
                None => self.services.push(service.clone()),
            }
        }
        self.sort();
    }

    fn sort(&mut self) {
        self.services
            .sort_by(|one, other| one.name.cmp(&other.name));
        let ends = |one: &Edge, other: &Edge| (&one.from, &one.to).cmp(&(&other.from, &other.to));
        self.edges.sort_by(ends);
    }

    /// Returns the confirmed limits of calls to the services of the snapshot.
    fn report_limits(&self, replicas: &[Vec<Part>]) -> ReportLimits {
        let takes = self.services.iter().filter(|service| service.takes);
        let takes = takes.map(|service| (&*service.name, service.replicas));
        let taken = current(replicas).filter(|part| part.taken);
        ReportLimits::new(takes, taken.map(|part| (&*part.edge.to, part.edge.rps)))
    }

    /// Returns this replica's snapshot with the observations of all replicas instead of its own.
    #[must_use]
    pub fn with_parts(mut self, replicas: &[Vec<Part>]) -> Self {
        let mut edges: BTreeMap<(&str, &str), (Traffic, Times, Spread)> = BTreeMap::new();
        let mut taken: BTreeMap<&str, Traffic> = BTreeMap::new();
        let mut versions: BTreeMap<&str, Traffic> = BTreeMap::new();
        for Part {
            taken: is_taken,
            version,
            edge,
            times,
            spread,
            ..
        } in current(replicas)
        {
            if *is_taken || *version {
                let sums = if *version { &mut versions } else { &mut taken };
                let sum = sums.entry(&edge.to).or_default();
                *sum = sum.plus(edge.traffic());
            } else {
                let sum = edges.entry((&edge.from, &edge.to)).or_default();
                sum.0 = sum.0.plus(edge.traffic());
                sum.1.add(&Times::new(times.iter().copied()), 1.0);
                let (intervals, calls, latency, squares) = *spread;
                sum.2.add(&Spread {
                    intervals,
                    calls,
                    sum: latency,
                    squares,
                });
            }
        }
        let all = || edges.iter().map(|((_, to), sum)| (*to, sum.0));
        let factors = self.report_limits(replicas).factors(all());
        for ((_, to), sum) in &mut edges {
            if let Some(factor) = factors.get(*to) {
                sum.0 = scaled(sum.0, *factor);
            }
        }
        let alive = edges.into_iter().filter(|(_, sum)| sum.0.is_some());
        let alive = alive.map(|((from, to), (traffic, times, spread))| {
            Edge::new(from.to_owned(), to.to_owned(), traffic).with_times(&times, &spread)
        });
        self.edges = alive.collect();
        let known = self.services.iter().map(|service| service.name.clone());
        let mut known: BTreeSet<String> = known.collect();
        for name in self.edges.iter().flat_map(|edge| [&edge.from, &edge.to]) {
            if known.insert(name.clone()) {
                self.services.push(super::Service {
                    name: name.clone(),
                    replicas: 1,
                    ..super::Service::default()
                });
            }
        }
        self.sort();
        for version in self.splits.iter_mut().flat_map(|split| &mut split.versions) {
            version.set(versions.get(&*version.cluster).copied());
        }
        let mut called: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for edge in &self.edges {
            let (rps, pending) = called.entry(&edge.to).or_default();
            (*rps, *pending) = (*rps + edge.rps, *pending + edge.in_flight);
        }
        for service in &mut self.services {
            service.contradicted = factors.contains_key(&service.name);
            let called = called.get(&*service.name).copied().unwrap_or_default();
            let taken = taken.get(&*service.name);
            let (rps, pending) = taken.map_or(called, |one| (one.rps, one.in_flight));
            (service.rps, service.pending) = (rps.min(MOST), pending.min(MOST));
        }
        self
    }
}

/// Returns the parts of each proxy from the replica with its most recent report.
pub(crate) fn current(replicas: &[Vec<Part>]) -> impl Iterator<Item = &Part> {
    let mut last: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    for (replica, part) in each(replicas) {
        let reported = (part.age_seconds, replica);
        let last = last.entry(&part.proxy).or_insert(reported);
        if part.age_seconds < last.0 {
            *last = reported;
        }
    }
    let is_current = move |(replica, part): &(usize, &Part)| {
        last.get(&*part.proxy)
            .is_some_and(|last| last.1 == *replica)
    };
    each(replicas).filter(is_current).map(|(_, part)| part)
}

fn each(replicas: &[Vec<Part>]) -> impl Iterator<Item = (usize, &Part)> {
    let all = replicas.iter().enumerate();
    all.flat_map(|(replica, parts)| parts.iter().map(move |part| (replica, part)))
}
