//! Sends spans to the collector: one batch at a time, from a bounded queue.
//!
//! No request waits for it. While the collector is slow or away, the queue fills up, and what has no room is
//! counted as dropped.

mod call;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::Rng;
use maglor_config::Tracing;
use maglor_telemetry::otlp::Resource;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use self::call::Call;
use crate::runtime::shared::Shared;
use crate::telemetry::traces::{Encoded, Spans, Tracer};
use crate::upstream::{Cluster, Pools};

/// Maximum number of requests whose spans are sent in a batch.
const BATCH: usize = 512;
/// Time that a batch waits for more spans.
const DELAY: Duration = Duration::from_secs(1);
/// Number of times that a batch is sent before it is dropped.
const MOST_ATTEMPTS: u32 = 5;
/// First pause between attempts, which is doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Time for the last batches at the end of the process.
const LAST_CALL: Duration = Duration::from_secs(2);

/// An export in progress.
#[derive(Debug)]
pub(crate) struct TraceExport {
    task: JoinHandle<()>,
    hurry: Rc<Notify>,
}

impl TraceExport {
    /// Begins the export of a configuration; returns the tracer for new requests. It ends by itself when the last
    /// request with this tracer has ended.
    pub(crate) fn begin(
        settings: &Tracing,
        workers: usize,
        shared: &Arc<Shared>,
        clusters: watch::Receiver<Vec<Arc<Cluster>>>,
        seed: u64,
    ) -> (Arc<Tracer>, Self) {
        let metrics = Arc::clone(&shared.metrics.traces);
        let (tracer, spans) = Tracer::new(settings, workers, metrics);
        let scope = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        let hurry = Rc::<Notify>::default();
        let export = Export {
            call: Call::new(settings, clusters),
            resource: Resource::new(scope, |attributes| {
                for (key, value) in &settings.resource {
                    attributes.text(key, value);
                }
            }),
            shared: Arc::clone(shared),
            spans,
            pools: Pools::of_control(),
            rng: Rng::seed(seed),
            hurry: Rc::clone(&hurry),
            ending: false,
            failing: false,
        };
        let task = tokio::task::spawn_local(export.run());
        (Arc::new(tracer), Self { task, hurry })
    }

    /// Waits, not for long, until everything has been sent. The tracer must not be in use any more.
    pub(crate) async fn finish(self) {
        self.hurry.notify_one();
        if timeout(LAST_CALL, self.task).await.is_err() {
            tracing::warn!("collector too slow; the last spans are lost");
        }
    }
}

struct Export {
    call: Call,
    resource: Resource,
    shared: Arc<Shared>,
    spans: Spans,
    pools: Pools,
    rng: Rng,
    /// Notified at the end of the process.
    hurry: Rc<Notify>,
    ending: bool,
    /// Whether the last batch was not sent, which is logged once.
    failing: bool,
}

impl Export {
    /// Sends batches until the queue ends.
    async fn run(mut self) {
        loop {
            let mut batch = self.spans.take(BATCH).await;
            if batch.is_empty() {
                return;
            }
            if batch.len() < BATCH {
                self.wait_for_more().await;
                self.spans.fill(&mut batch, BATCH);
            }
            self.send(&batch).await;
            self.pools.sweep(Instant::now());
        }
    }

    /// Waits for more spans, unless there are many already or the process ends.
    async fn wait_for_more(&mut self) {
        if self.ending {
            return;
        }
        tokio::select! {
            () = sleep(DELAY) => {}
            () = self.spans.pressing() => {}
            () = self.hurry.notified() => self.ending = true,
        }
    }

    /// Waits, unless the process ends.
    async fn pause(&mut self, time: Duration) {
        if self.ending {
            return;
        }
        tokio::select! {
            () = sleep(time) => {}
            () = self.hurry.notified() => self.ending = true,
        }
    }

    /// Sends a batch, or drops it.
    async fn send(&mut self, batch: &[Encoded]) {
        let request = self
            .resource
            .request(batch.iter().map(|encoded| &*encoded.bytes));
        let count: u64 = batch.iter().map(|encoded| u64::from(encoded.spans)).sum();
        let metrics = Arc::clone(&self.shared.metrics.traces);
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let now = self.shared.time(Instant::now());
            let sent = self.call.send(&request, &self.pools, now, &mut self.rng);
            let error = match sent.await {
                Ok(rejected) => {
                    let rejected = rejected.min(count);
                    metrics.dropped_rejected.add_shared(rejected);
                    metrics.exported.add_shared(count - rejected);
                    if std::mem::take(&mut self.failing) {
                        tracing::info!("collector takes spans again");
                    }
                    return;
                }
                Err(error) => error,
            };
            let last = attempt == MOST_ATTEMPTS || self.ending || !error.is_transient();
            if !std::mem::replace(&mut self.failing, true) {
                tracing::warn!(%error, "spans not sent");
            }
            if last {
                metrics.dropped_unsent.add_shared(count);
                return;
            }
            let jittered = pause.mul_f64(0.5 + 0.5 * self.rng.unit());
            self.pause(jittered).await;
            pause *= 2;
        }
    }
}
