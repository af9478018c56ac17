//! Hosts that are asked for when they are called.
//!
//! A chain with `discovery` looks here for hosts that its table does not have. What the control plane
//! has said is a table of its own for each host; what it was not asked yet makes the request wait.
//! Workers read a map behind an `ArcSwap`; the control thread alone writes it ([`crate::source`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use hashbrown::{Equivalent, HashMap};
use maglor_balance::Time;
use maglor_config::Discovery;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::error::ProxyError;
use crate::route::{Table, without_port};

/// A look that is not much younger than the last one is not noted: workers would pass a cache line
/// around for it.
const NOTED_EVERY_NANOS: u64 = 1_000_000_000;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct OnDemand {
    pub(crate) settings: Discovery,
    /// Of metrics.
    pub(crate) listener: Arc<str>,
    found: ArcSwap<HashMap<Key, Arc<Found>>>,
    asks: UnboundedSender<Ask>,
}

/// A host as requests name it, and the port where they do not.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Key {
    authority: Box<[u8]>,
    port: u16,
}

/// The same without owning it.
#[derive(Hash)]
struct KeyRef<'a> {
    authority: &'a [u8],
    port: u16,
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.port == key.port && *self.authority == *key.authority
    }
}

/// What is known of a host.
#[derive(Debug)]
pub(crate) struct Found {
    /// `None` = the control plane has nothing of that name.
    table: ArcSwapOption<Table>,
    /// When it was called last, in nanoseconds.
    used: AtomicU64,
}

impl Found {
    pub(crate) fn new(table: Option<Arc<Table>>, now: Time) -> Arc<Self> {
        Arc::new(Self {
            table: ArcSwapOption::new(table),
            used: AtomicU64::new(now.as_nanos()),
        })
    }

    pub(crate) fn set(&self, table: Option<Arc<Table>>) {
        self.table.store(table);
    }

    /// When it was called last, to a second.
    pub(crate) fn used(&self) -> Time {
        // Relaxed: a hint.
        Time::from_nanos(self.used.load(Ordering::Relaxed))
    }

    fn touch(&self, now: Time) {
        let now = now.as_nanos();
        if now.saturating_sub(self.used.load(Ordering::Relaxed)) > NOTED_EVERY_NANOS {
            self.used.store(now, Ordering::Relaxed);
        }
    }
}

/// A question of a worker.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) chain: Arc<OnDemand>,
    pub(crate) key: Key,
    /// The host's name at the control plane.
    pub(crate) target: String,
    /// Told when the answer is there.
    pub(crate) answered: oneshot::Sender<()>,
}

/// The way of questions to the control thread.
#[derive(Debug)]
pub(crate) struct Asks {
    sender: UnboundedSender<Ask>,
    /// Taken once, by whoever answers.
    receiver: Option<UnboundedReceiver<Ask>>,
}

impl Default for Asks {
    fn default() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self {
            sender,
            receiver: Some(receiver),
        }
    }
}

impl Asks {
    /// The questions, for the one who answers them.
    pub(crate) fn take(&mut self) -> Option<UnboundedReceiver<Ask>> {
        self.receiver.take()
    }
}

impl OnDemand {
    /// That of a chain; what `old` has found outlives a reload.
    pub(crate) fn new(
        settings: &Discovery,
        listener: &str,
        asks: &Asks,
        old: Option<Arc<Self>>,
    ) -> Arc<Self> {
        let known = old.filter(|known| known.settings == *settings && *known.listener == *listener);
        known.unwrap_or_else(|| {
            Arc::new(Self {
                asks: asks.sender.clone(),
                settings: settings.clone(),
                listener: listener.into(),
                found: ArcSwap::default(),
            })
        })
    }

    /// Adds a host, unless it is there. Control thread only.
    pub(crate) fn insert(&self, key: &Key, found: &Arc<Found>) {
        let before = self.found.load();
        if before.contains_key(key) {
            return;
        }
        let mut all = HashMap::clone(&before);
        all.insert(key.clone(), Arc::clone(found));
        self.found.store(Arc::new(all));
    }

    /// Forgets a host. Control thread only.
    pub(crate) fn remove(&self, key: &Key) {
        let mut all = HashMap::clone(&self.found.load());
        all.remove(key);
        self.found.store(Arc::new(all));
    }

    fn known(&self, authority: &[u8], port: u16, now: Time) -> Option<Option<Arc<Table>>> {
        let all = self.found.load();
        let found = all.get(&KeyRef { authority, port })?;
        found.touch(now);
        Some(found.table.load_full())
    }

    /// The table of a host, asked for where it is not known; `None` = there is nothing of that name.
    /// `port` is that of a host without one.
    ///
    /// # Errors
    /// [`ProxyError::DiscoveryTimeout`]
    pub(crate) async fn find(
        self: &Arc<Self>,
        authority: &[u8],
        port: u16,
        now: Time,
    ) -> Result<Option<Arc<Table>>, ProxyError> {
        if let Some(table) = self.known(authority, port, now) {
            return Ok(table);
        }
        let Some(target) = self.target(authority, port) else {
            return Ok(None);
        };
        let (answered, answer) = oneshot::channel();
        let authority: Box<[u8]> = authority.into();
        let key = Key {
            authority: authority.clone(),
            port,
        };
        let chain = Arc::clone(self);
        // Without a receiver the process ends.
        let _ = self.asks.send(Ask {
            chain,
            key,
            target,
            answered,
        });
        match tokio::time::timeout(self.settings.timeout, answer).await {
            Ok(Ok(())) => Ok(self.known(&authority, port, now).flatten()),
            Ok(Err(_)) | Err(_) => Err(ProxyError::DiscoveryTimeout),
        }
    }

    fn target(&self, authority: &[u8], port: u16) -> Option<String> {
        let authority = str::from_utf8(authority).ok()?;
        let host = without_port(authority);
        let own = authority
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok());
        let own = own.filter(|_| !authority.ends_with(']'));
        self.settings.target(host, own.unwrap_or(port))
    }
}
