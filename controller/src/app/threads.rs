//! The threads and tasks of the controller.
//!
//! Each thread has its own runtime, so that work of one kind does not delay that of another: bursts of admission
//! requests or connecting proxies, or requests for admin pages, do not delay the renewal of the Lease. A client of
//! the API server and its connections belong to the thread that created the client. A task that panics ends the
//! process: without it, a part of the controller would silently stop working.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

/// A thread of the controller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Thread {
    /// Viewers of the dashboard.
    Dashboard,
    /// The index, the certificates, and the xDS port for proxies; this is the thread of `main`.
    Discovery,
    /// The renewal of the Lease.
    Lease,
    /// All other work: policy operators, statuses, the graph, the admin port.
    Operators,
    /// Admission requests of the API server.
    Webhook,
}

const ALL: [Thread; 5] = [
    Thread::Dashboard,
    Thread::Discovery,
    Thread::Lease,
    Thread::Operators,
    Thread::Webhook,
];

impl Thread {
    fn name(self) -> &'static str {
        match self {
            Self::Dashboard => "dashboard",
            Self::Discovery => "discovery",
            Self::Lease => "lease",
            Self::Operators => "operators",
            Self::Webhook => "webhook",
        }
    }
}

/// Interval of each thread's heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A thread without a heartbeat for this long is stuck: `/live` fails, and Kubernetes restarts the container.
const LATE: Duration = Duration::from_secs(30);

/// The last heartbeat of each thread.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    started: Instant,
    /// Time of the last heartbeat of each thread, in milliseconds since `started`.
    last: [AtomicU64; ALL.len()],
}

impl Heartbeats {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            last: Default::default(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn heartbeat(self: Arc<Self>, thread: Thread) {
        loop {
            // Relaxed: no other data depends on it.
            self.last[thread as usize].store(self.now(), Ordering::Relaxed);
            tokio::time::sleep(HEARTBEAT).await;
        }
    }

    /// Returns the name of a stuck thread.
    pub(crate) fn late(&self) -> Option<&'static str> {
        self.late_at(self.now())
    }

    fn late_at(&self, now: u64) -> Option<&'static str> {
        let late = |thread: &Thread| {
            let last = self.last[*thread as usize].load(Ordering::Relaxed);
            Duration::from_millis(now.saturating_sub(last)) > LATE
        };
        ALL.into_iter().find(late).map(Thread::name)
    }
}

/// A boxed task.
pub(crate) type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The threads and tasks of the process, which end when this is dropped.
#[derive(Debug)]
pub(super) struct Threads {
    handles: [Handle; ALL.len()],
    /// Senders whose drop ends the threads.
    _ends: Vec<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
    heartbeats: Arc<Heartbeats>,
}

impl Threads {
    /// Starts the threads other than the current one, whose runtime becomes that of [`Thread::Discovery`].
    pub(super) fn start() -> io::Result<Self> {
        let mut ends = Vec::new();
        let mut start = |thread: Thread| -> io::Result<Handle> {
            if thread == Thread::Discovery {
                return Ok(Handle::current());
            }
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let (end, ended) = oneshot::channel::<()>();
            ends.push(end);
            let thread = std::thread::Builder::new().name(thread.name().to_owned());
            thread.spawn(move || drop(runtime.block_on(ended)))?;
            Ok(handle)
        };
        let handles = [
            start(ALL[0])?,
            start(ALL[1])?,
            start(ALL[2])?,
            start(ALL[3])?,
            start(ALL[4])?,
        ];
        let mut threads = Self {
            handles,
            _ends: ends,
            tasks: JoinSet::new(),
            names: HashMap::new(),
            heartbeats: Arc::new(Heartbeats::new()),
        };
        for thread in ALL {
            let heartbeats = Arc::clone(&threads.heartbeats);
            threads.spawn(thread, "heartbeat", heartbeats.heartbeat(thread));
        }
        Ok(threads)
    }

