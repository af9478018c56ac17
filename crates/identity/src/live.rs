//! The identity and the roots of a running proxy, exchanged under its connections.
//!
//! TLS configurations are built once and look here at each handshake, so that neither a new leaf
//! nor a new root touches a connection that there is. What a handshake has proved may be resumed
//! without another proof; so sessions end with what proved them: when a root leaves, and when the
//! own certificate changes (which also keeps a session from outliving either side's certificate,
//! as each is renewed before it expires).

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::{ArcSwap, Guard};
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ProducesTickets, WebPkiClientVerifier};

use crate::provider::provider;
use crate::{Error, Identity, SpiffeId, TrustBundle};

/// See the module's documentation.
#[derive(Debug)]
pub struct Live(ArcSwap<State>);

/// What is in force.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) identity: Identity,
    pub(crate) bundle: TrustBundle,
    /// Verifies the chains of clients.
    pub(crate) clients: Arc<dyn ClientCertVerifier>,
    /// Tickets of our servers: of all of them, as they show the same identity.
    pub(crate) tickets: Arc<dyn ProducesTickets>,
    /// Sessions of our clients belong to the epoch in which they were made.
    pub(crate) epoch: u64,
}

/// What has changed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rotation {
    /// There is another leaf.
    pub identity: bool,
    /// Roots that were not trusted before.
    pub roots_added: usize,
    /// Roots that are no longer trusted.
    pub roots_removed: usize,
}

impl Live {
    /// Puts a first identity in force.
    ///
    /// # Errors
    /// When the system gives no random bytes for the keys of tickets.
    pub fn new(identity: Identity, bundle: TrustBundle) -> Result<Arc<Self>, Error> {
        let tickets = Ticketer::new().map_err(Error::Settings)?;
        let state = State::new(identity, bundle, tickets, 0)?;
        Ok(Arc::new(Self(ArcSwap::from_pointee(state))))
    }

    /// Puts another identity or other roots in force. To be called by one thread: of two calls at
    /// once, one would be lost.
    ///
    /// # Errors
    /// As [`Live::new`]; then nothing has changed.
    pub fn rotate(&self, identity: Identity, bundle: TrustBundle) -> Result<Rotation, Error> {
        let old = self.0.load_full();
        let rotation = Rotation {
            identity: identity.leaf() != old.identity.leaf(),
            roots_added: bundle.count_without(&old.bundle),
            roots_removed: old.bundle.count_without(&bundle),
        };
        let (tickets, epoch) = match rotation.identity || rotation.roots_removed > 0 {
            true => (Ticketer::new().map_err(Error::Settings)?, old.epoch + 1),
            false => (Arc::clone(&old.tickets), old.epoch),
        };
        let state = State::new(identity, bundle, tickets, epoch)?;
        self.0.store(Arc::new(state));
        Ok(rotation)
    }

    /// Who we are.
    #[must_use]
    pub fn id(&self) -> SpiffeId {
        self.0.load().identity.id().clone()
    }

    /// The end of our certificate's validity.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        self.0.load().identity.expires()
    }

    /// Whether our own roots vouch for our own certificate at `now`: where they do not, neither will
    /// our peers' roots.
    #[must_use]
    pub fn is_trusted(&self, now: SystemTime) -> bool {
        let state = self.0.load();
        let [leaf, chain @ ..] = state.identity.key().cert.as_slice() else {
            return false;
        };
        let since = now.duration_since(SystemTime::UNIX_EPOCH);
        let now = UnixTime::since_unix_epoch(since.unwrap_or_default());
        state.clients.verify_client_cert(leaf, chain, now).is_ok()
    }

    pub(crate) fn state(&self) -> Guard<Arc<State>> {
        self.0.load()
    }
}

impl State {
    fn new(
        identity: Identity,
        bundle: TrustBundle,
        tickets: Arc<dyn ProducesTickets>,
        epoch: u64,
    ) -> Result<Self, Error> {
        let roots = Arc::clone(bundle.store());
        let provider = Arc::clone(provider());
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
        let clients =
            clients.map_err(|e| Error::Settings(rustls::Error::General(e.to_string())))?;
        Ok(Self {
            identity,
            bundle,
            clients,
            tickets,
            epoch,
        })
    }
}
