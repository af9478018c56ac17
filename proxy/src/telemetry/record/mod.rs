//! The record of one request, from which traces, stories, the access log and taps are written when it has ended.
//!
//! A record is filled while its request is forwarded, by a few words each time: what is costly to describe is described
//! at the end, and only for requests that a reader keeps. Most requests succeed at the first attempt, which is not noted
//! before a reader keeps it. Records are recycled by their worker, so that one costs no allocation ([`Records`]).
//! Without any reader there is none.

mod attempt;
mod cluster_state;
mod entry;
mod moment;
mod recycle;
mod slowest;
mod trace;
mod unusual;

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use http::{StatusCode, Version};
use maglor_balance::guard::GrpcStatus;
use maglor_telemetry::trace_context::SpanId;
use tokio::time::Instant;

pub(crate) use self::attempt::{
    AttemptIndex, Attempted, Begun, Candidates, EndpointAddresses, Opening, Part,
};
pub(crate) use self::cluster_state::{ClusterState, EndpointState};
pub(crate) use self::entry::{Entry, direction_name, millis, nanos, timestamp};
pub(crate) use self::moment::Moment;
pub(crate) use self::recycle::Records;
pub(crate) use self::slowest::Slowest;
pub(crate) use self::trace::{Trace, extract};
pub(crate) use self::unusual::{Rule, Unusual};
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Fields, Known, Span};
use crate::protocol::message::Request;
use crate::protocol::response_flag::ResponseFlag;

/// Names of a route in records.
#[derive(Debug)]
pub(crate) struct RouteName {
    /// Domains of its virtual host.
    pub(crate) host: Arc<str>,
    pub(crate) name: Arc<str>,
    /// The path that it matches: `/api/*` for the prefix `/api`.
    pub(crate) path: String,
}

/// The record of one request.
#[derive(Debug, Default)]
pub(crate) struct Record {
    notes: RefCell<Notes>,
}

/// The contents of a record.
#[derive(Debug)]
pub(crate) struct Notes {
    /// Whether the request is a gRPC call.
    pub(crate) grpc: bool,
    pub(crate) version: Version,
    /// Parts of the request's text as the client sent them; later changes of the request append to the text.
    pub(crate) target: Span,
    pub(crate) host: Part,
    pub(crate) user_agent: Part,
    pub(crate) referer: Part,
    pub(crate) forwarded_for: Part,
    /// The endpoints among which that of the attempt was chosen that is noted next.
    candidates: Candidates,
    /// The opening of the connection of that attempt.
    opening: Opening,
    /// The request's place in a trace, with tracing. Boxed: every waiting request would reserve the space.
    pub(crate) trace: Option<Box<Trace>>,
    unusual: Option<Box<Unusual>>,
}

impl Default for Notes {
    fn default() -> Self {
        Self {
            grpc: false,
            version: Version::HTTP_11,
            target: Span::default(),
            host: Part::NONE,
            user_agent: Part::NONE,
            referer: Part::NONE,
            forwarded_for: Part::NONE,
            candidates: Candidates::default(),
            opening: Opening::NONE,
            trace: None,
            unusual: None,
        }
    }
}

impl Notes {
    /// Prepares the record for another request. Only what may have been set is reset.
    #[inline]
    fn reset(&mut self) {
        self.user_agent = Part::NONE;
        self.referer = Part::NONE;
        self.forwarded_for = Part::NONE;
        self.candidates.clear();
        self.opening = Opening::NONE;
        self.trace = None;
        if self.unusual.is_some() {
            self.unusual = None;
        }
    }

    /// Returns the notes that most requests have not.
    pub(crate) fn unusual(&self) -> &Unusual {
        static NONE: Unusual = Unusual::NONE;
        self.unusual.as_deref().unwrap_or(&NONE)
    }

    /// The same, to change them.
    #[cold]
    fn unusual_mut(&mut self) -> &mut Unusual {
        self.unusual.get_or_insert_with(|| Box::new(Unusual::NONE))
    }

    /// Returns the status of a gRPC call: the proxy's, or that of the attempt that ended last.
    pub(crate) fn call_status(&self) -> Option<GrpcStatus> {
        if !self.grpc {
            return None;
        }
        let unusual = self.unusual();
        let last = unusual.attempts.iter().max_by_key(|attempt| attempt.ended);
        unusual.own_status.or(last.and_then(|attempt| attempt.grpc))
    }

    /// Returns whether the request is a call that has failed for a reason of the server.
    pub(crate) fn has_failed_call(&self) -> bool {
        self.call_status().is_some_and(|status| {
            [
                GrpcStatus::DATA_LOSS,
                GrpcStatus::DEADLINE_EXCEEDED,
                GrpcStatus::INTERNAL,
                GrpcStatus::UNAVAILABLE,
                GrpcStatus::UNIMPLEMENTED,
                GrpcStatus::UNKNOWN,
            ]
            .contains(&status)
        })
    }
}

impl Record {
    /// Begins the record of a request.
    #[inline]
    pub(crate) fn begin(&self, request: &Request, grpc: bool) {
        let notes = &mut *self.notes.borrow_mut();
        notes.grpc = grpc;
        notes.version = request.version;
        notes.target = request.target.path_and_query;
        let authority = request.target.authority;
        notes.host = authority
            .or_else(|| request.fields.find(Known::Host))
            .into();
    }

