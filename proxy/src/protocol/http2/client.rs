//! The client side of one connection.

use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Method;
use http_body::Body as _;
use tokio::time::Instant;

use super::answer::LIMITS;
use super::connection::{Channel, Closed, Http2, Opening, Owner, Role, Stream};
use super::frame::{LAST_STREAM, MAX_PAYLOAD};
use super::inbox::Inbox;
use super::{head, hpack};
use crate::net::io::{self, Io};
use crate::protocol::error::{ProxyError, Unanswered};
use crate::protocol::fields::{CONNECTION_FIELDS, Known};
use crate::protocol::http1::HeadError;
use crate::protocol::message::{Body, Interim, ORIGINAL_HTTP1, Request};
use crate::protocol::streams::{self, Begun, Driver, STREAM_WINDOW};

/// Parameters that differ between connections for clients' requests and those for the proxy's own calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Number of bytes of a body that a server may send before they are read.
    pub(crate) window: u32,
    /// Interval of keepalive checks. A silent server that owes a response is sent a PING after three intervals and must
    /// respond within one.
    pub(crate) keepalive: Duration,
}

/// Parameters of connections for clients' requests.
pub(crate) const REQUESTS: Terms = Terms {
    window: STREAM_WINDOW,
    keepalive: Duration::from_secs(10),
};

/// Time with a low window after which the window counts as held by uploads that the server does not read.
const HELD: Duration = Duration::from_millis(100);

/// A connection to a server, which is closed when this is dropped and the streams have ended.
pub(crate) type Client = streams::Client<Http2>;
pub(crate) type Answered = streams::Answered<Http2>;

/// A request to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) request: &'a Request,
    /// Whether the scheme is `https`.
    pub(crate) https: bool,
    /// Whether to mark the request as received over HTTP/1.
    pub(crate) marks_http1: bool,
}

impl Client {
    /// Creates a client on a connection.
    pub(crate) fn start(io: Io, terms: Terms) -> Self {
        let channel = Channel::new(Role::Client(Opening::new(terms.window)));
        let stream = io::Stream {
            io,
            prefix: Bytes::new(),
            guard: None,
        };
        let inbox = Inbox::of_server(LIMITS.bytes + MAX_PAYLOAD);
        let mut driver = Driver::new(stream, inbox, terms.keepalive, Rc::clone(&channel));
        tokio::task::spawn_local(async move {
            match poll_fn(|cx| driver.poll(cx)).await {
                Closed::Quiet | Closed::ByPeer => {}
                closed => tracing::debug!(%closed, "upstream HTTP/2 connection ended"),
            }
        });
        Self(channel)
    }

    /// Creates a client on a connection that others drive.
    pub(super) fn on(channel: &Rc<Channel>) -> Self {
        Self(Rc::clone(channel))
    }

    /// Returns whether no further requests can be sent.
    pub(crate) fn is_gone(&self) -> bool {
        let core = self.0.core.borrow();
        let usable = matches!(&core.role, Role::Client(Opening { gone: false, next, .. }) if *next <= LAST_STREAM);
        !usable || core.closed.is_some()
    }

    /// Returns the maximum number of concurrent requests.
    pub(crate) fn max_streams(&self) -> u32 {
        match &self.0.core.borrow().role {
            // If the server currently allows none, the connection is still used for one, which waits, instead of
            // opening further connections.
            Role::Client(opening) => opening.max_streams.max(1),
            Role::Server(_) => 0,
        }
    }

    /// Returns whether bodies can be sent without waiting for uploads that the server does not read.
    pub(crate) fn has_credit(&self, now: Instant) -> bool {
        let since = self.0.core.borrow().more.low_since;
        since.is_none_or(|since| now.saturating_duration_since(since) < HELD)
    }

    /// Returns whether the connection's window is currently nearly used up.
    pub(crate) fn is_short(&self) -> bool {
        self.0.core.borrow().more.low_since.is_some()
    }

