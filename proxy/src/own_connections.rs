//! The connections that this process makes to where others were going, to know them again.
//!
//! Where the proxy's user is not exempt from the redirection, such a connection comes back to the
//! listener, which would forward it, for ever: one client would use up all file descriptors. So a
//! redirected connection from one of these addresses is refused.
//!
//! Nor may anybody choose a port of this process for its application: what comes to an outbound listener
//! over loopback is served as the application, whose identity it would have.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use hashbrown::HashSet;

/// Local addresses of open connections. Asked once for a connection, never for a request.
#[derive(Debug, Default)]
pub(crate) struct OwnConnections {
    local: Mutex<HashSet<SocketAddr>>,
    told: AtomicBool,
    /// Where the application alone is served.
    private: ArcSwap<Vec<SocketAddr>>,
    /// The admin port, where it is for this host alone.
    admin: OnceLock<SocketAddr>,
}

/// One of them; no longer when this is dropped.
#[derive(Debug)]
pub(crate) struct OwnConnection {
    all: Arc<OwnConnections>,
    local: SocketAddr,
}

impl OwnConnections {
    /// Enters a connection that has just been made.
    pub(crate) fn enter(self: &Arc<Self>, local: SocketAddr) -> OwnConnection {
        let mut all = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(local);
        OwnConnection {
            all: Arc::clone(self),
            local,
        }
    }

    /// The outbound listeners are bound to these addresses now.
    pub(crate) fn set_private(&self, listeners: Vec<SocketAddr>) {
        self.private.store(Arc::new(listeners));
    }

    /// The admin port is bound to this address.
    pub(crate) fn set_admin(&self, bound: SocketAddr) {
        if bound.ip().to_canonical().is_loopback() {
            // It is bound once.
            let _ = self.admin.set(bound);
        }
    }

    /// Whether an address of this host is one where clients of an inbound listener have no business.
    pub(crate) fn is_private(&self, address: SocketAddr) -> bool {
        let leads_to = |bound: &SocketAddr| {
            let ip = bound.ip().to_canonical();
            let any = ip.is_unspecified() && address.ip().is_loopback();
            bound.port() == address.port() && (any || ip == address.ip())
        };
        self.private
            .load()
            .iter()
            .chain(self.admin.get())
            .any(leads_to)
    }

    /// Whether a client's connection is one of these, seen from the other side.
    pub(crate) fn contains(&self, client: SocketAddr) -> bool {
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        let all = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.contains(&client);
        drop(all);
        // Relaxed: it only keeps the log short.
        if own && !self.told.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "a connection of this proxy was redirected to it: run it as the user or group that \
                 `maglor-proxy init` exempts"
            );
        }
        own
    }
}

impl Drop for OwnConnection {
    fn drop(&mut self) {
        let mut all = self
            .all
            .local
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.local);
    }
}
