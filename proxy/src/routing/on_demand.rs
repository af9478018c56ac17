//! On-demand discovery of hosts and addresses.
//!
//! A chain with `discovery` looks up the original destination of a redirected connection, and hosts that its table
//! does not contain. For each of them the control plane sends a route table, a cluster for non-HTTP traffic, or both;
//! a request or connection waits until they are known. Workers read a map behind an `ArcSwap`; only the control
//! thread writes it ([`crate::control::source`]).

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

/// Minimum interval between updates of the time of last use, so that workers do not contend for its cache
/// line.
const NOTED_EVERY_NANOS: u64 = 1_000_000_000;

/// Discovered targets of a chain.
#[derive(Debug)]
pub(crate) struct OnDemand {
    pub(crate) settings: Discovery,
    /// Name of the listener, for metrics.
    pub(crate) listener: Arc<str>,
    found: ArcSwap<HashMap<Key, Arc<Found>>>,
    asks: UnboundedSender<Ask>,
}

/// Key of a target.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Key {
    /// Original destination of a connection.
    Address(SocketAddr),
    /// Host of requests, and the port that applies if the host has none.
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

/// A borrowed [`Key`].
#[derive(Clone, Copy, Hash)]
enum KeyRef<'a> {
    Address(SocketAddr),
    Host { authority: &'a [u8], port: u16 },
}

/// Key for chains that look up one name for all requests.
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

/// Result of a lookup. If there is neither a table nor a cluster, the control plane has no resource of that name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Discovered {
    /// Routes of HTTP requests; `None` if there are none.
    pub(crate) table: Option<Arc<Table>>,
    /// Cluster for non-HTTP traffic; `None` if there is none.
    pub(crate) bytes: Option<Arc<Cluster>>,
}

/// A discovered target.
#[derive(Debug)]
pub(crate) struct Found {
    discovered: ArcSwap<Discovered>,
    /// Time of last use in nanoseconds.
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

    /// Returns the time of last use, with a resolution of one second.
    pub(crate) fn used(&self) -> Time {
        // Relaxed: the time need not be exact.
        Time::from_nanos(self.used.load(Ordering::Relaxed))
    }

    fn mark_used(&self, now: Time) {
        let now = now.as_nanos();
        if now.saturating_sub(self.used.load(Ordering::Relaxed)) > NOTED_EVERY_NANOS {
            self.used.store(now, Ordering::Relaxed);
        }
    }
}

/// A lookup of a worker.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) chain: Arc<OnDemand>,
    pub(crate) key: Key,
    /// Name of the target at the control plane.
    pub(crate) target: String,
    /// Notified when the target is known.
    pub(crate) answered: oneshot::Sender<()>,
}

/// Channel for lookups to the control thread.
#[derive(Debug)]
pub(crate) struct Asks {
    sender: UnboundedSender<Ask>,
    /// Receiver of lookups; the client of the control plane takes it once.
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
    /// Takes the receiver; `None` after the first call.
    pub(crate) fn take(&mut self) -> Option<UnboundedReceiver<Ask>> {
        self.receiver.take()
    }
}

impl OnDemand {
    /// Creates the targets of a chain, or returns `old`, with its results, if the settings are unchanged.
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

    /// Looks up the single name for all requests before the first request arrives.
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

    /// Returns the single name for all requests, if the control plane has no resource of this name.
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

    /// Adds a target, unless it exists. Control thread only.
    pub(crate) fn insert(&self, key: &Key, found: &Arc<Found>) {
        let before = self.found.load();
        if before.contains_key(key) {
            return;
        }
        let mut all = HashMap::clone(&before);
        all.insert(key.clone(), Arc::clone(found));
        self.found.store(Arc::new(all));
    }

    /// Removes a target. Control thread only.
    pub(crate) fn remove(&self, key: &Key) {
        let mut all = HashMap::clone(&self.found.load());
        all.remove(key);
        self.found.store(Arc::new(all));
    }

    /// Returns all targets, by host and port or by address.
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

    /// Returns the target of a request if it is known; `None` if it has to be looked up. The original destination
    /// takes precedence over the request's host, because the client has connected to it.
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

    /// Like [`Self::recall`], but looks up unknown targets.
    ///
    /// # Errors
    /// [`ProxyError::DiscoveryTimeout`] if the target is not known in time.
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

    /// Returns the target of an original destination, and looks it up if it is unknown.
    ///
    /// # Errors
    /// [`ProxyError::DiscoveryTimeout`] if the target is not known in time.
    pub(crate) async fn find_address(
        self: &Arc<Self>,
        address: SocketAddr,
        now: Time,
    ) -> Result<Arc<Discovered>, ProxyError> {
        let address = canonical(address);
        let key = KeyRef::Address(address);
        self.ask(key, now, || Some(address.to_string())).await
    }

    /// Returns the target of a connection on which the client has sent nothing: that of the single name for all
    /// requests, or else that of the original destination. `None` if there is neither, or if the lookup has timed
    /// out.
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
        // The receiver is gone only when the process ends.
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

/// Converts an IPv4-mapped address of a dual-stack socket to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns the port that applies to a host without one.
fn default_port(original: Option<SocketAddr>) -> u16 {
    original.map_or(80, |original| original.port())
}
