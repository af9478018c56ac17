//! Who the proxy is: what the control plane says of it, and what is in force until then.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use maglor_config::{Config, Identity as Wanted};
use maglor_identity::{Error, Identity, Live, TrustBundle};

use super::App;
use crate::cache::Cache;
use crate::identity::{Own, Prepared};

/// What a configuration makes of the identity; at the start with what an earlier process has left.
pub(super) fn prepare(own: &Own, wanted: &Config) -> Result<Prepared, Error> {
    let plane = wanted.control_plane.as_ref();
    let cache = plane.and_then(|plane| plane.cache_dir.as_deref());
    own.prepare(wanted.identity.as_ref(), || Cache::new(cache?).identity())
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
    pub(crate) fn certified(&mut self, identity: Identity, bundle: TrustBundle) {
        self.own
            .certified(identity, bundle, &self.shared.metrics.identity);
    }

    /// The control plane has not certified us.
    pub(crate) fn not_certified(&mut self, why: String) {
        self.own.fail(why);
    }

    /// The control plane says whom to trust from now on.
    pub(crate) fn trust(&mut self, bundle: TrustBundle) {
        self.own.told(bundle, &self.shared.metrics.identity);
    }

    /// Why there is no identity, where one is wanted and none is there.
    pub(crate) fn without_identity(&self) -> Option<String> {
        self.own.missing()
    }

    /// How long to wait before the control plane is asked for a certificate.
    pub(crate) fn renewal(&self, now: SystemTime) -> Duration {
        self.own.renewal(now)
    }
}
