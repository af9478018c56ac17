//! Percent splits among the versions of a service, derived step by step from λ, r and the failures of each version.
//!
//! Implements step 3 of Algorithm 2 of the paper in docs/placement.md ("routing information (percent splits,
//! failover)"), illustrated by its Fig. 5b (70 % to `v1`, 30 % to `v2`). The paper does not specify how to compute the
//! percentages; this module uses the following rules:
//!
//! 1. A version that is worse than the best one loses weight. It is worse if it fails more often than the threshold and
//!    significantly more often than the best, or if its response times are longer by half. It loses twice the step, or
//!    all of its weight if more than half of its calls fail.
//! 2. If no version is worse, weights approach each version's share of all replicas, by at most one step. A version
//!    that is slower than the best by a fifth does not gain weight. A version between the two limits keeps its weight,
//!    so that weights do not oscillate.
//! 3. A version that was worse stays below the weight at which it was worse for half an hour, and twice as long each
//!    further time.
//! 4. A version with weight 0 stays at 0: only users introduce a version, or return to one.
//!
//! Versions with too few calls are not evaluated, and gain no weight.

use std::collections::BTreeMap;

use maglor_balance::Time;

use super::Advised;
use super::number_format::{number, percent};
use super::observed::SplitUse;
use super::params::{Params, Splits};

const NOTHING: &str = "it gets no requests, unchanged";
/// The sum of all weights of a split.
const WHOLE: u32 = 100;
/// The number of standard deviations that a difference between shares of failures must exceed to be significant.
const SURE: f64 = 2.0;
/// The share of failed calls above which a version loses all of its weight.
const BROKEN: f64 = 0.5;
/// The assumed length, in seconds, of the interval before the first snapshot.
const FIRST: f64 = 60.0;
/// The maximum number of doublings of the time for which a worse version stays below its weight.
const MOST_DOUBLED: u32 = 6;

/// The recommended split.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SplitAdvice {
    /// The port of the Service.
    pub port: u16,
    /// The versions and their weights, 100 in total, in the order of the input.
    pub versions: Vec<VersionAdvice>,
}

/// The recommended weight of a version.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionAdvice {
    /// The name of the version: its Service, or a subset of the Service.
    pub name: String,
    /// Whether the version is a subset of the Service.
    pub subset: bool,
    /// The present weight of the version, in percent.
    pub present: u32,
    /// The recommended weight, in percent.
    pub weight: Advised<u32>,
}

/// The decaying counts of a version's calls.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    count: f64,
    failed: f64,
    /// The sum of the response times of the calls, in milliseconds.
    time: f64,
}

impl Calls {
    fn failures(self) -> f64 {
        match self.count > 0.0 {
            true => (self.failed / self.count).clamp(0.0, 1.0),
            false => 0.0,
        }
    }

    fn latency_ms(self) -> f64 {
        match self.count > 0.0 {
            true => self.time / self.count,
            false => 0.0,
        }
    }

    /// Returns the confidence interval of the share of failures (Wilson's interval).
    fn bounds(self) -> (f64, f64) {
        let (n, p) = (self.count.max(1.0), self.failures());
        let spread = SURE * SURE / n;
        let centre = (p + spread / 2.0) / (1.0 + spread);
        let half = (SURE / (1.0 + spread)) * (p * (1.0 - p) / n + spread / (4.0 * n)).sqrt();
        ((centre - half).max(0.0), (centre + half).min(1.0))
    }
}

/// The weight up to which a version may grow, because it was worse before.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    weight: u32,
    until: Time,
    /// How many times the version was worse after it had grown.
    times: u32,
}

/// The history of a version.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    calls: Calls,
    ceiling: Option<Ceiling>,
}

impl Track {
    /// Records that the version was worse with this weight.
    fn limit(&mut self, now: Time, weight: u32, p: &Splits) {
        let over = self.ceiling.filter(|one| now >= one.until);
        let times = match (self.ceiling, over) {
            (None, _) => 1,
            (Some(one), None) => one.times,
            (Some(one), Some(_)) => one.times.saturating_add(1),
        };
        let rest = p.rest.saturating_mul(1 << (times - 1).min(MOST_DOUBLED));
        self.ceiling = Some(Ceiling {
            weight: weight.saturating_sub(p.step),
            until: now + rest,
            times,
        });
    }

    fn most(&self, now: Time) -> u32 {
        let ceiling = self.ceiling.filter(|one| now < one.until);
        ceiling.map_or(WHOLE, |one| one.weight)
    }
}

/// The state of a split over time.
#[derive(Clone, Debug, Default)]
pub(super) struct SplitTrack {
    pub(super) seen: Option<Time>,
    tracks: BTreeMap<String, Track>,
    /// The decision for the last snapshot; `None` if the requests are not split.
    pub(super) decided: Option<SplitAdvice>,
}

