//! Algorithm 1: the edges ⟨λ, r⟩ of the live graph, derived from counters that proxies report periodically.
//!
//! For each service that it calls, a proxy reports its counts since its start. Differences of successive reports are
//! kept for a window T. A missing report leads to a longer interval, not to a lower rate. A counter that has decreased
//! was reset, and a proxy that is silent for T has terminated.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use maglor_balance::Time;

use crate::response_times::Times;
use crate::spread::Spread;

mod traffic;

pub use traffic::{Counters, Traffic};

/// The weights of the intervals within the window.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Averaging {
    /// The weight of an interval halves with every T/2 of its age.
    #[default]
    Decayed,
    /// All intervals have equal weights, which is the paper's moving average.
    Plain,
}

/// The counts between two reports.
#[derive(Clone, Debug)]
struct Interval {
    from: Time,
    to: Time,
    counted: Counters,
}

impl Interval {
    fn seconds(&self) -> f64 {
        self.to.saturating_since(self.from).as_secs_f64()
    }
}

#[derive(Clone, Debug)]
struct Track {
    last: Counters,
    at: Time,
    intervals: VecDeque<Interval>,
}

impl Track {
    fn new(last: Counters, at: Time) -> Self {
        let intervals = VecDeque::new();
        Self {
            last,
            at,
            intervals,
        }
    }

    fn push(&mut self, interval: Interval, window: Duration) {
        self.at = interval.to;
        self.intervals.push_back(interval);
        let old = |interval: &Interval| self.at.saturating_since(interval.to) >= window;
        let gone = self.intervals.iter().take_while(|one| old(one)).count();
        self.intervals.drain(..gone);
    }
}

/// The caller and the called service.
type Pair = (String, String);

/// One proxy's share of an edge, for merging what several receivers observe.
#[derive(Clone, Debug, PartialEq)]
pub struct Part<'a> {
    /// The name of the proxy.
    pub proxy: &'a str,
    /// When the proxy last reported.
    pub at: Time,
    /// The name of the caller.
    pub from: &'a str,
    /// The name of the called service.
    pub to: &'a str,
    /// The proxy's share of the traffic.
    pub traffic: Traffic,
    /// The distribution of the response times: for each range, a rate in calls per second.
    pub times: Times,
    /// The spread of the mean response times of intervals.
    pub spread: Spread,
}

/// The present state of an edge.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveEdge<'a> {
    /// The name of the caller.
    pub from: &'a str,
    /// The name of the called service.
    pub to: &'a str,
    /// The traffic of the edge.
    pub traffic: Traffic,
    /// The distribution of the response times: for each range, a rate in calls per second.
    pub times: Times,
    /// The spread of the mean response times of intervals.
    pub spread: Spread,
}

/// The observed edges.
#[derive(Clone, Debug)]
pub struct LiveEdges {
    window: Duration,
    averaging: Averaging,
    /// The counts by proxy and edge.
    tracks: BTreeMap<String, BTreeMap<Pair, Track>>,
}

impl LiveEdges {
    /// Creates an empty set of edges; `window` is T, at least one second.
    #[must_use]
    pub fn new(window: Duration, averaging: Averaging) -> Self {
        let window = window.max(Duration::from_secs(1));
        let tracks = BTreeMap::new();
        Self {
            window,
            averaging,
            tracks,
        }
    }

    /// Returns T.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Changes T, at least one second. Intervals that are longer ago no longer count.
    pub fn set_window(&mut self, window: Duration) {
        self.window = window.max(Duration::from_secs(1));
    }

    /// Processes a report of `proxy` about its calls from `from` to `to` since it started. A report that is not newer
    /// than the last one is ignored.
    pub fn report(&mut self, proxy: &str, from: &str, to: &str, now: Time, counters: Counters) {
        let window = self.window;
        let tracks = self.tracks.entry(proxy.to_owned()).or_default();
        let Some(track) = tracks.get_mut(&(from.to_owned(), to.to_owned())) else {
            // The beginning of the counts before the first report is unknown.
            tracks.insert((from.to_owned(), to.to_owned()), Track::new(counters, now));
            return;
        };
        if now <= track.at {
            return;
        }
        let counted = counters.since(&track.last);
        let from = track.at;
        track.last = counters;
        let to = now;
        track.push(Interval { from, to, counted }, window);
    }

