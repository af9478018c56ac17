//! Settings of one epoch: what a handshake begins with, it ends with.
//!
//! TLS 1.3 sends tickets after the handshake. Had all handshakes one store of sessions and one key for tickets, a ticket
//! of a handshake with the former certificate that arrives after a renewal would pass as one of the new epoch, and
//! sessions resumed by it would be refused as soon as the former certificate expires.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::Live;
use crate::live::State;

/// Settings for handshakes, made anew for each epoch of the identity.
#[derive(Debug)]
pub(super) struct PerEpoch<C> {
    live: Arc<Live>,
    base: C,
    of: fn(&C, &State) -> C,
    current: ArcSwap<(u64, Arc<C>)>,
}

impl<C> PerEpoch<C> {
    /// `of` makes those of an epoch from `base`.
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

    /// Those of the epoch in force. Of two threads that find a new epoch at once, the sessions that one of them begins
    /// are not resumed, which costs a full handshake.
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
