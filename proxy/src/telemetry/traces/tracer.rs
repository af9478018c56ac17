//! Sampling: which requests are exported.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use maglor_balance::Rng;
use maglor_config::{TraceSampling, Tracing};
use maglor_telemetry::trace_context::{Incoming, Sampling, TraceContext, TraceId};
use tokio::time::Instant;

use super::describe::{self, Clock, failed};
use super::queue::{Encoded, Queue, Spans};
use crate::protocol::message::Request;
use crate::protocol::response_flag::ResponseFlag;
use crate::telemetry::metrics::TraceMetrics;
use crate::telemetry::record::{Entry, Notes, Record, Slowest, Trace, extract};

/// Number of random bits of a trace identifier, at its end, on which proxies decide (W3C Trace Context level 2).
const RANDOM_BITS: u32 = 56;

/// Begins traces, and decides at their end.
#[derive(Debug)]
pub(crate) struct Tracer {
    settings: Tracing,
    /// The smallest random part of an identifier whose trace is sampled.
    sampled_from: u64,
    slowest: Option<Slowest>,
    queue: Queue,
}

impl Tracer {
    /// Creates a tracer, and the queue of what it exports.
    pub(crate) fn new(
        settings: &Tracing,
        workers: usize,
        metrics: Arc<TraceMetrics>,
    ) -> (Self, Spans) {
        let (queue, spans) = Queue::new(metrics);
        let tracer = Self {
            settings: settings.clone(),
            sampled_from: sampled_from(&settings.sampling),
            slowest: Slowest::new(settings.sampling.slowest, workers),
            queue,
        };
        (tracer, spans)
    }

    pub(crate) fn settings(&self) -> &Tracing {
        &self.settings
    }

    /// Begins the span of a request: in the trace of its headers, or in a new one. Returns whether it may be exported:
    /// if its trace is sampled, or if further requests are chosen when they have ended.
    pub(crate) fn begin(
        &self,
        record: &Record,
        request: &Request,
        https: bool,
        rng: &mut Rng,
    ) -> bool {
        let incoming = extract(&request.fields);
        let mut context = new_context(incoming.as_deref(), rng);
        let parent_based = self.settings.sampling.parent_based;
        context.sampling = decide(self.sampled_from, parent_based, context);
        record.notes_mut().trace = Some(Box::new(Trace::new(incoming, context, https)));
        is_sampled(context.sampling) || self.settings.sampling.errors || self.slowest.is_some()
    }

    /// Returns whether a request that has ended is exported.
    pub(crate) fn is_exported(
        &self,
        notes: &Notes,
        (status, flag): (StatusCode, ResponseFlag),
        took: Duration,
        shard: usize,
    ) -> bool {
        let Some(trace) = &notes.trace else {
            return false;
        };
        let slowest = self.slowest.as_ref();
        // Whatever the rest: the estimate is one of all requests.
        let slow = slowest.is_some_and(|slowest| slowest.contains(took, shard));
        slow || is_sampled(trace.context.sampling)
            || self.settings.sampling.errors && failed(notes, status, flag)
    }

    /// Exports the spans of a request.
    pub(crate) fn export(&self, notes: &Notes, entry: &Entry<'_>, now: Instant, shard: usize) {
        let Some(trace) = &notes.trace else {
            return;
        };
        let clock = Clock::new(now);
        let mut bytes = Vec::with_capacity(1024);
        describe::server(trace, notes, entry, &clock, &mut bytes);
        let attempts = &notes.unusual().attempts;
        for attempt in attempts {
            describe::client(trace, notes, (entry, attempt), &clock, &mut bytes);
        }
        let attempts = u32::try_from(attempts.len());
        let encoded = Encoded {
            bytes: bytes.into(),
            spans: 1 + attempts.unwrap_or(u32::MAX - 1),
        };
        self.queue.push(encoded, shard);
    }
}

fn is_sampled(sampling: Sampling) -> bool {
    matches!(sampling, Sampling::Accept | Sampling::Debug)
}

/// Returns the context of a new span, with the decision that arrived.
fn new_context(incoming: Option<&Incoming>, rng: &mut Rng) -> TraceContext {
    match incoming.and_then(|incoming| incoming.parent) {
        Some(parent) => parent.child(rng.next_u64().to_be_bytes()),
        None => {
            let mut random = [0; 24];
            for part in random.as_chunks_mut::<8>().0 {
                *part = rng.next_u64().to_be_bytes();
            }
            let sampling = incoming.map_or(Sampling::Defer, |incoming| incoming.sampling);
            TraceContext::root(random, sampling)
        }
    }
}

/// Returns whether a trace is sampled: by the decision that arrived, or by its identifier, so that proxies with the
/// same share agree.
#[inline]
fn decide(sampled_from: u64, parent_based: bool, context: TraceContext) -> Sampling {
    if parent_based && context.sampling != Sampling::Defer {
        return context.sampling;
    }
    match random_part(context.trace_id) >= sampled_from {
        true => Sampling::Accept,
        false => Sampling::Deny,
    }
}

fn sampled_from(settings: &TraceSampling) -> u64 {
    let all = 1 << RANDOM_BITS;
    all - settings.share.of(all)
}

#[inline]
fn random_part(id: TraceId) -> u64 {
    let bytes = id.to_bytes();
    let end = bytes.last_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(end) & ((1 << RANDOM_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use maglor_balance::guard::Percent;

    use super::*;

    fn sampling(percent: u8, parent_based: bool, context: TraceContext) -> Sampling {
        let settings = TraceSampling {
            share: Percent::whole(percent),
            parent_based,
            errors: false,
            slowest: Percent::NONE,
        };
        decide(sampled_from(&settings), parent_based, context)
    }

    #[test]
    fn decisions_that_arrive_are_followed_unless_configured_otherwise() {
        let mut rng = Rng::seed(1);
        let undecided = new_context(None, &mut rng);
        for arrived in [Sampling::Accept, Sampling::Debug, Sampling::Deny] {
            let context = TraceContext {
                sampling: arrived,
                ..undecided
            };
            assert_eq!(sampling(0, true, context), arrived);
            assert_eq!(sampling(100, true, context), arrived);
            assert_eq!(sampling(0, false, context), Sampling::Deny);
            assert_eq!(sampling(100, false, context), Sampling::Accept);
        }
        assert_eq!(sampling(0, true, undecided), Sampling::Deny);
        assert_eq!(sampling(100, true, undecided), Sampling::Accept);
    }

    #[test]
    fn proxies_agree_on_the_share() {
        let mut rng = Rng::seed(2);
        let contexts: Vec<_> = (0..20_000).map(|_| new_context(None, &mut rng)).collect();
        let count = |percent| {
            let sampled =
                |context: &&TraceContext| sampling(percent, true, **context) == Sampling::Accept;
            contexts.iter().filter(sampled).collect::<Vec<_>>()
        };
        let (few, many) = (count(5), count(20));
        assert!((800..1200).contains(&few.len()), "{}", few.len());
        assert!((3600..4400).contains(&many.len()), "{}", many.len());
        assert!(few.iter().all(|context| many.contains(context)));
    }
}
