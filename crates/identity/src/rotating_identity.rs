//! The identity and the roots of a running proxy, which are replaced without closing connections.
//!
//! TLS configurations are built once and read this state at each handshake, so that neither a new leaf nor a new root
//! affects open connections. A resumed session is not verified again. So sessions are invalidated when a root that may
//! have verified them is removed, and when the own certificate changes. The latter also keeps a session from outliving
//! the certificate of either side, since both are renewed before they expire.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, Guard};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, ProducesTickets, WebPkiClientVerifier};
use rustls::{CertificateError, RootCertStore};

use crate::authorities::{self, StrictClients};
use crate::provider::provider;
use crate::{Error, Identity, SpiffeId, TrustBundle};

/// The precision lost when a time is derived from a certificate, whose validity period begins at a whole second.
const ROUNDED: Duration = Duration::from_secs(2);

/// The identity and the trust bundle in use; see the module's documentation.
#[derive(Debug)]
pub struct Live {
    state: ArcSwap<State>,
    /// The tasks that wait for the first identity.
    waiting: Mutex<Vec<Waker>>,
}

/// The state in use.
#[derive(Debug)]
pub(crate) struct State {
    /// The identity; `None` until this process has a certificate.
    pub(crate) identity: Option<Identity>,
    pub(crate) bundle: TrustBundle,
    /// The time until which the bundle verifies the identity, in seconds since the Unix epoch; `None` = not at all. It
    /// is computed once, because this takes several verifications.
    vouched_until: Option<u64>,
    /// When the identity was put in use, by the monotonic clock.
    since: Instant,
    /// The verifier of clients' chains, with all roots.
    clients: Arc<dyn ClientCertVerifier>,
    /// The session tickets of our servers, which are shared because all servers present the same identity.
    pub(crate) tickets: Arc<dyn ProducesTickets>,
    /// The epoch of the sessions of our clients. A session is valid only in the epoch in which it began.
    pub(crate) epoch: u64,
}

/// The reason why an identity cannot be used for authentication.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unusable {
    /// The certificate of the identity has expired.
    #[error("the certificate expired at {}", humantime::format_rfc3339_seconds(*.0))]
    Expired(SystemTime),
    /// There is no identity yet.
    #[error("no certificate yet")]
    Missing,
    /// None of the unexpired roots in use verifies the certificate.
    #[error("the certificate was not issued by a valid root of the trust bundle")]
    Untrusted,
}

/// What a rotation has changed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rotation {
    /// Whether the leaf certificate has changed.
    pub identity: bool,
    /// The number of roots that were not trusted before.
    pub roots_added: usize,
    /// The number of roots that are no longer trusted.
    pub roots_removed: usize,
}

impl Live {
    /// Creates the state with a first identity.
    ///
    /// # Errors
    /// If the system returns no random bytes for the keys of tickets.
    pub fn new(identity: Identity, bundle: TrustBundle) -> Result<Arc<Self>, Error> {
        Self::begin(Some(identity), bundle)
    }

    /// Creates the state with roots but without an identity. No clients are accepted, and only servers whose ID the
    /// client expects are trusted.
    ///
    /// # Errors
    /// As those of [`Live::new`].
    pub fn nameless(bundle: TrustBundle) -> Result<Arc<Self>, Error> {
        Self::begin(None, bundle)
    }

    fn begin(identity: Option<Identity>, bundle: TrustBundle) -> Result<Arc<Self>, Error> {
        let tickets = Ticketer::new().map_err(Error::Settings)?;
        let state = State::new(identity, bundle, tickets, 0, Instant::now())?;
        Ok(Arc::new(Self {
            state: ArcSwap::from_pointee(state),
            waiting: Mutex::default(),
        }))
    }

    /// Replaces the identity and the roots. Only one thread may call it: of two concurrent calls, one would be lost.
    ///
    /// # Errors
    /// As those of [`Live::new`]; nothing has changed then.
    pub fn rotate(&self, identity: Identity, bundle: TrustBundle) -> Result<Rotation, Error> {
        self.replace(Some(identity), bundle)
    }

