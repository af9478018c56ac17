//! What protects a cluster and those who call it: the guards of `maglor-balance` as all workers share
//! them, and the waiting that goes with a limit.

use std::sync::Arc;
use std::time::Duration;

use maglor_balance::guard::breaker::{Breaker, Entry, Pass};
use maglor_balance::guard::budget::Budget;
use maglor_balance::guard::concurrency::ConcurrencyLimit;
use maglor_balance::guard::limits::{Admission, Claim, LimitParams, Slots};
use maglor_balance::{Rng, Time};
use maglor_config::cluster as config;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::protocol::error::ProxyError;
use crate::upstream::Cluster;

/// The guards of one cluster.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) budget: Arc<Budget>,
    breaker: Option<Arc<Breaker>>,
    concurrency: Option<Arc<ConcurrencyLimit>>,
    /// Requests in progress.
    pub(crate) requests: Arc<Queue>,
    /// Open connections.
    pub(crate) connections: Arc<Queue>,
    /// How many requests each endpoint may have, and those who wait until one has room.
    seats: Option<(u32, Arc<Queue>)>,
    limits: LimitParams,
}

impl Guard {
    /// Those of the configuration `before` go on where they are asked for as they were: what they have
    /// counted is still under way, and what they have learnt still true.
    pub(crate) fn new(config: &config::Cluster, before: Option<&Self>) -> Self {
        let limits = &config.limits;
        let seats = limits.endpoint.max_requests.map(|limit| {
            let line = before.and_then(|before| before.seats.as_ref());
            let line = line.map(|(_, line)| line);
            (limit, Queue::like(line, limits.seats()))
        });
        let breaker = config.circuit_breaker.map(|params| {
            let known = before.and_then(|before| before.breaker.as_ref());
            let same = |known: &Breaker| *known.params() == params;
            keep(known, same, || Breaker::new(params))
        });
        let concurrency = config.concurrency_limit.map(|params| {
            let known = before.and_then(|before| before.concurrency.as_ref());
            let same = |known: &ConcurrencyLimit| *known.params() == params;
            keep(known, same, || ConcurrencyLimit::new(params))
        });
        let same = |known: &Budget| *known.params() == config.retry_budget;
        Self {
            seats,
            budget: keep(before.map(|before| &before.budget), same, || {
                Budget::new(config.retry_budget)
            }),
            breaker,
            concurrency,
            requests: Queue::like(before.map(|before| &before.requests), limits.requests()),
            connections: Queue::like(
                before.map(|before| &before.connections),
                limits.connections(),
            ),
            limits: *limits,
        }
    }

    /// Its limits hold from now on. They share their counts with those of the configuration before, so that this waits
    /// until nothing of the new one can fail.
    pub(crate) fn put_in_force(&self) {
        let limits = &self.limits;
        let waiting = limits.max_pending_requests;
        self.requests.set_limits(limits.max_requests, waiting);
        self.connections.set_limits(limits.max_connections, waiting);
        if let Some((_, line)) = &self.seats {
            line.set_limits(None, waiting);
        }
    }

    /// How many requests each endpoint may have, where there is a limit, and those who wait until one has
    /// room.
    pub(in crate::upstream) fn seats(&self) -> Option<(u32, &Arc<Queue>)> {
        let (limit, line) = self.seats.as_ref()?;
        Some((*limit, line))
    }

    /// Requests that wait to be let in, or for an endpoint with room.
    pub(crate) fn waiting(&self) -> u32 {
        let seats = self.seats.as_ref();
        self.requests.waiting() + seats.map_or(0, |(_, line)| line.waiting())
    }

    /// Chooses an endpoint by `choose`, waiting while all that there are have as many requests as they may
    /// have; and when that was.
    ///
    /// # Errors
    /// Those of `choose`; [`ProxyError::EndpointsFull`] when too many wait already, and
    /// [`ProxyError::QueueTimeout`].
    pub(crate) async fn when_admitted<T>(
        &self,
        now: Instant,
        choose: impl Fn(Instant) -> Result<T, ProxyError>,
    ) -> Result<(T, Instant), ProxyError> {
        let Some((_, line)) = &self.seats else {
            return Ok((choose(now)?, now));
        };
        // Those who wait have been notified of whatever is free now; it is theirs.
        if line.waiting() == 0 {
            match choose(now) {
                Err(ProxyError::EndpointsFull) => {}
                chosen => return Ok((chosen?, now)),
            }
        }
        Box::pin(line.when_admitted(self.limits.queue_timeout, choose)).await
    }

