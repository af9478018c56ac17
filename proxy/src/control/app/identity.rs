//! Who the proxy is: what the control plane says of it, and what is in force until then.

use std::sync::Arc;
use std::time::SystemTime;

use maglor_config::{Config, Identity as Wanted};
use maglor_identity::{Error, Identity, Live, TrustBundle};

use super::App;
use crate::control::cache::Cache;
use crate::mesh::identity::{Missing, NotTaken, Own, Prepared, Stored};

/// What a configuration makes of the identity; at the start with what an earlier process has left.
pub(super) fn prepare(own: &Own, wanted: &Config) -> Result<Prepared, Error> {
    let plane = wanted.control_plane.as_ref();
    let cache = plane.and_then(|plane| plane.cache_dir.as_deref());
    own.prepare(wanted.identity.as_ref(), || {
        cache.map_or_else(Stored::default, |cache| Cache::new(cache).identity())
    })
}

impl App {
    /// The identity that handshakes look at, where the configuration wants one.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.own.live().cloned()
    }

    /// Whether the control plane says who we are and whom to trust, not files.
    pub(crate) fn is_enrolled(&self) -> bool {
        matches!(self.config.identity, Some(Wanted::ControlPlane(_)))
    }

    /// The control plane has certified us, and says whom to trust.
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

    /// The control plane has not certified us.
    pub(crate) fn not_certified(&mut self, why: String) {
        self.own.fail(why);
    }

    /// The control plane does not take our identity: it may have another authority since it was issued.
    pub(crate) fn identity_refused(&mut self) {
        self.own.refuse();
    }

    /// Whether it has not taken the identity that is in force.
    pub(crate) fn is_identity_refused(&self) -> bool {
        self.own.is_refused()
    }

    /// The control plane says whom to trust from now on.
    pub(crate) fn trust(&mut self, bundle: TrustBundle) {
        self.own
            .receive_bundle(bundle, &self.shared.metrics.identity);
    }

    /// The roots by which the control plane proves itself when it certifies.
    pub(crate) fn anchors(&self) -> Option<TrustBundle> {
        self.own.anchors()
    }

    /// Why the identity proves nothing, where one is wanted.
    pub(crate) fn without_identity(&self) -> Option<Missing> {
        self.own.missing(SystemTime::now())
    }

    /// Whether a listener lets in members of the mesh only: without an identity it can let in no client.
    pub(crate) fn needs_identity(&self) -> bool {
        let mut all = self.listening.values();
        all.any(|listening| listening.state.borrow().is_for_members())
    }

    /// When to ask the control plane for a certificate; `None` = at once.
    pub(crate) fn renew_at(&self) -> Option<SystemTime> {
        self.own.renew_at()
    }
}
