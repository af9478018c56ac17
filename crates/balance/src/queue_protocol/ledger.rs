//! The ledger: tracks the true load of every server of a group in one place, and returns the least loaded server for
//! each request.
//!
//! The estimated load of a server is
//! `requests in flight, as last reported + referrals that have not arrived there yet`. Referrals have numbers, and a
//! report contains the latest number that has arrived: each referral before it has either arrived, and is among the
//! requests in flight, or was lost, and is dropped. So losses, duplicates, reordering and traffic without referrals are
//! corrected by the next report.
//!
//! Reports do not correct a silent server: an idle server has nothing to report, though the ledger may estimate it as
//! busy because the last referral or report was lost. The ledger therefore audits a server that has been silent for
//! several service times although it should be busy.
//!
//! After a restart, the ledger estimates all servers as idle, and corrects this as soon as each of them has ended a
//! request. Its new epoch excludes tickets from before the restart.
//!
//! A server that does not answer audits either is excluded until it reports again; see [`Ledger::ask`].
//!
//! To a host that has just started, all servers are new. It takes their ages, which slow start depends on, from their
//! reports.
//!
//! Invariant: an estimate is never below zero, and every member that is not excluded can be referred to.

mod ages;
mod pace;
mod silent;

use std::borrow::Cow;
use std::time::Duration;

use self::ages::ages;
use self::pace::{Pace, Paces};
use super::message::{Among, Name, Referral, Report, Ticket};
use crate::weighted_load::{Candidate, Contest, Tie};
use crate::{Rng, SlowStart, Time};

/// The silence after which a busy server is audited, in mean service times of that server. An exponential service lasts
/// longer with probability e⁻⁴ = 1.8 %; audits cost 0.03 messages per request.
const SILENCE: u32 = 4;

/// The silence before an audit while the pace of the servers is unknown.
const FIRST_SILENCE: Duration = Duration::from_millis(100);

/// The age after which a referral has either reached its server or been lost.
const TRANSIT: Duration = Duration::from_millis(20);

/// The number of unanswered audits after which a server is excluded. One or two occur on lossy
/// links.
const AUDITS: u32 = 3;

/// The time to wait for the answer to an audit: an inbound proxy answers immediately.
const AUDIT_WAIT: Duration = Duration::from_millis(50);

/// The interval of audits of an excluded server.
const LOST_AUDIT: Duration = Duration::from_secs(1);

/// The number of times per window that the shares in slow start are computed.
const RAMP_STEPS: u32 = 256;

/// The loads of one group's servers.
#[derive(Clone, Debug)]
pub struct Ledger {
    epoch: u32,
    /// The servers, ordered by name.
    entries: Vec<Entry>,
    /// The indices of entries, in descending order of their shares.
    order: Vec<u32>,
    slow_start: Option<SlowStart>,
    /// When shares have to be computed again; `None` if no share changes over time.
    weigh_at: Option<Time>,
    paces: Paces,
    /// Identifies the membership, for balancers that restrict queries to some of the servers.
    membership: u64,
}

/// A server of a ledger's group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Member {
    /// The name of the server.
    pub name: Name,
    /// The share of requests relative to the other servers; 0 counts as 1.
    pub weight: u32,
    /// When the server joined, which is the beginning of slow start.
    pub joined: Time,
    /// Whether queries that do not list the allowed servers may return this one. False for a draining server.
    pub offered: bool,
}

/// A request of a ledger for a report from a server that has been silent for too long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Audit(pub Name);

/// The ledger's state of a server.
#[derive(Clone, Debug)]
struct Entry {
    name: Name,
    weight: u32,
    joined: Time,
    offered: bool,
    /// The weight of the server, reduced during slow start.
    share: f64,
    /// The age in a report, and when it was reported; of all reports, the one with the greatest age.
    reported_age: Option<(Duration, Time)>,
    /// The last report of the server.
    reported: Report,
    /// The number of the latest referral to the server.
    sent: u32,
    /// The number of the latest referral that the server is known to have received, or that is given up.
    seen: u32,
    sent_at: Time,
    /// When the first referral since the last report was made.
    pending_since: Time,
    /// When the server last reported or was last audited.
    reported_at: Time,
    /// The number of audits since the last report.
    audits: u32,
    /// Whether the server is excluded because it does not report.
    lost: bool,
    pace: Pace,
}

impl Member {
    /// Creates a server that has been a member from the beginning.
    #[must_use]
    pub fn new(name: Name, weight: u32) -> Self {
        Self {
            name,
            weight,
            joined: Time::ZERO,
            offered: true,
        }
    }
}

/// The servers to which a query is restricted.
#[derive(Clone, Copy, Debug)]
enum Scope {
    /// The servers at these positions.
    Among(Among),
    /// All servers that are offered.
    Offered,
}

/// The result of a pass over all servers.
struct Scan {
    /// The server to refer to; `None` if there is none.
    best: Option<usize>,
    /// A server that has been silent for too long; `None` if there is none.
    silent: Option<usize>,
    /// The sum of the shares of the servers in the scope, and of the excluded ones among them.
    weight: f64,
    lost: f64,
}

