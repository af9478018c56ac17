//! Delays between nodes, as measured by proxies.
//!
//! A proxy reports the round-trip time to an endpoint that it measured when it connected. The minimum of the recent
//! values counts as the delay of a pair of nodes: higher values include queueing. A pair without new connections keeps
//! its value, because nodes do not move.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maglor_balance::Time;
use serde::{Deserialize, Serialize};

/// Length of a period. The delay is the minimum over the current and the previous period.
const LATELY: Duration = Duration::from_secs(600);
/// Maximum number of pairs, sufficient for all pairs of 250 nodes.
const MOST: usize = 32_768;

/// The network delay between two nodes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Delay {
    /// The node whose name sorts first.
    pub from: String,
    /// The other node.
    pub to: String,
    /// The one-way delay in milliseconds, which is half of the round-trip time.
    pub ms: f64,
}

/// The delays by pair of nodes.
#[derive(Debug, Default)]
pub(super) struct Delays(BTreeMap<(String, String), Least>);

#[derive(Debug)]
struct Least {
    since: Time,
    /// The minimum of the current period, in milliseconds.
    now: f64,
    /// The minimum of the previous period, in milliseconds.
    before: f64,
}

impl Delays {
    /// Records a round-trip time between two nodes.
    pub(super) fn note(&mut self, from: &str, to: &str, round_trip: Duration, now: Time) {
        let ms = round_trip.as_secs_f64() * 500.0;
        let pair = (from.min(to).to_owned(), from.max(to).to_owned());
        if from == to || (self.0.len() >= MOST && !self.0.contains_key(&pair)) {
            return;
        }
        let least = self.0.entry(pair).or_insert(Least {
            since: now,
            now: ms,
            before: ms,
        });
        if now.saturating_since(least.since) >= LATELY {
            *least = Least {
                since: now,
                now: ms,
                before: least.now,
            };
        }
        least.now = least.now.min(ms);
    }

    /// Removes nodes that no longer exist.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0
            .retain(|(from, to), _| is_there(from) && is_there(to));
    }

    /// Returns the known delays, ordered by name.
    pub(super) fn all(&self) -> Vec<Delay> {
        let all = self.0.iter().map(|((from, to), least)| Delay {
            from: from.clone(),
            to: to.clone(),
            ms: least.now.min(least.before),
        });
        all.collect()
    }
}

/// Merges the delays of several replicas of the controller: the minimum for each pair.
#[must_use]
pub fn least(replicas: impl IntoIterator<Item = Vec<Delay>>) -> Vec<Delay> {
    let mut all: BTreeMap<(String, String), f64> = BTreeMap::new();
    for Delay { from, to, ms } in replicas.into_iter().flatten() {
        let known = all.entry((from, to)).or_insert(ms);
        *known = known.min(ms);
    }
    let all = all.into_iter();
    all.map(|((from, to), ms)| Delay { from, to, ms }).collect()
}

