//! Progress of a request's body, for timeouts: the time that a client takes to send it is not the endpoint's
//! fault.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::Instant;

use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Fields, Known};
use crate::protocol::message::{Body, Interim, Source};

/// Progress of a request's body.
#[derive(Debug)]
pub(super) struct Upload {
    /// When the last part was forwarded; if none was, when the request arrived.
    last: Cell<Instant>,
    /// Whether an attempt is waiting for a part that the client has not sent.
    awaited: Cell<bool>,
    /// Whether the client waits for a `100 Continue`, which the endpoint must send.
    held: Cell<bool>,
    /// Receiver of the `100 Continue`; `None` if it is dropped.
    interim: Option<Rc<dyn Interim>>,
    /// Whether a part was forwarded since the last call of `take_moved`.
    moved: Cell<bool>,
    /// Whether the body will not be read any further.
    ended: Cell<bool>,
}

impl Upload {
    /// Wraps the body of a request that arrived at `started`, to record its progress. `interim` sends informational
    /// responses to the client. Returns `None` for an empty body.
    pub(super) fn watch(
        body: &mut Body,
        fields: &Fields,
        started: Instant,
        interim: Option<&Rc<dyn Interim>>,
    ) -> Option<Rc<Self>> {
        if body.is_empty() {
            return None;
        }
        let held = fields.contains(Known::Expect);
        let upload = Rc::new(Self {
            last: Cell::new(started),
            awaited: Cell::new(false),
            held: Cell::new(held),
            interim: interim.filter(|_| held).cloned(),
            moved: Cell::new(false),
            ended: Cell::new(false),
        });
        let watched = Watched {
            body: body.take(),
            upload: Rc::clone(&upload),
        };
        *body = Body::source(Box::new(watched));
        Some(upload)
    }

    /// Returns the earliest time at which the request can be complete: `now` while an attempt waits for a part that
    /// the client has not sent.
    pub(super) fn end(&self, now: Instant) -> Instant {
        if self.awaited.get() && !self.ended.get() {
            now
        } else {
            self.last.get()
        }
    }

    /// Returns whether an attempt is waiting for a part that the client has not sent.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.get()
    }

    /// Records that no attempt is waiting for the body.
    pub(super) fn leave(&self) {
        self.awaited.set(false);
    }

    /// Returns whether the client waits for an informational response before it sends its body.
    pub(super) fn permits_body(&self) -> bool {
        self.interim.is_some()
    }

    /// Returns whether a part was forwarded since the last call.
    pub(super) fn take_moved(&self) -> bool {
        self.moved.take()
    }
}

impl Interim for Upload {
    fn send(&self, status: StatusCode, fields: &Fields) {
        if let Some(interim) = &self.interim {
            interim.send(status, fields);
        }
        // From now on the client is expected to send its body.
        if status == StatusCode::CONTINUE && self.held.replace(false) {
            self.awaited.set(true);
        }
    }
}

/// A body whose progress is recorded.
#[derive(Debug)]
struct Watched {
    body: Body,
    upload: Rc<Upload>,
}

impl Source for Watched {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let upload = &self.upload;
        if frame.is_pending() {
            upload.awaited.set(!upload.held.get());
        } else {
            upload.held.set(false);
            upload.awaited.set(false);
            upload.moved.set(true);
            upload.last.set(Instant::now());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    /// For copies that are still being sent, time counts from now if they were waiting for the client.
    fn drop(&mut self) {
        if self.upload.awaited.get() {
            self.upload.last.set(Instant::now());
        }
        self.upload.ended.set(true);
    }
}