    /// Sends a request, and returns when the head of the response was received.
    ///
    /// Not an `async fn`, whose future would reserve space for each argument twice.
    pub(crate) fn round_trip(
        &self,
        outgoing: Outgoing<'_>,
        body: &mut Body,
        interim: Option<&dyn Interim>,
    ) -> impl Future<Output = Result<Answered, Unanswered>> {
        async move {
            outgoing.check().map_err(Unanswered::Failed)?;
            poll_fn(|cx| self.0.poll_begin(cx)).await;
            let Some((owner, sent)) = self.open(outgoing, body) else {
                return Err(Unanswered::NotSent);
            };
            let mut begun = Begun::new(owner, body, sent);
            let head = poll_fn(|cx| begun.poll_head(interim, cx)).await;
            begun.answered(head, body)
        }
    }

    /// Sends the head of a request. Returns its stream, and whether the request has no body; `None` if the server
    /// accepts no further requests.
    pub(super) fn open(&self, outgoing: Outgoing<'_>, body: &Body) -> Option<(Owner, bool)> {
        if self.is_gone() {
            return None;
        }
        let end = body.is_end_stream();
        let length = outgoing.missing_length(body);
        let core = &mut *self.0.core.borrow_mut();
        let Role::Client(opening) = &mut core.role else {
            return None;
        };
        let id = opening.next;
        opening.next += 2;
        let windows = (core.more.stream_window, opening.window);
        core.encode_block(id, end, |out| outgoing.encode(length, out));
        let method = &outgoing.request.method;
        let stream = Stream::opened(&self.0, id, windows, (method, end));
        core.streams.insert(id, Rc::clone(&stream));
        self.0.wake();
        Some((streams::Owner(stream), end))
    }
}

/// Fields that are transferred elsewhere; those of a connection have no meaning in HTTP/2 (RFC 9113, section 8.2.2).
const LEFT_OUT: [Known; 7] = {
    let [a, b, c, d, e] = CONNECTION_FIELDS;
    [Known::Host, Known::Expect, a, b, c, d, e]
};

impl Outgoing<'_> {
    fn authority(&self) -> &[u8] {
        self.request.fields.get(Known::Host).unwrap_or_default()
    }

    fn path(&self) -> &[u8] {
        match self.request.path_and_query() {
            b"" => b"/",
            path => path,
        }
    }

    /// Checks that the pseudo-header fields can be sent.
    fn check(&self) -> Result<(), ProxyError> {
        let path = self.path();
        let valid = !self.authority().is_empty() && (path == b"*" || head::is_path(path));
        valid
            .then_some(())
            .ok_or(ProxyError::DownstreamHead(HeadError::Target))
    }

    /// Returns the length of the body to add to the head. A length of 0 is sent only if the method expects a body (RFC
    /// 9110, section 8.6).
    fn missing_length(&self, body: &Body) -> Option<u64> {
        let Request { method, fields, .. } = self.request;
        let length = body.size_hint().exact()?;
        let expected = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
        let missing = !fields.contains(Known::ContentLength);
        (missing && (length > 0 || expected)).then_some(length)
    }

    fn encode(&self, length: Option<u64>, out: &mut BytesMut) {
        let Request { method, fields, .. } = self.request;
        let target = hpack::Target {
            method: method.as_str().as_bytes(),
            https: self.https,
            authority: self.authority(),
            path: self.path(),
        };
        hpack::request(target, out);
        for (known, name, value) in fields.iter() {
            let value = value.trim_ascii();
            let left_out = match known {
                Known::Other => false,
                Known::Te => value != b"trailers",
                Known::XMaglorHttpVersion => self.marks_http1,
                known => LEFT_OUT.contains(&known),
            };
            if !left_out {
                hpack::field(known, name, value, out);
            }
        }
        if let Some(length) = length {
            let mut digits = itoa::Buffer::new();
            let length = digits.format(length).as_bytes();
            hpack::field(Known::ContentLength, b"content-length", length, out);
        }
        if self.marks_http1 {
            let known = Known::XMaglorHttpVersion;
            let name = known.as_str().as_bytes();
            hpack::field(known, name, ORIGINAL_HTTP1.as_bytes(), out);
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