    /// Replaces the roots, but not the identity. Only the thread that calls [`rotate`](Self::rotate) may call it.
    ///
    /// # Errors
    /// As those of [`Live::new`]; nothing has changed then.
    pub fn trust(&self, bundle: TrustBundle) -> Result<Rotation, Error> {
        let identity = self.state.load().identity.clone();
        self.replace(identity, bundle)
    }

    fn replace(&self, identity: Option<Identity>, bundle: TrustBundle) -> Result<Rotation, Error> {
        let old = self.state.load_full();
        let leaf =
            |identity: &Option<Identity>| identity.as_ref().and_then(Identity::leaf).cloned();
        let rotation = Rotation {
            identity: leaf(&identity) != leaf(&old.identity),
            roots_added: bundle.count_without(&old.bundle),
            roots_removed: old.bundle.count_without(&bundle),
        };
        let (tickets, epoch) = match rotation.identity || rotation.roots_removed > 0 {
            true => (Ticketer::new().map_err(Error::Settings)?, old.epoch + 1),
            false => (Arc::clone(&old.tickets), old.epoch),
        };
        let since = match rotation.identity {
            true => Instant::now(),
            false => old.since,
        };
        let state = State::new(identity, bundle, tickets, epoch, since)?;
        self.state.store(Arc::new(state));
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_identified() {
            waiting.drain(..).for_each(Waker::wake);
        }
        Ok(rotation)
    }

    /// Returns our SPIFFE ID; `None` until an identity is issued.
    #[must_use]
    pub fn id(&self) -> Option<SpiffeId> {
        let state = self.state.load();
        state
            .identity
            .as_ref()
            .map(|identity| identity.id().clone())
    }

