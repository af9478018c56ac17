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
//! A server that does not answer audits either loses its place until it reports again, see
//! [`Ledger::ask`].
//!
//! Invariant: a belief is never below zero, and every member that has a place can be referred to.

use std::time::Duration;

use super::message::{Name, Referral, Report, Ticket};
use crate::places::{Candidate, Contest, Tie};
use crate::{Rng, SlowStart, Time};

/// Silence after which a busy server is audited, in its own mean service times. An exponential
/// service lasts longer with probability e⁻⁴ = 1.8 %; audits cost 0.03 messages a request.
const SILENCE: u32 = 4;

/// Silence before the first report tells how fast the servers are.
const FIRST_SILENCE: Duration = Duration::from_millis(100);

/// A referral that is older than this has reached its server or never will.
const TRANSIT: Duration = Duration::from_millis(20);

/// Audits without answer after which a server loses its place. One or two are what lossy links bring.
const AUDITS: u32 = 3;

/// How long the answer to an audit may take: an inbound proxy gives it at once.
const AUDIT_WAIT: Duration = Duration::from_millis(50);

/// How often a server without a place is audited.
const LOST_AUDIT: Duration = Duration::from_secs(1);

/// Of two servers that are equally loaded, the one is preferred that is faster by this factor.
/// Below it, the difference may be noise of a short average.
const CLEARLY_FASTER: f64 = 1.3;

/// Shares of servers in slow start are computed so many times a window.
const RAMP_STEPS: u32 = 256;

/// Loads of one group's servers.
#[derive(Clone, Debug)]
pub struct Ledger {
    epoch: u32,
    /// Ordered by name.
    entries: Vec<Entry>,
    /// Positions of entries, the greatest share first.
    order: Vec<u32>,
    slow_start: Option<SlowStart>,
    /// When shares are to be computed again; `None` where none changes with time.
    weigh_at: Option<Time>,
    /// Mean service time of the group's servers; zero while unknown.
    pace: Duration,
    /// Sum of shares, of all and of those without a place.
    weight: f64,
    lost_weight: f64,
}

/// A server of a ledger's group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: Name,
    /// Its share of the requests relative to the others; 0 is taken as 1.
    pub weight: u32,
    /// When it joined: slow start ramps from here.
    pub joined: Time,
}

/// That a ledger wants a report from a server, for it has not heard of it for long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Audit(pub Name);

/// What the ledger believes about a server.
#[derive(Clone, Debug)]
struct Entry {
    name: Name,
    weight: u32,
    joined: Time,
    /// Its weight, less while slow start ramps.
    share: f64,
    /// As last reported.
    in_flight: u32,
    /// Number of the latest referral to it.
    sent: u32,
    /// Number of the latest referral that it is known to have received, or that is given up.
    seen: u32,
    sent_at: Time,
    /// When the first referral was made since it last reported.
    owed_at: Time,
    /// When it last reported or was last asked to.
    heard_at: Time,
    /// Audits since it last reported.
    audits: u32,
    /// Whether it has no place, for it does not report.
    lost: bool,
    /// Its mean time between completions while busy, in nanoseconds; 0 while unknown.
    pace: u64,
}

impl Member {
    /// A server that has been there from the beginning.
    #[must_use]
    pub fn new(name: Name, weight: u32) -> Self {
        Self {
            name,
            weight,
            joined: Time::ZERO,
        }
    }
}

impl Ledger {
    /// A ledger for the servers of a group. `epoch` must differ from that of earlier ledgers of
    /// the group with high probability: a random number will do. 0 is taken as 1.
    #[must_use]
    pub fn new(
        members: impl IntoIterator<Item = Member>,
        slow_start: Option<SlowStart>,
        epoch: u32,
    ) -> Self {
        let mut ledger = Self {
            epoch: epoch.max(1),
            entries: Vec::new(),
            order: Vec::new(),
            slow_start: None,
            weigh_at: None,
            pace: Duration::ZERO,
            weight: 0.0,
            lost_weight: 0.0,
        };
        ledger.set_members(members, slow_start);
        ledger
    }

