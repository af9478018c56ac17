//! The endpoints: servers on this thread with configurable failures, capacity and restarts.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use maglor_balance::Rng;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use crate::error::{Doing, Result};
use crate::ports;
use crate::scenario::Protocol;

/// The maximum time that a leaving replica waits for its connections.
const DRAIN: Duration = Duration::from_secs(10);
/// A slot that is taken again within this time counts as never idle. It compensates for timers of a
/// millisecond and for the delay of the proxy, so that capacity is slots / service time.
const SLACK: Duration = Duration::from_millis(5);
const BODY: &[u8] = &[b'm'; 64];

/// The handling of requests by a replica.
#[derive(Debug)]
pub(super) enum Behaviour {
    /// Serves a limited number at once, each for the same time; queues a limited number and answers
    /// others with 503.
    Bounded(Bounded),
    /// Serves all requests at once, each for `service`; answers the fraction `failing` with 500,
    /// and delays the fraction `delayed` by `delay`.
    Unbounded {
        service: Duration,
        failing: f64,
        delayed: f64,
        delay: Duration,
    },
}

impl Behaviour {
    pub(super) fn healthy(service: Duration) -> Self {
        Self::faulty(service, 0.0, 0.0, Duration::ZERO)
    }

    pub(super) fn faulty(service: Duration, failing: f64, delayed: f64, delay: Duration) -> Self {
        Self::Unbounded {
            service,
            failing,
            delayed,
            delay,
        }
    }

    pub(super) fn bounded(slots: usize, service: Duration, queue: usize) -> Self {
        Self::Bounded(Bounded {
            slots: Semaphore::new(slots),
            ends: RefCell::default(),
            waiting: Cell::new(0),
            queue,
            service,
        })
    }

    async fn serve(&self, rng: &RefCell<Rng>) -> StatusCode {
        match self {
            Self::Bounded(bounded) => bounded.serve().await,
            Self::Unbounded {
                service,
                failing,
                delayed,
                delay,
            } => {
                let (fails, waits) = {
                    let mut rng = rng.borrow_mut();
                    (rng.unit() < *failing, rng.unit() < *delayed)
                };
                sleep(*service + if waits { *delay } else { Duration::ZERO }).await;
                if fails {
                    StatusCode::INTERNAL_SERVER_ERROR
                } else {
                    StatusCode::OK
                }
            }
        }
    }
}

/// See [`Behaviour::Bounded`].
#[derive(Debug)]
pub(super) struct Bounded {
    slots: Semaphore,
    /// When the slots that are now free were released.
    ends: RefCell<BinaryHeap<Reverse<Instant>>>,
    waiting: Cell<usize>,
    queue: usize,
    service: Duration,
}

impl Bounded {
    async fn serve(&self) -> StatusCode {
        let _slot = match self.slots.try_acquire() {
            Ok(slot) => slot,
            Err(_) if self.waiting.get() >= self.queue => return StatusCode::SERVICE_UNAVAILABLE,
            Err(_) => {
                let _waits = Waits::new(&self.waiting);
                match self.slots.acquire().await {
                    Ok(slot) => slot,
                    Err(_) => return StatusCode::SERVICE_UNAVAILABLE,
                }
            }
        };
        let now = Instant::now();
        let left = self.ends.borrow_mut().pop();
        let begin = match left {
            Some(Reverse(end)) if now.saturating_duration_since(end) < SLACK => end,
            _ => now,
        };
        let end = begin + self.service;
        sleep_until(end.into()).await;
        self.ends.borrow_mut().push(Reverse(end));
        StatusCode::OK
    }
}

/// Counts a waiting request until it is dropped, however its wait ends.
struct Waits<'a>(&'a Cell<usize>);

