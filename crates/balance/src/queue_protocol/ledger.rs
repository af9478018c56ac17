//! The ledger: one place that knows the true load of every server of a group, and says for each
//! request which one is the least loaded.
//!
//! For a server it estimates `in flight, as last reported + referrals not yet seen there`. Referrals
//! carry numbers, and a report names the latest that has arrived: everything before it has either
//! arrived, then it is among those in flight, or was lost, then it is forgotten. So losses, doubles,
//! reordering and traffic that no ledger referred correct themselves with the next report.
//!
//! What no report would correct is silence: a server that is idle has nothing to report, though the
//! ledger may estimate it as busy because the last referral or report was lost. The ledger therefore
//! audits a server that has been silent for several service times although it should be busy.
//!
//! After a restart the ledger estimates all servers idle, and knows better as soon as each of them
//! has ended a request. Its new epoch keeps tickets of the old life out of the count.
//!
//! A server that does not answer audits either loses its place until it reports again, see
//! [`Ledger::ask`].
//!
//! A host that has just started sees all servers for the first time. It takes their ages, which slow start depends on,
//! from their reports.
//!
//! Invariant: a belief is never below zero, and every member that has a place can be referred to.

mod ages;
mod pace;
mod silent;

use std::borrow::Cow;
use std::time::Duration;

use self::ages::ages;
use self::pace::{Pace, Paces};
use super::message::{Among, Name, Referral, Report, Ticket};
use crate::places::{Candidate, Contest, Tie};
use crate::{Rng, SlowStart, Time};

/// Silence after which a busy server is audited, in its own mean service times. An exponential
/// service lasts longer with probability e⁻⁴ = 1.8 %; audits cost 0.03 messages a request.
const SILENCE: u32 = 4;

/// Silence before the first report shows how fast the servers are.
const FIRST_SILENCE: Duration = Duration::from_millis(100);

/// A referral that is older than this has reached its server or never will.
const TRANSIT: Duration = Duration::from_millis(20);

/// Audits without answer after which a server loses its place. One or two are what lossy links bring.
const AUDITS: u32 = 3;

/// How long the answer to an audit may take: an inbound proxy answers at once.
const AUDIT_WAIT: Duration = Duration::from_millis(50);

/// How often a server without a place is audited.
const LOST_AUDIT: Duration = Duration::from_secs(1);

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
    paces: Paces,
    /// Which servers there are, for balancers that name some of them.
    membership: u64,
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
    /// Whether balancers are referred to it that do not say which servers they may use. One that is leaving
    /// is not.
    pub offered: bool,
}

/// That a ledger wants a report from a server, for it has not heard of it for long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Audit(pub Name);

/// What the ledger estimates about a server.
#[derive(Clone, Debug)]
struct Entry {
    name: Name,
    weight: u32,
    joined: Time,
    offered: bool,
    /// Its weight, less while slow start ramps.
    share: f64,
    /// Its age as reported, and when; the oldest of all reports.
    reported_age: Option<(Duration, Time)>,
    /// What it last reported.
    reported: Report,
    /// Number of the latest referral to it.
    sent: u32,
    /// Number of the latest referral that it is known to have received, or that is given up.
    seen: u32,
    sent_at: Time,
    /// When the first referral was made since it last reported.
    pending_since: Time,
    /// When it last reported or was last asked to.
    heard_at: Time,
    /// Audits since it last reported.
    audits: u32,
    /// Whether it has no place, for it does not report.
    lost: bool,
    pace: Pace,
}

