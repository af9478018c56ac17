//! The ledger: one place that knows the true load of every server of a group, and says for each
//! request which one is the least loaded.
//!
//! For a server it believes `in flight, as last reported + referrals not yet seen there`. Referrals
//! carry numbers, and a report names the latest that has arrived: everything before it has either
//! arrived, then it is among those in flight, or was lost, then it is forgotten. So losses, doubles,
//! reordering and traffic that no ledger referred correct themselves with the next report.
//!
//! What no report would correct is silence: a server that is idle has nothing to report, though the
//! ledger may believe it busy because the last referral or report was lost. The ledger therefore
//! audits a server that has been silent for several service times although it should be busy.
//!
//! After a restart the ledger believes all servers idle, and knows better as soon as each of them
//! has ended a request. Its new epoch keeps tickets of the old life out of the count.
//!
//! Invariant: a belief is never below zero, and every member can be referred to.

use std::time::Duration;

use super::message::{Name, Referral, Report, Ticket};
use crate::{Rng, Time};

/// Silence after which a busy server is audited, in its own mean service times. An exponential
/// service lasts longer with probability e⁻⁴ = 1.8 %; audits cost 0.03 messages a request.
const SILENCE: u32 = 4;

/// Silence before the first report tells how fast the servers are.
const FIRST_SILENCE: Duration = Duration::from_millis(100);

/// A referral that is older than this has reached its server or never will.
const TRANSIT: Duration = Duration::from_millis(20);

/// Of two servers that are equally loaded, the one is preferred that is faster by this factor.
/// Below it, the difference may be noise of a short average.
const CLEARLY_FASTER: f64 = 1.3;

/// Loads of one group's servers.
#[derive(Clone, Debug)]
pub struct Ledger {
    epoch: u32,
    /// Ordered by name.
    entries: Vec<Entry>,
    /// Mean service time of the group's servers; zero while unknown.
    pace: Duration,
}

/// That a ledger wants a report from a server, for it has not heard of it for long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Audit(pub Name);

/// What the ledger believes about a server.
#[derive(Clone, Debug)]
struct Entry {
    name: Name,
    weight: u32,
    /// As last reported.
    in_flight: u32,
    /// Number of the latest referral to it.
    sent: u32,
    /// Number of the latest referral that it is known to have received, or that is given up.
    seen: u32,
    sent_at: Time,
    /// When it last reported or was last asked to.
    heard_at: Time,
    /// Its mean time between completions while busy, in nanoseconds; 0 while unknown.
    pace: u64,
}

impl Ledger {
    /// A ledger for servers with their weights. `epoch` must differ from that of earlier ledgers of
    /// the group with high probability: a random number will do. 0 is taken as 1.
    #[must_use]
    pub fn new(members: impl IntoIterator<Item = (Name, u32)>, epoch: u32) -> Self {
        let mut ledger = Self {
            epoch: epoch.max(1),
            entries: Vec::new(),
            pace: Duration::ZERO,
        };
        ledger.set_members(members);
        ledger
    }

    /// Takes over a changed membership; what is known about those that stay is kept.
    pub fn set_members(&mut self, members: impl IntoIterator<Item = (Name, u32)>) {
        let mut entries: Vec<Entry> = members
            .into_iter()
            .map(|(name, weight)| match self.find(name) {
                Some(at) => Entry {
                    weight: weight.max(1),
                    ..self.entries[at].clone()
                },
                None => Entry::new(name, weight.max(1)),
            })
            .collect();
        entries.sort_by_key(|entry| entry.name);
        entries.dedup_by_key(|entry| entry.name);
        self.entries = entries;
    }

