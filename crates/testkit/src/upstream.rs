//! A programmable HTTP server that records its requests.
//!
//! It serves HTTP/1.1 and HTTP/2 with prior knowledge on one port, or both over TLS by ALPN. It
//! runs in a separate thread, so that a test needs no runtime. Every response has
//! `x-upstream: NAME`, so that a test sees which server responded.
//!
//! # Behaviour
//!
//! It is selected by the path of a request, or by the header `x-behave` with such a path, for tests
//! that need the path for other purposes. `N` is a number, `T` a time such as `250ms` or `2s`.
//!
//! | path | |
//! |---|---|
//! | `/echo` | method, URI, version, headers, body and trailers of the request as JSON |
//! | `/status/N` | an empty response with this status |
//! | `/delay/T` | responds after this time |
//! | `/hang` | never responds |
//! | `/bytes/N` | N bytes of [`crate::pattern`], with `content-length` |
//! | `/chunked/N` | N bytes of the pattern, streamed without a length |
//! | `/drip/N/T` | N chunks of 10 bytes of the pattern, each after this time |
//! | `/stall/N` | announces N + 1 bytes, sends N, and hangs |
//! | `/trailers` | a body with the trailer `x-checksum: 42` |
//! | `/early-hints` | 103 with a `link`, then 200 (HTTP/1.1 only; 200 in HTTP/2) |
//! | `/continue` | 100 if the request expects it, then as `/upload` |
//! | `/upload` | reads all; responds with `{"bytes": …, "hash": …, "trailers": …}`, see [`crate::pattern::hash`] |
//! | `/early/N` | responds with status N before it has read the body |
//! | `/early/N/M` | the same with M bytes of the pattern |
//! | `/close` | closes the connection (HTTP/2: resets the stream) without a response |
//! | `/close-after-head` | announces 1000 bytes, sends 10, and closes |
//! | `/sse/N/T` | N server-sent events, each after this time |
//! | `/ws` | a WebSocket that sends back every message, up to 64 MiB |
//! | `/upgrade` | 101 to the requested protocol, then sends back every byte |
//! | anything else | 200 with its name as the body |
//!
//! `CONNECT` opens a tunnel that sends back every byte. A closure may handle any request instead:
//! [`UpstreamBuilder::answer`], [`Upstream::set_answer`].
//!
//! ```
//! use maglor_testkit::{Answer, RawHttp1, Upstream};
//!
//! let upstream = Upstream::start("a");
//! let mut client = RawHttp1::connect(upstream.address());
//! assert_eq!(client.get("/status/503").status, 503);
//!
//! upstream.set_answer(|request| (request.number == 2).then(|| Answer::status(418)));
//! assert_eq!(client.get("/").status, 418);
//! let response = client.get("/");
//! assert_eq!(response.header("x-upstream"), Some("a"));
//! assert_eq!((upstream.requests(), upstream.connections()), (3, 1));
//! ```

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustls::ServerConfig;
use tokio::sync::watch;

mod answer;
mod behaviour;
mod body;
mod io;
mod record;
mod server;
mod tunnel;

pub use answer::Answer;
pub use record::Recorded;

use record::Shared;

use crate::TIMEOUT;
use crate::wait::until;

/// Commands for the server's thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Running,
    /// Accept nothing more, finish requests in progress.
    Stopping,
    /// Reset every connection.
    Killed,
}

/// The builder of an [`Upstream`].
#[derive(Debug)]
pub struct UpstreamBuilder {
    shared: Arc<Shared>,
    tls: Option<Arc<ServerConfig>>,
    address: SocketAddr,
}

impl UpstreamBuilder {
    /// Serves TLS; see [`crate::Authority::server_config`].
    #[must_use]
    pub fn tls(mut self, config: Arc<ServerConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Listens on another address than `127.0.0.1:0`: to return at the address of an earlier one,
    /// or to have a separate loopback address.
    #[must_use]
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Sets a closure that is called first; `None` leaves the request to its path.
    #[must_use]
    pub fn answer(
        self,
        answer: impl Fn(&Recorded) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        self.shared.set_answer(Box::new(answer));
        self
    }

    /// Starts the server.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> Upstream {
        let listener = listen(self.address);
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let (phase, reported) = watch::channel(Phase::Running);
        let shared = Arc::clone(&self.shared);
        let tls = self.tls;
        let thread = thread::Builder::new()
            .name(format!("upstream {}", shared.name()))
            .spawn(move || server::run(listener, tls, &shared, reported))
            .expect("a thread");
        Upstream {
            address,
            shared: self.shared,
            phase,
            thread: Some(thread),
        }
    }
}

/// Listens on an address. A connection of another test may have its port for a while.
#[track_caller]
fn listen(address: SocketAddr) -> TcpListener {
    let bind = || match TcpListener::bind(address) {
        Ok(listener) => Some(listener),
        Err(error) if error.kind() == ErrorKind::AddrInUse => None,
        Err(error) => panic!("cannot listen on {address}: {error}"),
    };
    until(TIMEOUT, &format!("{address} is free"), bind)
}

/// A running server. Dropping it kills it, see [`Upstream::kill`].
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    phase: watch::Sender<Phase>,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    /// Starts a server in plain text on a free port.
    #[must_use]
    #[track_caller]
    pub fn start(name: &str) -> Self {
        Self::builder(name).start()
    }

    /// Returns a builder for further settings.
    #[must_use]
    pub fn builder(name: &str) -> UpstreamBuilder {
        UpstreamBuilder {
            shared: Arc::new(Shared::new(name)),
            tls: None,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        }
    }

    /// Returns the server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the name in its responses.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// Returns the number of received request heads.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.requests()
    }

    /// Returns the number of accepted connections.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.accepted()
    }

    /// Returns the number of open connections, including tunnels and WebSockets.
    #[must_use]
    pub fn open_connections(&self) -> u64 {
        self.shared.open()
    }

    /// Returns the latest requests, oldest first; at most [`Upstream::REMEMBERED`].
    #[must_use]
    pub fn recorded(&self) -> Vec<Recorded> {
        self.shared.recorded()
    }

    /// The number of recorded requests.
    pub const REMEMBERED: usize = 1024;

    /// Returns the latest request.
    ///
    /// # Panics
    ///
    /// If there was none.
    #[must_use]
    #[track_caller]
    pub fn last(&self) -> Recorded {
        self.recorded().pop().expect("there was a request")
    }

    /// Sets a closure that is called first from now on; `None` leaves the request to its path.
    pub fn set_answer(&self, answer: impl Fn(&Recorded) -> Option<Answer> + Send + Sync + 'static) {
        self.shared.set_answer(Box::new(answer));
    }

    /// Stops gracefully: accepts nothing more, finishes requests in progress.
    ///
    /// # Panics
    ///
    /// If a request is not finished within [`crate::TIMEOUT`].
    #[track_caller]
    pub fn stop(mut self) {
        self.phase.send_replace(Phase::Stopping);
        let finished =
            |upstream: &Self| upstream.thread.as_ref().is_none_or(JoinHandle::is_finished);
        crate::eventually(TIMEOUT, "the upstream finishes its requests", || {
            finished(&self)
        });
        self.join();
    }

    /// Stops like a crashed server: every connection is reset, the port refuses connections.
    pub fn kill(self) {
        drop(self);
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !thread::panicking()
        {
            panic!("the upstream {} panicked", self.name());
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.phase.send_replace(Phase::Killed);
        self.join();
    }
}
