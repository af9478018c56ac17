//! A worker's thread: its runtime, its listening sockets, and its shutdown.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::downstream::accept::{self, Local};
use crate::downstream::handover::{HandedOver, Inbox, Inboxes};
use crate::mesh::load_feedback::calls::Calls;
use crate::mesh::load_feedback::upstreams::Upstreams;
use crate::net::fairness;
use crate::net::socket::{Acceptor, Listening};
use crate::os::descriptors::Room;
use crate::os::memory;
use crate::os::throttle::Throttle;
use crate::protocol::fields;
use crate::routing::listener::Listener;
use crate::runtime::delayed_release;
use crate::runtime::shared::Shared;
use crate::runtime::timers;
use crate::runtime::worker::Worker;

/// Interval at which idle connections to endpoints are closed.
const SWEEP: Duration = Duration::from_secs(1);
/// Decrease of the heap in bytes after which the thread's buffers and caches are freed, too.
const FELL: i64 = 1 << 20;
/// Number of connections that are accepted before other tasks of the worker run. With fewer, clients would wait in
/// the system's queue for longer than accepting them takes.
const ACCEPTED_IN_TURN: u32 = 16;
/// Pause after a failed accept (out of file descriptors, for example).
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(20);

/// Commands of the control thread to a worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Accept on a new socket.
    Listen {
        name: Arc<str>,
        socket: Listening,
        state: watch::Receiver<Arc<Listener>>,
    },
    /// Stop accepting on a listener; its connections end by themselves.
    Close { name: Arc<str> },
    /// Wake connections of a retired chain so that they end.
    Wake,
    /// Stop accepting, and end all connections; `done` is sent when the last one has ended.
    Drain { done: oneshot::Sender<()> },
}

/// The control thread's handle on a worker.
#[derive(Debug)]
pub(crate) struct Handle {
    commands: UnboundedSender<Command>,
    thread: std::thread::JoinHandle<()>,
}

impl Handle {
    /// Starts a worker.
    ///
    /// # Errors
    /// When the thread or its runtime cannot be created.
    pub(crate) fn start(
        shard: usize,
        shared: Arc<Shared>,
        calls: Arc<Calls>,
        mail: (Inbox, Inboxes),
        seed: u64,
    ) -> io::Result<Self> {
        let (commands, receiver) = unbounded_channel();
        let runtime = Builder::new_current_thread();
        let thread = std::thread::Builder::new()
            .name(format!("worker-{shard}"))
            .spawn(move || run(runtime, (shard, shared, calls, seed), mail, receiver))?;
        Ok(Self { commands, thread })
    }

    /// Sends a command; ignored if the worker has ended.
    pub(crate) fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// Ends the worker and waits for its thread.
    pub(crate) fn stop(self) {
        drop(self.commands);
        if self.thread.join().is_err() {
            tracing::error!("a worker thread panicked");
        }
    }
}

fn run(
    mut runtime: Builder,
    (shard, shared, calls, seed): (usize, Arc<Shared>, Arc<Calls>, u64),
    mail: (Inbox, Inboxes),
    commands: UnboundedReceiver<Command>,
) {
    let runtime = match runtime.enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot create a worker's runtime");
            return;
        }
    };
    let worker = Worker::new(shard, shared, seed);
    worker.holders.enter();
    let local = Local {
        worker,
        upstreams: Rc::new(Upstreams::new(calls, shard)),
    };
    runtime.block_on(run_commands(local, mail, commands));
}

