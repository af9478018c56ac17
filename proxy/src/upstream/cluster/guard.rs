//! The guards of a cluster and of its clients. They are implemented in `maglor-balance` and shared by all workers;
//! this module adds the queues for their limits.

use std::sync::Arc;
use std::time::Duration;

use maglor_balance::guard::breaker::{Breaker, Entry, Pass};
use maglor_balance::guard::concurrency::ConcurrencyLimit;
use maglor_balance::guard::limits::{Admission, Claim, LimitParams, Slots};
use maglor_balance::guard::retry_budget::Budget;
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
    /// Slots for requests in progress, and the queue of requests that wait for one.
    pub(crate) requests: Arc<Queue>,
    /// Slots for open connections, and the queue of requests that wait for one.
    pub(crate) connections: Arc<Queue>,
    /// Maximum number of concurrent requests of each endpoint, and the queue of requests that wait for an endpoint
    /// with room; `None` without a maximum.
    seats: Option<(u32, Arc<Queue>)>,
    limits: LimitParams,
}

impl Guard {
    /// Creates the guards of a configuration. Guards of `before` with unchanged parameters are kept, with their
    /// counts and learned state.
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

    /// Applies the limits. The counts are shared with the previous configuration, so this is called only when nothing
    /// in the new configuration can fail any more.
    pub(crate) fn put_in_force(&self) {
        let limits = &self.limits;
        let waiting = limits.max_pending_requests;
        self.requests.set_limits(limits.max_requests, waiting);
        self.connections.set_limits(limits.max_connections, waiting);
        if let Some((_, line)) = &self.seats {
            line.set_limits(None, waiting);
        }
    }

    /// Returns the maximum number of concurrent requests of each endpoint and the queue of requests that wait for an
    /// endpoint with room; `None` without a maximum.
    pub(in crate::upstream) fn seats(&self) -> Option<(u32, &Arc<Queue>)> {
        let (limit, line) = self.seats.as_ref()?;
        Some((*limit, line))
    }

    /// Returns the number of requests that wait for admission, or for an endpoint with room.
    pub(crate) fn waiting(&self) -> u32 {
        let seats = self.seats.as_ref();
        self.requests.waiting() + seats.map_or(0, |(_, line)| line.waiting())
    }

    /// Chooses an endpoint by `choose`, and waits while all endpoints are full; also returns the time of the
    /// choice.
    ///
    /// # Errors
    /// Those of `choose`, [`ProxyError::EndpointsFull`] if too many requests already wait, and
    /// [`ProxyError::QueueTimeout`] if the wait takes too long.
    pub(crate) async fn when_admitted<T>(
        &self,
        now: Instant,
        choose: impl Fn(Instant) -> Result<T, ProxyError>,
    ) -> Result<(T, Instant), ProxyError> {
        let Some((_, line)) = &self.seats else {
            return Ok((choose(now)?, now));
        };
        // Free slots are for the requests in the queue, which have been notified.
        if line.waiting() == 0 {
            match choose(now) {
                Err(ProxyError::EndpointsFull) => {}
                chosen => return Ok((chosen?, now)),
            }
        }
        Box::pin(line.when_admitted(self.limits.queue_timeout, choose)).await
    }

    /// Returns the maximum number of requests in progress that the adaptive limit allows.
    fn ceiling(&self) -> u32 {
        self.concurrency
            .as_ref()
            .map_or(u32::MAX, |concurrency| concurrency.limit())
    }

    /// Returns the circuit breaker, if there is one.
    pub(crate) fn breaker(&self) -> Option<&Breaker> {
        self.breaker.as_deref()
    }

    /// Returns the adaptive concurrency limit, if there is one.
    pub(crate) fn concurrency(&self) -> Option<&ConcurrencyLimit> {
        self.concurrency.as_deref()
    }
}

