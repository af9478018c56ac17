//! How a worker reaches servers: by pools of connections and, for load feedback, by channels to their proxies.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;

use super::calls::Calls;
use super::channel::Channel;
use crate::runtime::worker::Worker;
use crate::upstream::{Cluster, Endpoints, Pools, Target};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Upstreams {
    pub(crate) pools: Rc<Pools>,
    /// Requests at servers behind this proxy, which may make calls through it; all workers share them.
    pub(crate) calls: Arc<Calls>,
    /// By target.
    channels: RefCell<HashMap<u64, Rc<Channel>>>,
    /// The endpoints whose loads are reported to this worker, by cluster.
    subscribed: RefCell<HashMap<Arc<str>, Weak<Endpoints>>>,
}

impl Upstreams {
    pub(crate) fn new(calls: Arc<Calls>) -> Self {
        Self {
            pools: Rc::default(),
            calls,
            channels: RefCell::default(),
            subscribed: RefCell::default(),
        }
    }

    /// The channel to an endpoint's proxy.
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

    /// Asks the proxy of each endpoint to report its load.
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

    /// Reopens channels of subscriptions that have broken, and ends those to endpoints that are gone.
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

    /// Ends all channels.
    pub(crate) fn clear(&self) {
        for (_, channel) in self.channels.borrow_mut().drain() {
            channel.close();
        }
    }
}

impl Drop for Upstreams {
    /// The tasks of channels hold them, which would outlive this otherwise.
    fn drop(&mut self) {
        self.clear();
    }
}
