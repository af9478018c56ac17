//! Hosts and addresses that are asked for when they are called.
//!
//! A chain with `discovery` looks here for where a redirected connection was going, and for hosts that
//! its table does not have. What the control plane has said is a table of its own for each, or a cluster
//! for bytes, or both; what it was not asked yet makes the request or the connection wait. Workers read
//! a map behind an `ArcSwap`; the control thread alone writes it ([`crate::control::source`]).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use hashbrown::{Equivalent, HashMap};
use maglor_balance::Time;
use maglor_config::Discovery;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::protocol::error::ProxyError;
use crate::routing::route::{Table, without_port};
use crate::upstream::Cluster;

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

/// What is called.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Key {
    /// Where a connection was going.
    Address(SocketAddr),
    /// A host as requests name it, and the port where they do not.
    Host { authority: Box<[u8]>, port: u16 },
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Host { authority, port } => {
                let authority = String::from_utf8_lossy(authority);
                match without_port(&authority).len() == authority.len() {
                    true => write!(f, "{authority}:{port}"),
                    false => f.write_str(&authority),
                }
            }
        }
    }
}

/// The same without owning it.
#[derive(Clone, Copy, Hash)]
enum KeyRef<'a> {
    Address(SocketAddr),
    Host { authority: &'a [u8], port: u16 },
}

/// Of a chain that asks for one name whatever is called.
const ONLY: KeyRef<'static> = KeyRef::Host {
    authority: &[],
    port: 0,
};

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        match (self, key) {
            (Self::Address(own), Key::Address(other)) => own == other,
            (
                Self::Host { authority, port },
                Key::Host {
                    authority: other,
                    port: of_other,
                },
            ) => port == of_other && **authority == **other,
            _ => false,
        }
    }
}

impl KeyRef<'_> {
    fn to_key(self) -> Key {
        match self {
            Self::Address(address) => Key::Address(address),
            Self::Host { authority, port } => Key::Host {
                authority: authority.into(),
                port,
            },
        }
    }
}

/// What the control plane has said of a host or an address; neither: it has nothing of that name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Discovered {
    /// Where HTTP goes.
    pub(crate) table: Option<Arc<Table>>,
    /// Where other bytes go.
    pub(crate) bytes: Option<Arc<Cluster>>,
}

/// What is known of a host or an address.
#[derive(Debug)]
pub(crate) struct Found {
    discovered: ArcSwap<Discovered>,
    /// When it was called last, in nanoseconds.
    used: AtomicU64,
}

impl Found {
    pub(crate) fn new(now: Time) -> Arc<Self> {
        Arc::new(Self {
            discovered: ArcSwap::default(),
            used: AtomicU64::new(now.as_nanos()),
        })
    }

    pub(crate) fn set(&self, discovered: Discovered) {
        self.discovered.store(Arc::new(discovered));
    }

    /// When it was called last, to a second.
    pub(crate) fn used(&self) -> Time {
        // Relaxed: a hint.
        Time::from_nanos(self.used.load(Ordering::Relaxed))
    }