    /// Processes a report of `proxy` about all of its calls within the last `length`. Edges that the report does not
    /// contain had no calls.
    pub fn interval<'a>(
        &mut self,
        proxy: &str,
        now: Time,
        length: Duration,
        calls: impl IntoIterator<Item = (&'a str, &'a str, Counters)>,
    ) {
        let window = self.window;
        let begun = Time::ZERO + now.saturating_since(Time::ZERO + length);
        let tracks = self.tracks.entry(proxy.to_owned()).or_default();
        let mut counted: BTreeMap<Pair, Counters> = BTreeMap::new();
        for (from, to, counters) in calls {
            let sum = counted.entry((from.to_owned(), to.to_owned())).or_default();
            sum.add(&counters);
        }
        for pair in counted.keys() {
            if !tracks.contains_key(pair) {
                tracks.insert(pair.clone(), Track::new(Counters::default(), begun));
            }
        }
        for (pair, track) in tracks.iter_mut().filter(|(_, track)| now > track.at) {
            let interval = Interval {
                from: begun,
                to: now,
                counted: counted.remove(pair).unwrap_or_default(),
            };
            track.push(interval, window);
        }
        // A service that was not called during the window is no longer an edge.
        tracks.retain(|_, track| {
            let busy = |interval: &Interval| !interval.counted.is_idle();
            track.intervals.is_empty() || track.intervals.iter().any(busy)
        });
    }

    /// Removes proxies and edges that have been silent for the window.
    pub fn expire(&mut self, now: Time) {
        for tracks in self.tracks.values_mut() {
            tracks.retain(|_, track| now.saturating_since(track.at) < self.window);
        }
        self.tracks.retain(|_, tracks| !tracks.is_empty());
    }

    /// Returns the present edges, in the order of their names.
    pub fn edges(&self, now: Time) -> impl Iterator<Item = LiveEdge<'_>> {
        let mut edges: BTreeMap<(&str, &str), (Traffic, Times, Spread)> = BTreeMap::new();
        for part in self.parts(now) {
            let (traffic, times, spread) = edges.entry((part.from, part.to)).or_default();
            *traffic = traffic.plus(part.traffic);
            times.add(&part.times, 1.0);
            spread.add(&part.spread);
        }
        let edges = edges.into_iter();
        edges.map(|((from, to), (traffic, times, spread))| LiveEdge {
            from,
            to,
            traffic,
            times,
            spread,
        })
    }

    /// Returns the present edges, separately for each proxy.
    pub fn parts(&self, now: Time) -> impl Iterator<Item = Part<'_>> {
        let all = self.tracks.iter();
        let all = all.flat_map(|(proxy, tracks)| tracks.iter().map(move |one| (proxy, one)));
        all.map(move |(proxy, ((from, to), track))| {
            let (traffic, times, spread) = self.rates(track, now);
            Part {
                proxy,
                at: track.at,
                from,
                to,
                traffic,
                times,
                spread,
            }
        })
    }

    /// Returns the rates of a proxy's calls on an edge.
    fn rates(&self, track: &Track, now: Time) -> (Traffic, Times, Spread) {
        let mut rates = Traffic::default();
        let (mut times, mut spread) = (Times::default(), Spread::default());
        if now.saturating_since(track.at) >= self.window {
            return (rates, times, spread);
        }
        let weighed: Vec<(&Interval, f64)> = track
            .intervals
            .iter()
            .filter_map(|interval| Some((interval, self.weight(interval, now)?)))
            .collect();
        let seconds: f64 = weighed
            .iter()
            .map(|(interval, weight)| weight * interval.seconds())
            .sum();
        let (mut latency, mut calls) = (0.0, 0.0);
        for (Interval { counted, .. }, weight) in weighed {
            // Converts counts to weighted rates per second.
            let part = if seconds > 0.0 { weight / seconds } else { 0.0 };
            rates.rps += part * counted.requests as f64;
            rates.failures += part * counted.failures as f64;
            rates.bytes_per_second += part * counted.bytes as f64;
            rates.connections += part * counted.opened as f64;
            times.add(&counted.times, part);
            spread.add(&Spread::of(counted.requests, counted.latency_ms));
            calls += weight * counted.requests as f64;
            latency += weight * counted.latency_ms;
        }
        let last = track.intervals.back();
        rates.in_flight = last.map_or(0.0, |interval| interval.counted.in_flight as f64);
        if calls > 0.0 {
            rates.latency_ms = latency / calls;
        }
        (rates, times, spread)
    }

    /// Returns the weight of an interval; `None` if it has no length.
    fn weight(&self, interval: &Interval, now: Time) -> Option<f64> {
        let (length, window) = (interval.seconds(), self.window.as_secs_f64());
        let age = now.saturating_since(interval.to).as_secs_f64();
        if length <= 0.0 {
            return None;
        }
        // An interval that began before the window counts with its part inside.
        let inside = (window - age).clamp(0.0, length) / length;
        Some(match self.averaging {
            Averaging::Decayed => inside * (-2.0 * age / window).exp2(),
            Averaging::Plain => inside,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn counted(requests: u64) -> Counters {
        let (latency_ms, bytes) = (requests as f64 * 4.0, requests * 10);
        Counters {
            requests,
            failures: requests / 10,
            latency_ms,
            times: Times::new([(Some(2.5), 0.0), (Some(5.0), requests as f64)]),
            bytes,
            opened: requests / 50,
            in_flight: 0,
        }
    }

    fn only(live: &LiveEdges, now: Time) -> Traffic {
        let edges: Vec<_> = live.edges(now).collect();
        assert_eq!(edges.len(), 1, "{edges:?}");
        edges[0].traffic
    }

    #[test]
    fn a_steady_rate_is_found_whatever_is_missing() {
        for averaging in [Averaging::Decayed, Averaging::Plain] {
            let mut live = LiveEdges::new(Duration::from_secs(60), averaging);
            // Reports every 5 s, some missing, and a restart after 40 s.
            for second in [0, 5, 10, 30, 35, 40] {
                live.report("p", "a", "b", at(second), counted(second * 50));
            }
            for second in [45, 50, 60] {
                live.report("p", "a", "b", at(second), counted((second - 40) * 50));
            }
            let traffic = only(&live, at(62));
            assert!((traffic.rps - 50.0).abs() < 1e-9, "{traffic:?}");
            assert!((traffic.latency_ms - 4.0).abs() < 1e-9, "{traffic:?}");
            assert!((traffic.failures - 5.0).abs() < 1e-9, "{traffic:?}");
            assert!(
                (traffic.bytes_per_second - 500.0).abs() < 1e-9,
                "{traffic:?}"
            );
            assert!((traffic.connections - 1.0).abs() < 1e-9, "{traffic:?}");
            // All of them are somewhere between 2.5 and 5 ms, and 4 ms in the mean.
            let edge = live.edges(at(62)).next().unwrap();
            let median = edge.times.quantile(0.5, 4.0, &edge.spread).unwrap();
            assert!((median - 4.0).abs() < 0.2, "{median}");
            let counted: f64 = edge.times.ranges().map(|(_, count)| count).sum();
            assert!((counted - 50.0).abs() < 1e-9, "{counted}");
        }
    }

    #[test]
    fn a_change_shows_after_the_window_and_sooner_when_decayed() {
        let mut plain = LiveEdges::new(Duration::from_secs(60), Averaging::Plain);
        let mut decayed = LiveEdges::new(Duration::from_secs(60), Averaging::Decayed);
        let mut requests = 0;
        for second in (0..=180).step_by(5) {
            for live in [&mut plain, &mut decayed] {
                live.report("p", "a", "b", at(second), counted(requests));
            }
            requests += if second < 120 { 100 } else { 500 };
            if second == 150 {
                let (plain, decayed) = (only(&plain, at(150)), only(&decayed, at(150)));
                assert!((plain.rps - 60.0).abs() < 1e-9, "{plain:?}");
                assert!(decayed.rps > 70.0 && decayed.rps < 100.0, "{decayed:?}");
            }
        }
        assert!((only(&plain, at(180)).rps - 100.0).abs() < 1e-9);
    }

    #[test]
    fn proxies_add_up_and_go() {
        let mut live = LiveEdges::new(Duration::from_secs(60), Averaging::Plain);
        for second in [0, 10, 20] {
            live.report("p", "a", "b", at(second), counted(second));
            live.report("q", "a", "b", at(second), counted(second * 2));
        }
        live.report("q", "a", "b", at(15), counted(0));
        assert!((only(&live, at(20)).rps - 3.0).abs() < 1e-9);
        live.report("q", "a", "b", at(70), counted(140));
        assert!(
            (only(&live, at(81)).rps - 2.0).abs() < 1e-9,
            "p is silent for a minute"
        );
        live.expire(at(131));
        assert_eq!(live.edges(at(131)).count(), 0);
    }

    #[test]
    fn intervals_that_proxies_measure_themselves() {
        let mut live = LiveEdges::new(Duration::from_secs(60), Averaging::Plain);
        let ten = Duration::from_secs(10);
        let in_flight = Counters {
            in_flight: 3,
            ..counted(100)
        };
        live.interval(
            "p",
            at(10),
            ten,
            [("a", "b", counted(100)), ("a", "c", in_flight)],
        );
        live.interval("p", at(20), ten, [("a", "b", counted(300))]);
        // A report got lost; what it had is in the next one.
        live.interval("p", at(40), 2 * ten, [("a", "b", counted(400))]);
        live.interval("q", at(40), ten, [("a", "b", counted(50))]);
        let edges: Vec<_> = live.edges(at(40)).collect();
        assert_eq!((edges[0].from, edges[0].to), ("a", "b"));
        assert!(
            (edges[0].traffic.rps - (20.0 + 5.0)).abs() < 1e-9,
            "{edges:?}"
        );
        assert!(
            (edges[0].traffic.latency_ms - 4.0).abs() < 1e-9,
            "{edges:?}"
        );
        // `c` was called for the first of four times ten seconds.
        assert!((edges[1].traffic.rps - 2.5).abs() < 1e-9, "{edges:?}");
        assert!(
            (edges[1].traffic.latency_ms - 4.0).abs() < 1e-9,
            "{edges:?}"
        );
        assert_eq!(
            edges[1].traffic.in_flight, 0.0,
            "it was then, it is not now"
        );
        assert_eq!(live.parts(at(40)).count(), 3);
        for second in [50, 60, 70, 80] {
            live.interval("p", at(second), ten, [("a", "b", counted(1))]);
        }
        assert!(
            live.edges(at(80)).all(|edge| edge.to != "c"),
            "not any more"
        );
    }

    #[test]
    fn odd_intervals_do_no_harm() {
        let mut live = LiveEdges::new(Duration::from_secs(60), Averaging::Decayed);
        let most = Counters {
            requests: u64::MAX,
            failures: u64::MAX,
            latency_ms: f64::MAX,
            times: Times::new([(Some(1.0), f64::MAX), (None, f64::MAX)]),
            bytes: u64::MAX,
            opened: u64::MAX,
            in_flight: u64::MAX,
        };
        let calls = |to: &'static str| ("a", to, most.clone());
        live.interval("p", at(1), Duration::from_secs(9), [calls("b"), calls("b")]);
        live.interval("p", at(1), Duration::ZERO, [calls("b")]);
        live.interval("p", at(2), Duration::ZERO, [calls("b"), calls("c")]);
        for LiveEdge { traffic, times, .. } in live.edges(at(2)) {
            assert!(!traffic.rps.is_nan() && traffic.rps >= 0.0, "{traffic:?}");
            let _ = times.quantile(0.99, traffic.latency_ms, &Spread::default());
        }
    }
}
