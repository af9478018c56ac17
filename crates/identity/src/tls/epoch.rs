//! TLS configurations per epoch: a handshake uses one configuration from its beginning to its end.
//!
//! TLS 1.3 sends tickets after the handshake. If all handshakes shared a session store and a ticket key, a ticket of a
//! handshake with the former certificate that arrives after a renewal would be stored as one of the new epoch. Sessions
//! that are resumed with it would be rejected as soon as the former certificate expires.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::Live;
use crate::rotating_identity::State;

/// A TLS configuration that is rebuilt for each epoch of the identity.
#[derive(Debug)]
pub(super) struct PerEpoch<C> {
    live: Arc<Live>,
    base: C,
    of: fn(&C, &State) -> C,
    current: ArcSwap<(u64, Arc<C>)>,
}

impl<C> PerEpoch<C> {
    /// Creates the configurations from `base`; `of` derives the configuration of an epoch.
    pub(super) fn new(live: &Arc<Live>, base: C, of: fn(&C, &State) -> C) -> Self {
        let state = live.state();
        let first = Arc::new(of(&base, &state));
        Self {
            live: Arc::clone(live),
            base,
            of,
            current: ArcSwap::from_pointee((state.epoch, first)),
        }
    }

    /// Returns the configuration of the current epoch. If two threads detect a new epoch at the same time, the sessions
    /// that begin with one of the two configurations are not resumed, which costs a full handshake.
    pub(super) fn current(&self) -> Arc<C> {
        let state = self.live.state();
        let current = self.current.load();
        if current.0 == state.epoch {
            return Arc::clone(&current.1);
        }
        let new = Arc::new((self.of)(&self.base, &state));
        self.current
            .store(Arc::new((state.epoch, Arc::clone(&new))));
        new
    }

    pub(super) fn live(&self) -> &Arc<Live> {
        &self.live
    }
}
