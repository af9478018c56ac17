//! Connection pools of a worker, by endpoint.

mod connecting;
pub(super) mod http1;
mod idle_http1;
pub(super) mod multiplexed;
pub(super) mod room;
mod send;
mod working_set;

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use maglor_config::cluster as config;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::idle_http1::{Bounds, IdleConnections};
use self::multiplexed::Slot;
use super::cluster::guard::Queue;
use super::{Cluster, Connection, Multiplexed, Target};
use crate::os::memory;
use crate::os::memory::Level;
use crate::protocol::message::Interim;
use crate::protocol::proxy_protocol::Addresses;
use crate::telemetry::record::Noted;

/// Notified when a request waits for a connection, since another worker may have an idle one.
static WANTED: Notify = Notify::const_new();

/// Maximum idle time of shared connections under memory pressure.
const PRESSED_IDLE: Duration = Duration::from_secs(2);

/// The pools of a worker, or of the control thread's own requests.
#[derive(Debug)]
pub(crate) struct Pools {
    /// Index of the worker.
    shard: usize,
    /// Whether limits on connections do not apply.
    is_unlimited: bool,
    /// Pools by target id.
    by_id: RefCell<HashMap<u64, Rc<Pool>>>,
}

impl Pools {
    /// Creates the pools of the worker with this index.
    pub(crate) fn of_worker(shard: usize) -> Self {
        Self::new(shard, false)
    }

    /// Creates pools of the control thread, whose requests are not subject to the limits of clusters.
    pub(crate) fn of_control() -> Self {
        Self::new(0, true)
    }

    fn new(shard: usize, is_unlimited: bool) -> Self {
        Self {
            shard,
            is_unlimited,
            by_id: RefCell::default(),
        }
    }

    /// Returns the pool of an endpoint.
    pub(crate) fn get(&self, cluster: &Cluster, target: &Arc<Target>, now: Instant) -> Rc<Pool> {
        let mut pools = self.by_id.borrow_mut();
        let make = || Rc::new(Pool::new(cluster, target, now));
        let pool = pools.entry(target.id).or_insert_with(make);
        pool.follow(cluster);
        Rc::clone(pool)
    }

    /// Closes connections that have been idle for too long or are superfluous, and drops pools of removed endpoints.
    /// Returns the number of closed connections.
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

    /// Closes an idle connection of a cluster, in a pool without waiting requests; returns whether there was one.
    pub(super) fn close_one_idle(&self, cluster: &Cluster) -> bool {
        let pools = self.by_id.borrow();
        let mut own = pools
            .values()
            .filter(|pool| pool.waiting.get() == 0 && pool.config.borrow().name == *cluster.name());
        own.any(|pool| pool.close_one_idle())
    }

    /// Notifies all workers that a request waits for a connection.
    pub(super) fn want() {
        WANTED.notify_waiters();
    }

    /// Closes idle connections that other workers need; never returns.
    pub(crate) async fn release_idle(self: Rc<Self>) {
        loop {
            let mut wanted = pin!(WANTED.notified());
            // Enabled before the pools are inspected, so that changes in between are not missed.
            wanted.as_mut().enable();
            for pool in self.by_id.borrow().values() {
                pool.release_idle();
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
    /// Idle connections hold their pools, which would otherwise outlive this.
    fn drop(&mut self) {
        self.clear();
    }
}

/// Counts a waiting request until dropped; see [`Pool::wait`].
pub(super) struct Waits(Rc<Pool>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

/// The pool to which an HTTP/1.1 connection belongs and in which it is counted.
#[derive(Debug)]
struct Member(Rc<Pool>);

impl Member {
    fn new(pool: Rc<Pool>) -> Self {
        pool.idle.opened();
        Self(pool)
    }

    fn pool(&self) -> Rc<Pool> {
        Rc::clone(&self.0)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.idle.closed();
    }
}

/// Connections of one worker to one endpoint.
#[derive(Debug)]
pub(crate) struct Pool {
    target: Weak<Target>,
    idle: IdleConnections,
    /// Generation of the settings. Connections of an earlier generation are not taken back.
    generation: Cell<u32>,
    /// The cluster's configuration at the last use, which the endpoint may outlive.
    config: RefCell<Arc<config::Cluster>>,
    /// Number of requests that wait, because of limits, for a connection to be returned.
    waiting: Cell<usize>,
    /// Notified when a connection or stream is returned.
    pub(super) returned: Rc<Notify>,
    connections: RefCell<Arc<Queue>>,
    /// Connections to the same endpoint that requests share.
    pub(crate) multiplexed: Multiplexed,
}

/// An endpoint to which one request is sent.
pub(crate) struct Sender<'a> {
    pub(crate) cluster: &'a Arc<Cluster>,
    pub(crate) target: &'a Arc<Target>,
    pub(crate) pools: &'a Pools,
    pub(crate) now: Instant,
    /// Addresses of the client's connection for a PROXY header; `None` if the client has none, there is no client, or
    /// the endpoint gets no such header.
    pub(crate) ends: Option<Box<Addresses>>,
    /// Receiver of informational responses; `None` if they are dropped.
    pub(crate) interim: Option<&'a dyn Interim>,
    /// The attempt to which the opening of a connection is noted, if its request has a record.
    pub(crate) noted: Option<Noted<'a>>,
}

/// Returns the maximum number of requests on a shared connection.
fn most_shared(config: &config::Cluster) -> Option<NonZeroU32> {
    match config.proxy_protocol {
        // The client in a PROXY header applies only to that client's requests.
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
            idle: IdleConnections::new(now),
            generation: Cell::new(0),
            config: RefCell::new(Arc::clone(cluster.config())),
            waiting: Cell::new(0),
            multiplexed,
            returned,
            connections: RefCell::new(Arc::clone(&cluster.guard().connections)),
        }
    }

    /// Switches to the current settings. If limits have changed, connections counted under the old ones end after
    /// their current requests.
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
            self.idle.clear();
            self.multiplexed.leave();
        }
    }

