//! The graph of the last seconds, for viewers of the dashboard. While there are any, proxies report every two seconds.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use maglor_balance::Time;
use maglor_service_graph::{Averaging, Spread, Times, Traffic};
use maglor_xds::load::ClusterLoad;
use tokio::sync::watch;

use super::averages::Averages;
use super::parts::{Part, current};
use super::{Edge, Graphs, MAX_CLUSTERS, Snapshot, snapshot};

/// Interval of reports while there are viewers.
const WATCHED_INTERVAL: Duration = Duration::from_secs(2);
/// Window of the averages while there are viewers, once all proxies report often.
const WATCHED_WINDOW: Duration = Duration::from_secs(6);
/// Time after which all proxies report at a new interval.
const SETTLED: Duration = Duration::from_secs(5);
/// Time for which a viewer counts after it was last seen.
const WATCHED_FOR: Duration = Duration::from_secs(5);

/// Edges over the last seconds.
pub(super) struct RecentEdges {
    pub(super) averages: Averages,
    /// What the averages do not contain, as of the last report of each proxy.
    last: HashMap<String, Last>,
    /// Window without viewers, which includes a late report.
    window: Duration,
    /// When there began to be viewers, and until when there are; `None` without viewers.
    watched: Option<(Time, Time)>,
}

/// A proxy's last report.
#[derive(Clone, Debug, Default)]
struct Last {
    at: Time,
    memory: Option<u64>,
    /// Retries per second and ejected endpoints of each called vertex.
    called: BTreeMap<String, (f64, u32)>,
    /// Calls by mutual TLS, and all calls, per second, of each called vertex: as of the last report with any, so that
    /// the share of an edge with few calls does not come and go.
    mutual_tls: BTreeMap<String, (f64, f64)>,
}

/// The graph of the last seconds, and the calls that were accepted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    pub(crate) snapshot: Snapshot,
    /// The window of the averages.
    pub(crate) window: Duration,
    /// The calls to each vertex: those that its sidecars accepted, else the sum of its edges.
    pub(crate) vertices: BTreeMap<String, Edge>,
    /// The most recent part of each proxy.
    pub(crate) parts: Vec<Part>,
}

/// Sums of parts.
#[derive(Default)]
struct Sum(Traffic, Times, Spread);

impl Sum {
    fn add(&mut self, part: &Part) {
        self.0 = self.0.plus(part.edge.traffic());
        self.1.add(&Times::new(part.times.iter().copied()), 1.0);
        let (intervals, calls, sum, squares) = part.spread;
        self.2.add(&Spread {
            intervals,
            calls,
            sum,
            squares,
        });
    }

    fn edge(&self, from: &str, to: &str) -> Edge {
        Edge::new(from.to_owned(), to.to_owned(), self.0).with_times(&self.1, &self.2)
    }
}

/// Returns the sum of the parts of each key.
pub(crate) fn sums<'a, K: Ord>(parts: impl Iterator<Item = (K, &'a Part)>) -> BTreeMap<K, Edge> {
    let mut sums: BTreeMap<K, Sum> = BTreeMap::new();
    for (key, part) in parts {
        sums.entry(key).or_default().add(part);
    }
    let sums = sums.into_iter();
    sums.map(|(key, sum)| (key, sum.edge("", ""))).collect()
}

impl RecentEdges {
    pub(super) fn new(interval: Option<Duration>) -> Self {
        let window = interval.unwrap_or_default().mul_f64(1.5);
        let window = window.max(WATCHED_WINDOW);
        Self {
            averages: Averages::new(window, Averaging::Decayed),
            last: HashMap::new(),
            window,
            watched: None,
        }
    }