/// Executes commands until the control thread drops its end of the channel.
async fn run_commands(
    local: Local,
    (inbox, inboxes): (Inbox, Inboxes),
    mut commands: UnboundedReceiver<Command>,
) {
    let (stop, stopped) = oneshot::channel();
    let receiving = tokio::task::spawn_local(receive(inbox, local.clone(), stopped));
    let mut receiving = Some((stop, receiving));
    let mut listening: HashMap<Arc<str>, (oneshot::Sender<()>, JoinHandle<()>)> = HashMap::new();
    tokio::task::spawn_local(sweep(local.clone()));
    tokio::task::spawn_local(Rc::clone(&local.upstreams.pools).release_idle());
    tokio::task::spawn_local(fairness::run());
    tokio::task::spawn_local(timers::run());
    tokio::task::spawn_local(delayed_release::release(Rc::clone(
        &local.worker.delayed_releases,
    )));
    while let Some(command) = commands.recv().await {
        match command {
            Command::Listen {
                name,
                socket,
                state,
            } => match Acceptor::new(socket) {
                Ok(socket) => {
                    let (stop, stopped) = oneshot::channel();
                    let accepting = accept(socket, state, local.clone(), inboxes.clone(), stopped);
                    listening.insert(name, (stop, tokio::task::spawn_local(accepting)));
                }
                Err(error) => {
                    tracing::error!(listener = %name, %error, "cannot accept connections on this worker");
                }
            },
            Command::Close { name } => drop(listening.remove(&name)),
            Command::Wake => local.worker.connections.wake_in_turns().await,
            Command::Drain { done } => {
                let listening = listening.drain().map(|(_, accepting)| accepting);
                let accepting = listening
                    .chain(receiving.take())
                    .map(|(_stop, accepting)| accepting)
                    .collect();
                local.worker.drain();
                local.upstreams.pools.clear();
                local.upstreams.clear();
                tokio::task::spawn_local(drained(accepting, Rc::clone(&local.worker), done));
            }
        }
    }
}

/// Waits until every worker has drained, for at most `limit`.
pub(crate) async fn all_drained(receivers: Vec<oneshot::Receiver<()>>, limit: Duration) -> bool {
    let all = async {
        for receiver in receivers {
            let _ = receiver.await;
        }
    };
    tokio::time::timeout(limit, all).await.is_ok()
}

/// Sends `done` when no more connections are accepted and none is left.
async fn drained(accepting: Vec<JoinHandle<()>>, worker: Rc<Worker>, done: oneshot::Sender<()>) {
    for task in accepting {
        let _ = task.await;
    }
    // The last accepted connections have tasks, but these have not been polled yet.
    tokio::task::yield_now().await;
    worker.connections.none_left().await;
    let _ = done.send(());
}

/// Accepts until `stopped` resolves, and then accepts the connections that are already queued: closing the socket
/// would reset them.
async fn accept(
    socket: Acceptor,
    state: watch::Receiver<Arc<Listener>>,
    local: Local,
    inboxes: Inboxes,
    mut stopped: oneshot::Receiver<()>,
) {
    let state = Rc::new(state);
    let log = Throttle::new();
    let mut in_turn = 0;
    loop {
        if in_turn == ACCEPTED_IN_TURN {
            in_turn = 0;
            fairness::next().await;
        }
        in_turn += 1;
        tokio::select! {
            biased;
            _ = &mut stopped => break,
            accepted = accept_one(&socket, local.worker.shared(), &state) => match accepted {
                Ok(tcp) => match assign(tcp, &state, &local, &inboxes) {
                    DescriptorAvailability::Free => {}
                    // Connections that must end have to be polled first.
                    DescriptorAvailability::Reclaimed | DescriptorAvailability::Exhausted => {
                        tokio::task::yield_now().await;
                    }
                },
                Err(error) => after_failure(&error, &local.worker, &log).await,
            },
        }
    }
    for accepted in socket.waiting() {
        match accepted {
            Ok(tcp) => {
                assign(tcp, &state, &local, &inboxes);
            }
            Err(error) => tracing::warn!(%error, "accept failed"),
        }
    }
}

/// Serves connections that other workers have accepted, until `stopped` resolves, and then those that were sent before.
async fn receive(mut inbox: Inbox, local: Local, mut stopped: oneshot::Receiver<()>) {
    loop {
        let received = tokio::select! {
            biased;
            _ = &mut stopped => break,
            received = inbox.recv() => received,
        };
        match received {
            Some(connection) => serve_handed_over(connection, &local),
            None => return,
        }
    }
    // From here on, the others serve what they accept themselves.
    inbox.close();
    while let Some(connection) = inbox.recv().await {
        serve_handed_over(connection, &local);
    }
}

fn serve_handed_over(connection: HandedOver, local: &Local) {
    match connection.register() {
        Ok((tcp, state)) => {
            serve(tcp, &Rc::new(state), local);
        }
        Err(error) => {
            let shard = local.worker.shard();
            local.worker.shared().open_connections.leave(shard);
            tracing::warn!(%error, "accept failed");
        }
    }
}

