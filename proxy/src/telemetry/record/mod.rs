//! The record of one request, from which traces, stories, the access log and taps are written when it has ended.
//!
//! A record is filled while its request is forwarded, by a few words each time: what is costly to describe is described
//! at the end, and only for requests that a reader keeps. Records are recycled by their worker, so that one costs no
//! allocation ([`Records`]). Without any reader there is none.

mod attempt;
mod cluster_state;
mod entry;
mod recycle;
mod slowest;
mod trace;

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, Version};
use maglor_balance::guard::GrpcStatus;
use maglor_config::Address;
use maglor_config::cluster::Cluster;
use tokio::time::Instant;

pub(crate) use self::attempt::{Attempted, Candidates, Opening};
pub(crate) use self::cluster_state::{ClusterState, EndpointState};
pub(crate) use self::entry::{Entry, direction_name, millis, timestamp};
pub(crate) use self::recycle::Records;
pub(crate) use self::slowest::Slowest;
pub(crate) use self::trace::{Trace, extract};
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Fields, Known, Span};
use crate::protocol::message::Request;

/// Names of a route in records.
#[derive(Debug)]
pub(crate) struct RouteName {
    /// Domains of its virtual host.
    pub(crate) host: Arc<str>,
    pub(crate) name: Arc<str>,
    /// The path that it matches: `/api/*` for the prefix `/api`.
    pub(crate) path: String,
}

/// The rule that has decided about a request.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Field of the configuration: `authorization`, `rate_limit` or `fault`.
    pub(crate) field: &'static str,
    pub(crate) name: String,
}

/// The record of one request.
#[derive(Debug, Default)]
pub(crate) struct Record {
    notes: RefCell<Notes>,
    /// Whether each attempt is noted when it begins. Otherwise a successful one is noted only if the request is slow,
    /// when it has ended.
    notes_all: Cell<bool>,
    /// When the request becomes one of the slowest; `None` if that is no reason to note anything.
    slow_after: Cell<Option<Instant>>,
}

/// The contents of a record.
#[derive(Debug)]
pub(crate) struct Notes {
    /// Whether the request is a gRPC call.
    pub(crate) grpc: bool,
    pub(crate) version: Version,
    /// Parts of the request's text as the client sent them; later changes of the request append to the text.
    pub(crate) target: Span,
    pub(crate) host: Option<Span>,
    pub(crate) user_agent: Option<Span>,
    pub(crate) referer: Option<Span>,
    pub(crate) forwarded_for: Option<Span>,
    pub(crate) route: Option<Arc<RouteName>>,
    pub(crate) rule: Option<Rule>,
    /// Whether any of the following is set that most requests do not have.
    is_unusual: bool,
    /// How long the request has waited for admission to its cluster, or for an endpoint with room.
    pub(crate) queued: Duration,
    /// How long a fault delayed the request.
    pub(crate) delayed: Duration,
    /// Where the request was sent; the last one is not necessarily the one that answered.
    pub(crate) attempts: Vec<Attempted>,
    /// Index of the attempt whose result is the request's.
    pub(crate) answering: Option<usize>,
    /// The state of the cluster when it rejected the request.
    pub(crate) rejected_by: Option<Box<ClusterState>>,
    /// Message of the request's error.
    pub(crate) error: Option<String>,
    /// Why the attempt that is noted next is not followed by another.
    retry_refused: Option<&'static str>,
    /// Status with which the proxy itself answers a gRPC call.
    pub(crate) own_status: Option<GrpcStatus>,
    /// The endpoints among which that of the attempt was chosen that is noted next,
    candidates: Candidates,
    /// and the opening of its connection.
    opening: Opening,
    /// The request's place in a trace, with tracing.
    pub(crate) trace: Option<Trace>,
}

impl Default for Notes {
    fn default() -> Self {
        Self {
            grpc: false,
            version: Version::HTTP_11,
            target: Span::default(),
            host: None,
            user_agent: None,
            referer: None,
            forwarded_for: None,
            route: None,
            rule: None,
            is_unusual: false,
            queued: Duration::ZERO,
            delayed: Duration::ZERO,
            attempts: Vec::new(),
            answering: None,
            rejected_by: None,
            error: None,
            own_status: None,
            retry_refused: None,
            candidates: Candidates::default(),
            opening: Opening::default(),
            trace: None,
        }
    }
}

impl Notes {
    /// Prepares the record for another request. Only what may have been set is reset.
    fn reset(&mut self) {
        self.user_agent = None;
        self.referer = None;
        self.forwarded_for = None;
        self.route = None;
        self.candidates.clear();
        if self.trace.is_some() {
            self.trace = None;
        }
        if !self.attempts.is_empty() {
            self.attempts.clear();
            self.answering = None;
        }
        if self.is_unusual {
            self.reset_unusual();
        }
    }

    #[cold]
    fn reset_unusual(&mut self) {
        self.is_unusual = false;
        self.queued = Duration::ZERO;
        self.delayed = Duration::ZERO;
        self.opening = Opening::default();
        self.error = None;
        self.rule = None;
        self.rejected_by = None;
        self.own_status = None;
        self.retry_refused = None;
    }

