//! The identity issued by the control plane, as a condition for the stream. The control plane rejects a stream
//! without an identity, so none is opened before one is issued.

use std::sync::Arc;
use std::time::SystemTime;

use maglor_identity::Live;

/// The identity issued by the control plane.
pub(super) struct Credential {
    /// The proxy's identity; `None` if the control plane issues none.
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

    /// Returns whether the control plane would accept a stream of this proxy now.
    pub(super) fn is_usable(&self) -> bool {
        let now = SystemTime::now();
        self.live
            .as_ref()
            .is_none_or(|live| live.usable(now).is_ok())
    }

    /// Returns whether the identity has become usable since the last call, so that a retry need not wait.
    pub(super) fn has_returned(&mut self) -> bool {
        let is_usable = self.is_usable();
        let before = std::mem::replace(&mut self.was_usable, is_usable);
        is_usable && !before
    }

    /// Waits until the first identity is issued; never returns if there was one already.
    pub(super) async fn issued(&self) {
        match &self.live {
            Some(live) if !live.is_identified() => live.identified().await,
            Some(_) | None => std::future::pending().await,
        }
    }
}
