//! The record of a request, its text, and its readers: from its beginning to its end.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode, Version};
use tokio::time::Instant;

use super::attempt::accounting::Attempt;
use super::connection::Service;
use super::headers;
use super::story::{self, Ended};
use super::upload::Upload;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Fields, Known, Span};
use crate::protocol::http1::Target;
use crate::protocol::message::Request;
use crate::runtime::worker::Worker;
use crate::telemetry::metrics::RouteMetrics;
use crate::telemetry::observers::Readers;
use crate::telemetry::record::{ClusterState, Entry, Moment, Notes, Record, Rule, is_failure};
use crate::telemetry::traces::Tracer;

/// Length of a request's text above which only the recorded parts are kept until its end.
const MOST_TEXT: usize = 4096;

/// What is recorded of one request.
#[derive(Debug)]
pub(crate) struct Recording {
    record: Rc<Record>,
    readers: Readers,
    /// `None` without tracing.
    tracer: Option<Arc<Tracer>>,
    /// The text of the request, at its end, with its method; without a buffer before.
    text: Fields,
    /// Where the method is in the text, and its length: a span would be two bytes longer, and not fit here.
    method_start: u32,
    method_length: u16,
    /// Whether a cluster was chosen.
    is_forwarded: bool,
    /// When the client had sent its whole request.
    uploaded: Moment,
}

impl Recording {
    /// Begins the record of a request, if it has a reader.
    #[inline]
    pub(super) fn begin(service: &Service, request: &Request, grpc: bool) -> Option<Self> {
        let worker = &service.worker;
        let observers = &worker.shared().observers;
        let mut readers = observers.readers();
        if !readers.any() {
            return None;
        }
        let record = worker.records.take();
        record.begin(request, grpc);
        let mut tracer = None;
        if readers.traces() {
            tracer = begin_trace(service, &record, request);
            // Of a request that is not exported, only the headers are left.
            if tracer.is_none() {
                readers = readers.without_traces();
            }
        }
        if readers.lines() || tracer.is_some() {
            record.client_fields(&request.fields, readers.lines());
        }
        Some(Self {
            record,
            readers,
            tracer,
            text: Fields::none(),
            method_start: 0,
            method_length: 0,
            is_forwarded: false,
            uploaded: Moment::NONE,
        })
    }

    /// Begins the record of a request that could not be read.
    #[cold]
    pub(super) fn unread(service: &Service, version: Version) -> Option<Self> {
        let unread = b"-";
        let mut request = Request {
            method: Method::from_bytes(unread).unwrap_or_default(),
            target: Target::default(),
            version,
            fields: Fields::none(),
        };
        request.target.path_and_query = request.fields.add_text(unread);
        let mut recording = Self::begin(service, &request, false)?;
        recording.tracer = None;
        recording.record.notes_mut().trace = None;
        recording.keep(&mut request);
        Some(recording)
    }

    /// Returns whether a line of the access log or of a tap is written.
    pub(super) fn has_lines(&self) -> bool {
        self.readers.lines()
    }

    pub(super) fn record(&self) -> &Rc<Record> {
        &self.record
    }

    /// Removes the request's trace and story: it is one between proxies, and none of a client.
    pub(super) fn internal(&mut self) {
        self.record.notes_mut().trace = None;
        self.tracer = None;
        self.readers = self.readers.without_stories();
    }

    /// Records that a cluster was chosen for the request.
    pub(super) fn forwarded(&mut self) {
        self.is_forwarded = true;
    }

    /// Records the rule that has decided.
    #[cold]
    pub(super) fn rule(&self, field: &'static str, name: String) {
        self.record.unusual().rule = Some(Rule { field, name });
    }

    /// Records the delay of an injected fault.
    #[cold]
    pub(super) fn delayed(&self, delay: Duration) {
        self.record.unusual().delayed = delay;
    }

    /// Records the state of a cluster that has rejected the request.
    #[cold]
    pub(super) fn rejected_by(&mut self, state: ClusterState) {
        self.record.unusual().rejected_by = Some(Box::new(state));
    }

    /// Records an error.
    #[cold]
    pub(super) fn fail(&mut self, error: &ProxyError, upload: Option<(&Upload, Instant)>) {
        self.record.fail(error);
        self.uploaded(upload, Instant::now());
    }

