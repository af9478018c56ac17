//! Idle HTTP/1.1 connections of one worker, by endpoint.
//!
//! Last in, first out: what traffic needs stays warm, the rest sinks to the bottom, where the sweep
//! takes it: once a second, connections that nobody has needed for a whole interval are closed.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::guard::Queue;
use super::link::Link;
use super::{Cluster, Connection, Endpoints, Multiplexed, Target};
use crate::worker::Worker;

/// Of the connections that were not needed in an interval, this share is closed at its end.
const TRIM: (usize, usize) = (3, 4);
/// So many idle connections are left alone until their idle timeout.
const KEEP_WARM: usize = 4;

/// The pools of a worker.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    /// By target.
    by_id: RefCell<HashMap<u64, Rc<Pool>>>,
    /// The endpoints whose loads this worker is told, by cluster.
    subscribed: RefCell<HashMap<Arc<str>, Weak<Endpoints>>>,
}

impl Pools {
    /// The pool of an endpoint.
    pub(crate) fn get(&self, cluster: &Cluster, target: &Arc<Target>, now: Instant) -> Rc<Pool> {
        let mut pools = self.by_id.borrow_mut();
        let make = || Rc::new(Pool::new(cluster, target, now));
        Rc::clone(pools.entry(target.id).or_insert_with(make))
    }

    /// The channel to an endpoint's proxy.
    pub(crate) fn link(
        &self,
        cluster: &Arc<Cluster>,
        target: &Arc<Target>,
        worker: &Rc<Worker>,
    ) -> Rc<Link> {
        let pool = self.get(cluster, target, Instant::now());
        let link = pool.link.get_or_init(|| Link::new(cluster, target, worker));
        Rc::clone(link)
    }

    /// Wants to be told the load of each endpoint, by its own proxy.
    pub(crate) fn subscribe(
        &self,
        cluster: &Arc<Cluster>,
        endpoints: &Arc<Endpoints>,
        overhead: f32,
        worker: &Rc<Worker>,
    ) {
        {
            let mut subscribed = self.subscribed.borrow_mut();
            let known = subscribed.entry(Arc::clone(cluster.name())).or_default();
            if known.as_ptr() == Arc::as_ptr(endpoints) {
                return;
            }
            *known = Arc::downgrade(endpoints);
        }
        for target in endpoints.targets() {
            self.link(cluster, target, worker).subscribe(overhead);
        }
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
            .filter(|pool| pool.waiting.get() == 0 && pool.cluster == *cluster.name());
        let oldest = own.find_map(|pool| {
            let mut idle = pool.idle.borrow_mut();
            (!idle.is_empty()).then(|| idle.remove(0))
        });
        oldest.is_some()
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
    /// The fewest that were idle in this interval: so many were not needed.
    low_water: Cell<usize>,
    now: Cell<Instant>,
    max_idle: usize,
    max_requests: u32,
    idle_timeout: Duration,
    /// Who waits for a connection to come back, because there may be no more of them.
    waiting: Cell<usize>,
    /// Told when something has come back.
    pub(super) returned: Rc<Notify>,
    connections: Arc<Queue>,
    cluster: Arc<str>,
    /// The channel to the endpoint's proxy, where there is one.
    link: OnceCell<Rc<Link>>,
    /// Connections to the same endpoint that requests share.
    pub(crate) multiplexed: Multiplexed,
}

impl Pool {
    fn new(cluster: &Cluster, target: &Arc<Target>, now: Instant) -> Self {
        let config = cluster.config();
        let returned = Rc::new(Notify::new());
        Self {
            target: Arc::downgrade(target),
            idle: RefCell::default(),
            link: OnceCell::new(),
            low_water: Cell::new(0),
            now: Cell::new(now),
            max_idle: config.max_idle_connections,
            max_requests: config
                .max_requests_per_connection
                .map_or(u32::MAX, Into::into),
            idle_timeout: config.idle_timeout,
            waiting: Cell::new(0),
            multiplexed: Multiplexed::new(config.max_concurrent_streams, Rc::clone(&returned)),
            returned,
            connections: Arc::clone(&cluster.guard().connections),
            cluster: Arc::clone(cluster.name()),
        }
    }

    /// A connection that can take a request now.
    pub(crate) fn take(&self) -> Option<Box<Connection>> {
        let mut idle = self.idle.borrow_mut();
        let mut found = None;
        while let Some(mut connection) = idle.pop() {
            if connection.is_usable() {
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
        let gone = self.target.strong_count() == 0;
        if gone || idle.len() >= self.max_idle || connection.requests() >= self.max_requests {
            return;
        }
        let waited_for = self.is_waited_for();
        if !waited_for && self.connections.waiting() > 0 {
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
        if let Some(link) = self.link.get() {
            link.close();
        }
        std::mem::take(&mut *self.idle.borrow_mut()).len()
    }

    fn sweep(&self, now: Instant) -> usize {
        self.now.set(now);
        self.multiplexed.sweep(now, self.idle_timeout);
        if let Some(link) = self.link.get() {
            link.maintain();
        }
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        let unneeded = self.low_water.get().saturating_sub(KEEP_WARM);
        idle.drain(..unneeded * TRIM.0 / TRIM.1);
        idle.retain_mut(|connection| {
            now - connection.idle_since() < self.idle_timeout && connection.is_usable()
        });
        if idle.is_empty() {
            idle.shrink_to_fit();
        }
        self.low_water.set(idle.len());
        before - idle.len()
    }
}
