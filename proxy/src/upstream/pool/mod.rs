//! Idle HTTP/1.1 connections of one worker, by endpoint.
//!
//! Last in, first out: what traffic needs stays warm, the rest sinks to the bottom, where the sweep
//! takes it: once a second, connections that nobody has needed for a whole interval are closed.

mod connecting;
pub(super) mod http1;
pub(crate) mod http2;
pub(super) mod multiplexed;
pub(super) mod room;
mod send;

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use maglor_config::cluster as config;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::multiplexed::Slot;
use super::cluster::guard::Queue;
use super::{Cluster, Connection, Multiplexed, Target};
use crate::protocol::error::ProxyError;
use crate::protocol::message::{Body, Interim};
use crate::protocol::proxy_protocol::Addresses;

/// Of the connections that were not needed in an interval, this share is closed at its end.
const TRIM: (usize, usize) = (3, 4);
/// So many idle connections are left alone until their idle timeout.
const KEEP_WARM: usize = 4;

/// Notified when somebody waits for a connection, for which another worker may have one to spare.
static WANTED: Notify = Notify::const_new();

/// The pools of a worker.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    /// By target.
    by_id: RefCell<HashMap<u64, Rc<Pool>>>,
}

impl Pools {
    /// The pool of an endpoint.
    pub(crate) fn get(&self, cluster: &Cluster, target: &Arc<Target>, now: Instant) -> Rc<Pool> {
        let mut pools = self.by_id.borrow_mut();
        let make = || Rc::new(Pool::new(cluster, target, now));
        let pool = pools.entry(target.id).or_insert_with(make);
        pool.follow(cluster);
        Rc::clone(pool)
    }

    /// Closes what is idle too long or superfluous, and forgets endpoints that are gone. Returns how
    /// many connections were closed.
    pub(crate) fn sweep(&self, now: Instant) -> usize {
        let mut closed = 0;
        self.by_id.borrow_mut().retain(|_, pool| {
            closed += pool.sweep(now);
            let gone = pool.target.strong_count() == 0;
            if gone {
                closed += pool.close();
            }
            !gone
        });
        closed
    }

    /// Closes an idle connection of a cluster that nobody waits for; whether there was one.
    pub(super) fn close_one_idle(&self, cluster: &Cluster) -> bool {
        let pools = self.by_id.borrow();
        let mut own = pools
            .values()
            .filter(|pool| pool.waiting.get() == 0 && pool.config.borrow().name == *cluster.name());
        own.any(|pool| pool.close_one_idle())
    }

    /// Notifies all workers that somebody waits for a connection.
    pub(super) fn want() {
        WANTED.notify_waiters();
    }

    /// Closes what is idle and wanted elsewhere, for as long as the worker lives.
    pub(crate) async fn give_way(self: Rc<Self>) {
        loop {
            let mut wanted = pin!(WANTED.notified());
            // Before looking: what happens in between is not missed.
            wanted.as_mut().enable();
            for pool in self.by_id.borrow().values() {
                pool.give_way();
            }
            wanted.await;
        }
    }

    /// Closes every idle connection.
    pub(crate) fn clear(&self) {
        for (_, pool) in self.by_id.borrow_mut().drain() {
            pool.close();
        }
    }
}

impl Drop for Pools {
    /// Idle connections know their pools, which would outlive this otherwise.
    fn drop(&mut self) {
        self.clear();
    }
}

/// See [`Pool::wait`].
pub(super) struct Waits(Rc<Pool>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

/// Connections of one worker to one endpoint.
#[derive(Debug)]
pub(crate) struct Pool {
    target: Weak<Target>,
    #[allow(
        clippy::vec_box,
        reason = "a connection moves between pool and exchange as one pointer"
    )]
    idle: RefCell<Vec<Box<Connection>>>,
    /// Those of an earlier one are not taken back.
    generation: Cell<u32>,
    /// The fewest that were idle in this interval: so many were not needed.
    low_water: Cell<usize>,
    now: Cell<Instant>,
    /// The cluster as it was when it was last asked for: the endpoint may outlive a configuration.
    config: RefCell<Arc<config::Cluster>>,
    /// Who waits for a connection to come back, because there may be no more of them.
    waiting: Cell<usize>,
    /// Notified when something has come back.
    pub(super) returned: Rc<Notify>,
    connections: RefCell<Arc<Queue>>,
    /// Connections to the same endpoint that requests share.
    pub(crate) multiplexed: Multiplexed,
}

/// An endpoint to send one request to.
#[derive(Clone, Copy)]
pub(crate) struct Sender<'a> {
    pub(crate) cluster: &'a Arc<Cluster>,
    pub(crate) target: &'a Arc<Target>,
    pub(crate) pools: &'a Pools,
    /// The worker's index.
    pub(crate) shard: usize,
    pub(crate) now: Instant,
    /// The client's connection, for a PROXY header.
    /// `None` = it has no addresses, or there is no client.
    pub(crate) ends: Option<Addresses>,
    /// Where informational responses go; `None` = they are dropped.
    pub(crate) interim: Option<&'a dyn Interim>,
    /// Limits on connections do not concern it.
    pub(crate) unlimited: bool,
}

/// Why a request has no response.
#[derive(Debug)]
pub(crate) enum Unanswered {
    Failed(ProxyError),
    /// The endpoint has not looked at it, because it has let its connection go (GOAWAY), which may show only
    /// now; the request's body is whole.
    NotSent(Body),
}

impl From<Unanswered> for ProxyError {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Failed(error) => error,
            Unanswered::NotSent(_) => Self::UpstreamRefused,
        }
    }
}

