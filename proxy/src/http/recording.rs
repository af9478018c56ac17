//! The record of a request, its text, and its readers: from its beginning to its end.

use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Method, StatusCode, Version};
use maglor_telemetry::trace_context::TraceId;
use tokio::time::Instant;

use super::connection::Service;
use super::story::{self, Ended};
use super::upload::Upload;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Fields, Known, Span};
use crate::protocol::http1::Target;
use crate::protocol::message::Request;
use crate::runtime::worker::Worker;
use crate::telemetry::observers::Readers;
use crate::telemetry::record::{ClusterState, Entry, Notes, Record, Rule, is_failure};
use crate::telemetry::traces::Tracer;
use crate::upstream::Cluster;

/// Length of a request's text above which only the recorded parts are kept until its end.
const MOST_TEXT: usize = 4096;

/// What is recorded of one request.
#[derive(Debug)]
pub(crate) struct Recording {
    record: Rc<Record>,
    readers: Readers,
    /// `None` without tracing.
    tracer: Option<Arc<Tracer>>,
    method: Method,
    /// The text of the request, at its end.
    fields: Fields,
    /// The cluster, by which candidates are named. It may go before the request ends.
    cluster: Option<Weak<Cluster>>,
    /// When the client had sent its whole request.
    uploaded: Option<Instant>,
    /// Which of several reasons of the flag is the request's.
    reason: Option<&'static str>,
}

impl Recording {
    /// Begins the record of a request, if it has a reader.
    #[inline]
    pub(super) fn begin(
        service: &Service,
        request: &Request,
        grpc: bool,
        started: Instant,
    ) -> Option<Self> {
        let worker = &service.worker;
        let observers = &worker.shared().observers;
        let readers = observers.readers();
        if !readers.any() {
            return None;
        }
        let record = worker.records.take();
        // Whatever a line or a span has is noted of every attempt.
        let notes_all = readers.lines() || readers.traces();
        let threshold = observers.stories.threshold(worker.shard());
        let slow_after = threshold.and_then(|threshold| started.checked_add(threshold));
        record.begin(request, grpc, (notes_all, slow_after));
        let tracer = readers.traces().then(|| observers.tracer()).flatten();
        if readers.lines() || tracer.is_some() {
            record.client_fields(&request.fields, readers.lines());
        }
        if let Some(tracer) = &tracer {
            let scheme = service.client.scheme();
            worker.with_rng(|rng| tracer.begin(&record, request, scheme, rng));
        }
        Some(Self {
            record,
            readers,
            tracer,
            method: Method::GET,
            fields: Fields::none(),
            cluster: None,
            uploaded: None,
            reason: None,
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
        let mut recording = Self::begin(service, &request, false, Instant::now())?;
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

    /// Records the cluster of the request.
    pub(super) fn toward(&mut self, cluster: &Arc<Cluster>) {
        self.cluster = Some(Arc::downgrade(cluster));
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
    pub(super) fn fail(&mut self, error: &ProxyError, upload: Option<&Upload>) {
        self.record.fail(error);
        self.reason = error.overflow_reason();
        self.uploaded(upload, Instant::now());
    }

    /// Records when the client had sent its request.
    pub(super) fn uploaded(&mut self, upload: Option<&Upload>, now: Instant) {
        if let Some(upload) = upload {
            self.uploaded = Some(upload.end(now));
        }
    }

    /// Keeps the text of the request until its end.
    #[inline]
    pub(super) fn keep(&mut self, request: &mut Request) {
        std::mem::swap(&mut self.method, &mut request.method);
        std::mem::swap(&mut self.fields, &mut request.fields);
        if self.fields.encoded_len() > MOST_TEXT {
            self.shrink();
        }
    }

    /// Keeps only the recorded parts of a long text.
    #[cold]
    fn shrink(&mut self) {
        let notes = &mut *self.record.notes_mut();
        let mut kept = Fields::none();
        let mut keep = |span: &mut Span| *span = kept.add_text(self.fields.slice(*span));
        keep(&mut notes.target);
        notes.host.as_mut().map(&mut keep);
        notes.user_agent.as_mut().map(&mut keep);
        notes.referer.as_mut().map(&mut keep);
        notes.forwarded_for.as_mut().map(&mut keep);
        if let Some(id) = self.fields.get(Known::XRequestId) {
            kept.push(Known::XRequestId, id);
        }
        self.fields = kept;
    }

    /// Notifies the readers of the request that it has ended. Returns the identifier of its trace if it is exported.
    #[inline]
    pub(super) fn report(&self, service: &Service, ended: &Ended) -> Option<TraceId> {
        let worker = &service.worker;
        let (shard, took) = (worker.shard(), ended.ended - ended.started);
        let notes = &*self.record.notes();
        let stories = &worker.shared().observers.stories;
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
        if is_kept || exporter.is_some() || self.readers.lines() {
            self.publish(notes, service, ended, (is_kept, exporter));
        }
        exporter?;
        notes.trace.as_ref().map(|trace| trace.context.trace_id)
    }

    /// Writes what readers get.
    fn publish(
        &self,
        notes: &Notes,
        service: &Service,
        ended: &Ended,
        (is_kept, exporter): (bool, Option<&Arc<Tracer>>),
    ) {
        let worker = &service.worker;
        let entry = self.entry(notes, service, ended);
        if let Some(tracer) = exporter {
            tracer.export(notes, &entry, ended.ended, worker.shard());
        }
        let now = worker.time(ended.ended);
        let observers = &worker.shared().observers;
        if is_kept {
            let cluster = self.cluster.as_ref().and_then(Weak::upgrade);
            let mut story = story::of(&entry, notes, cluster.as_deref(), ended.started);
            story.times = story::times(notes, ended, (self.uploaded, self.cluster.is_some()));
            story.reason = self.reason.map(str::to_owned);
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
        ended.status == StatusCode::SWITCHING_PROTOCOLS || self.method == Method::CONNECT
    }

    /// Returns the record to the worker.
    #[inline]
    pub(super) fn recycle(self, worker: &Worker) {
        worker.records.recycle(self.record);
    }

    #[cold]
    fn entry<'a>(&'a self, notes: &'a Notes, service: &'a Service, ended: &Ended) -> Entry<'a> {
        let part = |span| self.fields.slice(span);
        let answering = notes.answering.and_then(|at| notes.attempts.get(at));
        Entry {
            listener: &service.chain.listener,
            direction: service.chain.direction,
            client: service.client.address,
            peer: service.client.peer(),
            method: &self.method,
            target: part(notes.target),
            version: notes.version,
            host: notes.host.map(part),
            user_agent: notes.user_agent.map(part),
            referer: notes.referer.map(part),
            forwarded_for: notes.forwarded_for.map(part),
            request_id: self.fields.get(Known::XRequestId),
            upstream: answering.map(|attempt| (&attempt.address, &attempt.cluster.name)),
            attempts: answering.map_or(0, |attempt| attempt.number),
            error: notes.error.as_deref(),
            trace_id: notes.trace.as_ref().map(|trace| trace.context.trace_id),
            status: ended.status,
            flag: ended.flag,
            response_bytes: ended.response_bytes,
            took: ended.ended - ended.started,
            responded: ended.responded.map(|at| at - ended.started),
        }
    }
}
