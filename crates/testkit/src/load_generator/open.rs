//! The open loop: requests are due at given times, request `k` on session `k mod n`.
//!
//! A session that is still busy sends late, but the latency counts from when the request was due.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;

use crate::load_generator::{Clock, Observer, Sample, Session};

/// How many requests may wait for one session; further ones are missed, so that a hanging server does not fill the
/// memory.
const WAITING: usize = 1 << 16;

/// Sessions that wait for due times.
#[derive(Debug)]
pub struct Open<O> {
    senders: Vec<Sender<Instant>>,
    observer: Rc<O>,
    sessions: JoinSet<()>,
}

impl<O: Observer> Open<O> {
    /// Starts the sessions.
    pub fn start<S: Session>(sessions: Vec<S>, observer: &Rc<O>) -> Self {
        let mut open = Self {
            senders: Vec::with_capacity(sessions.len()),
            observer: Rc::clone(observer),
            sessions: JoinSet::new(),
        };
        for session in sessions {
            let (sender, receiver) = channel(WAITING);
            open.senders.push(sender);
            let observer = Rc::clone(observer);
            open.sessions
                .spawn_local(serve(session, receiver, observer));
        }
        open
    }

    /// Waits for each of the due times, and has a request sent. Returns the sessions, each of which ends after its
    /// last response.
    ///
    /// # Errors
    ///
    /// The clock fails.
    pub async fn pace(
        self,
        due: impl Iterator<Item = Instant>,
        clock: &Clock,
    ) -> io::Result<JoinSet<()>> {
        for (sender, due) in self.senders.iter().cycle().zip(due) {
            clock.sleep_until(due).await?;
            if sender.try_send(due).is_err() {
                self.observer.missed(due);
            }
        }
        Ok(self.sessions)
    }
}

async fn serve(mut session: impl Session, mut due: Receiver<Instant>, observer: Rc<impl Observer>) {
    while let Some(due) = due.recv().await {
        let result = session.round_trip().await;
        let ended = Instant::now();
        if observer.ended(Sample { due, ended }, result).is_break() {
            return;
        }
    }
}