impl Ledger {
    /// Creates a ledger for the servers of a group. `epoch` must differ, with high probability, from that of earlier
    /// ledgers of the group; a random number is sufficient. 0 counts as 1.
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
            paces: Paces::new(),
            membership: Among::membership([]),
        };
        ledger.set_members(members, slow_start);
        ledger
    }

    /// Updates the membership; the state of servers that stay is kept.
    pub fn set_members(
        &mut self,
        members: impl IntoIterator<Item = Member>,
        slow_start: Option<SlowStart>,
    ) {
        let mut entries: Vec<Entry> = members
            .into_iter()
            .map(|member| match self.find(member.name) {
                Some(at) => self.entries[at].described(&member),
                None => Entry::new(&member),
            })
            .collect();
        entries.sort_by_key(|entry| entry.name);
        entries.dedup_by_key(|entry| entry.name);
        self.membership = Among::membership(entries.iter().map(|entry| entry.name));
        self.entries = entries;
        self.slow_start = slow_start.filter(|ramp| !ramp.window.is_zero());
        // With the first query, which provides the time.
        self.weigh_at = Some(Time::ZERO);
    }

    /// Computes the shares as of `now`.
    fn weigh(&mut self, now: Time) {
        self.weigh_at = None;
        for entry in &mut self.entries {
            entry.share = f64::from(entry.weight);
        }
        if let Some(ramp) = &self.slow_start {
            let ages = ages(&self.entries, now);
            if ages.iter().any(|age| *age < ramp.window) {
                self.weigh_at = Some(now + ramp.window / RAMP_STEPS);
            }
            // Relative to the oldest one, as in a view: a group that is entirely new has no ramp.
            let factor = |age: &Duration| ramp.factor(Time::ZERO, Time::ZERO + *age);
            let best = ages.iter().map(factor).fold(0.0, f64::max);
            for (entry, age) in self.entries.iter_mut().zip(&ages) {
                entry.share *= factor(age) / best;
            }
        }
        self.order = (0..self.entries.len() as u32).collect();
        let share = |at: &u32| self.entries[*at as usize].share;
        self.order.sort_by(|a, b| share(b).total_cmp(&share(a)));
    }

    /// Answers [`Question::Referral`](super::Question::Referral): returns the server with the least estimated load for
    /// its weight, whose estimate is then one higher. Also returns a server to audit, if there is one.
    ///
    /// A server that neither reports nor answers audits is excluded here: its estimated load would grow without bound,
    /// and the others' with it. Balancers send it its share of the requests.
    pub fn ask(&mut self, now: Time, rng: &mut Rng) -> (Option<Referral>, Option<Audit>) {
        self.ask_among(None, now, rng)
    }

    /// Answers [`Question::ReferralAmong`](super::Question::ReferralAmong), for some servers only.
    ///
    /// If the balancer has another membership than the ledger, its positions refer to other servers. Then there is no
    /// referral, or one to any server if the query allows most of the group.
    pub fn ask_among(
        &mut self,
        among: Option<Among>,
        now: Time,
        rng: &mut Rng,
    ) -> (Option<Referral>, Option<Audit>) {
        if self.weigh_at.is_some_and(|at| at <= now) {
            self.weigh(now);
        }
        if self.paces.are_due(now) {
            for entry in &mut self.entries {
                entry.pace.bound(now, &self.paces);
            }
        }
        let Some(scope) = self.scope(among) else {
            return (None, None);
        };
        let scan = self.scan(scope, now, rng);
        let audit = scan.silent.and_then(|at| self.audit(at, now));
        if scan.lost > 0.0 && rng.unit() * scan.weight < scan.lost {
            return (self.turn(scope, &scan, rng), audit);
        }
        let Some(best) = scan.best else {
            return (None, audit);
        };
        let entry = &mut self.entries[best];
        if entry.sent == entry.seen {
            entry.pending_since = now;
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
            second: None,
        };
        (Some(referral), audit)
    }

    /// Audits a server that has been silent for too long, or excludes it after too many audits.
    fn audit(&mut self, at: usize, now: Time) -> Option<Audit> {
        let entry = &mut self.entries[at];
        entry.reported_at = now;
        if entry.audits < AUDITS || entry.lost {
            entry.audits = entry.audits.saturating_add(1);
            return Some(Audit(entry.name));
        }
        entry.lost = true;
        None
    }

    /// Processes a server's report, unsolicited or in answer to an audit.
    pub fn report(&mut self, from: Name, report: &Report, now: Time) {
        let Some(at) = self.find(from) else {
            return;
        };
        let entry = &mut self.entries[at];
        if let (Some(age), Some(ramp)) = (report.age, &self.slow_start)
            && entry.takes_age(age, ramp.window / RAMP_STEPS, now)
        {
            self.weigh_at = Some(Time::ZERO);
        }
        let report = Report {
            age: None,
            ..*report
        };
        // A repeated report contains no information about the pace.
        if entry.reported != report {
            entry.pace.learn(report.pace, now, &mut self.paces);
        }
        entry.reported = report;
        entry.reported_at = now;
        entry.audits = 0;
        entry.pending_since = now;
        let returns = std::mem::take(&mut entry.lost);
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
        }
    }

    /// Returns the ledger's estimate of the number of requests in flight at a server; `None` if the server is unknown.
    #[must_use]
    pub fn estimated_load(&self, name: Name) -> Option<u32> {
        self.find(name).map(|at| self.entries[at].estimated_load())
    }

    fn find(&self, name: Name) -> Option<usize> {
        self.entries
            .binary_search_by_key(&name, |entry| entry.name)
            .ok()
    }

    /// Returns the servers that a query allows; `None` if its positions refer to another membership.
    fn scope(&self, among: Option<Among>) -> Option<Scope> {
        let Some(among) = among else {
            return Some(Scope::Offered);
        };
        if among.membership == self.membership {
            return Some(Scope::Among(among));
        }
        let most = 4 * among.servers.count_ones() as usize >= 3 * self.entries.len();
        most.then_some(Scope::Offered)
    }

    /// Finds in one pass the server to refer to, by its estimated load and its share ([`places`](crate::weighted_load)), and a
    /// server that has been silent for too long.
    fn scan(&self, scope: Scope, now: Time, rng: &mut Rng) -> Scan {
        let limit = self.silence();
        let mut contest = Contest::new();
        let mut silent = None;
        let (mut weight, mut lost) = (0.0, 0.0);
        for at in self.order(scope).iter() {
            let of = *at as usize;
            let entry = &self.entries[of];
            if silent.is_none() && entry.is_silent(now, limit) {
                silent = Some(of);
            }
            if !scope.has(of, entry) {
                continue;
            }
            let share = scope.share(entry);
            weight += share;
            if entry.lost {
                lost += share;
                continue;
            }
            let candidate = Candidate {
                of,
                load: entry.estimated_load(),
                weight: share,
            };
            contest.offer(candidate, rng, |best| entry.against(&self.entries[best]));
        }
        Scan {
            best: contest.winner(rng),
            silent,
            weight,
            lost,
        }
    }

    /// Returns the indices of entries in the scope, in descending order of their shares.
    fn order(&self, scope: Scope) -> Cow<'_, [u32]> {
        let ramps = self.weigh_at.is_some();
        if !ramps || !matches!(scope, Scope::Among(Among { equal: true, .. })) {
            return Cow::Borrowed(&self.order);
        }
        let mut order = self.order.clone();
        let share = |at: &u32| scope.share(&self.entries[*at as usize]);
        order.sort_by(|a, b| share(b).total_cmp(&share(a)));
        Cow::Owned(order)
    }

    fn silence(&self) -> Duration {
        if self.paces.mean.is_zero() {
            FIRST_SILENCE
        } else {
            self.paces.mean * SILENCE
        }
    }
}