impl SplitTrack {
    pub(super) fn observe(&mut self, now: Time, split: &SplitUse, params: &Params) {
        let age = self
            .seen
            .map(|seen| now.saturating_since(seen).as_secs_f64());
        let length = age.unwrap_or(FIRST);
        let kept = (-length / params.splits.half_life.as_secs_f64().max(1.0)).exp2();
        let named = |name: &String| split.versions.iter().any(|one| one.name == *name);
        self.tracks.retain(|name, _| named(name));
        for one in &split.versions {
            let calls = &mut self.tracks.entry(one.name.clone()).or_default().calls;
            let new = one.rps * length;
            *calls = Calls {
                count: calls.count * kept + new,
                failed: calls.failed * kept + one.failures.min(one.rps) * length,
                time: calls.time * kept + one.latency_ms * new,
            };
        }
        self.seen = Some(now);
        self.decided = self.decide(now, split, params);
    }

    fn decide(&mut self, now: Time, split: &SplitUse, params: &Params) -> Option<SplitAdvice> {
        let parts: Vec<u32> = split.versions.iter().map(|one| one.weight).collect();
        let present = apportion(WHOLE, &parts);
        if present.iter().filter(|weight| **weight > 0).count() < 2 {
            return None;
        }
        let versions = split.versions.iter().map(|one| {
            let track = self.tracks.get(&one.name).copied().unwrap_or_default();
            Version {
                replicas: one.replicas,
                calls: track.calls,
                most: track.most(now),
            }
        });
        let versions: Vec<Version> = versions.collect();
        let decided = decide(&versions, &present, params);
        let each = split.versions.iter().zip(&present).zip(decided);
        let each = each.map(|((one, present), (weight, worse))| {
            if worse && let Some(track) = self.tracks.get_mut(&one.name) {
                track.limit(now, *present, &params.splits);
            }
            VersionAdvice {
                name: one.name.clone(),
                subset: one.subset,
                present: *present,
                weight,
            }
        });
        Some(SplitAdvice {
            port: split.port,
            versions: each.collect(),
        })
    }
}

/// The measurements of a version for its evaluation.
struct Version {
    replicas: u32,
    calls: Calls,
    /// The weight up to which the version may grow.
    most: u32,
}

/// A recommended weight, and whether the version was worse.
type Decided = (Advised<u32>, bool);

/// The reason why a version is worse than the best.
enum Worse {
    /// More than half of the version's calls fail.
    Broken(String),
    Fails(String),
    Not,
    Slow(String),
}

fn decide(versions: &[Version], present: &[u32], params: &Params) -> Vec<Decided> {
    let p = &params.splits;
    let known = |at: &usize| present[*at] > 0 && versions[*at].calls.count >= p.calls;
    let judged: Vec<usize> = (0..versions.len()).filter(known).collect();
    let least = |of: fn(&Calls) -> f64| {
        let all = judged.iter().map(|at| of(&versions[*at].calls));
        all.fold(f64::INFINITY, f64::min)
    };
    let best_failures = least(|calls| calls.bounds().1);
    let best_latency = least(|calls| calls.latency_ms());
    let worse = |at: usize| match judged.contains(&at) && judged.len() > 1 {
        true => worse(&versions[at].calls, best_failures, best_latency, params),
        false => Worse::Not,
    };
    let mut worse: Vec<Worse> = (0..versions.len()).map(worse).collect();
    if !judged.iter().any(|at| matches!(worse[*at], Worse::Not)) {
        // If the version that fails least is slower than one that fails, its success rate counts
        // for more.
        for one in worse.iter_mut().filter(|one| matches!(one, Worse::Slow(_))) {
            *one = Worse::Not;
        }
    }
    if worse.iter().any(|one| !matches!(one, Worse::Not)) {
        return back(versions, present, &worse, p);
    }
    let grows = |at: usize| {
        judged.contains(&at)
            && versions[at].calls.latency_ms() <= best_latency * (1.0 + p.grows)
            && versions[at].calls.failures() <= params.thresholds.error_rate
    };
    forth(versions, present, grows, p)
}

fn worse(calls: &Calls, best_failures: f64, best_latency: f64, params: &Params) -> Worse {
    let (least, _) = calls.bounds();
    let (failures, latency) = (calls.failures(), calls.latency_ms());
    if least > params.thresholds.error_rate.max(best_failures) {
        let why = format!(
            "{} of its {} calls fail, of those of the best version at most {}",
            percent(failures),
            number(calls.count),
            percent(best_failures),
        );
        return match failures > BROKEN {
            true => Worse::Broken(why),
            false => Worse::Fails(why),
        };
    }
    if latency > best_latency * (1.0 + params.splits.slower) {
        return Worse::Slow(format!(
            "its latency is {} ms, that of the best version {} ms",
            number(latency),
            number(best_latency),
        ));
    }
    Worse::Not
}

/// Returns whether a version may take the weight that others lose.
fn is_good(version: &Version, worse: &Worse, p: &Splits) -> bool {
    matches!(worse, Worse::Not) && version.calls.count >= p.calls
}

