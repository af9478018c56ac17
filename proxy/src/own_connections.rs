//! The connections that this process makes to where others were going, to know them again.
//!
//! Where the proxy's user is not exempt from the redirection, such a connection comes back to the
//! listener, which would forward it, for ever: one client would use up all file descriptors. So a
//! redirected connection from one of these addresses is refused.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashSet;

/// Local addresses of open connections. Asked once for a connection, never for a request.
#[derive(Debug, Default)]
pub(crate) struct OwnConnections {
    local: Mutex<HashSet<SocketAddr>>,
    told: AtomicBool,
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