    /// Records when the client had sent its request, which began at the second instant of `upload`.
    pub(super) fn uploaded(&mut self, upload: Option<(&Upload, Instant)>, now: Instant) {
        if let Some((upload, started)) = upload {
            self.uploaded = Moment::new(started, upload.end(now));
        }
    }

    /// Keeps the text of the request until its end.
    #[inline]
    pub(super) fn keep(&mut self, request: &mut Request) {
        if !self.readers.any() {
            return;
        }
        let mut fields = std::mem::replace(&mut request.fields, Fields::none());
        let is_long = fields.encoded_len() > MOST_TEXT;
        self.keep_method(fields.add_text(request.method.as_str().as_bytes()));
        self.text = fields;
        if is_long {
            self.shrink();
        }
    }

    fn keep_method(&mut self, Span { start, end }: Span) {
        self.method_start = start;
        self.method_length = u16::try_from(end - start).unwrap_or(u16::MAX);
    }

    fn method_in<'a>(&self, fields: &'a Fields) -> &'a [u8] {
        let (start, length) = (self.method_start, self.method_length);
        let end = start.saturating_add(length.into());
        fields.slice(Span { start, end })
    }

    /// Keeps only the recorded parts of a long text.
    #[cold]
    fn shrink(&mut self) {
        let fields = std::mem::replace(&mut self.text, Fields::none());
        let record = Rc::clone(&self.record);
        let notes = &mut *record.notes_mut();
        let mut kept = Fields::none();
        let method = kept.add_text(self.method_in(&fields));
        let mut keep = |span: &mut Span| *span = kept.add_text(fields.slice(*span));
        keep(&mut notes.target);
        notes.host.change(&mut keep);
        notes.user_agent.change(&mut keep);
        notes.referer.change(&mut keep);
        notes.forwarded_for.change(&mut keep);
        if let Some(id) = fields.get(Known::XRequestId) {
            kept.push(Known::XRequestId, id);
        }
        self.text = kept;
        self.keep_method(method);
    }

    /// Notifies the readers of the request that it has ended. `attempt` is the one whose result is the request's.
    #[inline]
    pub(super) fn report(
        &self,
        service: &Service,
        route: Option<&RouteMetrics>,
        attempt: Option<&mut Attempt>,
        ended: &Ended,
    ) {
        if !self.readers.any() {
            return;
        }
        let worker = &service.worker;
        let (shard, took) = (worker.shard(), ended.took);
        let stories = &worker.shared().observers.stories;
        let (is_kept, exporter) = {
            let notes = &*self.record.notes();
            let is_kept = self.readers.stories() && {
                let failed =
                    is_failure(ended.status, ended.flag) || notes.grpc && notes.has_failed_call();
                // Whatever the rest: the estimate is one of all requests.
                let slow = !self.is_tunnel(ended) && stories.is_slow(took, shard);
                (failed || slow) && stories.permits(failed, worker.time(ended.ended))
            };
            let outcome = (ended.status, ended.flag);
            let exporter = self.tracer.as_ref();
            let exporter = exporter.filter(|one| one.is_exported(notes, outcome, took, shard));
            (is_kept, exporter)
        };
        if is_kept || exporter.is_some() || self.readers.lines() {
            self.publish(service, (route, attempt), ended, (is_kept, exporter));
        }
    }

    /// Writes what readers get.
    #[cold]
    fn publish(
        &self,
        service: &Service,
        (route, attempt): (Option<&RouteMetrics>, Option<&mut Attempt>),
        ended: &Ended,
        (is_kept, exporter): (bool, Option<&Arc<Tracer>>),
    ) {
        let worker = &service.worker;
        let attempt = attempt.map(|attempt| {
            attempt.end_note(ended.received.unwrap_or(ended.ended));
            &*attempt
        });
        let notes = &*self.record.notes();
        let fields = &self.text;
        if fields.encoded_len() == 0 {
            return;
        }
        let method = Method::from_bytes(self.method_in(fields)).unwrap_or_default();
        let generated = generate_id(fields, service);
        let mut entry = entry((&method, fields), notes, service, ended);
        entry.route = route.and_then(|route| route.named.as_ref());
        entry.request_id = entry.request_id.or(generated.as_ref().map(|id| &id[..]));
        if let Some(tracer) = exporter {
            tracer.export(notes, &entry, ended.ended, worker.shard());
            exemplify(notes, worker.shard(), (route, attempt), entry.took);
        }
        let now = worker.time(ended.ended);
        let observers = &worker.shared().observers;
        if is_kept {
            let mut story = story::of(&entry, notes, ended.started);
            let uploaded = self.uploaded.instant(ended.started);
            story.times = story::times(notes, ended, (uploaded, self.is_forwarded));
            story.reason = notes.unusual().reason.map(str::to_owned);
            if story.id.is_empty() {
                story.id = observers.stories.next_id();
            }
            observers.stories.keep(&story, now);
        }
        if self.readers.lines() {
            observers.notify(&entry, now);
        }
    }

    /// Returns whether the duration says nothing: that of a tunnel is its user's.
    fn is_tunnel(&self, ended: &Ended) -> bool {
        ended.status == StatusCode::SWITCHING_PROTOCOLS || self.method_in(&self.text) == b"CONNECT"
    }

    /// Returns the record to the worker.
    #[inline]
    pub(super) fn recycle(self, worker: &Worker) {
        worker.records.recycle(self.record);
    }
}

