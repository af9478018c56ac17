//! The bounded queue between workers and the export.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::telemetry::metrics::TraceMetrics;

/// Maximum number of requests whose spans wait,
const WAITING: usize = 2048;
/// and of their bytes.
const WAITING_BYTES: usize = 1 << 20;
/// Number of waiting bytes from which they are sent without a delay. At any rate of requests, most of the room is then
/// free while a batch is sent.
const PRESSING_BYTES: usize = WAITING_BYTES / 4;

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
    pressing: Arc<Notify>,
    metrics: Arc<TraceMetrics>,
}

/// The side of the export. It ends when no request and no configuration uses the queue any more.
#[derive(Debug)]
pub(crate) struct Spans {
    receiver: Receiver<Encoded>,
    waiting: Arc<AtomicUsize>,
    /// Notified when the waiting bytes become pressing.
    pressing: Arc<Notify>,
}

impl Queue {
    pub(super) fn new(metrics: Arc<TraceMetrics>) -> (Self, Spans) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let waiting = Arc::<AtomicUsize>::default();
        let pressing = Arc::<Notify>::default();
        let spans = Spans {
            receiver,
            waiting: Arc::clone(&waiting),
            pressing: Arc::clone(&pressing),
        };
        let queue = Self {
            sender,
            waiting,
            pressing,
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
        } else if waiting < PRESSING_BYTES && waiting + length >= PRESSING_BYTES {
            self.pressing.notify_one();
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

    /// Waits until so many wait that they should be sent.
    pub(crate) async fn pressing(&self) {
        // Relaxed: the notification orders them.
        while self.waiting.load(Ordering::Relaxed) < PRESSING_BYTES {
            self.pressing.notified().await;
        }
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn spans_are_wanted_long_before_the_queue_is_full() {
        let metrics = Metrics::new(1);
        let (queue, mut spans) = Queue::new(Arc::clone(&metrics.traces));
        let length = 1000;
        let push = |count| {
            for _ in 0..count {
                let bytes = vec![0; length].into();
                queue.push(Encoded { bytes, spans: 2 }, 0);
            }
        };
        let cx = &mut Context::from_waker(Waker::noop());
        let mut is_pressing = |spans: &Spans| pin!(spans.pressing()).poll(cx).is_ready();
        for _ in 0..3 {
            push(PRESSING_BYTES / length);
            assert!(!is_pressing(&spans));
            push(1);
            assert!(is_pressing(&spans));
            let mut taken = Vec::new();
            spans.fill(&mut taken, usize::MAX);
            assert_eq!(taken.len(), PRESSING_BYTES / length + 1);
            assert!(!is_pressing(&spans));
        }
        push(WAITING);
        assert!(is_pressing(&spans));
        assert!(
            metrics.traces.dropped_queue_full.value() > 0,
            "by its bytes"
        );
    }
}