    /// Returns the heartbeats of all threads.
    pub(super) fn heartbeats(&self) -> Arc<Heartbeats> {
        Arc::clone(&self.heartbeats)
    }

    /// Runs a task on a thread until the task ends.
    pub(super) fn spawn(
        &mut self,
        thread: Thread,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.tasks.spawn_on(task, &self.handles[thread as usize]);
        self.names.insert(task.id(), name);
    }

    /// Like `spawn`. The returned receiver resolves when the task has ended.
    pub(super) fn spawn_watched(
        &mut self,
        thread: Thread,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> oneshot::Receiver<()> {
        let (sender, ended) = oneshot::channel();
        self.spawn(thread, name, async move {
            task.await;
            let _ = sender.send(());
        });
        ended
    }

    /// Runs a short task on a thread, which then owns the resources that the task creates.
    pub(super) async fn make<T: Send + 'static>(
        &self,
        thread: Thread,
        task: impl Future<Output = T> + Send + 'static,
    ) -> T {
        match self.handles[thread as usize].spawn(task).await {
            Ok(made) => made,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The task is cancelled only when its thread ends; this thread then ends, too.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Waits until a task panics, and returns the name of the task.
    pub(super) async fn panicked(&mut self) -> &'static str {
        loop {
            match self.tasks.join_next_with_id().await {
                Some(Ok((id, ()))) => drop(self.names.remove(&id)),
                Some(Err(error)) if error.is_panic() => {
                    return self.names.remove(&error.id()).unwrap_or("unknown");
                }
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// Waits for the end of all tasks. The panic of a task is propagated: without this, a part of the controller would
/// silently stop working.
pub(crate) async fn all_end(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(Ok(panic)) = ended.map_err(tokio::task::JoinError::try_into_panic) {
            std::panic::resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_is_held_up_leaves_the_others_alone() {
        let mut threads = Threads::start().unwrap();
        let (release, held) = std::sync::mpsc::channel::<()>();
        threads.spawn(Thread::Operators, "held up", async move {
            let _ = held.recv();
        });
        for thread in [Thread::Lease, Thread::Webhook] {
            let name = async { std::thread::current().name().map(str::to_owned) };
            assert_eq!(
                threads.make(thread, name).await.as_deref(),
                Some(thread.name())
            );
        }
        drop(release);
    }

    #[tokio::test]
    async fn a_panic_on_any_thread_is_noticed_by_name() {
        for thread in ALL {
            let mut threads = Threads::start().unwrap();
            threads.spawn(thread, "ends", async {});
            threads.spawn(thread, "falls", async {
                tokio::task::yield_now().await;
                assert_eq!(1, 2, "as a fault of ours would");
            });
            let noticed = tokio::time::timeout(Duration::from_secs(20), threads.panicked());
            assert_eq!(noticed.await.unwrap(), "falls");
        }
    }

    #[tokio::test]
    async fn a_panic_of_a_part_is_that_of_the_whole() {
        let mut threads = Threads::start().unwrap();
        threads.spawn(Thread::Operators, "watches", async {
            let mut parts = JoinSet::new();
            parts.spawn(async {});
            parts.spawn(async { assert_eq!(1, 2, "as a fault of ours would") });
            parts.spawn(std::future::pending());
            all_end(&mut parts).await;
        });
        let noticed = tokio::time::timeout(Duration::from_secs(20), threads.panicked());
        assert_eq!(noticed.await.unwrap(), "watches");
    }

    #[test]
    fn a_thread_without_a_heartbeat_is_named() {
        let heartbeats = Heartbeats::new();
        let limit = u64::try_from(LATE.as_millis()).unwrap();
        assert_eq!(heartbeats.late_at(limit), None);
        assert_eq!(heartbeats.late_at(limit + 1), Some("dashboard"));
        for thread in &ALL[..4] {
            heartbeats.last[*thread as usize].store(limit, Ordering::Relaxed);
        }
        assert_eq!(heartbeats.late_at(limit + 1), Some("webhook"));
        assert_eq!(Heartbeats::new().late(), None);
    }
}
