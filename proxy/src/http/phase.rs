//! The phases of serving a connection, such as a busy and an idle one.
//!
//! Each phase is in its own box, which is freed with it: a connection holds nothing but its current phase.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;

/// A future that serves a connection until its next phase, or until it ends.
pub(crate) struct Phase(Pin<Box<dyn Future<Output = Option<Phase>>>>);

impl Phase {
    pub(crate) fn new(future: impl Future<Output = Option<Self>> + 'static) -> Self {
        Self(Box::pin(future))
    }

    /// Creates a phase with which the connection ends.
    pub(crate) fn last(future: impl Future<Output = ()> + 'static) -> Self {
        // A future that awaits it would reserve its space twice.
        Self::new(future.map(|()| None))
    }

    /// Becomes ready with the next phase; with `None` when the connection has ended.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Self>> {
        self.0.as_mut().poll(cx)
    }
}
