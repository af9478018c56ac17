//! The closed loop: users, each with one request at a time.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::load_generator::{Observer, Sample, Session};

/// The pause of a user after a failed request: a closed port is not polled without end.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// How users behave.
#[derive(Debug, Clone, Copy, Default)]
pub struct Users {
    /// The time in which all users start, one after another.
    pub ramp: Duration,
    /// The pause of a user between a response and its next request.
    pub think: Duration,
}

/// Starts a user for each session. They run until the returned set is dropped, or the observer ends them.
pub fn start<S: Session, O: Observer>(
    sessions: Vec<S>,
    users: Users,
    observer: &Rc<O>,
) -> JoinSet<()> {
    let mut started = JoinSet::new();
    let count = u32::try_from(sessions.len()).unwrap_or(u32::MAX).max(1);
    for (turn, session) in (0_u32..).zip(sessions) {
        let delay = users.ramp * turn / count;
        let observer = Rc::clone(observer);
        started.spawn_local(async move {
            if !delay.is_zero() {
                sleep(delay).await;
            }
            user(session, users.think, &*observer).await;
        });
    }
    started
}

async fn user(mut session: impl Session, think: Duration, observer: &impl Observer) {
    let mut due = Instant::now();
    loop {
        let result = session.round_trip().await;
        let ended = Instant::now();
        let pause = match result.is_ok() {
            true => think,
            false => think.max(AFTER_FAILURE),
        };
        if observer.ended(Sample { due, ended }, result).is_break() {
            return;
        }
        due = match pause.is_zero() {
            true => ended,
            false => {
                sleep(pause).await;
                Instant::now()
            }
        };
    }
}
