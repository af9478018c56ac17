//! One attempt of a traced request.

use std::rc::Rc;

use http::StatusCode;
use maglor_balance::Rng;
use maglor_balance::guard::GrpcStatus;
use maglor_telemetry::trace_context::SpanId;
use tokio::time::Instant;

use super::attempted::{Attempted, Endpoint};
use super::request::RequestTrace;
use crate::protocol::fields::Fields;

/// An attempt in progress.
#[derive(Debug)]
pub(crate) struct AttemptTrace {
    trace: Rc<RequestTrace>,
    attempted: Attempted,
}

impl AttemptTrace {
    pub(crate) fn new(
        trace: &Rc<RequestTrace>,
        endpoint: Endpoint,
        (number, started): (u32, Instant),
        rng: &mut Rng,
    ) -> Box<Self> {
        let span = SpanId::from_random(rng.next_u64().to_be_bytes());
        Box::new(Self {
            trace: Rc::clone(trace),
            attempted: Attempted {
                span,
                endpoint,
                number,
                started,
                ended: started,
                status: None,
                grpc: None,
                error: None,
                bounced: false,
            },
        })
    }

    /// Replaces the trace headers of the attempt's request: its receiver is a child of the attempt.
    pub(crate) fn inject(&self, fields: &mut Fields) {
        let parent = self.trace.context.span_id;
        self.trace
            .inject_span(self.attempted.span, Some(parent), fields);
    }

    /// Records the status of a gRPC call.
    pub(crate) fn call_status(&mut self, status: GrpcStatus) {
        self.attempted.grpc = Some(status);
    }

    /// Records an error.
    pub(crate) fn fail(&mut self, flag: &'static str) {
        self.attempted.error = Some(flag);
    }

    /// Records that the endpoint's proxy has returned the request at once.
    pub(crate) fn bounced(&mut self) {
        self.attempted.bounced = true;
    }

    /// Ends the attempt.
    pub(crate) fn end(self, status: Option<StatusCode>, now: Instant) {
        let Self {
            trace,
            mut attempted,
        } = self;
        attempted.status = status;
        attempted.ended = now;
        trace.attempts.borrow_mut().push(attempted);
    }
}
