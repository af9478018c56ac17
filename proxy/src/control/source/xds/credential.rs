//! The identity that the control plane issued, as far as the stream to it depends on that: without one the control plane
//! refuses the stream, so that nothing is asked until there is one.

use std::sync::Arc;
use std::time::SystemTime;

use maglor_identity::Live;

/// See the module's documentation.
pub(super) struct Credential {
    /// `None` where the control plane issues none.
    live: Option<Arc<Live>>,
    was_usable: bool,
}

impl Credential {
    pub(super) fn new(live: Option<Arc<Live>>) -> Self {
        let mut credential = Self {
            live,
            was_usable: false,
        };
        credential.was_usable = credential.is_usable();
        credential
    }

    /// Whether the control plane would serve this proxy now.
    pub(super) fn is_usable(&self) -> bool {
        let now = SystemTime::now();
        self.live
            .as_ref()
            .is_none_or(|live| live.usable(now).is_ok())
    }

    /// Whether it can be used, and could not when this was called last: what failed before need not be waited for.
    pub(super) fn has_returned(&mut self) -> bool {
        let is_usable = self.is_usable();
        let before = std::mem::replace(&mut self.was_usable, is_usable);
        is_usable && !before
    }

    /// Waits for the first one; for ever where there was one already.
    pub(super) async fn issued(&self) {
        match &self.live {
            Some(live) if !live.is_identified() => live.identified().await,
            Some(_) | None => std::future::pending().await,
        }
    }
}
