//! The task of a client's connection. The task lives as long as the connection, so it is kept small.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;

use super::{Local, State, start};
use crate::http::Phase;
use crate::net::fairness::CountedClient;
use crate::runtime::worker::{Connections, Registered, Worker};
use crate::telemetry::metrics::ListenerMetrics;

/// Serves a connection until it ends.
///
/// The connection is counted immediately, so that the next one is accepted only if there is room; the worker's number of
/// open connections includes it already.
///
/// Boxed: the runtime aligns tasks to 128 bytes, so that one with this future inside would take 256.
pub(crate) fn serve(tcp: TcpStream, state: State, local: Local) -> Pin<Box<Connection>> {
    let counted = Counted::new(Arc::clone(&state.borrow().metrics), &local.worker);
    let registered = Connections::register(&local.worker);
    let start = start(tcp, state, local, registered.slot());
    Box::pin(Connection {
        step: Step::Starting(Box::pin(start)),
        registered,
        counted,
    })
}

/// The future of [`serve`].
pub(crate) struct Connection {
    // Dropped first: the connection counts as open until its current step has ended.
    step: Step,
    registered: Registered,
    counted: Counted,
}

/// Steps of a connection. Each step is in its own box, which is freed with the step, so that an idle connection keeps
/// no memory of the previous one.
pub(super) enum Step {
    /// Finds the next step; there is none if the connection must be closed.
    Starting(Pin<Box<dyn Future<Output = Option<Step>>>>),
    /// Serves the connection with its filter chain.
    Serving(Phase),
}

impl Future for Connection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.registered.is_shed() {
            // Closed to make room for other connections.
            let shard = this.counted.worker.shard();
            this.counted.metrics.refused_descriptors.inc(shard);
            return Poll::Ready(());
        }
        if this.counted.metrics.is_over() {
            return Poll::Ready(());
        }
        loop {
            match &mut this.step {
                Step::Serving(phase) => match ready!(phase.poll(cx)) {
                    Some(next) => *phase = next,
                    None => return Poll::Ready(()),
                },
                Step::Starting(start) => {
                    this.registered.set_waker(cx.waker());
                    match ready!(start.as_mut().poll(cx)) {
                        Some(next) => this.step = next,
                        None => return Poll::Ready(()),
                    }
                }
            }
        }
    }
}

/// Counts an open connection.
struct Counted {
    metrics: Arc<ListenerMetrics>,
    worker: Rc<Worker>,
    _client: CountedClient,
}

impl Counted {
    fn new(metrics: Arc<ListenerMetrics>, worker: &Rc<Worker>) -> Self {
        metrics.connections.inc(worker.shard());
        metrics.connections_total.inc(worker.shard());
        worker.shared().memory.connected();
        let worker = Rc::clone(worker);
        Self {
            metrics,
            worker,
            _client: CountedClient::new(),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.connections.dec(self.worker.shard());
        let shared = self.worker.shared();
        shared.memory.disconnected();
        shared.open_connections.leave(self.worker.shard());
    }
}