    /// Requests that may be in progress now beside what `limits` says.
    fn ceiling(&self) -> u32 {
        self.concurrency
            .as_ref()
            .map_or(u32::MAX, |concurrency| concurrency.limit())
    }

    /// The state of the circuit breaker, where there is one.
    pub(crate) fn breaker(&self) -> Option<&Breaker> {
        self.breaker.as_deref()
    }

    /// How many requests the adaptive limit allows, where there is one.
    pub(crate) fn concurrency(&self) -> Option<&ConcurrencyLimit> {
        self.concurrency.as_deref()
    }
}

/// What is known where it is still what is asked for, else a new one.
fn keep<T>(known: Option<&Arc<T>>, same: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> Arc<T> {
    match known.filter(|known| same(known)) {
        Some(known) => Arc::clone(known),
        None => Arc::new(new()),
    }
}

/// Places, and those who wait for one.
#[derive(Debug)]
pub(crate) struct Queue {
    slots: Slots,
    freed: Notify,
}

impl Queue {
    fn new(slots: Slots) -> Self {
        Self {
            slots,
            freed: Notify::new(),
        }
    }

    /// `known`, whose limits may be others: what it counts is still under way, and who waits is woken by it.
    fn like(known: Option<&Arc<Self>>, slots: Slots) -> Arc<Self> {
        keep(known, |_| true, || Self::new(slots))
    }

    /// Other limits, for those who are there already, too.
    fn set_limits(&self, places: Option<u32>, waiting: u32) {
        if self.slots.set_limits(places, waiting) {
            self.freed.notify_waiters();
            // One that is about to wait again.
            self.freed.notify_one();
        }
    }

    /// How many places are taken.
    pub(crate) fn active(&self) -> u32 {
        self.slots.active()
    }

    /// How many wait for one.
    pub(crate) fn waiting(&self) -> u32 {
        self.slots.waiting()
    }

    pub(crate) fn release(&self) {
        if self.slots.release() {
            self.freed.notify_one();
        }
    }

    /// How many wait who would not all find a place now.
    pub(in crate::upstream) fn wanting(&self) -> u32 {
        let limit = self.slots.limit().unwrap_or(u32::MAX);
        let free = limit.saturating_sub(self.slots.active());
        self.slots.waiting().saturating_sub(free)
    }

    /// Whether there is always a place.
    pub(in crate::upstream) fn is_unlimited(&self) -> bool {
        self.slots.limit().is_none()
    }

    /// Takes a place if there is one and nobody waits for it.
    pub(in crate::upstream) fn admit_now(&self) -> bool {
        match self.slots.admit(u32::MAX) {
            Admission::Admitted => true,
            Admission::Overflow => false,
            Admission::Waiting => {
                drop(Waiting::new(self));
                false
            }
        }
    }

    /// Lets all that wait look again.
    pub(in crate::upstream) fn wake_all(&self) {
        if self.slots.waiting() > 0 {
            self.freed.notify_waiters();
        }
    }

    /// Stands in line.
    pub(in crate::upstream) fn line(&self) -> Result<Waiting<'_>, ProxyError> {
        match self.slots.queue() {
            true => Ok(Waiting::new(self)),
            false => Err(ProxyError::Overflow),
        }
    }

    /// Done when a place may be free.
    pub(in crate::upstream) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    /// Takes a place, waiting in line for it if need be.
    async fn enter(&self, ceiling: impl Fn() -> u32, limit: Duration) -> Result<(), ProxyError> {
        match self.slots.admit(ceiling()) {
            Admission::Admitted => Ok(()),
            Admission::Overflow => Err(ProxyError::Overflow),
            Admission::Waiting => Box::pin(self.wait(ceiling, limit)).await,
        }
    }

    async fn wait(&self, ceiling: impl Fn() -> u32, limit: Duration) -> Result<(), ProxyError> {
        let mut line = Waiting::new(self);
        let claimed = async {
            loop {
                // Before asking, which would overtake those who wait already. A place that has become
                // free since is told all the same.
                self.freed().await;
                if line.claim_below(ceiling()) {
                    return;
                }
            }
        };
        let result = tokio::time::timeout(limit, claimed).await;
        result.map_err(|_| ProxyError::QueueTimeout)
    }

    /// Waits until `choose` finds an endpoint with room.
    async fn when_admitted<T>(
        &self,
        limit: Duration,
        choose: impl Fn(Instant) -> Result<T, ProxyError>,
    ) -> Result<(T, Instant), ProxyError> {
        let mut behind = self.waiting() > 0;
        let _line = self.line().map_err(|_| ProxyError::EndpointsFull)?;
        let admitted = async {
            loop {
                if !std::mem::take(&mut behind) {
                    let now = Instant::now();
                    match choose(now) {
                        Err(ProxyError::EndpointsFull) => {}
                        chosen => return chosen.map(|chosen| (chosen, now)),
                    }
                }
                self.freed().await;
            }
        };
        let admitted = tokio::time::timeout(limit, admitted).await;
        admitted.map_err(|_| ProxyError::QueueTimeout)?
    }

    /// A place that is counted elsewhere is free.
    pub(in crate::upstream) fn wake_one(&self) {
        if self.slots.waiting() > 0 {
            self.wake();
        }
    }

    /// There may be room for others now.
    fn wake(&self) {
        self.freed.notify_one();
    }
}

