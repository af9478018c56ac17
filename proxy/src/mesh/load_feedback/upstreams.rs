//! A worker's connections to servers: connection pools and, for load feedback, channels to their proxies.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;

use super::calls::Calls;
use super::channel::Channel;
use crate::runtime::worker::Worker;
use crate::upstream::{Cluster, Endpoints, Pools, Target};

/// Pools and channels of a worker.
#[derive(Debug)]
pub(crate) struct Upstreams {
    pub(crate) pools: Rc<Pools>,
    /// Requests at servers behind this proxy, which may make calls through it. Shared by all workers.
    pub(crate) calls: Arc<Calls>,
    /// Channels by target id.
    channels: RefCell<HashMap<u64, Rc<Channel>>>,
    /// Endpoints whose load this worker has subscribed to, by cluster.
    subscribed: RefCell<HashMap<Arc<str>, Weak<Endpoints>>>,
}

impl Upstreams {
    /// Creates them for the worker with this index.
    pub(crate) fn new(calls: Arc<Calls>, shard: usize) -> Self {
        Self {
            pools: Rc::new(Pools::of_worker(shard)),
            calls,
            channels: RefCell::default(),
            subscribed: RefCell::default(),
        }
    }

    /// Returns the channel to an endpoint's proxy.
    pub(crate) fn channel(
        &self,
        cluster: &Arc<Cluster>,
        target: &Arc<Target>,
        worker: &Rc<Worker>,
    ) -> Rc<Channel> {
        let mut channels = self.channels.borrow_mut();
        let make = || Channel::new(cluster, target, worker);
        let channel = channels.entry(target.id).or_insert_with(make);
        channel.follow(cluster);
        Rc::clone(channel)
    }

    /// Subscribes to the load of each endpoint.
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
            self.channel(cluster, target, worker).subscribe(overhead);
        }
    }

    /// Reopens broken channels with subscriptions, and closes channels to removed endpoints.
    pub(crate) fn sweep(&self) {
        self.channels.borrow_mut().retain(|_, channel| {
            channel.maintain();
            let gone = channel.is_of_gone_endpoint();
            if gone {
                channel.close();
            }
            !gone
        });
    }

    /// Closes all channels.
    pub(crate) fn clear(&self) {
        for (_, channel) in self.channels.borrow_mut().drain() {
            channel.close();
        }
    }
}

impl Drop for Upstreams {
    /// The tasks of channels also hold them and would otherwise outlive this.
    fn drop(&mut self) {
        self.clear();
    }
}