    /// Processes the parts of a report that are not calls. `called` are the vertices of its clusters.
    pub(super) fn note(
        &mut self,
        node: &str,
        (now, length): (Time, Duration),
        memory: Option<u64>,
        called: &[(String, &ClusterLoad)],
    ) {
        let seconds = length.as_secs_f64().max(0.1);
        let last = self.last.entry(node.to_owned()).or_default();
        last.at = now;
        last.memory = memory.or(last.memory);
        last.called.clear();
        for (to, load) in called {
            let (retries, ejected) = last.called.entry(to.clone()).or_default();
            *retries += load.retries.min(load.requests()) as f64 / seconds;
            *ejected = ejected.saturating_add(u32::try_from(load.ejected).unwrap_or(u32::MAX));
        }
        if last.mutual_tls.len() > MAX_CLUSTERS {
            last.mutual_tls.clear();
        }
        last.mutual_tls.extend(mutual_tls(called, seconds));
    }

    pub(super) fn expire(&mut self, now: Time) {
        let window = self.window;
        self.last
            .retain(|_, last| now.saturating_since(last.at) < window);
        self.averages.expire(now);
    }

    /// Returns whether there are viewers.
    fn is_watched(&self, now: Time) -> bool {
        self.watched.is_some_and(|(_, until)| now < until)
    }

    /// Sets the window that fits the interval of reports; returns it.
    fn adapt(&mut self, now: Time) -> Duration {
        let often = self.is_watched(now)
            && self
                .watched
                .is_some_and(|(since, _)| now.saturating_since(since) >= SETTLED);
        let window = if often { WATCHED_WINDOW } else { self.window };
        self.averages.set_window(window);
        window
    }

    fn parts(&mut self, now: Time) -> Vec<Part> {
        self.adapt(now);
        let last = |part: Part| {
            let Some(last) = self.last.get(&part.proxy) else {
                return part;
            };
            let calls = !part.taken && !part.version;
            let called = last.called.get(&part.edge.to).filter(|_| calls);
            Part {
                memory_bytes: last.memory,
                retries: called.map(|(retries, _)| *retries),
                ejected: called.map(|(_, ejected)| *ejected),
                mutual_tls: last
                    .mutual_tls
                    .get(&part.edge.to)
                    .filter(|_| calls)
                    .copied(),
                ..part
            }
        };
        self.averages.parts(now).map(last).collect()
    }
}

/// Returns the calls by mutual TLS, and all calls, per second, of each vertex with any in a report; connections of a
/// vertex without calls.
fn mutual_tls(called: &[(String, &ClusterLoad)], seconds: f64) -> BTreeMap<String, (f64, f64)> {
    let mut sums: BTreeMap<&str, [(u64, u64); 2]> = BTreeMap::new();
    for (to, load) in called {
        let Some(by) = load.mutual_tls else { continue };
        let counts = [(by.requests, load.requests()), (by.opened, load.opened)];
        for (sum, (by, all)) in sums.entry(to).or_default().iter_mut().zip(counts) {
            *sum = (sum.0.saturating_add(by.min(all)), sum.1.saturating_add(all));
        }
    }
    let sums = sums.into_iter().filter_map(|(to, counts)| {
        let (by, all) = counts.into_iter().find(|(_, all)| *all > 0)?;
        Some((to.to_owned(), (by as f64 / seconds, all as f64 / seconds)))
    });
    sums.collect()
}

impl Graphs {
    /// Returns the interval at which proxies should report now.
    pub(crate) fn report_interval(&self) -> Option<Duration> {
        let interval = self.settings.interval?;
        let watched = self.state().recent.is_watched(self.now());
        Some(match watched {
            true => interval.min(WATCHED_INTERVAL),
            false => interval,
        })
    }

    /// Returns a receiver that changes with the interval of reports.
    pub(crate) fn interval_changes(&self) -> watch::Receiver<()> {
        self.interval_changes.subscribe()
    }

    /// Records whether there are viewers at this time.
    pub(crate) fn set_watched(&self, watched: bool) {
        let now = self.now();
        let mut state = self.state();
        let before = state.recent.is_watched(now);
        let since = state.recent.watched.map(|(since, _)| since);
        match watched {
            true => {
                let since = since.filter(|_| before).unwrap_or(now);
                state.recent.watched = Some((since, now + WATCHED_FOR));
            }
            false if before => {}
            false => state.recent.watched = None,
        }
        let ended = since.is_some() && state.recent.watched.is_none();
        drop(state);
        if ended || (watched && !before) {
            self.interval_changes.send_replace(());
        }
    }