    /// The answer to [`Question::Referral`](super::Question::Referral): the server with the least
    /// believed load for its weight, which counts one more from now on. Also whom to audit.
    pub fn ask(&mut self, now: Time, rng: &mut Rng) -> (Option<Referral>, Option<Audit>) {
        let Some((best, silent)) = self.scan(now, rng) else {
            return (None, None);
        };
        let audit = silent.map(|at| {
            self.entries[at].heard_at = now;
            Audit(self.entries[at].name)
        });
        let entry = &mut self.entries[best];
        entry.sent = entry.sent.wrapping_add(1);
        entry.sent_at = now;
        let ticket = Ticket {
            epoch: self.epoch,
            number: entry.sent,
        };
        let referral = Referral {
            server: entry.name,
            ticket,
        };
        (Some(referral), audit)
    }

    /// Takes in what a server reports, of itself or because it was audited.
    pub fn report(&mut self, from: Name, report: &Report, now: Time) {
        let Some(at) = self.find(from) else {
            return;
        };
        let entry = &mut self.entries[at];
        entry.in_flight = report.in_flight;
        entry.heard_at = now;
        entry.pace = report.pace.as_nanos() as u64;
        if let Some(latest) = report.latest
            && latest.epoch == self.epoch
            && (entry.sent.wrapping_sub(latest.number) as i32) >= 0
        {
            entry.seen = latest.number;
        }
        if now.saturating_since(entry.sent_at) > TRANSIT {
            entry.seen = entry.sent;
        }
        self.pace = (self.pace * 63 + report.pace) / 64;
    }

    /// What the ledger believes is in flight at a server; `None` for a stranger.
    #[must_use]
    pub fn believed(&self, name: Name) -> Option<u32> {
        self.find(name).map(|at| self.entries[at].believed())
    }

    fn find(&self, name: Name) -> Option<usize> {
        self.entries
            .binary_search_by_key(&name, |entry| entry.name)
            .ok()
    }

    /// One pass: the server to refer to, and one that should have been heard of.
    fn scan(&self, now: Time, rng: &mut Rng) -> Option<(usize, Option<usize>)> {
        let patience = self.silence();
        let mut best = 0;
        let mut ties = 0;
        let mut silent = None;
        for (at, entry) in self.entries.iter().enumerate() {
            if silent.is_none() && entry.is_silent(now, patience) {
                silent = Some(at);
            }
            match Preference::of(entry, self.entries.get(best)?) {
                _ if at == 0 => ties = 1,
                Preference::Clear => (best, ties) = (at, 1),
                Preference::Against => {}
                Preference::Equal => {
                    ties += 1;
                    if rng.below(ties) == 0 {
                        best = at;
                    }
                }
            }
        }
        (!self.entries.is_empty()).then_some((best, silent))
    }

    fn silence(&self) -> Duration {
        if self.pace.is_zero() {
            FIRST_SILENCE
        } else {
            self.pace * SILENCE
        }
    }
}

/// How an entry compares with another.
enum Preference {
    Against,
    Clear,
    Equal,
}

impl Preference {
    fn of(entry: &Entry, best: &Entry) -> Self {
        let scaled = |a: &Entry, b: &Entry| u64::from(a.believed()) * u64::from(b.weight);
        let (own, other) = (scaled(entry, best), scaled(best, entry));
        if own != other {
            return if own < other {
                Self::Clear
            } else {
                Self::Against
            };
        }
        let faster =
            |a: &Entry, b: &Entry| a.pace > 0 && a.pace as f64 * CLEARLY_FASTER < b.pace as f64;
        if faster(entry, best) {
            Self::Clear
        } else if faster(best, entry) {
            Self::Against
        } else {
            Self::Equal
        }
    }
}

impl Entry {
    fn new(name: Name, weight: u32) -> Self {
        Self {
            name,
            weight,
            in_flight: 0,
            sent: 0,
            seen: 0,
            sent_at: Time::ZERO,
            heard_at: Time::ZERO,
            pace: 0,
        }
    }

    fn believed(&self) -> u32 {
        self.in_flight
            .saturating_add(self.sent.wrapping_sub(self.seen))
    }

    fn is_silent(&self, now: Time, patience: Duration) -> bool {
        let last = self.heard_at.max(self.sent_at);
        self.believed() > 0 && now.saturating_since(last) > patience
    }
}

#[cfg(test)]
mod tests;