impl<'a> Waits<'a> {
    fn new(waiting: &'a Cell<usize>) -> Self {
        waiting.set(waiting.get() + 1);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The times at which attempts reached replicas.
#[derive(Debug, Default)]
pub(super) struct Log {
    all: RefCell<Vec<Instant>>,
    /// Those that a full queue rejected.
    blocked: RefCell<Vec<Instant>>,
}

impl Log {
    /// Returns and forgets all attempts and the blocked ones, each in order.
    pub(super) fn take(&self) -> (Vec<Instant>, Vec<Instant>) {
        (self.all.take(), self.blocked.take())
    }
}

/// A server that can leave and come back.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) address: SocketAddr,
    state: Rc<State>,
    serving: RefCell<Option<Serving>>,
}

#[derive(Debug)]
struct State {
    protocol: Protocol,
    behaviour: Behaviour,
    rng: RefCell<Rng>,
    log: Rc<Log>,
}

#[derive(Debug)]
struct Serving {
    leave: watch::Sender<bool>,
    /// The accepting task; it is aborted when this is dropped.
    task: JoinSet<()>,
}

impl Replica {
    /// Creates a replica that does not listen yet.
    pub(super) fn new(
        index: usize,
        protocol: Protocol,
        behaviour: Behaviour,
        log: &Rc<Log>,
        seed: u64,
    ) -> Result<Self> {
        Ok(Self {
            address: ports::free()?,
            state: Rc::new(State {
                protocol,
                behaviour,
                rng: RefCell::new(Rng::seed(seed.wrapping_add(index as u64))),
                log: Rc::clone(log),
            }),
            serving: RefCell::new(None),
        })
    }

    /// Listens and serves.
    pub(super) fn start(&self) -> Result<()> {
        let listener = listen(self.address)?;
        let (leave, left) = watch::channel(false);
        let mut task = JoinSet::new();
        task.spawn_local(accept(listener, Rc::clone(&self.state), left));
        *self.serving.borrow_mut() = Some(Serving { leave, task });
        Ok(())
    }

    /// Leaves gracefully: stops listening, finishes requests under way, and closes its connections.
    pub(super) async fn leave(&self) {
        let serving = self.serving.take();
        if let Some(Serving { leave, mut task }) = serving {
            let _ = leave.send(true);
            let _ = timeout(DRAIN, task.join_next()).await;
        }
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    let what = || format!("listen on {address}");
    let socket = TcpSocket::new_v4().doing(what())?;
    socket.set_reuseaddr(true).doing(what())?;
    socket.bind(address).doing(what())?;
    socket.listen(4096).doing(what())
}

/// Accepts until the replica leaves, then waits for the connections.
async fn accept(listener: TcpListener, state: Rc<State>, mut left: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let mut serve = |stream: TcpStream, left: &watch::Receiver<bool>| {
        connections.spawn_local(serve(stream, Rc::clone(&state), left.clone()));
        while connections.try_join_next().is_some() {}
    };
    let own = left.clone();
    loop {
        tokio::select! {
            // Established connections are served, even when the replica is to leave.
            biased;
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    serve(stream, &own);
                }
            }
            _ = left.changed() => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn serve(stream: TcpStream, state: Rc<State>, mut left: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(stream);
    let protocol = state.protocol;
    let service = service_fn(move |_| {
        let state = Rc::clone(&state);
        async move { Ok::<_, Infallible>(state.answer().await) }
    });
    // Errors of a connection are ignored here; the client counts them.
    match protocol {
        Protocol::H1 => {
            let mut connection = pin!(http1::Builder::new().serve_connection(io, service));
            tokio::select! {
                _ = connection.as_mut() => return,
                _ = left.changed() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        }
        Protocol::H2c => {
            let builder = http2::Builder::new(LocalExecutor);
            let mut connection = pin!(builder.serve_connection(io, service));
            tokio::select! {
                _ = connection.as_mut() => return,
                _ = left.changed() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        }
    }
}

/// Runs the streams of a connection on this thread.
#[derive(Debug, Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

impl State {
    async fn answer(&self) -> Response<Full<Bytes>> {
        self.log.all.borrow_mut().push(Instant::now());
        let status = self.behaviour.serve(&self.rng).await;
        if status == StatusCode::SERVICE_UNAVAILABLE {
            self.log.blocked.borrow_mut().push(Instant::now());
        }
        let mut answer = Response::new(Full::new(Bytes::from_static(BODY)));
        *answer.status_mut() = status;
        answer
    }
}
