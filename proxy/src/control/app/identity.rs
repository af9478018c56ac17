//! The proxy's identity: what the control plane issues, and what is in force until then.

use std::sync::Arc;
use std::time::SystemTime;

use maglor_config::{Config, Identity as Wanted};
use maglor_identity::{Error, Identity, Live, TrustBundle};

use super::App;
use crate::control::cache::Cache;
use crate::mesh::identity::{Missing, NotTaken, Own, Prepared, Stored};

/// Prepares the identity of a configuration; at the start, from what an earlier process has cached.
pub(super) fn prepare(own: &Own, wanted: &Config) -> Result<Prepared, Error> {
    let plane = wanted.control_plane.as_ref();
    let cache = plane.and_then(|plane| plane.cache_dir.as_deref());
    own.prepare(wanted.identity.as_ref(), || {
        cache.map_or_else(Stored::default, |cache| Cache::new(cache).identity())
    })
}

impl App {
    /// Returns the identity that TLS handshakes use, if the configuration wants one.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.own.live().cloned()
    }

    /// Returns whether identity and roots come from the control plane, not from files.
    pub(crate) fn is_enrolled(&self) -> bool {
        matches!(self.config.identity, Some(Wanted::ControlPlane(_)))
    }

    /// Puts in force an identity and trust bundle that the control plane has issued.
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

    /// Records that the control plane rejects our identity: its authority may have changed since it was
    /// issued.
    pub(crate) fn identity_refused(&mut self) {
        self.own.refuse();
    }

    /// Returns whether the control plane has rejected the identity in force.
    pub(crate) fn is_identity_refused(&self) -> bool {
        self.own.is_refused()
    }

    /// Replaces the trust bundle by one from the control plane.
    pub(crate) fn trust(&mut self, bundle: TrustBundle) {
        self.own
            .receive_bundle(bundle, &self.shared.metrics.identity);
    }

    /// Returns the roots that authenticate the control plane during enrolment.
    pub(crate) fn anchors(&self) -> Option<TrustBundle> {
        self.own.anchors()
    }

    /// Returns why there is no usable identity, if one is wanted.
    pub(crate) fn without_identity(&self) -> Option<Missing> {
        self.own.missing(SystemTime::now())
    }

    /// Returns whether a listener admits members of the mesh only: without an identity it can admit no
    /// client.
    pub(crate) fn needs_identity(&self) -> bool {
        let mut all = self.listening.values();
        all.any(|listening| listening.state.borrow().is_for_members())
    }

    /// Returns when to request a certificate from the control plane; `None` = immediately.
    pub(crate) fn renew_at(&self) -> Option<SystemTime> {
        self.own.renew_at()
    }
}
