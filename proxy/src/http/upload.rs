//! How far a request's body has come, for those who mind the time: what a client takes to send it is
//! the client's own fault.

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

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Upload {
    /// When the last of it was handed on; before that, when the request came.
    last: Cell<Instant>,
    /// An attempt wants more of it than the client has sent.
    awaited: Cell<bool>,
    /// The client waits for a `100 Continue`, which is the endpoint's to give.
    held: Cell<bool>,
    /// Where that goes.
    interim: Option<Rc<dyn Interim>>,
    /// Whether a part of it was handed on since that was last asked.
    moved: Cell<bool>,
    /// Nothing more is read of it.
    ended: Cell<bool>,
}

impl Upload {
    /// Watches the body of a request that came at `started`, whose client hears by `interim` what comes
    /// before a response; `None` where there is none.
    pub(super) fn watch(
        body: Body,
        fields: &Fields,
        started: Instant,
        interim: Option<&Rc<dyn Interim>>,
    ) -> (Body, Option<Rc<Self>>) {
        if body.is_empty() {
            return (body, None);
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
            body,
            upload: Rc::clone(&upload),
        };
        (Body::source(Box::new(watched)), Some(upload))
    }

    /// When the request ended, at the earliest: now, while the client has still to send what is wanted.
    pub(super) fn end(&self, now: Instant) -> Instant {
        if self.awaited.get() && !self.ended.get() {
            now
        } else {
            self.last.get()
        }
    }

    /// Whether the client has still to send what is wanted of it.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.get()
    }

    /// No attempt asks for it any more until another one does.
    pub(super) fn leave(&self) {
        self.awaited.set(false);
    }

    /// Returns whether the client waits for this to learn that it may send.
    pub(super) fn permits_body(&self) -> bool {
        self.interim.is_some()
    }

    /// Whether a part of it was handed on since the last call.
    pub(super) fn take_moved(&self) -> bool {
        self.moved.take()
    }
}

impl Interim for Upload {
    fn send(&self, status: StatusCode, fields: &Fields) {
        if let Some(interim) = &self.interim {
            interim.send(status, fields);
        }
        // From now on it is the client who is waited for.
        if status == StatusCode::CONTINUE && self.held.replace(false) {
            self.awaited.set(true);
        }
    }
}

/// The body on its way.
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
    /// The time of copies that are still under way begins, if they have waited for their client until now.
    fn drop(&mut self) {
        if self.upload.awaited.get() {
            self.upload.last.set(Instant::now());
        }
        self.upload.ended.set(true);
    }
}
