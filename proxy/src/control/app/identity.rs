//! The proxy's identity: the one that the control plane issues, and the one that is used until then.

use std::sync::Arc;
use std::time::SystemTime;

use maglor_config::{Config, Identity as Wanted};
use maglor_identity::{Error, Identity, Live, TrustBundle};

use super::App;
use crate::control::cache::Cache;
use crate::mesh::identity::{Missing, NotTaken, Own, Prepared, Stored};

/// Prepares the identity of a configuration. At the start, this is the identity that an earlier process has cached.
pub(super) fn prepare(own: &Own, wanted: &Config) -> Result<Prepared, Error> {
    let plane = wanted.control_plane.as_ref();
    let cache = plane.and_then(|plane| plane.cache_dir.as_deref());
    own.prepare(wanted.identity.as_ref(), || {
        cache.map_or_else(Stored::default, |cache| Cache::new(cache).identity())
    })
}

impl App {
    /// Returns the identity that TLS handshakes use; `None` if the configuration has none.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.own.live().cloned()
    }

    /// Returns whether the identity and the roots come from the control plane, not from files.
    pub(crate) fn is_enrolled(&self) -> bool {
        matches!(self.config.identity, Some(Wanted::ControlPlane(_)))
    }

    /// Applies an identity and a trust bundle that the control plane has issued.
    ///
    /// # Errors
    /// As [`Own::certified`].
    pub(crate) fn certified(
        &mut self,
        identity: Identity,
        bundle: TrustBundle,
    ) -> Result<(), NotTaken> {
        let metrics = &self.shared.metrics.identity;
        self.own
            .certified(identity, bundle, SystemTime::now(), metrics)
    }

    /// Records that the control plane has not issued a certificate.
    pub(crate) fn not_certified(&mut self, why: String) {
        self.own.fail(why);
    }

    /// Records that the control plane has rejected the identity. Its certificate authority may have changed since the
    /// identity was issued.
    pub(crate) fn identity_refused(&mut self) {
        self.own.refuse();
    }

    /// Returns whether the control plane has rejected the current identity.
    pub(crate) fn is_identity_refused(&self) -> bool {
        self.own.is_refused()
    }

    /// Replaces the trust bundle with one from the control plane.
    pub(crate) fn trust(&mut self, bundle: TrustBundle) {
        self.own
            .receive_bundle(bundle, &self.shared.metrics.identity);
    }

    /// Returns the roots that authenticate the control plane during enrolment.
    pub(crate) fn anchors(&self) -> Option<TrustBundle> {
        self.own.anchors()
    }

    /// Returns why the configured identity is not usable; `None` if it is usable or none is configured.
    pub(crate) fn without_identity(&self) -> Option<Missing> {
        self.own.missing(SystemTime::now())
    }

    /// Returns whether a listener admits mesh members only, and therefore no clients at all while there is no
    /// identity.
    pub(crate) fn needs_identity(&self) -> bool {
        let mut all = self.listening.values();
        all.any(|listening| listening.state.borrow().is_for_members())
    }

    /// Returns when to request a certificate from the control plane; `None` means immediately.
    pub(crate) fn renew_at(&self) -> Option<SystemTime> {
        self.own.renew_at()
    }
}
