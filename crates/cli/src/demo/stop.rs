//! Early termination of a demo.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// Whether the demo should stop.
#[derive(Debug, Default)]
pub(super) struct Stop {
    requested: Rc<Cell<bool>>,
    notify: Rc<Notify>,
}

impl Stop {
    /// Handles Ctrl-C, `kill`, and the closing of the terminal.
    pub(super) fn on_signals() -> io::Result<Self> {
        let stop = Self::default();
        for kind in [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ] {
            let mut signal = signal(kind)?;
            let (requested, notify) = (Rc::clone(&stop.requested), Rc::clone(&stop.notify));
            tokio::task::spawn_local(async move {
                signal.recv().await;
                requested.set(true);
                notify.notify_waiters();
            });
        }
        Ok(stop)
    }

    pub(super) fn requested(&self) -> bool {
        self.requested.get()
    }

    /// Waits until a stop is requested; returns immediately if it was.
    pub(super) async fn wait(&self) {
        let notified = self.notify.notified();
        if !self.requested() {
            notified.await;
        }
    }
}