    fn mark_used(&self, now: Time) {
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
    /// The name at the control plane.
    pub(crate) target: String,
    /// Notified when the answer is there.
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
            let new = Arc::new(Self {
                asks: asks.sender.clone(),
                settings: settings.clone(),
                listener: listener.into(),
                found: ArcSwap::default(),
            });
            new.ask_ahead();
            new
        })
    }

    /// What is asked for whatever is called is asked for before anybody calls.
    fn ask_ahead(self: &Arc<Self>) {
        if let Some(target) = &self.settings.host {
            let (answered, _) = oneshot::channel();
            let _ = self.asks.send(Ask {
                chain: Arc::clone(self),
                key: ONLY.to_key(),
                target: target.clone(),
                answered,
            });
        }
    }

    /// What it asks for whatever is called, as long as the control plane has nothing of that name.
    pub(crate) fn unknown(&self) -> Option<&str> {
        let host = self.settings.host.as_deref()?;
        let all = self.found.load();
        let found = all.get(&ONLY).map(|found| found.discovered.load());
        let there = found.is_some_and(|found| found.table.is_some() || found.bytes.is_some());
        (!there).then_some(host)
    }

    fn host_key<'a>(&self, original: Option<SocketAddr>, authority: &'a [u8]) -> KeyRef<'a> {
        match self.settings.host {
            Some(_) => ONLY,
            None => KeyRef::Host {
                authority,
                port: default_port(original),
            },
        }
    }

    /// Adds one, unless it is there. Control thread only.
    pub(crate) fn insert(&self, key: &Key, found: &Arc<Found>) {
        let before = self.found.load();
        if before.contains_key(key) {
            return;
        }
        let mut all = HashMap::clone(&before);
        all.insert(key.clone(), Arc::clone(found));
        self.found.store(Arc::new(all));
    }

    /// Forgets one. Control thread only.
    pub(crate) fn remove(&self, key: &Key) {
        let mut all = HashMap::clone(&self.found.load());
        all.remove(key);
        self.found.store(Arc::new(all));
    }

    /// What is known, by the host as requests name it, with its port, or by the address.
    pub(crate) fn hosts(&self) -> Vec<(String, Arc<Discovered>)> {
        let all = self.found.load();
        let mut hosts: Vec<_> = all
            .iter()
            .map(|(key, found)| (key.to_string(), found.discovered.load_full()))
            .collect();
        hosts.sort_by(|(a, _), (b, _)| a.cmp(b));
        hosts
    }

    fn known(&self, key: KeyRef<'_>, now: Time) -> Option<Arc<Discovered>> {
        let all = self.found.load();
        let found = all.get(&key)?;
        found.mark_used(now);
        Some(found.discovered.load_full())
    }

    /// What is known of a request's way, without waiting; `None` = it has to be asked for. Where the
    /// connection was going counts more than the host that the request names: that is what the client
    /// has chosen.
    pub(crate) fn recall(
        &self,
        original: Option<SocketAddr>,
        authority: &[u8],
        now: Time,
    ) -> Option<Arc<Discovered>> {
        if let Some(address) = original {
            let known = self.known(KeyRef::Address(canonical(address)), now)?;
            if known.table.is_some() {
                return Some(known);
            }
        }
        self.known(self.host_key(original, authority), now)
    }

    /// The same, asked for where nothing is known.
    ///
    /// # Errors
    /// [`ProxyError::DiscoveryTimeout`]
    pub(crate) async fn find(
        self: &Arc<Self>,
        original: Option<SocketAddr>,
        authority: &[u8],
        now: Time,
    ) -> Result<Arc<Discovered>, ProxyError> {
        if let Some(address) = original
            && let found = self.find_address(address, now).await?
            && found.table.is_some()
        {
            return Ok(found);
        }
        let key = self.host_key(original, authority);
        let port = default_port(original);
        self.ask(key, now, || self.target(authority, port)).await
    }

    /// What is known of where a connection was going, asked for where nothing is.
    ///
    /// # Errors
    /// [`ProxyError::DiscoveryTimeout`]
    pub(crate) async fn find_address(
        self: &Arc<Self>,
        address: SocketAddr,
        now: Time,
    ) -> Result<Arc<Discovered>, ProxyError> {
        let address = canonical(address);
        let key = KeyRef::Address(address);
        self.ask(key, now, || Some(address.to_string())).await
    }

    /// What is known of a connection that has not said a word: by the name that is asked for whatever is called, else
    /// by where it was going. `None`: neither is known, or nobody has answered in time.
    pub(crate) async fn find_silent(
        self: &Arc<Self>,
        original: Option<SocketAddr>,
        now: Time,
    ) -> Option<Arc<Discovered>> {
        let found = match (&self.settings.host, original) {
            (Some(host), _) => self.ask(ONLY, now, || Some(host.clone())).await,
            (None, Some(address)) => self.find_address(address, now).await,
            (None, None) => return None,
        };
        found.ok()
    }

    async fn ask(
        self: &Arc<Self>,
        key: KeyRef<'_>,
        now: Time,
        target: impl FnOnce() -> Option<String>,
    ) -> Result<Arc<Discovered>, ProxyError> {
        if let Some(known) = self.known(key, now) {
            return Ok(known);
        }
        let Some(target) = target() else {
            return Ok(Arc::default());
        };
        let (answered, answer) = oneshot::channel();
        // Without a receiver the process ends.
        let _ = self.asks.send(Ask {
            chain: Arc::clone(self),
            key: key.to_key(),
            target,
            answered,
        });
        match tokio::time::timeout(self.settings.timeout, answer).await {
            Ok(Ok(())) => Ok(self.known(key, now).unwrap_or_default()),
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

/// An IPv4 address is the same in a socket of both families.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The port of a host without one.
fn default_port(original: Option<SocketAddr>) -> u16 {
    original.map_or(80, |original| original.port())
}
