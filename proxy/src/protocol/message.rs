//! Messages as the proxy forwards them: heads, bodies, and the interfaces that account for them.
//!
//! One type [`Body`] is used for both directions and all origins, so that the pipeline has no type parameters. Bodies
//! are not buffered: a frame is pulled from one side when the other side can accept it, which provides back-pressure.

use std::fmt::Debug;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::net::io::Stream;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Fields, Known};
use crate::protocol::http1::Target;

/// Value of `x-maglor-http-version` for a request that its sender made over HTTP/1.1.
pub(crate) const ORIGINAL_HTTP1: &str = "1.1";

/// A request without its body.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) target: Target,
    /// HTTP version over which the request was received; when the request is forwarded, the version that its sender
    /// uses.
    pub(crate) version: Version,
    pub(crate) fields: Fields,
}

impl Request {
    /// Returns the path, which is never empty.
    pub(crate) fn path(&self) -> &[u8] {
        match self.fields.slice(self.target.path()) {
            b"" => b"/",
            path => path,
        }
    }

    /// Returns the query without its question mark; `None` if there is none.
    pub(crate) fn query(&self) -> Option<&[u8]> {
        self.target.query().map(|query| self.fields.slice(query))
    }

    /// Returns the path and query as sent to an origin server.
    pub(crate) fn path_and_query(&self) -> &[u8] {
        self.fields.slice(self.target.path_and_query)
    }

    /// Replaces path and query.
    pub(crate) fn set_path_and_query(&mut self, text: &[u8]) {
        let span = self.fields.add_text(text);
        let authority = self.target.authority;
        self.target = Target::origin(text, span.start as usize);
        self.target.authority = authority;
    }

    /// Returns the host of the request: the target's authority or the `host` field; `None` if there is neither.
    pub(crate) fn host(&self) -> Option<&[u8]> {
        match self.target.authority {
            Some(authority) => Some(self.fields.slice(authority)),
            None => self.fields.get(Known::Host),
        }
    }

    /// Returns whether this is a gRPC call, whose client expects errors as gRPC statuses.
    pub(crate) fn is_grpc(&self) -> bool {
        self.method == Method::POST
            && self.fields.get(Known::ContentType).is_some_and(|value| {
                value.starts_with(b"application/grpc")
                    && matches!(value.get(16), None | Some(b'+' | b';' | b' '))
            })
    }
}

/// A request with its body. Futures hold both by one reference: a waiting request reserves the space of a reference in
/// each future on its way.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) request: Request,
    pub(crate) body: Body,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) fields: Fields,
    pub(crate) body: Body,
}

/// Source of a body's frames.
pub(crate) trait Source: Debug {
    /// Returns the next frame; `None` when the body has ended.
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>>;

    /// Returns whether there are no further frames.
    fn is_end_stream(&self) -> bool;

    /// Returns the remaining length; unbounded if it is unknown.
    fn size_hint(&self) -> SizeHint;

    /// Releases the connection for reuse; called once when the body has ended successfully.
    fn release(self: Box<Self>) {}

    /// Returns whether the response ends HTTP on its connection.
    fn ends_http(&self) -> bool {
        false
    }

    /// Returns how the connection continues, if the response ends HTTP on it.
    fn take_over(self: Box<Self>) -> Option<Box<Takeover>> {
        None
    }
}

/// Accounting of a response: counts its bytes and records how it ends.
pub(crate) trait Account: Debug {
    /// Counts bytes of the response.
    fn count(&mut self, bytes: u64);

    /// Counts bytes that were sent in the other direction, outside of any body.
    fn sent(&mut self, bytes: u64);

    /// Records that counted bytes were written to the client.
    fn moved(&mut self) {}

    /// Records the trailers.
    fn trailers(&mut self, trailers: &HeaderMap);

    /// Records that the whole response was received from its origin. If the account is dropped after this without an
    /// error, the response has ended successfully.
    fn received(&mut self);

    /// Records that the response has ended successfully.
    fn complete(&mut self);

    /// Records that the response has failed.
    fn fail(&mut self, error: &ProxyError);

    /// Becomes ready when the response has taken too long.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<ProxyError>;
}

/// Receiver of informational responses for a client.
pub(crate) trait Interim: Debug {
    /// Sends a 1xx response before any output that follows.
    fn send(&self, status: StatusCode, fields: &Fields);
}

/// A connection that [`Body::take_over`] hands to another protocol.
pub(crate) struct TakenOver {
    pub(crate) takeover: Box<Takeover>,
    pub(crate) account: Option<Box<dyn Account>>,
}

/// The body of a request or response.
#[derive(Debug)]
pub(crate) struct Body {
    /// `None` if there is no body, or nothing is left of it.
    source: Option<Box<dyn Source>>,
    /// Accounting, kept until the response has ended in any way; `None` if there is none.
    account: Option<Box<dyn Account>>,
}

