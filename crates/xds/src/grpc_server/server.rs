//! The server: one cache of resources that many streams read.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Kind;
use crate::server::Cache;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use maglor_balance::Time;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::grpc_server::state::{Open, State, closed, lock};
use crate::grpc_server::{Peer, Policy, SessionReport, call};

/// The interval of HTTP/2 keep-alive pings to an idle client, and the timeout of their answers: a proxy whose node was
/// cut off is detected within a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum number of concurrent calls of a client, each of which may keep a long request in memory. A proxy has two
/// long-lived calls and its certificate requests.
const CALLS: u32 = 16;
/// The maximum number of concurrent calls of a client that may only request a certificate, and the number of bytes that
/// it may send ahead on each: a signing request with its token has at most 4 kB. All memory for such a client is 100
/// kB.
const UNADMITTED_CALLS: u32 = 2;
const UNADMITTED_WINDOW: u32 = 16 << 10;

/// The discovery server; see the crate's documentation. A clone refers to the same server.
#[derive(Clone)]
pub struct Server(Arc<State>);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// Creates a server with an empty cache.
    #[must_use]
    pub fn new(policy: Arc<dyn Policy>) -> Self {
        Self(Arc::new(State::new(policy)))
    }

    /// Reads or changes the cache; streams are notified once, after the call. The second argument of `use_it` is the
    /// time of the changes.
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

    /// Returns the current time, as used by the cache.
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// Returns the connected clients.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionReport> {
        let open = lock(&self.0.sessions);
        let report = |open: &Open| {
            SessionReport::new(&lock(&open.session), &open.peer, open.since.elapsed())
        };
        open.values().map(report).collect()
    }

    /// Returns the longest time for which a client has left a response unanswered; zero if all responses are answered.
    #[must_use]
    pub fn longest_unanswered(&self) -> Duration {
        let open = lock(&self.0.sessions);
        let since = open
            .values()
            .filter_map(|open| lock(&open.session).unanswered_since());
        let since = since.min();
        since.map_or(Duration::ZERO, |since| self.0.now().saturating_since(since))
    }

    /// Returns the node IDs of the clients that request a resource by its name, and for each client whether it has the
    /// version that is served now: it has acknowledged that version, and has not rejected any since.
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

    /// Re-evaluates the clients selected by node ID. It must be called when these clients may see other resources of a
    /// kind under the names that they request, although none of the resources has changed.
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

    /// Ends all streams and accepts no new ones, so that clients reconnect to another server.
    pub fn close(&self) {
        self.0.closing.send_replace(true);
    }

    /// Serves a connection up to its end; `io` carries HTTP/2, after TLS of the caller, if there is any.
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