    /// Returns the status of a gRPC call: the proxy's, or that of the attempt that ended last.
    pub(crate) fn call_status(&self) -> Option<GrpcStatus> {
        if !self.grpc {
            return None;
        }
        let last = self.attempts.iter().max_by_key(|attempt| attempt.ended);
        self.own_status.or(last.and_then(|attempt| attempt.grpc))
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
    pub(crate) fn begin(
        &self,
        request: &Request,
        grpc: bool,
        (notes_all, slow_after): (bool, Option<Instant>),
    ) {
        self.notes_all.set(notes_all);
        self.slow_after.set(slow_after);
        let notes = &mut *self.notes.borrow_mut();
        notes.grpc = grpc;
        notes.version = request.version;
        notes.target = request.target.path_and_query;
        notes.host = match request.target.authority {
            Some(authority) => Some(authority),
            None => request.fields.find(Known::Host),
        };
    }

    /// Notes fields of the client that not every reader needs: `user-agent` and, for `lines`, further ones.
    pub(crate) fn client_fields(&self, fields: &Fields, lines: bool) {
        let notes = &mut *self.notes.borrow_mut();
        notes.user_agent = fields.find(Known::UserAgent);
        if lines {
            notes.referer = fields.find_named(b"referer");
            notes.forwarded_for = fields.find(Known::XForwardedFor);
        }
    }

    pub(crate) fn notes(&self) -> Ref<'_, Notes> {
        self.notes.borrow()
    }

    pub(crate) fn notes_mut(&self) -> RefMut<'_, Notes> {
        self.notes.borrow_mut()
    }

    /// Returns the notes, to set what most requests do not have.
    pub(crate) fn unusual(&self) -> RefMut<'_, Notes> {
        let mut notes = self.notes.borrow_mut();
        notes.is_unusual = true;
        notes
    }

    /// Returns whether an attempt is noted when it begins.
    pub(crate) fn notes_all(&self) -> bool {
        self.notes_all.get()
    }

    /// Returns whether a successful attempt that ends now is noted.
    pub(crate) fn notes_success(&self, now: Instant) -> bool {
        self.slow_after.get().is_some_and(|after| after <= now)
            || !self.notes.borrow().attempts.is_empty()
    }

    /// Notes the endpoints among which a policy has chosen one: their identifiers and the requests in flight there.
    /// Several at most, the chosen one first.
    pub(crate) fn candidates(&self, total: usize, each: impl Iterator<Item = (u64, u32)>) {
        self.notes.borrow_mut().candidates.set(total, each);
    }

    /// Begins an attempt; returns its index. `queue` is the number of requests in flight at its endpoint without it.
    pub(crate) fn begin_attempt(
        &self,
        cluster: &Arc<Cluster>,
        (address, queue): (&Address, u32),
        (number, started): (u32, Instant),
        random: impl FnOnce() -> u64,
    ) -> usize {
        let notes = &mut *self.notes.borrow_mut();
        let span = notes.trace.as_ref().map(|_| trace::span_id(random()));
        let at = notes.attempts.len();
        if at == 0 {
            // Most requests have one.
            notes.attempts.reserve_exact(1);
        }
        let candidates = notes.candidates;
        notes.candidates.clear();
        let opening = std::mem::take(&mut notes.opening);
        notes.attempts.push(Attempted {
            span,
            cluster: Arc::clone(cluster),
            address: address.clone(),
            queue,
            number,
            started,
            ended: None,
            status: None,
            grpc: None,
            error: None,
            message: None,
            bounced: false,
            retry_refused: notes.retry_refused.take(),
            opening,
            candidates,
        });
        at
    }

    /// Notes why the latest attempt is not followed by another.
    pub(crate) fn refuse_retry(&self, reason: &'static str) {
        let notes = &mut *self.unusual();
        match notes.attempts.last_mut() {
            Some(last) if last.ended.is_none() => last.retry_refused = Some(reason),
            // It is noted when it ends.
            _ => notes.retry_refused = Some(reason),
        }
    }

    /// Changes the notes of an attempt.
    pub(crate) fn attempt(&self, at: usize, change: impl FnOnce(&mut Attempted)) {
        if let Some(attempted) = self.notes.borrow_mut().attempts.get_mut(at) {
            change(attempted);
        }
    }

    /// Replaces the trace headers of a request to the next hop, if there is a trace: its receiver is a child of the
    /// attempt, or of the request.
    pub(crate) fn inject(&self, attempt: Option<usize>, fields: &mut Fields) {
        let notes = &mut *self.notes.borrow_mut();
        if let Some(trace) = &mut notes.trace {
            let span = attempt.and_then(|at| notes.attempts.get(at)?.span);
            trace.inject(span, fields);
        }
    }

    /// Notes an error of the request.
    pub(crate) fn fail(&self, error: &ProxyError) {
        let notes = &mut *self.unusual();
        notes.error = Some(error.to_string());
        notes.own_status = Some(GrpcStatus::new(error.verdict().grpc.into()));
    }
}

/// An attempt, for what happens inside of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted<'a> {
    pub(crate) record: &'a Rc<Record>,
    /// Its index; `None` if it is not noted yet.
    pub(crate) at: Option<usize>,
}

impl Noted<'_> {
    /// Notes that the attempt needs a new connection, and waits for the permission to open one.
    pub(crate) fn needs_connection(self) {
        self.change(|opening, now| opening.wanted = Some(now));
    }

    /// Notes that the attempt has begun to connect.
    pub(crate) fn connects(self) {
        self.change(|opening, now| opening.begun = Some(now));
    }

    /// Notes that the connection is open.
    pub(crate) fn connected(self) {
        self.change(|opening, now| opening.ended = Some(now));
    }

    fn change(self, change: impl FnOnce(&mut Opening, Instant)) {
        let now = Instant::now();
        match self.at {
            Some(at) => self.record.attempt(at, |one| change(&mut one.opening, now)),
            None => change(&mut self.record.unusual().opening, now),
        }
    }
}

/// Returns whether a status or flag is that of a failed request.
pub(crate) fn is_failure(status: StatusCode, flag: &str) -> bool {
    flag != "-" || status.as_u16() >= 500
}