/// Moves weight from worse versions to the others, in proportion to the weights of these.
fn back(versions: &[Version], present: &[u32], worse: &[Worse], p: &Splits) -> Vec<Decided> {
    let cut = |(weight, worse): (&u32, &Worse)| match worse {
        Worse::Broken(_) => *weight,
        Worse::Not => 0,
        Worse::Fails(_) | Worse::Slow(_) => (2 * p.step).min(*weight),
    };
    let cuts: Vec<u32> = present.iter().zip(worse).map(cut).collect();
    let good = (0..versions.len()).map(|at| match is_good(&versions[at], &worse[at], p) {
        true => present[at],
        false => 0,
    });
    let gains = apportion(cuts.iter().sum(), &good.collect::<Vec<u32>>());
    let each = versions.iter().enumerate().map(|(at, _)| {
        let reason = match &worse[at] {
            Worse::Broken(why) => format!("{why}: it gets no requests"),
            Worse::Fails(why) | Worse::Slow(why) => format!("{why}: back by {}", cuts[at]),
            Worse::Not if gains[at] > 0 => format!("{} from worse versions", gains[at]),
            Worse::Not if present[at] > 0 => {
                format!(
                    "{} calls are too few to judge it",
                    number(versions[at].calls.count)
                )
            }
            Worse::Not => NOTHING.to_owned(),
        };
        let weight = present[at] - cuts[at] + gains[at];
        let worse = !matches!(worse[at], Worse::Not);
        (Advised::new(weight, reason), worse)
    });
    each.collect()
}

/// Moves weights by a step towards the versions' shares of all replicas.
fn forth(
    versions: &[Version],
    present: &[u32],
    grows: impl Fn(usize) -> bool,
    p: &Splits,
) -> Vec<Decided> {
    let served = |at: usize| present[at] > 0;
    let replicas: Vec<u32> = (0..versions.len())
        .map(|at| match served(at) {
            true => versions[at].replicas,
            false => 0,
        })
        .collect();
    // If the number of replicas of one version is unknown, no share is known.
    let known = (0..versions.len()).all(|at| !served(at) || replicas[at] > 0);
    let targets = match known {
        true => apportion(WHOLE, &replicas),
        false => present.to_vec(),
    };
    let gains: Vec<u32> = (0..versions.len())
        .map(|at| match grows(at) {
            true => {
                let most = targets[at].min(versions[at].most);
                most.saturating_sub(present[at]).min(p.step)
            }
            false => 0,
        })
        .collect();
    let losses = present.iter().zip(&targets);
    let losses: Vec<u32> = losses
        .map(|(present, target)| present.saturating_sub(*target).min(p.step))
        .collect();
    let moved = gains.iter().sum::<u32>().min(losses.iter().sum());
    let moved = if moved < p.least { 0 } else { moved };
    let (gains, losses) = (apportion(moved, &gains), apportion(moved, &losses));
    let all: u32 = replicas.iter().sum();
    let each = versions.iter().enumerate().map(|(at, one)| {
        let weight = present[at] + gains[at] - losses[at];
        let share = || format!("{} of {all} replicas, {} %", replicas[at], targets[at]);
        let reason = match (gains[at], losses[at]) {
            (0, 0) if !served(at) => NOTHING.to_owned(),
            (0, 0) if one.calls.count < p.calls => {
                format!("{} calls are too few to judge it", number(one.calls.count))
            }
            (0, 0) if !known => "not worse than the others".to_owned(),
            (0, 0) => format!("not worse than the others; it has {}", share()),
            (0, lost) => format!("it has {}: {lost} less", share()),
            (gained, _) => format!(
                "{} of {} calls fail, in {} ms; it has {}: {gained} more",
                percent(one.calls.failures()),
                number(one.calls.count),
                number(one.calls.latency_ms()),
                share()
            ),
        };
        (Advised::new(weight, reason), false)
    });
    each.collect()
}

/// Distributes a whole number in proportion to `parts`. The remainder after rounding down goes to the largest
/// fractions, and among equal ones to the first. All results are zero if all parts are zero.
fn apportion(whole: u32, parts: &[u32]) -> Vec<u32> {
    let sum: u64 = parts.iter().map(|part| u64::from(*part)).sum();
    if sum == 0 {
        return vec![0; parts.len()];
    }
    let exact = |part: &u32| u64::from(*part) * u64::from(whole);
    let mut input: Vec<u64> = parts.iter().map(|part| exact(part) / sum).collect();
    let left = u64::from(whole) - input.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|at| (std::cmp::Reverse(exact(&parts[*at]) % sum), *at));
    for at in order.into_iter().take(usize::try_from(left).unwrap_or(0)) {
        input[at] += 1;
    }
    let input = input.into_iter();
    input
        .map(|one| u32::try_from(one).unwrap_or(whole))
        .collect()
}

#[cfg(test)]
mod tests;
