//! Algorithm 1: the edges ⟨λ, r⟩ of the live graph, from counters that proxies report now and then.
//!
//! A proxy reports what it has counted since it started, for each service that it calls. Differences
//! of successive reports are kept for a window T. A report that is missing makes a longer interval,
//! not a lower rate; a counter that went back began anew; a proxy that is silent for T has gone.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use maglor_balance::Time;

/// What a proxy has counted of the calls between two services, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Calls that have ended.
    pub requests: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// The sum of their response times in milliseconds.
    pub latency_ms: f64,
    /// Bytes both ways.
    pub bytes: u64,
}

impl Counters {
    fn since(&self, before: &Self) -> Self {
        let restarted = self.requests < before.requests
            || self.failures < before.failures
            || self.bytes < before.bytes;
        if restarted {
            return *self;
        }
        Self {
            requests: self.requests - before.requests,
            failures: self.failures - before.failures,
            latency_ms: (self.latency_ms - before.latency_ms).max(0.0),
            bytes: self.bytes - before.bytes,
        }
    }
}

/// How intervals of the window count.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Averaging {
    /// Half as much for every T/2 of age.
    #[default]
    Decayed,
    /// All alike: the paper's moving average.
    Plain,
}

/// An edge's averages over the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// λ: calls a second.
    pub rps: f64,
    /// r: mean response time in milliseconds; 0 if there was no call.
    pub latency_ms: f64,
    /// Failures a second.
    pub failures: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
}

/// What lies between two reports.
#[derive(Clone, Copy, Debug)]
struct Interval {
    from: Time,
    to: Time,
    counted: Counters,
}

#[derive(Clone, Debug)]
struct Track {
    last: Counters,
    at: Time,
    intervals: VecDeque<Interval>,
}

/// Caller and called service.
type Pair = (String, String);

/// Edges while they are observed.
#[derive(Clone, Debug)]
pub struct LiveEdges {
    window: Duration,
    averaging: Averaging,
    tracks: BTreeMap<Pair, BTreeMap<String, Track>>,
}

impl LiveEdges {
    /// Nothing observed yet; `window` is T, of which anything below a second is one.
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

    /// Takes a report of `proxy` about the calls of `from` to `to`. A report that is not newer than
    /// the last one is passed over.
    pub fn report(&mut self, proxy: &str, from: &str, to: &str, now: Time, counters: Counters) {
        let pair = (from.to_owned(), to.to_owned());
        let proxies = self.tracks.entry(pair).or_default();
        let Some(track) = proxies.get_mut(proxy) else {
            // What was counted before the first report has no known beginning.
            let intervals = VecDeque::new();
            let track = Track {
                last: counters,
                at: now,
                intervals,
            };
            proxies.insert(proxy.to_owned(), track);
            return;
        };
        if now <= track.at {
            return;
        }
        let counted = counters.since(&track.last);
        track.intervals.push_back(Interval {
            from: track.at,
            to: now,
            counted,
        });
        (track.last, track.at) = (counters, now);
        let window = self.window;
        while track
            .intervals
            .front()
            .is_some_and(|i| now.saturating_since(i.to) >= window)
        {
            track.intervals.pop_front();
        }
    }

    /// Forgets what has been silent for the window.
    pub fn expire(&mut self, now: Time) {
        for proxies in self.tracks.values_mut() {
            proxies.retain(|_, track| now.saturating_since(track.at) < self.window);
        }
        self.tracks.retain(|_, proxies| !proxies.is_empty());
    }

    /// The edges as of now, in the order of their names.
    pub fn edges(&self, now: Time) -> impl Iterator<Item = (&str, &str, Traffic)> {
        let edges = self.tracks.iter();
        edges.map(move |((from, to), proxies)| (from.as_str(), to.as_str(), self.sum(proxies, now)))
    }

    /// The traffic of all proxies together.
    fn sum(&self, proxies: &BTreeMap<String, Track>, now: Time) -> Traffic {
        let mut sum = Traffic::default();
        for track in proxies.values() {
            let part = self.rates(track, now);
            sum.latency_ms += part.latency_ms;
            sum.rps += part.rps;
            sum.failures += part.failures;
            sum.bytes_per_second += part.bytes_per_second;
        }
        sum.latency_ms = if sum.rps > 0.0 {
            sum.latency_ms / sum.rps
        } else {
            0.0
        };
        sum
    }

    /// A proxy's rates; `latency_ms` is a second's sum here.
    fn rates(&self, track: &Track, now: Time) -> Traffic {
        let mut rates = Traffic::default();
        if now.saturating_since(track.at) >= self.window {
            return rates;
        }
        let (mut seconds, mut latency) = (0.0, 0.0);
        for interval in &track.intervals {
            let Interval { from, to, counted } = interval;
            let length = to.saturating_since(*from).as_secs_f64();
            let age = now.saturating_since(*to).as_secs_f64();
            // What began before the window counts with the part that is in it.
            let inside = (self.window.as_secs_f64() - age).clamp(0.0, length) / length;
            let weight = inside * self.weight(age);
            seconds += weight * length;
            rates.rps += weight * counted.requests as f64;
            rates.failures += weight * counted.failures as f64;
            rates.bytes_per_second += weight * counted.bytes as f64;
            latency += weight * counted.latency_ms;
        }
        if seconds > 0.0 {
            rates.rps /= seconds;
            rates.failures /= seconds;
            rates.bytes_per_second /= seconds;
            rates.latency_ms = latency / seconds;
        }
        rates
    }

    fn weight(&self, age: f64) -> f64 {
        match self.averaging {
            Averaging::Decayed => (-2.0 * age / self.window.as_secs_f64()).exp2(),
            Averaging::Plain => 1.0,
        }
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
            bytes,
        }
    }

    fn only(live: &LiveEdges, now: Time) -> Traffic {
        let edges: Vec<_> = live.edges(now).collect();
        assert_eq!(edges.len(), 1, "{edges:?}");
        edges[0].2
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
}