impl Member {
    /// A server that has been there from the beginning.
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

/// The servers that a question is about.
#[derive(Clone, Copy, Debug)]
enum Scope {
    /// Those at these positions.
    Among(Among),
    /// All that are offered.
    Offered,
}

/// What a look at all servers finds.
struct Scan {
    /// The one to refer to.
    best: Option<usize>,
    /// One that should have been heard of.
    silent: Option<usize>,
    /// Sum of the shares of the servers in question, and of those of them without a place.
    weight: f64,
    lost: f64,
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
            paces: Paces::new(),
            membership: Among::membership([]),
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
                Some(at) => self.entries[at].described(&member),
                None => Entry::new(&member),
            })
            .collect();
        entries.sort_by_key(|entry| entry.name);
        entries.dedup_by_key(|entry| entry.name);
        self.membership = Among::membership(entries.iter().map(|entry| entry.name));
        self.entries = entries;
        self.slow_start = slow_start.filter(|ramp| !ramp.window.is_zero());
        // With the first question, which brings the time.
        self.weigh_at = Some(Time::ZERO);
    }

    /// Computes shares as of `now`.
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
            // Relative to the oldest one, as in a view: a group that is entirely new ramps nothing.
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

    /// The answer to [`Question::Referral`](super::Question::Referral): the server with the least
    /// estimated load for its weight, which counts one more from now on. Also whom to audit.
    ///
    /// A server that neither reports nor answers audits has no place here: estimated loads would grow for
    /// ever, and the others with them. Its share of the requests is left to balancers.
    pub fn ask(&mut self, now: Time, rng: &mut Rng) -> (Option<Referral>, Option<Audit>) {
        self.ask_among(None, now, rng)
    }

    /// The same, of some servers only.
    ///
    /// A balancer that knows other members than the ledger means others by its positions: it gets no
    /// referral, or any where it may use most of the group.
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

    /// One that has been silent for too long is audited, or loses its place.
    fn audit(&mut self, at: usize, now: Time) -> Option<Audit> {
        let entry = &mut self.entries[at];
        entry.heard_at = now;
        if entry.audits < AUDITS || entry.lost {
            entry.audits = entry.audits.saturating_add(1);
            return Some(Audit(entry.name));
        }
        entry.lost = true;
        None
    }

    /// Takes in what a server reports, of itself or because it was audited.
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
        // A repetition shows nothing about the pace.
        if entry.reported != report {
            entry.pace.learn(report.pace, now, &mut self.paces);
        }
        entry.reported = report;
        entry.heard_at = now;
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

    /// The ledger's estimate of the requests in flight at a server; `None` = it is unknown.
    #[must_use]
    pub fn estimated_load(&self, name: Name) -> Option<u32> {
        self.find(name).map(|at| self.entries[at].estimated_load())
    }

    fn find(&self, name: Name) -> Option<usize> {
        self.entries
            .binary_search_by_key(&name, |entry| entry.name)
            .ok()
    }

    /// `None` where it is not known which servers are meant.
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

    /// One pass: the server to refer to, by its estimated load and its share ([`places`](crate::places)), and
    /// one that should have been heard of.
    fn scan(&self, scope: Scope, now: Time, rng: &mut Rng) -> Scan {
        let patience = self.silence();
        let mut contest = Contest::new();
        let mut silent = None;
        let (mut weight, mut lost) = (0.0, 0.0);
        for at in self.order(scope).iter() {
            let of = *at as usize;
            let entry = &self.entries[of];
            if silent.is_none() && entry.is_silent(now, patience) {
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

    /// Positions of entries, the greatest share first.
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
            // What slow start leaves of it.
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
            heard_at: Time::ZERO,
            audits: 0,
            lost: false,
            pace: Pace::UNKNOWN,
        }
    }

    /// The same server as it is listed now. The reported age holds while it has not joined anew.
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

    /// Of servers with the same share and load the one is preferred that is clearly faster.
    fn against(&self, best: &Self) -> Tie {
        if self.pace.beats(&best.pace) {
            Tie::Better
        } else if best.pace.beats(&self.pace) {
            Tie::Worse
        } else {
            Tie::Equal
        }
    }

    fn is_silent(&self, now: Time, patience: Duration) -> bool {
        let (last, patience) = match self.audits {
            _ if self.lost => (self.heard_at, LOST_AUDIT),
            0 => (self.heard_at.max(self.pending_since), patience),
            _ => (self.heard_at, AUDIT_WAIT),
        };
        (self.lost || self.estimated_load() > 0) && now.saturating_since(last) > patience
    }
}

#[cfg(test)]
mod tests;