/// Returns the delays between all nodes; empty if no delays are known. The nodes are given by name, with their zones.
/// A pair that was not measured gets the median of the pairs between the same zones. If there are none, it gets the
/// median of all pairs within a zone or between zones, depending on the pair, or otherwise the median of all pairs.
#[must_use]
pub fn completed(zones: &BTreeMap<&str, Option<&str>>, known: &[Delay]) -> Vec<Delay> {
    let zones_of = |from: &str, to: &str| {
        let zone = |node: &str| zones.get(node).copied().flatten();
        let (one, other) = (zone(from)?, zone(to)?);
        Some((one.min(other), one.max(other)))
    };
    let measured: BTreeMap<(&str, &str), f64> = known
        .iter()
        .filter(|one| zones.contains_key(&*one.from) && zones.contains_key(&*one.to))
        .map(|one| {
            let (from, to) = (&*one.from, &*one.to);
            ((from.min(to), from.max(to)), one.ms)
        })
        .collect();
    let median_of = |like: &dyn Fn(&str, &str) -> bool| {
        let alike = measured.iter().filter(|((from, to), _)| like(from, to));
        median(alike.map(|(_, ms)| *ms).collect())
    };
    let mut between: BTreeMap<Option<(&str, &str)>, Option<f64>> = BTreeMap::new();
    let names: BTreeSet<&str> = zones.keys().copied().collect();
    let mut all = Vec::new();
    for (at, from) in names.iter().enumerate() {
        for to in names.iter().skip(at + 1) {
            let pair = zones_of(from, to);
            let guess = || {
                let same = |a: &str, b: &str| pair.is_some() && zones_of(a, b) == pair;
                let inside = pair.map(|(one, other)| one == other);
                let alike = |a: &str, b: &str| {
                    let zones = zones_of(a, b).map(|(one, other)| one == other);
                    inside.is_some() && zones == inside
                };
                median_of(&same)
                    .or_else(|| median_of(&alike))
                    .or_else(|| median_of(&|_, _| true))
            };
            let ms = match measured.get(&(*from, *to)) {
                Some(ms) => Some(*ms),
                None => *between.entry(pair).or_insert_with(guess),
            };
            all.extend(ms.map(|ms| Delay {
                from: (*from).to_owned(),
                to: (*to).to_owned(),
                ms,
            }));
        }
    }
    all
}

fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn delay(from: &str, to: &str, ms: f64) -> Delay {
        Delay {
            from: from.to_owned(),
            to: to.to_owned(),
            ms,
        }
    }

    #[test]
    fn the_least_recent_delay_of_any_proxy_counts() {
        let mut delays = Delays::default();
        let millis = Duration::from_millis;
        delays.note("b", "a", millis(10), at(0));
        delays.note("a", "b", millis(4), at(100));
        delays.note("a", "b", millis(30), at(200));
        delays.note("a", "a", millis(1), at(200));
        assert_eq!(delays.all(), [delay("a", "b", 2.0)]);
        // The delay has increased. The higher value applies when the lower one is forgotten.
        for second in (700..2500).step_by(100) {
            delays.note("a", "b", millis(20), at(second));
            let expected = if second < 1300 { 2.0 } else { 10.0 };
            assert_eq!(delays.all(), [delay("a", "b", expected)], "{second}");
        }
        // There were no new connections, so the last value is kept.
        assert_eq!(delays.all(), [delay("a", "b", 10.0)]);
        delays.retain(|node| node != "b");
        assert!(delays.all().is_empty());
        let replicas = [
            vec![delay("a", "b", 3.0), delay("a", "c", 1.0)],
            vec![delay("a", "b", 2.0)],
        ];
        let together = [delay("a", "b", 2.0), delay("a", "c", 1.0)];
        assert_eq!(least(replicas), together);
    }

    #[test]
    fn unmeasured_delays_are_those_of_similar_pairs() {
        let zones = BTreeMap::from([
            ("a1", Some("a")),
            ("a2", Some("a")),
            ("b1", Some("b")),
            ("b2", Some("b")),
            ("x", None),
        ]);
        let known = [
            delay("a1", "a2", 0.2),
            delay("a1", "b1", 5.0),
            delay("a2", "b1", 7.0),
            delay("a2", "b2", 6.0),
            delay("a1", "gone", 90.0),
        ];
        let all = completed(&zones, &known);
        assert_eq!(all.len(), 10);
        let of = |from: &str, to: &str| {
            let found = all.iter().find(|one| one.from == from && one.to == to);
            found.unwrap().ms
        };
        assert_eq!(of("a1", "b1"), 5.0, "measured");
        assert_eq!(of("a1", "b2"), 6.0, "as others between a and b");
        assert_eq!(of("b1", "b2"), 0.2, "as others inside of a zone");
        assert_eq!(of("a1", "x"), 6.0, "as any");
        assert!(completed(&zones, &[]).is_empty());
    }
}