    /// Returns the end of the validity period of our certificate; `None` if there is no certificate.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        self.state.load().identity.as_ref().map(Identity::expires)
    }

    /// Returns whether there is an identity.
    #[must_use]
    pub fn is_identified(&self) -> bool {
        self.state.load().identity.is_some()
    }

    /// Waits until there is an identity.
    pub async fn identified(&self) {
        poll_fn(|context| {
            if self.is_identified() {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            // It may have been set before the lock was taken, without a wake-up.
            if self.is_identified() {
                return Poll::Ready(());
            }
            waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Returns the roots in use.
    #[must_use]
    pub fn bundle(&self) -> TrustBundle {
        self.state.load().bundle.clone()
    }

    /// Returns whether our own roots verify our own certificate at `now`. If not, the roots of our peers do not verify
    /// it, either.
    #[must_use]
    pub fn is_trusted(&self, now: SystemTime) -> bool {
        let state = self.state.load();
        state.is_vouched(state.time(unix(now)))
    }

    /// Checks that our certificate authenticates us at `now` to a peer that trusts the same roots. The check is cheap
    /// enough for each connection.
    ///
    /// # Errors
    /// The reason why the certificate does not authenticate us.
    pub fn usable(&self, now: SystemTime) -> Result<(), Unusable> {
        self.state.load().usable(now).map(drop)
    }

    /// Returns the time at which certificates are verified while the system's clock shows `now`. It is later than `now`
    /// if our own certificate becomes valid only later.
    #[must_use]
    pub fn time(&self, now: SystemTime) -> SystemTime {
        let time = self.state.load().time(unix(now));
        now.max(SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs()))
    }

    pub(crate) fn state(&self) -> Guard<Arc<State>> {
        self.state.load()
    }
}

impl State {
    fn new(
        identity: Option<Identity>,
        bundle: TrustBundle,
        tickets: Arc<dyn ProducesTickets>,
        epoch: u64,
        since: Instant,
    ) -> Result<Self, Error> {
        let clients = client_verifier(Arc::clone(bundle.store())).map_err(Error::Settings)?;
        let mut state = Self {
            identity,
            bundle,
            vouched_until: None,
            since,
            clients,
            tickets,
            epoch,
        };
        state.vouched_until = state.vouched_until();
        Ok(state)
    }

    /// Returns whether a root verifies the certificate at this time.
    fn is_vouched(&self, time: UnixTime) -> bool {
        let chain = self.identity.as_ref().map(|own| own.key().cert.as_slice());
        match chain {
            Some([leaf, chain @ ..]) => self.verify_client(leaf, chain, time).is_ok(),
            Some([]) | None => false,
        }
    }

    /// Computes the field `vouched_until`. The result does not depend on a clock, since a clock that is wrong now may be
    /// set right a moment later.
    fn vouched_until(&self) -> Option<u64> {
        let own = self.identity.as_ref()?;
        let second = |time| unix(time).as_secs();
        let is_good = |at| self.is_vouched(UnixTime::since_unix_epoch(Duration::from_secs(at)));
        let (mut good, mut bad) = (second(own.begins()), second(own.expires()));
        if is_good(bad) {
            return Some(bad);
        }
        if !is_good(good) {
            return None;
        }
        // The certificates on its path expire before it does.
        while bad - good > 1 {
            let middle = u64::midpoint(good, bad);
            match is_good(middle) {
                true => good = middle,
                false => bad = middle,
            }
        }
        Some(good)
    }

    /// Returns the identity if it can be used for authentication.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(crate) fn usable(&self, now: SystemTime) -> Result<&Identity, Unusable> {
        let own = self.identity.as_ref().ok_or(Unusable::Missing)?;
        let time = self.time(unix(now)).as_secs();
        if unix(own.expires()).as_secs() < time {
            return Err(Unusable::Expired(own.expires()));
        }
        match self.vouched_until.is_some_and(|until| time <= until) {
            true => Ok(own),
            false => Err(Unusable::Untrusted),
        }
    }

    /// Returns the time at which certificates are verified: that of the system's clock, unless our own certificate
    /// begins later. In that case the clock has been set back, or was never set, and the authority's clock was later
    /// when it issued the certificate; the result is then the beginning of the certificate plus the time since it was
    /// put in use. Otherwise, certificates that are younger than the clock's error would be rejected as not valid yet.
    pub(crate) fn time(&self, now: UnixTime) -> UnixTime {
        let Some(own) = &self.identity else {
            return now;
        };
        let begins = unix(own.begins());
        match now < begins {
            true => {
                let seconds = begins.as_secs() + self.since.elapsed().as_secs();
                UnixTime::since_unix_epoch(Duration::from_secs(seconds) + ROUNDED)
            }
            false => now,
        }
    }

    /// Verifies a client's chain. An expired root is no longer trusted; this is checked last, so that other errors are
    /// reported unchanged.
    pub(crate) fn verify_client(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.clients.verify_client_cert(leaf, intermediates, now)?;
        let Some(roots) = self.bundle.without_expired(now) else {
            return Ok(verified);
        };
        let by_good =
            client_verifier(roots).and_then(|v| v.verify_client_cert(leaf, intermediates, now));
        by_good.map_err(|_| CertificateError::Expired.into())
    }

    /// Verifies a server's chain, in the same way as [`State::verify_client`].
    pub(crate) fn verify_server(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        authorities::check(intermediates)?;
        let leaf = ParsedCertificate::try_from(leaf)?;
        let algorithms = provider().signature_verification_algorithms.all;
        let by = |roots| {
            verify_server_cert_signed_by_trust_anchor(&leaf, roots, intermediates, now, algorithms)
        };
        by(self.bundle.store())?;
        match self.bundle.without_expired(now) {
            Some(roots) => by(&roots).map_err(|_| CertificateError::Expired.into()),
            None => Ok(()),
        }
    }
}

fn unix(time: SystemTime) -> UnixTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    UnixTime::since_unix_epoch(since.unwrap_or_default())
}

/// Returns a verifier of clients' chains with these roots.
fn client_verifier(
    roots: Arc<RootCertStore>,
) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
    let built = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider())).build();
    let built = built.map_err(|error| rustls::Error::General(error.to_string()))?;
    Ok(Arc::new(StrictClients(built)))
}