    /// Closes as many idle connections as requests in other pools wait for.
    fn release_idle(&self) {
        let connections = Arc::clone(&self.connections.borrow());
        // Requests that wait in this pool are notified of idle connections.
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

    /// Closes the connection that has been idle for the longest time; returns whether there was one.
    fn close_one_idle(&self) -> bool {
        self.idle.close_oldest() || self.multiplexed.close_one_idle()
    }

    /// Returns the generation whose connections are taken back.
    pub(super) fn generation(&self) -> u32 {
        self.generation.get()
    }

    /// Returns a slot on a shared connection; if the request needs credit, on one that has it.
    pub(super) fn free_slot(&self, now: Instant, credit: bool) -> Option<Slot> {
        self.multiplexed.free_slot(now, self.max_streams(), credit)
    }

    /// Returns the maximum number of concurrent streams of a connection.
    pub(super) fn max_streams(&self) -> u32 {
        self.config.borrow().max_concurrent_streams
    }

    /// Returns an idle connection that can be used for a request of the client with these addresses.
    pub(crate) fn take_idle(&self, ends: Option<&Addresses>) -> Option<Box<Connection>> {
        self.idle.take(ends)
    }

    /// Takes back a connection after a complete round trip.
    pub(crate) fn put_idle(&self, connection: Box<Connection>) {
        let config = self.config.borrow();
        let gone = self.target.strong_count() == 0 || connection.generation() != self.generation();
        let most = config.max_requests_per_connection;
        let worn = most.is_some_and(|most| connection.requests() >= most.get());
        if gone || worn || config.max_idle_connections == 0 {
            return;
        }
        let waited_for = self.is_waited_for();
        if !waited_for && self.connections.borrow().waiting() > 0 {
            // Closing the connection makes room for a request that waits in another pool.
            return;
        }
        self.idle.put(connection);
        if waited_for {
            self.returned.notify_one();
        }
    }

    /// Returns whether requests wait for returned connections; new requests queue behind them.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Counts a waiting request until the returned value is dropped.
    pub(super) fn wait(self: &Rc<Self>) -> Waits {
        self.waiting.set(self.waiting.get() + 1);
        Waits(Rc::clone(self))
    }

    /// Closes the idle connections. Each of them holds its pool, so they would otherwise keep each other alive.
    fn close(&self) -> usize {
        self.idle.clear()
    }

    fn sweep(&self, now: Instant) -> usize {
        let config = self.config.borrow();
        // Under memory pressure, only connections that requests need are kept.
        let (shared, unneeded) = match memory::level() {
            Level::Free => (config.idle_timeout, config.max_idle_connections),
            _ => (config.idle_timeout.min(PRESSED_IDLE), 0),
        };
        let bounds = Bounds {
            idle_timeout: config.idle_timeout,
            unneeded,
        };
        drop(config);
        self.multiplexed.sweep(now, shared);
        self.idle.sweep(now, bounds)
    }
}