/// Serves an accepted connection, or hands it over to a worker with fewer connections.
fn assign(
    tcp: TcpStream,
    state: &Rc<watch::Receiver<Arc<Listener>>>,
    local: &Local,
    inboxes: &Inboxes,
) -> DescriptorAvailability {
    let (own, open) = (
        local.worker.shard(),
        &local.worker.shared().open_connections,
    );
    let to = open.assign(own);
    if to == own {
        return serve(tcp, state, local);
    }
    match inboxes.send(to, tcp, state) {
        Ok(None) => DescriptorAvailability::Free,
        Ok(Some(tcp)) => {
            open.take_back(to, own);
            serve(tcp, state, local)
        }
        Err(error) => {
            open.leave(to);
            tracing::warn!(%error, "accept failed");
            DescriptorAvailability::Free
        }
    }
}

/// Serves a connection that is counted for this worker, if there is a descriptor for it.
fn serve(
    tcp: TcpStream,
    state: &Rc<watch::Receiver<Arc<Listener>>>,
    local: &Local,
) -> DescriptorAvailability {
    let descriptors = reserve_descriptor(&tcp, local, state);
    if descriptors == DescriptorAvailability::Exhausted {
        let shard = local.worker.shard();
        local.worker.shared().open_connections.leave(shard);
    } else {
        let served = accept::serve(tcp, Rc::clone(state), local.clone());
        tokio::task::spawn_local(memory::guard(&local.worker.holders, served));
    }
    descriptors
}

/// Makes room and pauses, unless the error concerns only a single connection.
async fn after_failure(error: &io::Error, worker: &Worker, log: &Throttle) {
    if is_of_one_connection(error) {
        return;
    }
    worker.connections.shed(1);
    if let Some(unsaid) = log.allow() {
        tracing::warn!(%error, suppressed = unsaid, "accept failed");
    }
    tokio::time::sleep(ACCEPT_BACK_OFF).await;
}

/// Availability of a file descriptor for an accepted connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum DescriptorAvailability {
    Free,
    /// Descriptors are scarce; other connections without a request are closed.
    Reclaimed,
    /// All other connections have sent a request, and the remaining descriptors are reserved: the accepted connection
    /// is closed.
    Exhausted,
}

fn reserve_descriptor(
    tcp: &TcpStream,
    local: &Local,
    state: &watch::Receiver<Arc<Listener>>,
) -> DescriptorAvailability {
    let (excess, is_out) = match local.worker.shared().descriptors.room(tcp) {
        Room::Enough => return DescriptorAvailability::Free,
        Room::Short(excess) => (excess, false),
        Room::None(excess) => (excess, true),
    };
    let ending = local.worker.connections.shed(excess);
    if ending == 0 && is_out {
        let shard = local.worker.shard();
        state.borrow().metrics.refused_descriptors.inc(shard);
        return DescriptorAvailability::Exhausted;
    }
    DescriptorAvailability::Reclaimed
}

/// Returns the next connection, once the listener has room.
async fn accept_one(
    socket: &Acceptor,
    shared: &Shared,
    state: &watch::Receiver<Arc<Listener>>,
) -> io::Result<TcpStream> {
    while !state.borrow().has_room() || !shared.memory.has_room() {
        tokio::time::sleep(ACCEPT_BACK_OFF).await;
    }
    socket.accept().await
}

/// Returns whether an error concerns only the connection that was being accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::ConnectionAborted | K::ConnectionRefused | K::ConnectionReset
    )
}

/// Closes idle connections to endpoints periodically, for the lifetime of the worker.
async fn sweep(local: Local) {
    let mut ticks = tokio::time::interval(SWEEP);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut largest = 0;
    let shard = local.worker.shard();
    let metrics = local.worker.shared().metrics.worker(shard);
    loop {
        let now = ticks.tick().await;
        metrics.publish(local.worker.shared().open_connections.of(shard));
        let heap = local.worker.holders.publish();
        local.worker.holders.read_on();
        largest = largest.max(heap);
        let closed = local.upstreams.pools.sweep(now);
        local.upstreams.sweep();
        local.worker.count_released(closed);
        if local.worker.take_released() >= memory::WORTH || largest - heap >= FELL {
            largest = heap;
            fields::forget_buffers();
            local.worker.records.clear();
            memory::flush_thread_cache();
        }
    }
}