    /// Takes over a changed membership; what is known about those that stay is kept.
    pub fn set_members(
        &mut self,
        members: impl IntoIterator<Item = Member>,
        slow_start: Option<SlowStart>,
    ) {
        let mut entries: Vec<Entry> = members
            .into_iter()
            .map(|member| match self.find(member.name) {
                Some(at) => Entry {
                    weight: member.weight.max(1),
                    joined: member.joined,
                    ..self.entries[at].clone()
                },
                None => Entry::new(&member),
            })
            .collect();
        entries.sort_by_key(|entry| entry.name);
        entries.dedup_by_key(|entry| entry.name);
        self.entries = entries;
        self.slow_start = slow_start.filter(|ramp| !ramp.window.is_zero());
        // With the first question, which tells the time.
        self.weigh_at = Some(Time::ZERO);
    }

    /// Computes shares as of `now`.
    fn weigh(&mut self, now: Time) {
        self.weigh_at = None;
        for entry in &mut self.entries {
            entry.share = f64::from(entry.weight);
        }
        if let Some(ramp) = &self.slow_start {
            let ramps = |entry: &Entry| now < entry.joined + ramp.window;
            if self.entries.iter().any(ramps) {
                self.weigh_at = Some(now + ramp.window / RAMP_STEPS);
            }
            // Relative to the longest-standing one, as in a view: a group that is entirely new ramps nothing.
            let factor = |entry: &Entry| ramp.factor(entry.joined, now);
            let best = self.entries.iter().map(factor).fold(0.0, f64::max);
            for entry in &mut self.entries {
                entry.share *= factor(entry) / best;
            }
        }
        self.order = (0..self.entries.len() as u32).collect();
        let share = |at: &u32| self.entries[*at as usize].share;
        self.order.sort_by(|a, b| share(b).total_cmp(&share(a)));
        self.sum_up();
    }

    fn sum_up(&mut self) {
        let sum = |lost: bool| {
            let counted = self.entries.iter().filter(|entry| entry.lost || !lost);
            counted.map(|entry| entry.share).sum()
        };
        (self.weight, self.lost_weight) = (sum(false), sum(true));
    }

    /// The answer to [`Question::Referral`](super::Question::Referral): the server with the least
    /// believed load for its weight, which counts one more from now on. Also whom to audit.
    ///
    /// A server that neither reports nor answers audits has no place here: believed loads would grow for
    /// ever, and the others with them. Its share of the requests is left to balancers.
    pub fn ask(&mut self, now: Time, rng: &mut Rng) -> (Option<Referral>, Option<Audit>) {
        if self.weigh_at.is_some_and(|at| at <= now) {
            self.weigh(now);
        }
        let (best, silent) = self.scan(now, rng);
        let audit = silent.and_then(|at| self.audit(at, now));
        if self.lost_weight > 0.0 && rng.unit() * self.weight < self.lost_weight {
            return (self.turn(rng), audit);
        }
        let Some(best) = best else {
            return (None, audit);
        };
        let entry = &mut self.entries[best];
        if entry.sent == entry.seen {
            entry.owed_at = now;
        }
        entry.sent = entry.sent.wrapping_add(1);
        entry.sent_at = now;
        let ticket = Ticket {
            epoch: self.epoch,
            number: entry.sent,
        };
        let referral = Referral {
            server: entry.name,
            ticket: Some(ticket),
        };
        (Some(referral), audit)
    }

    /// One that has been silent for too long is audited, or loses its place.
    fn audit(&mut self, at: usize, now: Time) -> Option<Audit> {
        let entry = &mut self.entries[at];
        entry.heard_at = now;
        if entry.audits < AUDITS || entry.lost {
            entry.audits = entry.audits.saturating_add(1);
            return Some(Audit(entry.name));
        }
        entry.lost = true;
        self.sum_up();
        None
    }

