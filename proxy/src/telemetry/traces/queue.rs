//! The bounded queue between workers and the export.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::telemetry::metrics::TraceMetrics;

/// Maximum number of requests whose spans wait,
const WAITING: usize = 2048;
/// and of their bytes.
const WAITING_BYTES: usize = 1 << 20;

/// The encoded spans of a request.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) bytes: Box<[u8]>,
    /// Number of spans.
    pub(crate) spans: u32,
}

/// The side of the workers.
#[derive(Debug)]
pub(super) struct Queue {
    sender: Sender<Encoded>,
    waiting: Arc<AtomicUsize>,
    metrics: Arc<TraceMetrics>,
}

/// The side of the export. It ends when no request and no configuration uses the queue any more.
#[derive(Debug)]
pub(crate) struct Spans {
    receiver: Receiver<Encoded>,
    waiting: Arc<AtomicUsize>,
}

impl Queue {
    pub(super) fn new(metrics: Arc<TraceMetrics>) -> (Self, Spans) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let waiting = Arc::<AtomicUsize>::default();
        let spans = Spans {
            receiver,
            waiting: Arc::clone(&waiting),
        };
        let queue = Self {
            sender,
            waiting,
            metrics,
        };
        (queue, spans)
    }

    /// Adds spans, or counts them as dropped if there is no room.
    pub(super) fn push(&self, encoded: Encoded, shard: usize) {
        let (spans, length) = (u64::from(encoded.spans), encoded.bytes.len());
        // Relaxed, here and below: the number limits, and orders nothing.
        let waiting = self.waiting.fetch_add(length, Ordering::Relaxed);
        let full = waiting + length > WAITING_BYTES;
        if full || self.sender.try_send(encoded).is_err() {
            self.waiting.fetch_sub(length, Ordering::Relaxed);
            self.metrics.dropped_queue_full.add(shard, spans);
        }
    }
}

impl Spans {
    /// Waits for spans, and takes those of at most `most` requests. Takes none at the end of the queue.
    pub(crate) async fn take(&mut self, most: usize) -> Vec<Encoded> {
        let mut taken = Vec::new();
        self.receiver.recv_many(&mut taken, most).await;
        self.taken(&taken);
        taken
    }

    /// Adds those that wait already, up to `most` requests.
    pub(crate) fn fill(&mut self, taken: &mut Vec<Encoded>, most: usize) {
        let before = taken.len();
        while taken.len() < most
            && let Ok(encoded) = self.receiver.try_recv()
        {
            taken.push(encoded);
        }
        self.taken(&taken[before..]);
    }

    fn taken(&self, taken: &[Encoded]) {
        let length = taken.iter().map(|encoded| encoded.bytes.len()).sum();
        self.waiting.fetch_sub(length, Ordering::Relaxed);
    }
}
