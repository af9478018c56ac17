//! Sampling: which requests are exported.

use std::rc::Rc;
use std::sync::Arc;

use maglor_balance::Rng;
use maglor_config::{TraceSampling, Tracing};
use maglor_telemetry::trace_context::{Incoming, Sampling, TraceContext, TraceId};

use tokio::time::Instant;

use super::describe::{self, failed};
use super::queue::{Encoded, Queue, Spans};
use super::request::{self, Clock, RequestTrace, Served};
use super::slowest::Slowest;
use crate::protocol::message::Request;
use crate::telemetry::metrics::TraceMetrics;

/// Number of random bits of a trace identifier, at its end, on which proxies decide (W3C Trace Context level 2).
const RANDOM_BITS: u32 = 56;

/// Begins traces, and decides at their end.
#[derive(Debug)]
pub(crate) struct Tracer {
    settings: Tracing,
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
            slowest: Slowest::new(settings.sampling.slowest, workers),
            queue,
        };
        (tracer, spans)
    }

    pub(crate) fn settings(&self) -> &Tracing {
        &self.settings
    }

    /// Begins the span of a request: in the trace of its headers, or in a new one.
    pub(crate) fn begin(
        self: &Arc<Self>,
        request: &Request,
        scheme: &'static str,
        rng: &mut Rng,
    ) -> Traced {
        let incoming = request::extract(&request.fields);
        let mut context = new_context(incoming.as_ref(), rng);
        context.sampling = decide(&self.settings.sampling, context);
        Traced {
            tracer: Arc::clone(self),
            trace: RequestTrace::new(incoming, context, scheme, request.is_grpc()),
        }
    }

    /// Returns whether a request that has ended is exported.
    fn is_exported(&self, trace: &RequestTrace, served: &Served<'_>, shard: usize) -> bool {
        let slowest = self.slowest.as_ref();
        // Whatever the rest: the estimate is one of all requests.
        let slow = slowest.is_some_and(|slowest| slowest.contains(served.took, shard));
        slow || is_sampled(trace.context.sampling)
            || self.settings.sampling.errors && failed(trace, served)
    }

    fn export(&self, trace: &RequestTrace, served: &Served<'_>, clock: &Clock, shard: usize) {
        let mut bytes = Vec::with_capacity(1024);
        describe::server(trace, served, clock, &mut bytes);
        let attempts = trace.attempts.take();
        for attempt in &attempts {
            describe::client(trace, served, attempt, clock, &mut bytes);
        }
        let encoded = Encoded {
            bytes: bytes.into(),
            spans: 1 + u32::try_from(attempts.len()).unwrap_or(u32::MAX - 1),
        };
        self.queue.push(encoded, shard);
    }
}

/// The trace of a request, and the tracer that decides at its end.
#[derive(Debug)]
pub(crate) struct Traced {
    tracer: Arc<Tracer>,
    trace: Rc<RequestTrace>,
}

impl Traced {
    pub(crate) fn trace(&self) -> &Rc<RequestTrace> {
        &self.trace
    }

    /// Ends the request: exports its spans, or forgets them. Returns the identifier of an exported trace.
    pub(crate) fn end(&self, served: &Served<'_>, now: Instant, shard: usize) -> Option<TraceId> {
        let Self { tracer, trace } = self;
        if !tracer.is_exported(trace, served, shard) {
            return None;
        }
        tracer.export(trace, served, &Clock::new(now), shard);
        Some(trace.context.trace_id)
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
fn decide(settings: &TraceSampling, context: TraceContext) -> Sampling {
    if settings.parent_based && context.sampling != Sampling::Defer {
        return context.sampling;
    }
    let all = 1 << RANDOM_BITS;
    match random_part(context.trace_id) >= all - settings.share.of(all) {
        true => Sampling::Accept,
        false => Sampling::Deny,
    }
}

fn random_part(id: TraceId) -> u64 {
    let bytes = id.to_bytes();
    let end = bytes.last_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(end) & ((1 << RANDOM_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use maglor_balance::guard::Percent;

    use super::*;

    fn sampling(percent: u8, parent_based: bool) -> TraceSampling {
        TraceSampling {
            share: Percent::whole(percent),
            parent_based,
            errors: false,
            slowest: Percent::NONE,
        }
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
            assert_eq!(decide(&sampling(0, true), context), arrived);
            assert_eq!(decide(&sampling(100, true), context), arrived);
            assert_eq!(decide(&sampling(0, false), context), Sampling::Deny);
            assert_eq!(decide(&sampling(100, false), context), Sampling::Accept);
        }
        assert_eq!(decide(&sampling(0, true), undecided), Sampling::Deny);
        assert_eq!(decide(&sampling(100, true), undecided), Sampling::Accept);
    }

    #[test]
    fn proxies_agree_on_the_share() {
        let mut rng = Rng::seed(2);
        let contexts: Vec<_> = (0..20_000).map(|_| new_context(None, &mut rng)).collect();
        let count = |percent| {
            let sampling = sampling(percent, true);
            let sampled =
                |context: &&TraceContext| decide(&sampling, **context) == Sampling::Accept;
            contexts.iter().filter(sampled).collect::<Vec<_>>()
        };
        let (few, many) = (count(5), count(20));
        assert!((800..1200).contains(&few.len()), "{}", few.len());
        assert!((3600..4400).contains(&many.len()), "{}", many.len());
        assert!(few.iter().all(|context| many.contains(context)));
    }
}