/// How many requests a connection takes that they can share.
fn most_shared(config: &config::Cluster) -> Option<NonZeroU32> {
    match config.proxy_protocol {
        // What a header has said of the client holds for nobody else.
        Some(_) => Some(NonZeroU32::MIN),
        None => config.max_requests_per_connection,
    }
}

impl Pool {
    fn new(cluster: &Cluster, target: &Arc<Target>, now: Instant) -> Self {
        let returned = Rc::new(Notify::new());
        let multiplexed = Multiplexed::new(Rc::clone(&returned));
        multiplexed.set_max_requests(most_shared(cluster.config()));
        Self {
            target: Arc::downgrade(target),
            idle: RefCell::default(),
            generation: Cell::new(0),
            low_water: Cell::new(0),
            now: Cell::new(now),
            config: RefCell::new(Arc::clone(cluster.config())),
            waiting: Cell::new(0),
            multiplexed,
            returned,
            connections: RefCell::new(Arc::clone(&cluster.guard().connections)),
        }
    }

    /// Goes by the settings that are in force now. Connections that no limit has counted, or another one
    /// has, end with what they are doing.
    fn follow(&self, cluster: &Cluster) {
        let now = cluster.config();
        if Arc::ptr_eq(&self.config.borrow(), now) {
            return;
        }
        let before = self.config.replace(Arc::clone(now));
        self.multiplexed.set_max_requests(most_shared(now));
        self.connections
            .replace(Arc::clone(&cluster.guard().connections));
        if before.limits != now.limits {
            self.generation.set(self.generation.get().wrapping_add(1));
            self.idle.borrow_mut().clear();
            self.multiplexed.leave();
        }
    }

    /// Closes as many idle connections as others wait for.
    fn give_way(&self) {
        let connections = Arc::clone(&self.connections.borrow());
        // Who waits here is told of what is idle.
        if connections.waiting() == 0 || self.is_waited_for() {
            return;
        }
        let limit = self.config.borrow().limits.endpoint.max_connections;
        let is_full = |target: Arc<Target>| limit.is_some_and(|most| target.has_connections(most));
        let wanted = match self.target.upgrade().is_some_and(is_full) {
            true => connections.waiting(),
            false => connections.wanting(),
        };
        for _ in 0..wanted {
            if !self.close_one_idle() {
                return;
            }
        }
    }

    /// Closes the connection that has idled longest; whether there was one.
    fn close_one_idle(&self) -> bool {
        let mut idle = self.idle.borrow_mut();
        let oldest = (!idle.is_empty()).then(|| idle.remove(0));
        drop(idle);
        oldest.is_some() || self.multiplexed.close_one_idle()
    }

    /// Which connections are taken back.
    pub(super) fn generation(&self) -> u32 {
        self.generation.get()
    }

    /// A place on a connection that requests share; one with credit where the request needs some.
    pub(super) fn free_slot(&self, now: Instant, credit: bool) -> Option<Slot> {
        self.multiplexed.free_slot(now, self.max_streams(), credit)
    }

    /// HTTP/2 streams at once on a connection.
    pub(super) fn max_streams(&self) -> u32 {
        self.config.borrow().max_concurrent_streams
    }

    /// A connection that can take a request now, of the client at these addresses.
    pub(crate) fn take(&self, ends: Option<&Addresses>) -> Option<Box<Connection>> {
        let mut idle = self.idle.borrow_mut();
        let mut found = None;
        while let Some(mut connection) = idle.pop() {
            // One that has been announced as another client's is closed.
            if connection.is_for(ends) && connection.is_usable() {
                found = Some(connection);
                break;
            }
        }
        self.low_water.set(self.low_water.get().min(idle.len()));
        found
    }

    /// Takes back a connection whose exchange is over.
    pub(crate) fn put(&self, mut connection: Box<Connection>) {
        let mut idle = self.idle.borrow_mut();
        let config = self.config.borrow();
        let gone = self.target.strong_count() == 0 || connection.generation() != self.generation();
        let most = config.max_requests_per_connection;
        let worn = most.is_some_and(|most| connection.requests() >= most.get());
        if gone || worn || idle.len() >= config.max_idle_connections {
            return;
        }
        let waited_for = self.is_waited_for();
        if !waited_for && self.connections.borrow().waiting() > 0 {
            // Closed, it makes room for a connection that is wanted more.
            return;
        }
        connection.set_idle_since(self.now.get());
        idle.push(connection);
        if waited_for {
            self.returned.notify_one();
        }
    }

    /// Whether somebody waits for what comes back: who comes now is behind.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Counts one that waits for a connection, until it is dropped.
    pub(super) fn wait(self: &Rc<Self>) -> Waits {
        self.waiting.set(self.waiting.get() + 1);
        Waits(Rc::clone(self))
    }

    /// Closes what is idle; each connection knows its pool, so that they would keep each other.
    fn close(&self) -> usize {
        std::mem::take(&mut *self.idle.borrow_mut()).len()
    }

    fn sweep(&self, now: Instant) -> usize {
        self.now.set(now);
        let idle_timeout = self.config.borrow().idle_timeout;
        self.multiplexed.sweep(now, idle_timeout);
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        let unneeded = self.low_water.get().saturating_sub(KEEP_WARM);
        idle.drain(..unneeded * TRIM.0 / TRIM.1);
        idle.retain_mut(|connection| {
            now - connection.idle_since() < idle_timeout && connection.is_usable()
        });
        if idle.is_empty() {
            idle.shrink_to_fit();
        }
        self.low_water.set(idle.len());
        before - idle.len()
    }
}
