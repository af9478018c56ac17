//! The connections that this process makes to where others were going, to know them again.
//!
//! Where the proxy's user is not exempt from the redirection, such a connection comes back to the
//! listener, which would forward it, for ever: one client would use up all file descriptors. So a
//! redirected connection from one of these addresses is refused.
//!
//! Nor may anybody choose a port of this process for its application: what comes to an outbound listener
//! over loopback is served as the application, whose identity it would have. Nor may any connection of this process
//! lead to its own admin port over loopback, whoever names the endpoint (a file, a control plane, DNS, a client's
//! PROXY header): the admin server takes what comes over loopback for an operator's.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use hashbrown::HashSet;

/// The address of the admin port: a process has one, and it is bound once.
static ADMIN: OnceLock<SocketAddr> = OnceLock::new();

/// Local addresses of open connections. Asked once for a connection, never for a request.
#[derive(Debug, Default)]
pub(crate) struct OwnConnections {
    local: Mutex<HashSet<SocketAddr>>,
    logged: AtomicBool,
    /// Where the application alone is served.
    private: ArcSwap<Vec<SocketAddr>>,
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

    /// Whether an address of this host is one where clients of an inbound listener have no business.
    pub(crate) fn is_private(&self, address: SocketAddr) -> bool {
        let private = self.private.load();
        is_admin(address) || private.iter().any(|bound| leads_to(*bound, address))
    }

    /// Whether a client's connection is one of these, seen from the other side.
    pub(crate) fn contains(&self, client: SocketAddr) -> bool {
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        let all = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.contains(&client);
        drop(all);
        // Relaxed: it only keeps the log short.
        if own && !self.logged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "a connection of this proxy was redirected to it: run it as the user or group that \
                 `maglor-proxy init` exempts"
            );
        }
        own
    }
}

/// The admin port is bound to this address.
pub(crate) fn set_admin(bound: SocketAddr) {
    let _ = ADMIN.set(bound);
}

/// Whether a connection to an address would reach the own admin port as from this host.
pub(crate) fn is_admin(address: SocketAddr) -> bool {
    ADMIN.get().is_some_and(|bound| leads_to(*bound, address))
}

/// Whether what connects to an address of this host reaches a listening socket over loopback; a connection to `0.0.0.0`
/// does, too (Linux, ip(7)).
fn leads_to(bound: SocketAddr, address: SocketAddr) -> bool {
    let (own, ip) = (bound.ip().to_canonical(), address.ip().to_canonical());
    let local = ip.is_loopback() || ip.is_unspecified();
    let reaches = own == ip || (local && (own.is_unspecified() || ip.is_unspecified()));
    bound.port() == address.port() && reaches
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_leads_to_what_is_bound_everywhere() {
        let leads =
            |bound: &str, address: &str| leads_to(bound.parse().unwrap(), address.parse().unwrap());
        for bound in ["0.0.0.0:15020", "[::]:15020", "127.0.0.1:15020"] {
            for address in [
                "127.0.0.1:15020",
                "0.0.0.0:15020",
                "[::ffff:127.0.0.1]:15020",
                "[::]:15020",
            ] {
                assert!(leads(bound, address), "{bound} {address}");
            }
            assert!(!leads(bound, "127.0.0.1:15021"));
            // By the pod's own address there are the pages for every peer.
            assert!(!leads(bound, "10.0.0.1:15020"));
        }
        assert!(leads("[::]:15020", "[::1]:15020"));
        assert!(leads("0.0.0.0:15020", "127.9.9.9:15020"));
        assert!(!leads("127.0.0.1:15020", "127.0.0.2:15020"));
        assert!(leads("10.0.0.1:15020", "10.0.0.1:15020"));
    }
}