/// A body in memory.
#[derive(Debug)]
struct InMemory(Bytes);

impl Source for InMemory {
    fn poll_frame(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.0)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

/// Use of a client's connection after it has switched from HTTP.
#[derive(Debug)]
pub(crate) enum Takeover {
    /// A channel of the queue protocol, for the server behind this listener.
    Channel,
    /// Bytes to and from an endpoint.
    Tunnel(Stream),
}

impl Source for Takeover {
    fn poll_frame(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(0)
    }

    fn ends_http(&self) -> bool {
        true
    }

    fn take_over(self: Box<Self>) -> Option<Box<Takeover>> {
        Some(self)
    }
}

impl Body {
    /// Creates the body of a message without one.
    pub(crate) fn empty() -> Self {
        Self::of(None)
    }

    /// Returns the body, leaving an empty one in its place.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::empty())
    }

    /// Creates a body in memory.
    pub(crate) fn full(data: impl Into<Bytes>) -> Self {
        let data = data.into();
        match data.is_empty() {
            true => Self::empty(),
            false => Self::source(Box::new(InMemory(data))),
        }
    }

    pub(crate) fn source(source: Box<dyn Source>) -> Self {
        Self::of(Some(source))
    }

    pub(crate) fn tunnel(stream: Stream) -> Self {
        Self::source(Box::new(Takeover::Tunnel(stream)))
    }

    pub(crate) fn channel_upgrade() -> Self {
        Self::source(Box::new(Takeover::Channel))
    }

    fn of(source: Option<Box<dyn Source>>) -> Self {
        Self {
            source,
            account: None,
        }
    }

    /// Attaches the accounting for the rest of the request.
    pub(crate) fn with_account(mut self, account: Box<dyn Account>) -> Self {
        self.account = Some(account);
        self
    }

    /// Returns whether there is no body.
    pub(crate) fn is_empty(&self) -> bool {
        self.source.is_none()
    }

    /// Removes the body from a response to HEAD.
    pub(crate) fn leave_out(&mut self) {
        self.source = None;
    }

    /// Records that some frames of this body were written to the client.
    pub(crate) fn moved(&mut self) {
        if let Some(account) = &mut self.account {
            account.moved();
        }
    }

    /// Records that the whole body was written to the client.
    pub(crate) fn delivered(&mut self) {
        if let Some(mut account) = self.account.take() {
            account.complete();
        }
    }

    /// Records that frames of this body cannot be written to the client.
    pub(crate) fn lost(&mut self, error: &ProxyError) {
        if let Some(account) = &mut self.account {
            account.fail(error);
        }
    }

    /// Completes the accounting of a body that will not be polled because it has no frames.
    pub(crate) fn settle_if_ended(&mut self) {
        if self.is_end_stream()
            && let Some(mut account) = self.account.take()
        {
            account.complete();
        }
    }

    /// Returns how the connection continues if the response ends HTTP on it, with the accounting of this further use;
    /// `None` if HTTP continues.
    pub(crate) fn take_over(&mut self) -> Option<TakenOver> {
        let source = self.source.take_if(|source| source.ends_http())?;
        Some(TakenOver {
            takeover: source.take_over()?,
            account: self.account.take(),
        })
    }

    /// Becomes ready when the request has taken too long; for callers that wait for something other than the next
    /// frame.
    pub(crate) fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<ProxyError> {
        let Some(account) = &mut self.account else {
            return Poll::Pending;
        };
        account.poll_timeout(cx).map(|error| {
            account.fail(&error);
            error
        })
    }

    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let Some(source) = &mut self.source else {
            return Poll::Ready(None);
        };
        let frame = source.poll_frame(cx);
        let failed = matches!(frame, Poll::Ready(Some(Err(_))));
        // Released now instead of when the client has received the last byte.
        if source.is_end_stream()
            && !failed
            && let Some(source) = self.source.take()
        {
            source.release();
        }
        frame
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let frame = self.poll_source(cx);
        let ended = self.is_end_stream();
        let Some(account) = &mut self.account else {
            return frame;
        };
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                account.count(frame.data_ref().map_or(0, |data| data.len() as u64));
                if let Some(trailers) = frame.trailers_ref() {
                    account.trailers(trailers);
                }
                if ended {
                    account.received();
                }
            }
            Poll::Ready(None) => account.received(),
            Poll::Ready(Some(Err(error))) => account.fail(error),
            Poll::Pending => return self.poll_timeout(cx).map(|error| Some(Err(error))),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        let source = self.source.as_deref();
        source.is_none_or(Source::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let source = self.source.as_deref();
        source.map_or_else(|| SizeHint::with_exact(0), Source::size_hint)
    }
}