/// One that waits; leaves the line on drop.
#[derive(Debug)]
pub(in crate::upstream) struct Waiting<'a> {
    queue: &'a Queue,
    ended: bool,
}

impl<'a> Waiting<'a> {
    fn new(queue: &'a Queue) -> Self {
        Self {
            queue,
            ended: false,
        }
    }

    /// Takes a place if there is one, and ends the wait.
    pub(in crate::upstream) fn claim(&mut self) -> bool {
        self.claim_below(u32::MAX)
    }

    fn claim_below(&mut self, ceiling: u32) -> bool {
        let Claim::Claimed { wake } = self.queue.slots.claim(ceiling) else {
            return false;
        };
        self.ended = true;
        if wake {
            self.queue.wake();
        }
        true
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.ended && self.queue.slots.leave() {
            self.queue.wake();
        }
    }
}

/// A request's place in a cluster, from admission to the end of its response.
#[derive(Debug)]
pub(crate) struct Place {
    cluster: Arc<Cluster>,
    pass: Option<Pass>,
    admitted: bool,
}

impl Place {
    /// Lets a request in.
    ///
    /// # Errors
    /// [`ProxyError::BreakerOpen`], [`ProxyError::Overflow`], [`ProxyError::QueueTimeout`].
    pub(crate) async fn enter(cluster: &Arc<Cluster>, now: Time) -> Result<Self, ProxyError> {
        let guard = cluster.guard();
        guard.budget.request(now);
        let mut place = Self {
            cluster: Arc::clone(cluster),
            pass: None,
            admitted: false,
        };
        if let Some(breaker) = &guard.breaker {
            let (entry, transition) = breaker.enter(now);
            cluster.breaker_changed(transition);
            match entry {
                Entry::Passed(pass) => place.pass = Some(pass),
                Entry::Rejected(wait) => return Err(ProxyError::BreakerOpen(wait)),
            }
        }
        let entered = guard
            .requests
            .enter(|| guard.ceiling(), guard.limits.queue_timeout);
        entered.await?;
        place.admitted = true;
        Ok(place)
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Whether something learns from how requests fare.
    pub(crate) fn learns(&self) -> bool {
        let guard = self.cluster.guard();
        guard.breaker.is_some() || guard.concurrency.is_some()
    }

    /// The head of the response is there, after so long, or none will come: how the cluster fared
    /// with the request.
    pub(crate) fn judge(
        &mut self,
        success: bool,
        latency: Option<Duration>,
        now: Time,
        rng: &mut Rng,
    ) {
        let guard = self.cluster.guard();
        if let (Some(breaker), Some(pass)) = (&guard.breaker, self.pass.take()) {
            let transition = breaker.record(pass, success, now, rng);
            self.cluster.breaker_changed(transition);
        }
        if let (Some(concurrency), Some(latency)) = (&guard.concurrency, latency)
            && concurrency.sample(latency, guard.requests.active(), now, rng)
        {
            guard.requests.wake();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let guard = self.cluster.guard();
        if let (Some(breaker), Some(pass)) = (&guard.breaker, &self.pass) {
            breaker.abandon(pass);
        }
        if self.admitted {
            guard.requests.release();
        }
    }
}
