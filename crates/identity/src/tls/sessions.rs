//! The sessions that a client may resume: those of the present epoch.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;

use crate::Live;

/// Servers whose sessions are remembered.
const SERVERS: usize = 128;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Sessions {
    live: Arc<Live>,
    /// Epoch, and the sessions made in it.
    current: ArcSwap<(u64, ClientSessionMemoryCache)>,
}

impl Sessions {
    pub(super) fn new(live: Arc<Live>) -> Self {
        let epoch = live.state().epoch;
        let current = ArcSwap::from_pointee((epoch, ClientSessionMemoryCache::new(SERVERS)));
        Self { live, current }
    }

    /// The sessions of this epoch; those of an earlier one are forgotten. Of two threads that find
    /// out at once, one loses what it has just remembered, which costs a handshake.
    fn current(&self) -> Arc<(u64, ClientSessionMemoryCache)> {
        let epoch = self.live.state().epoch;
        let current = self.current.load_full();
        if current.0 == epoch {
            return current;
        }
        let new = Arc::new((epoch, ClientSessionMemoryCache::new(SERVERS)));
        self.current.store(Arc::clone(&new));
        new
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.current().1.set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.current().1.kx_hint(server_name)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {
        // Not spoken.
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(
        &self,
        server_name: ServerName<'static>,
        value: Tls13ClientSessionValue,
    ) {
        self.current().1.insert_tls13_ticket(server_name, value);
    }

    fn take_tls13_ticket(
        &self,
        server_name: &ServerName<'static>,
    ) -> Option<Tls13ClientSessionValue> {
        self.current().1.take_tls13_ticket(server_name)
    }
}