impl Scope {
    fn has(self, at: usize, entry: &Entry) -> bool {
        match self {
            Self::Among(among) => at < Among::MOST && among.servers >> at & 1 == 1,
            Self::Offered => entry.offered,
        }
    }

    fn share(self, entry: &Entry) -> f64 {
        match self {
            // The factor of slow start.
            Self::Among(Among { equal: true, .. }) => entry.share / f64::from(entry.weight),
            Self::Among(_) | Self::Offered => entry.share,
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
            offered: member.offered,
            share: f64::from(weight),
            reported_age: None,
            reported: Report::default(),
            sent: 0,
            seen: 0,
            sent_at: Time::ZERO,
            pending_since: Time::ZERO,
            reported_at: Time::ZERO,
            audits: 0,
            lost: false,
            pace: Pace::UNKNOWN,
        }
    }

    /// Returns the entry with the present properties of the member. A reported age is kept unless the server has joined
    /// again.
    fn described(&self, member: &Member) -> Self {
        Self {
            weight: member.weight.max(1),
            joined: member.joined,
            offered: member.offered,
            reported_age: self.reported_age.filter(|_| self.joined == member.joined),
            ..self.clone()
        }
    }

    fn estimated_load(&self) -> u32 {
        let reported = self.reported.in_flight;
        reported.saturating_add(self.sent.wrapping_sub(self.seen))
    }

    /// Compares two servers with the same share and load: the one that is clearly faster is preferred.
    fn against(&self, best: &Self) -> Tie {
        if self.pace.beats(&best.pace) {
            Tie::Better
        } else if best.pace.beats(&self.pace) {
            Tie::Worse
        } else {
            Tie::Equal
        }
    }

    fn is_silent(&self, now: Time, limit: Duration) -> bool {
        let (last, limit) = match self.audits {
            _ if self.lost => (self.reported_at, LOST_AUDIT),
            0 => (self.reported_at.max(self.pending_since), limit),
            _ => (self.reported_at, AUDIT_WAIT),
        };
        (self.lost || self.estimated_load() > 0) && now.saturating_since(last) > limit
    }
}

#[cfg(test)]
mod tests;
