//! The state of a server that its calls share: the cache, and the open streams.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::server::{Cache, Session};
use maglor_balance::Time;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::grpc_server::{Peer, Policy};

/// The cache and the open streams of a server.
pub(crate) struct State {
    pub(crate) cache: Mutex<Cache>,
    /// The number of changes of the cache so far.
    pub(crate) changed: watch::Sender<u64>,
    pub(crate) closing: watch::Sender<bool>,
    base: Instant,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) sessions: Mutex<HashMap<u64, Open>>,
    next: AtomicU64,
}

/// An open stream.
pub(crate) struct Open {
    pub(crate) session: Arc<Mutex<Session>>,
    pub(crate) peer: Peer,
    pub(crate) since: Instant,
}

/// Locks a mutex even if it is poisoned, because a panic of another thread leaves no inconsistent state here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the server is closing.
pub(crate) async fn closed(closing: &mut watch::Receiver<bool>) {
    // If the sender is dropped, the server is gone, too.
    let _ = closing.wait_for(|closing| *closing).await;
}

impl State {
    pub(crate) fn new(policy: Arc<dyn Policy>) -> Self {
        Self {
            cache: Mutex::new(Cache::new()),
            changed: watch::Sender::new(0),
            closing: watch::Sender::new(false),
            base: Instant::now(),
            policy,
            sessions: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    pub(crate) fn now(&self) -> Time {
        let nanos = self.base.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Calls a function with the cache and a session, both locked.
    pub(crate) fn with<T>(
        &self,
        session: &Mutex<Session>,
        use_it: impl FnOnce(&mut Cache, &mut Session, Time) -> T,
    ) -> T {
        let now = self.now();
        use_it(&mut lock(&self.cache), &mut lock(session), now)
    }

    /// Registers a session until the result is dropped.
    pub(crate) fn open(self: &Arc<Self>, session: Session, peer: Peer) -> Registered {
        let session = Arc::new(Mutex::new(session));
        // Relaxed: only uniqueness matters.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let open = Open {
            session: Arc::clone(&session),
            peer,
            since: Instant::now(),
        };
        lock(&self.sessions).insert(id, open);
        Registered {
            server: Arc::clone(self),
            session,
            id,
        }
    }
}

/// A session that is listed for operators until this guard is dropped.
pub(crate) struct Registered {
    server: Arc<State>,
    pub(crate) session: Arc<Mutex<Session>>,
    id: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&self.server.sessions).remove(&self.id);
        let mut cache = lock(&self.server.cache);
        lock(&self.session).end(&mut cache);
    }
}
