//! `prequal`: a pool of recent answers to probes that were sent with earlier requests.
//!
//! Wydrowski, Kleinberg, Rumble, Archer, "Load is not what you should balance: Introducing Prequal"
//! (NSDI 2024): each request sends `probes` queries to random servers and waits for none of them;
//! it goes to a server of the pool by the hot–cold rule. Servers whose count is above a quantile of
//! the pool's counts are hot; of the cold ones the one with the least latency is taken, and if all
//! are hot, the one with the least count. An answer is dropped when it is old, and with each
//! request the worst or the oldest one is dropped.
//!
//! An answer is used once. The paper's formula for reuse (§4.3) allows three uses for 40 servers;
//! with 20 balancers that led to 68 ms where one use leads to 40 ms (ρ = 0.75, Ts = 20 ms).
//!
//! For comparison: with many balancers each one's answers are older than the queues that they
//! describe.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use maglor_balance::queue_protocol::{Asked, Decision, Load, Step};
use maglor_balance::{BuildPolicy as _, Index, PickCtx, Policy, PolicySpec, Rng, Time, View};

/// The quantile above which a count is hot (the paper's best value).
const HOT: f64 = 0.84;

/// The number of answers below which the request goes to a random server.
const LEAST_POOL: usize = 2;

/// The age above which an answer is useless.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Parameters of `prequal`.
///
/// # Defaults
///
/// * `probes`: 3
/// * `pool`: 16
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PrequalParams {
    /// The number of queries sent with each request, 1–16.
    pub probes: u32,
    /// The number of answers kept, 2–1024.
    pub pool: u32,
}

impl Default for PrequalParams {
    fn default() -> Self {
        Self {
            probes: 3,
            pool: 16,
        }
    }
}

impl PrequalParams {
    pub(super) const MAX_POOL: u32 = 1024;
    pub(super) const MAX_PROBES: u32 = 16;
}

#[derive(Debug)]
pub(crate) struct Prequal {
    params: PrequalParams,
    /// A lock, because a choice reads and changes several answers together; held for some ten
    /// nanoseconds, and this policy is for comparison.
    pool: Mutex<Pool>,
    random: Box<dyn Policy>,
    local: Box<dyn Policy>,
}

/// The answers, the oldest first.
#[derive(Debug, Default)]
struct Pool {
    answers: Vec<Known>,
    /// Whether the next dropped answer is the worst rather than the oldest.
    drop_worst: bool,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    index: Index,
    in_flight: u32,
    latency: Duration,
    reported_at: Time,
}

impl Known {
    /// Returns the latency; an unknown one is not the least: it is chosen when nothing else is
    /// cold.
    fn expected(&self) -> Duration {
        match self.latency {
            Duration::ZERO => Duration::MAX,
            latency => latency,
        }
    }
}

impl Prequal {
    pub(crate) fn new(params: PrequalParams, view: &View) -> Self {
        Self {
            params,
            pool: Mutex::default(),
            random: PolicySpec::Random.build_valid(view, None),
            local: PolicySpec::default().build_valid(view, None),
        }
    }

    fn choose(&self, view: &View, ctx: &PickCtx<'_>) -> Option<Index> {
        // A panic elsewhere leaves a usable pool.
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.answers.retain(|known| {
            ctx.now.saturating_since(known.reported_at) < MAX_AGE && view.is_usable(known.index)
        });
        if pool.answers.len() < LEAST_POOL {
            return None;
        }
        let best = pool.best(|known| !ctx.excluded.contains(&known.index))?;
        let chosen = pool.answers.remove(best).index;
        pool.shrink();
        Some(chosen)
    }
}

impl Pool {
    fn limit(&self) -> u32 {
        let mut counts: Vec<u32> = self.answers.iter().map(|known| known.in_flight).collect();
        counts.sort_unstable();
        let at = (counts.len() as f64 * HOT) as usize;
        counts.get(at).copied().unwrap_or(u32::MAX)
    }

    /// Returns the answer to use, among those that `fit`.
    fn best(&self, fit: impl Fn(&Known) -> bool) -> Option<usize> {
        let limit = self.limit();
        let rank = |known: &Known| {
            if known.in_flight < limit {
                (0, known.expected(), known.in_flight)
            } else {
                (1, Duration::ZERO, known.in_flight)
            }
        };
        let fitting = self
            .answers
            .iter()
            .enumerate()
            .filter(|(_, known)| fit(known));
        fitting
            .min_by_key(|(_, known)| rank(known))
            .map(|(at, _)| at)
    }

    /// Drops one answer per request, alternately the worst and the oldest.
    fn shrink(&mut self) {
        if self.answers.len() <= LEAST_POOL {
            return;
        }
        self.drop_worst = !self.drop_worst;
        let at = if self.drop_worst {
            let worst = |(_, known): &(usize, &Known)| (known.in_flight, known.latency);
            let found = self.answers.iter().enumerate().max_by_key(worst);
            found.map_or(0, |(at, _)| at)
        } else {
            0
        };
        self.answers.remove(at);
    }
}

impl Policy for Prequal {
    /// Picks without the help of inbound proxies: `lor(choices=2)`.
    fn pick(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        self.local.pick(view, ctx, rng)
    }

    fn begin(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        decision.reset();
        let chosen = self.choose(view, ctx);
        Step::send(chosen.or_else(|| self.random.pick(view, ctx, rng)))
    }

    fn asides(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Asked {
        let draws = self.params.probes.min(view.usable() as u32);
        (0..draws)
            .filter_map(|_| self.random.pick(view, ctx, rng))
            .collect()
    }

    fn record_load(&self, from: Index, load: &Load, now: Time) {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.answers.len() >= self.params.pool as usize {
            pool.answers.remove(0);
        }
        pool.answers.push(Known {
            index: from,
            in_flight: load.in_flight,
            latency: load.latency,
            reported_at: now,
        });
    }
}