    /// Returns the observations of this replica over the last seconds, by proxy.
    pub(crate) fn recent_parts(&self) -> Vec<Part> {
        let now = self.now();
        self.state().recent.parts(now)
    }

    /// Returns the graph over the last seconds, from this replica's observations and those of others.
    pub(crate) fn recent(&self, mut replicas: Vec<Vec<Part>>) -> Recent {
        self.count_silent();
        let (topology, now) = (self.topology(), self.now());
        let mut state = self.state();
        let window = state.recent.adapt(now);
        replicas.push(state.recent.parts(now));
        let snapshot = snapshot::Builder {
            window,
            topology: &topology,
            usage: &state.usage,
            delays: &state.delays.all(),
        }
        .build(Timestamp::now(), &[], &BTreeMap::new(), &BTreeMap::new());
        // The rest only needs copies.
        drop(state);
        let snapshot = snapshot.with_parts(&replicas);
        let parts: Vec<Part> = current(&replicas).cloned().collect();
        let to = |taken: bool| {
            let parts = parts.iter();
            let parts = parts.filter(move |part| part.taken == taken && !part.version);
            sums(parts.map(|part| (part.edge.to.clone(), part)))
        };
        let mut vertices = to(false);
        vertices.extend(to(true));
        Recent {
            snapshot,
            window,
            vertices,
            parts,
        }
    }
}

#[cfg(test)]
mod tests {
    use maglor_xds::load::MutualTls;

    use super::*;
    use crate::graph::Settings;

    #[test]
    fn the_share_of_mutual_tls_is_that_of_the_last_calls() {
        let load = |succeeded, opened, by: Option<(u64, u64)>| ClusterLoad {
            succeeded,
            opened,
            mutual_tls: by.map(|(requests, opened)| MutualTls { requests, opened }),
            ..ClusterLoad::default()
        };
        let mut edges = RecentEdges::new(None);
        let mut note = |load: &ClusterLoad, second: u64| {
            let now = Time::from_nanos(second * 1_000_000_000);
            let called = [("shop/cart".to_owned(), load)];
            edges.note("shop/web-0", (now, Duration::from_secs(2)), None, &called);
            edges.last["shop/web-0"]
                .mutual_tls
                .get("shop/cart")
                .copied()
        };
        assert_eq!(note(&load(10, 1, None), 1), None);
        assert_eq!(note(&load(10, 1, Some((8, 1))), 2), Some((4.0, 5.0)));
        assert_eq!(note(&load(0, 0, Some((0, 0))), 3), Some((4.0, 5.0)));
        // Without calls, connections count.
        assert_eq!(note(&load(0, 4, Some((0, 1))), 4), Some((0.5, 2.0)));
    }

    #[tokio::test(start_paused = true)]
    async fn reports_are_frequent_while_there_are_viewers() {
        let graphs = Graphs::new(Settings::default());
        let mut changes = graphs.interval_changes();
        let seconds = |graphs: &Graphs| graphs.report_interval().unwrap().as_secs();
        assert_eq!(seconds(&graphs), 10);
        graphs.set_watched(false);
        assert!(!changes.has_changed().unwrap());
        graphs.set_watched(true);
        assert_eq!(seconds(&graphs), 2);
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        tokio::time::advance(Duration::from_secs(4)).await;
        graphs.set_watched(true);
        assert!(!changes.has_changed().unwrap());
        assert_eq!(graphs.recent(Vec::new()).window, Duration::from_secs(15));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(graphs.recent(Vec::new()).window, WATCHED_WINDOW);
        // A viewer that reloads the page changes nothing.
        graphs.set_watched(false);
        assert_eq!(seconds(&graphs), 2);
        tokio::time::advance(WATCHED_FOR).await;
        graphs.set_watched(false);
        assert!(changes.has_changed().unwrap());
        assert_eq!(seconds(&graphs), 10);
    }
}