    /// The server without a place whose turn it is, by weight.
    fn turn(&self, rng: &mut Rng) -> Option<Referral> {
        let mut left = rng.unit() * self.lost_weight;
        let lost = self.entries.iter().filter(|entry| entry.lost);
        let mut last = None;
        for entry in lost {
            last = Some(Referral {
                server: entry.name,
                ticket: None,
            });
            left -= entry.share;
            if left < 0.0 {
                break;
            }
        }
        last
    }

    /// Takes in what a server reports, of itself or because it was audited.
    pub fn report(&mut self, from: Name, report: &Report, now: Time) {
        let Some(at) = self.find(from) else {
            return;
        };
        let entry = &mut self.entries[at];
        entry.in_flight = report.in_flight;
        entry.heard_at = now;
        entry.audits = 0;
        entry.owed_at = now;
        let returns = std::mem::take(&mut entry.lost);
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
        if returns {
            entry.seen = entry.sent;
            self.sum_up();
        }
        self.learn_pace(report.pace);
    }

    /// The first one known counts whole: an average that begins at zero would audit everybody at once. A
    /// server that has ended nothing well yet knows none.
    fn learn_pace(&mut self, pace: Duration) {
        if self.pace.is_zero() {
            self.pace = pace;
        } else if !pace.is_zero() {
            self.pace = (self.pace * 63 + pace) / 64;
        }
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

    /// One pass: the server to refer to, by its believed load and its share ([`places`](crate::places)), and
    /// one that should have been heard of.
    fn scan(&self, now: Time, rng: &mut Rng) -> (Option<usize>, Option<usize>) {
        let patience = self.silence();
        let mut contest = Contest::new();
        let mut silent = None;
        for at in &self.order {
            let of = *at as usize;
            let entry = &self.entries[of];
            if silent.is_none() && entry.is_silent(now, patience) {
                silent = Some(of);
            }
            if entry.lost {
                continue;
            }
            let candidate = Candidate {
                of,
                load: entry.believed(),
                weight: entry.share,
            };
            contest.offer(candidate, rng, |best| entry.against(&self.entries[best]));
        }
        (contest.winner(rng), silent)
    }

    fn silence(&self) -> Duration {
        if self.pace.is_zero() {
            FIRST_SILENCE
        } else {
            self.pace * SILENCE
        }
    }
}

impl Entry {
    fn new(member: &Member) -> Self {
        let weight = member.weight.max(1);
        Self {
            name: member.name,
            weight,
            joined: member.joined,
            share: f64::from(weight),
            in_flight: 0,
            sent: 0,
            seen: 0,
            sent_at: Time::ZERO,
            owed_at: Time::ZERO,
            heard_at: Time::ZERO,
            audits: 0,
            lost: false,
            pace: 0,
        }
    }

    fn believed(&self) -> u32 {
        self.in_flight
            .saturating_add(self.sent.wrapping_sub(self.seen))
    }

    /// Of servers with the same share and load the one is preferred that is clearly faster.
    fn against(&self, best: &Self) -> Tie {
        let faster =
            |a: &Self, b: &Self| a.pace > 0 && a.pace as f64 * CLEARLY_FASTER < b.pace as f64;
        if faster(self, best) {
            Tie::Better
        } else if faster(best, self) {
            Tie::Worse
        } else {
            Tie::Equal
        }
    }

    fn is_silent(&self, now: Time, patience: Duration) -> bool {
        let (last, patience) = match self.audits {
            _ if self.lost => (self.heard_at, LOST_AUDIT),
            0 => (self.heard_at.max(self.owed_at), patience),
            _ => (self.heard_at, AUDIT_WAIT),
        };
        (self.lost || self.believed() > 0) && now.saturating_since(last) > patience
    }
}

#[cfg(test)]
mod tests;
