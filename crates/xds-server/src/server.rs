//! The server: a cache that many streams read.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use maglor_balance::Time;
use maglor_xds::Kind;
use maglor_xds::server::{Cache, Session};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::{Peer, Policy, SessionReport, call};

/// A client that says nothing is asked so often whether it is there, and has so long to answer: a
/// proxy whose node was cut off is noticed within a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Calls of a client at the same time; a proxy has two that last, and certifies itself. Each may keep a long request
/// in memory.
const CALLS: u32 = 16;
/// Calls of a client that may only ask for a certificate, and bytes that it may send ahead on each: a signing request
/// and its token have 4 kB at most. All that is kept for such a client is 100 kB.
const UNADMITTED_CALLS: u32 = 2;
const UNADMITTED_WINDOW: u32 = 16 << 10;

/// See the crate's documentation. A clone is the same server.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

pub(crate) struct Inner {
    cache: Mutex<Cache>,
    /// Counts changes of the cache.
    changed: watch::Sender<u64>,
    closing: watch::Sender<bool>,
    base: Instant,
    pub(crate) policy: Arc<dyn Policy>,
    sessions: Mutex<HashMap<u64, Open>>,
    next: AtomicU64,
}

/// A stream that is open.
struct Open {
    session: Arc<Mutex<Session>>,
    peer: Peer,
    since: Instant,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// A panic elsewhere leaves nothing half done here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// A server of nothing yet.
    #[must_use]
    pub fn new(policy: Arc<dyn Policy>) -> Self {
        Self(Arc::new(Inner {
            cache: Mutex::new(Cache::new()),
            changed: watch::Sender::new(0),
            closing: watch::Sender::new(false),
            base: Instant::now(),
            policy,
            sessions: Mutex::default(),
            next: AtomicU64::new(0),
        }))
    }

    /// Reads or changes what is served; streams learn of all changes in one go afterwards. The second
    /// argument is the time of changes made now.
    pub fn cache<T>(&self, use_it: impl FnOnce(&mut Cache, Time) -> T) -> T {
        let mut cache = lock(&self.0.cache);
        let before = cache.last_change();
        let result = use_it(&mut cache, self.0.now());
        let changed = cache.last_change() != before;
        drop(cache);
        if changed {
            self.0.changed.send_modify(|count| *count += 1);
        }
        result
    }

    /// The time as the cache counts it.
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// Who is connected.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionReport> {
        let open = lock(&self.0.sessions);
        let report = |open: &Open| {
            SessionReport::new(&lock(&open.session), &open.peer, open.since.elapsed())
        };
        open.values().map(report).collect()
    }

    /// How long the client that has left a response without an answer for longest has done so; zero = all are
    /// answered.
    #[must_use]
    pub fn longest_unanswered(&self) -> Duration {
        let open = lock(&self.0.sessions);
        let since = open
            .values()
            .filter_map(|open| lock(&open.session).unanswered_since());
        let since = since.min();
        since.map_or(Duration::ZERO, |since| self.0.now().saturating_since(since))
    }

    /// Who asks for a resource by its name, by node id, and whether it holds the one that is served now:
    /// it has said so, and has refused none since.
    #[must_use]
    pub fn holders(&self, kind: Kind, name: &str) -> Vec<(Arc<str>, bool)> {
        let open: Vec<_> = lock(&self.0.sessions)
            .values()
            .map(|open| Arc::clone(&open.session))
            .collect();
        let cache = lock(&self.0.cache);
        let asks = open.iter().map(|session| lock(session));
        asks.filter(|session| session.asks_for(kind, name))
            .map(|session| {
                (
                    Arc::clone(session.node()),
                    session.holds(&cache, kind, name),
                )
            })
            .collect()
    }

    /// Has clients checked again, by node id, for whom other resources of a kind may hold under the names that they
    /// ask for, though none of these has changed.
    pub fn look_again(&self, kind: Kind, whose: impl Fn(&str) -> bool) {
        let open: Vec<_> = lock(&self.0.sessions)
            .values()
            .map(|open| Arc::clone(&open.session))
            .collect();
        let mut any = false;
        for session in open {
            let mut session = lock(&session);
            if whose(session.node()) {
                session.look_again(kind);
                any = true;
            }
        }
        if any {
            self.0.changed.send_modify(|count| *count += 1);
        }
    }

    /// Ends all streams, so that clients go elsewhere, and takes no new ones.
    pub fn close(&self) {
        self.0.closing.send_replace(true);
    }

    /// Serves one connection up to its end; `io` speaks HTTP/2, after whatever TLS the caller has
    /// done.
    pub async fn serve<Io>(self, io: Io, peer: Peer)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let server = Arc::clone(&self.0);
        let whose = peer.clone();
        let service = service_fn(move |request| {
            let answer = call::answer(Arc::clone(&server), whose.clone(), request);
            async { Ok::<_, Infallible>(answer.await) }
        });
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(KEEP_ALIVE))
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
        match self.0.policy.admit(&peer) {
            Ok(()) => builder.max_concurrent_streams(CALLS),
            Err(_) => builder
                .max_concurrent_streams(UNADMITTED_CALLS)
                .initial_stream_window_size(UNADMITTED_WINDOW),
        };
        let connection = builder.serve_connection(TokioIo::new(io), service);
        let mut connection = std::pin::pin!(connection);
        let mut closing = self.0.closing();
        let outcome = tokio::select! {
            outcome = &mut connection => outcome,
            () = closed(&mut closing) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(client = %peer.address, %error, "connection closed");
        }
    }
}

/// Waits until the server is closing.
pub(crate) async fn closed(closing: &mut watch::Receiver<bool>) {
    // Without its sender the server is gone, too.
    let _ = closing.wait_for(|closing| *closing).await;
}

impl Inner {
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

    /// Does something with the cache and a session.
    pub(crate) fn with<T>(
        &self,
        session: &Mutex<Session>,
        use_it: impl FnOnce(&mut Cache, &mut Session, Time) -> T,
    ) -> T {
        let now = self.now();
        use_it(&mut lock(&self.cache), &mut lock(session), now)
    }

    /// Registers a session for as long as the result lives.
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

/// A session that operators can see.
pub(crate) struct Registered {
    server: Arc<Inner>,
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