    /// Notes fields of the client that not every reader needs: `user-agent` and, for `lines`, further ones.
    pub(crate) fn client_fields(&self, fields: &Fields, lines: bool) {
        let notes = &mut *self.notes.borrow_mut();
        notes.user_agent = fields.find(Known::UserAgent).into();
        if lines {
            notes.referer = fields.find_named(b"referer").into();
            notes.forwarded_for = fields.find(Known::XForwardedFor).into();
        }
    }

    #[inline]
    pub(crate) fn notes(&self) -> Ref<'_, Notes> {
        self.notes.borrow()
    }

    #[inline]
    pub(crate) fn notes_mut(&self) -> RefMut<'_, Notes> {
        self.notes.borrow_mut()
    }

    /// Returns the notes that most requests have not.
    pub(crate) fn unusual(&self) -> RefMut<'_, Unusual> {
        RefMut::map(self.notes.borrow_mut(), Notes::unusual_mut)
    }

    /// Returns whether an attempt is noted.
    #[inline]
    pub(crate) fn has_attempts(&self) -> bool {
        let notes = self.notes.borrow();
        let unusual = notes.unusual.as_deref();
        unusual.is_some_and(|unusual| !unusual.attempts.is_empty())
    }

    /// Returns the span of an attempt, with tracing.
    #[inline]
    pub(crate) fn new_span(&self, random: impl FnOnce() -> u64) -> Option<SpanId> {
        let is_traced = self.notes.borrow().trace.is_some();
        is_traced.then(|| trace::span_id(random()))
    }

    /// Notes the endpoints among which a policy has chosen one: their identifiers and the requests in flight there.
    /// Several at most, the chosen one first.
    pub(crate) fn candidates(&self, total: usize, each: impl Iterator<Item = (u64, u32)>) {
        self.notes.borrow_mut().candidates.set(total, each);
    }

    /// Notes an attempt that has begun; returns its index.
    pub(crate) fn begin_attempt(
        &self,
        begun: Begun<'_>,
        endpoints: impl FnOnce() -> Weak<dyn EndpointAddresses>,
    ) -> AttemptIndex {
        let notes = &mut *self.notes.borrow_mut();
        let candidates = std::mem::take(&mut notes.candidates);
        let opening = std::mem::take(&mut notes.opening);
        let unusual = notes.unusual_mut();
        unusual.endpoints.get_or_insert_with(endpoints);
        unusual.begin_attempt(begun, candidates, opening)
    }

    /// Notes why the latest attempt is not followed by another.
    pub(crate) fn refuse_retry(&self, reason: &'static str) {
        self.unusual().refuse_retry(reason);
    }

    /// Changes the notes of an attempt.
    pub(crate) fn attempt(&self, at: AttemptIndex, change: impl FnOnce(&mut Attempted)) {
        if let Some(attempted) = self.unusual().attempts.get_mut(at.position()) {
            change(attempted);
        }
    }

    /// Replaces the trace headers of a request to the next hop, if there is a trace: its receiver is a child of the
    /// attempt with this span, or of the request.
    pub(crate) fn inject(&self, attempt: Option<SpanId>, fields: &mut Fields) {
        let notes = &mut *self.notes.borrow_mut();
        if let Some(trace) = &mut notes.trace {
            trace.inject(attempt, fields);
        }
    }

    /// Notes an error of the request.
    pub(crate) fn fail(&self, error: &ProxyError) {
        let unusual = &mut *self.unusual();
        unusual.error = Some(error.to_string());
        unusual.reason = error.overflow_reason();
        unusual.own_status = Some(GrpcStatus::new(error.verdict().grpc.into()));
    }
}

/// An attempt, for what happens inside of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted<'a> {
    pub(crate) record: &'a Rc<Record>,
    /// Its index; `None` if it is not noted yet.
    pub(crate) at: Option<AttemptIndex>,
}

impl Noted<'_> {
    /// Notes that the attempt needs a new connection, and waits for the permission to open one.
    pub(crate) fn needs_connection(self) {
        self.change(Opening::want);
    }

    /// Notes that the attempt has begun to connect.
    pub(crate) fn connects(self) {
        self.change(Opening::begin);
    }

    /// Notes that the connection is open.
    pub(crate) fn connected(self) {
        self.change(Opening::end);
    }

    fn change(self, change: impl FnOnce(&mut Opening, Instant)) {
        let now = Instant::now();
        match self.at {
            Some(at) => self.record.attempt(at, |one| change(&mut one.opening, now)),
            None => change(&mut self.record.notes.borrow_mut().opening, now),
        }
    }
}

/// Returns whether a status or flag is that of a failed request.
pub(crate) fn is_failure(status: StatusCode, flag: ResponseFlag) -> bool {
    flag != ResponseFlag::None || status.as_u16() >= 500
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every waiting request has one: with the counts of its references it fits into a block of the allocator.
    #[test]
    fn a_record_stays_within_a_block() {
        let size = size_of::<Record>() + 2 * size_of::<usize>();
        assert!(size <= 128, "{size} bytes");
    }
}
