//! Connections of this process to original destinations, recorded to detect redirection loops.
//!
//! If the proxy's user is not exempt from the redirection, such a connection returns to the listener, which would
//! forward it repeatedly until a single client has exhausted all file descriptors. Therefore a redirected connection
//! from one of these addresses is refused.
//!
//! Two more loops are prevented. No client may choose a port of this process as its destination: connections
//! to an outbound listener over loopback are served as the application's and get its identity. And no
//! connection of this process may lead to its own admin port over loopback, whatever the source of the
//! endpoint (a file, a control plane, DNS, a client's PROXY header): the admin server trusts loopback clients
//! as operators.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use hashbrown::HashSet;

/// Address of the admin port. A process has one admin port and binds it once.
static ADMIN: OnceLock<SocketAddr> = OnceLock::new();

/// Local addresses of open connections. Checked once per connection, never per request.
#[derive(Debug, Default)]
pub(crate) struct OwnConnections {
    local: Mutex<Locals>,
    logged: AtomicBool,
    /// Addresses of the outbound listeners, which serve only the application.
    private: ArcSwap<Vec<SocketAddr>>,
}

/// A set of addresses. An address of either version would take the space of five of IPv4.
#[derive(Debug, Default)]
struct Locals {
    v4: HashSet<SocketAddrV4>,
    v6: HashSet<SocketAddrV6>,
}

impl Locals {
    fn contains(&self, address: SocketAddr) -> bool {
        match address {
            SocketAddr::V4(address) => self.v4.contains(&address),
            SocketAddr::V6(address) => self.v6.contains(&address),
        }
    }
}

/// An address in its set. Small, since each waiting request may hold one.
#[derive(Debug)]
enum Local {
    V4(SocketAddrV4),
    V6(Box<SocketAddrV6>),
}

/// A recorded connection; dropping this removes it.
#[derive(Debug)]
pub(crate) struct OwnConnection {
    all: Arc<OwnConnections>,
    local: Local,
}

impl OwnConnections {
    /// Records a new connection by its local address.
    pub(crate) fn enter(self: &Arc<Self>, local: SocketAddr) -> OwnConnection {
        let mut all = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let local = match local {
            SocketAddr::V4(local) => {
                all.v4.insert(local);
                Local::V4(local)
            }
            SocketAddr::V6(local) => {
                all.v6.insert(local);
                Local::V6(Box::new(local))
            }
        };
        drop(all);
        OwnConnection {
            all: Arc::clone(self),
            local,
        }
    }

    /// Sets the bound addresses of the outbound listeners.
    pub(crate) fn set_private(&self, listeners: Vec<SocketAddr>) {
        self.private.store(Arc::new(listeners));
    }

    /// Returns whether an address of this host is off limits for clients of an inbound listener.
    pub(crate) fn is_private(&self, address: SocketAddr) -> bool {
        let private = self.private.load();
        is_admin(address) || private.iter().any(|bound| leads_to(*bound, address))
    }

    /// Returns whether a client's address is the local address of one of these connections.
    pub(crate) fn contains(&self, client: SocketAddr) -> bool {
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        let all = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.contains(client);
        drop(all);
        // Relaxed: the flag only limits the log to one line.
        if own && !self.logged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "redirection loop: run the proxy as the user or group that \
                 `maglor-proxy init` exempts"
            );
        }
        own
    }
}

/// Records the bound address of the admin port.
pub(crate) fn set_admin(bound: SocketAddr) {
    let _ = ADMIN.set(bound);
}

/// Returns whether a connection to an address would reach this process's admin port from this host.
pub(crate) fn is_admin(address: SocketAddr) -> bool {
    ADMIN.get().is_some_and(|bound| leads_to(*bound, address))
}

/// Returns whether a connection to an address of this host reaches a listening socket over loopback; a connection to
/// `0.0.0.0` does, too (Linux, ip(7)).
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
        match &self.local {
            Local::V4(local) => all.v4.remove(local),
            Local::V6(local) => all.v6.remove(&**local),
        };
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
            // The pod's own address serves only the pages for every peer.
            assert!(!leads(bound, "10.0.0.1:15020"));
        }
        assert!(leads("[::]:15020", "[::1]:15020"));
        assert!(leads("0.0.0.0:15020", "127.9.9.9:15020"));
        assert!(!leads("127.0.0.1:15020", "127.0.0.2:15020"));
        assert!(leads("10.0.0.1:15020", "10.0.0.1:15020"));
    }
    #[test]
    fn connections_are_known_until_they_close() {
        let all = Arc::new(OwnConnections::default());
        for address in ["10.0.0.1:4321", "[2001:db8::1]:4321"] {
            let address: SocketAddr = address.parse().unwrap();
            let entered = all.enter(address);
            assert!(all.contains(address));
            assert!(!all.contains(SocketAddr::new(address.ip(), 4322)));
            drop(entered);
            assert!(!all.contains(address));
        }
        let entered = all.enter("10.0.0.1:4321".parse().unwrap());
        assert!(all.contains("[::ffff:10.0.0.1]:4321".parse().unwrap()));
        drop(entered);
    }
}