/// Returns `known` if its parameters are unchanged, otherwise a new one.
fn keep<T>(known: Option<&Arc<T>>, same: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> Arc<T> {
    match known.filter(|known| same(known)) {
        Some(known) => Arc::clone(known),
        None => Arc::new(new()),
    }
}

/// Slots, and a queue of requests that wait for one.
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

    /// Returns `known` even if its limits change, because its counts are still valid and it wakes the requests that
    /// wait in it.
    fn like(known: Option<&Arc<Self>>, slots: Slots) -> Arc<Self> {
        keep(known, |_| true, || Self::new(slots))
    }

    /// Changes the limits, also for requests that already wait.
    fn set_limits(&self, places: Option<u32>, waiting: u32) {
        if self.slots.set_limits(places, waiting) {
            self.freed.notify_waiters();
            // This also wakes a task that is about to wait again.
            self.freed.notify_one();
        }
    }

    /// Returns the number of slots in use.
    pub(crate) fn active(&self) -> u32 {
        self.slots.active()
    }

    /// Returns the number of requests that wait for a slot.
    pub(crate) fn waiting(&self) -> u32 {
        self.slots.waiting()
    }

    pub(crate) fn release(&self) {
        if self.slots.release() {
            self.freed.notify_one();
        }
    }

    /// Returns the number of waiting requests for which no slot is free.
    pub(in crate::upstream) fn wanting(&self) -> u32 {
        let limit = self.slots.limit().unwrap_or(u32::MAX);
        let free = limit.saturating_sub(self.slots.active());
        self.slots.waiting().saturating_sub(free)
    }

    /// Returns whether there is no limit.
    pub(in crate::upstream) fn is_unlimited(&self) -> bool {
        self.slots.limit().is_none()
    }

    /// Takes a slot if one is free and no request waits for it.
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

    /// Wakes all waiting requests.
    pub(in crate::upstream) fn wake_all(&self) {
        if self.slots.waiting() > 0 {
            self.freed.notify_waiters();
        }
    }

    /// Enters the queue. Fails if the queue is full.
    pub(in crate::upstream) fn line(&self) -> Result<Waiting<'_>, ProxyError> {
        match self.slots.queue() {
            true => Ok(Waiting::new(self)),
            false => Err(ProxyError::Overflow),
        }
    }

    /// Becomes ready when a slot may be free.
    pub(in crate::upstream) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    /// Takes a slot, waiting in the queue if necessary.
    ///
    /// Returns whether it has waited.
    async fn enter(&self, ceiling: impl Fn() -> u32, limit: Duration) -> Result<bool, ProxyError> {
        match self.slots.admit(ceiling()) {
            Admission::Admitted => Ok(false),
            Admission::Overflow => Err(ProxyError::Overflow),
            Admission::Waiting => Box::pin(self.wait(ceiling, limit)).await.map(|()| true),
        }
    }

    async fn wait(&self, ceiling: impl Fn() -> u32, limit: Duration) -> Result<(), ProxyError> {
        let mut line = Waiting::new(self);
        let claimed = async {
            loop {
                // Waits first, because claiming immediately would overtake requests that already wait. A slot freed
                // in the meantime still causes a wake-up.
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

    /// Wakes one waiting request, when a slot that is counted elsewhere is free.
    pub(in crate::upstream) fn wake_one(&self) {
        if self.slots.waiting() > 0 {
            self.wake();
        }
    }

    /// Wakes one waiting request, since there may be room.
    fn wake(&self) {
        self.freed.notify_one();
    }
}

/// An entry in the queue; it leaves the queue on drop.
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

    /// Takes a slot if one is free, and ends the wait.
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

/// A request's slot in a cluster, from admission to the end of its response.
#[derive(Debug)]
pub(crate) struct ClusterSlot {
    cluster: Arc<Cluster>,
    pass: Option<Pass>,
    admitted: bool,
    waited: bool,
}

impl ClusterSlot {
    /// Admits a request.
    ///
    /// # Errors
    /// [`ProxyError::BreakerOpen`], [`ProxyError::Overflow`] or [`ProxyError::QueueTimeout`] if the request is not
    /// admitted.
    pub(crate) async fn enter(cluster: &Arc<Cluster>, now: Time) -> Result<Self, ProxyError> {
        let guard = cluster.guard();
        guard.budget.request(now);
        let mut slot = Self {
            cluster: Arc::clone(cluster),
            pass: None,
            admitted: false,
            waited: false,
        };
        if let Some(breaker) = &guard.breaker {
            let (entry, transition) = breaker.enter(now);
            cluster.breaker_changed(transition);
            match entry {
                Entry::Passed(pass) => slot.pass = Some(pass),
                Entry::Rejected(wait) => return Err(ProxyError::BreakerOpen(wait)),
            }
        }
        let entered = guard
            .requests
            .enter(|| guard.ceiling(), guard.limits.queue_timeout);
        slot.waited = entered.await?;
        slot.admitted = true;
        Ok(slot)
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns whether the request has waited for admission.
    pub(crate) fn has_waited(&self) -> bool {
        self.waited
    }

    /// Returns whether any guard learns from the outcomes of requests.
    pub(crate) fn learns(&self) -> bool {
        let guard = self.cluster.guard();
        guard.breaker.is_some() || guard.concurrency.is_some()
    }

    /// Records the outcome of a request, when its response head has arrived after `latency`, or when none will
    /// arrive.
    pub(crate) fn record_outcome(
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

impl Drop for ClusterSlot {
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