/// Begins the trace of a request; returns its exporter, if it may be exported.
#[inline]
fn begin_trace(service: &Service, record: &Record, request: &Request) -> Option<Arc<Tracer>> {
    let worker = &service.worker;
    let https = service.client.tls;
    worker.shared().observers.with_tracer(|tracer| {
        let is_recorded = worker.with_rng(|rng| tracer.begin(record, request, https, rng));
        is_recorded.then(|| Arc::clone(tracer))
    })
}

/// Returns an identifier for a request that was not forwarded and has none.
fn generate_id(fields: &Fields, service: &Service) -> Option<[u8; 36]> {
    let has_one = fields.contains(Known::XRequestId);
    let generates = service.settings().request_id && !has_one;
    generates.then(|| service.worker.with_rng(headers::uuid))
}

fn entry<'a>(
    (method, fields): (&'a Method, &'a Fields),
    notes: &'a Notes,
    service: &'a Service,
    ended: &Ended,
) -> Entry<'a> {
    let part = |span| fields.slice(span);
    let unusual = notes.unusual();
    let answering = unusual.answering();
    Entry {
        listener: &service.chain.listener,
        direction: service.chain.direction,
        client: service.client.address,
        peer: service.client.peer(),
        method,
        target: part(notes.target),
        version: notes.version,
        host: notes.host.span().map(part),
        user_agent: notes.user_agent.span().map(part),
        referer: notes.referer.span().map(part),
        forwarded_for: notes.forwarded_for.span().map(part),
        request_id: fields.get(Known::XRequestId),
        route: None,
        upstream: answering.map(|attempt| (&attempt.address, &attempt.cluster.name)),
        attempts: answering.map_or(0, |attempt| attempt.number),
        error: unusual.error.as_deref(),
        trace_id: notes.trace.as_ref().map(|trace| trace.context.trace_id),
        status: ended.status,
        flag: ended.flag,
        response_bytes: ended.response_bytes,
        took: ended.took,
        responded: ended.responded.map(|at| at - ended.started),
    }
}

/// Shows an exported trace as the example of its request's duration, and of those of its attempts.
fn exemplify(
    notes: &Notes,
    shard: usize,
    (route, attempt): (Option<&RouteMetrics>, Option<&Attempt>),
    took: Duration,
) {
    let Some(trace) = &notes.trace else {
        return;
    };
    let trace = trace.context.trace_id;
    if let Some(route) = route {
        route.exemplify(shard, took, trace);
    }
    let Some(attempt) = attempt else {
        return;
    };
    let metrics = attempt.cluster().metrics();
    // A returned attempt is not counted.
    let attempts = notes.unusual().attempts.iter();
    for one in attempts.filter(|one| !one.bounced) {
        if let Some(ended) = one.ended {
            metrics.exemplify(shard, ended - one.started, trace);
        }
    }
}
