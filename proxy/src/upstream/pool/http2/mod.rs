//! Shared HTTP/2 connections to endpoints, implemented with the crate `h2`.

mod byte_stream;
mod call;
mod frames;
mod outflow;
mod receiving;
mod sending;

use std::cell::Cell;
use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::header::{CONTENT_LENGTH, TE};
use http::uri::{Parts as UriParts, Scheme};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::byte_stream::{Traffic, Wire};
pub(crate) use self::call::Answer;
use self::outflow::{Outflow, Parcel};
use self::receiving::Receiving;
use self::sending::{Sending, Unsent};
use super::{Sender, Unanswered};
use crate::net::io::Io;
use crate::os::memory;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{CONNECTION_FIELDS, Fields, Known};
use crate::protocol::http1::{self, FramingError, HeadError};
use crate::protocol::keepalive::{Keepalive, KeepaliveStep};
use crate::protocol::message::{Body, Interim, ORIGINAL_HTTP1, Request, Response, Source};

const MAX_HEADER_LIST: u32 = 128 * 1024;
/// Receive window of a stream in bytes, which limits the buffered part of a body.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Receive window of a connection in bytes. It is larger than the windows of the maximum number of streams together
/// (16 384, as in Go's client), so that slow streams cannot block others.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Maximum number of bytes of a stream that wait to be written.
const SEND_BUFFER: usize = 64 * 1024;
/// Maximum size of a received frame in bytes.
const MAX_FRAME: u32 = 16 * 1024;
/// Maximum overhead of small unread DATA frames in bytes: about 16 000 frames.
const DATA_FRAME_BUDGET: usize = 4 * 1024 * 1024;
/// Keepalive interval. A silent endpoint with requests is sent a PING after three intervals and must respond within
/// one.
const CLIENT_KEEPALIVE: Duration = Duration::from_secs(10);

/// Parameters that differ between connections for clients' requests and those for the proxy's own calls.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// Receive window of a stream in bytes.
    window: u32,
    /// Keepalive interval. A silent peer is sent a PING after three intervals and must respond within one.
    keepalive: Duration,
}

const REQUESTS: Terms = Terms {
    window: STREAM_WINDOW,
    keepalive: CLIENT_KEEPALIVE,
};

/// A shared HTTP/2 connection. It is closed when this is dropped and the streams have ended.
#[derive(Debug)]
pub(crate) struct Http2(Rc<Shared>);

/// State shared by requests and the driver.
#[derive(Debug)]
struct Shared {
    sender: SendRequest<Parcel>,
    outflow: Rc<Outflow>,
    /// Maximum number of concurrent streams that the endpoint has announced.
    max_streams: Cell<u32>,
    /// Whether the endpoint accepts no further requests.
    gone: Cell<bool>,
    /// Number of requests with incomplete responses.
    busy: Cell<u32>,
    traffic: Rc<Traffic>,
}

impl Http2 {
    /// Starts HTTP/2 on a connection.
    pub(super) async fn start(io: Io) -> Result<Self, ProxyError> {
        let started = Self::start_on(io, REQUESTS).await;
        started.map_err(ProxyError::UpstreamHttp2)
    }

    async fn start_on(io: Io, terms: Terms) -> Result<Self, h2::Error> {
        let (wire, traffic) = Wire::new(io);
        let (sender, connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(terms.window)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .data_frame_budget(DATA_FRAME_BUDGET)
            .max_send_buffer_size(SEND_BUFFER)
            .max_frame_size(MAX_FRAME)
            .max_header_list_size(MAX_HEADER_LIST)
            .handshake(wire)
            .await?;
        let shared = Rc::new(Shared {
            sender,
            outflow: Rc::default(),
            max_streams: Cell::new(u32::MAX),
            gone: Cell::new(false),
            busy: Cell::new(0),
            traffic: Rc::clone(&traffic),
        });
        let driver = Driver::new(connection, terms.keepalive, traffic, Rc::downgrade(&shared));
        // Ends when its last sender is dropped and its streams have ended, or the endpoint closes.
        tokio::task::spawn_local(driver.run());
        Ok(Self(shared))
    }

    pub(super) fn is_gone(&self) -> bool {
        self.0.gone.get()
    }

    /// Returns the maximum number of concurrent requests.
    pub(super) fn max_streams(&self) -> u32 {
        // If the endpoint currently allows none, the connection is still used for one, instead of opening further
        // connections.
        self.0.max_streams.get().max(1)
    }

    /// Returns whether the endpoint accepts bodies on this connection and unread uploads do not hold its window.
    pub(super) fn has_credit(&self, now: Instant) -> bool {
        self.0.traffic.has_credit(now)
    }

    /// Returns whether the window is currently almost used up.
    pub(super) fn is_short(&self) -> bool {
        self.0.traffic.is_short()
    }

    /// Sends a request and returns the response as soon as its head has arrived. The body holds `slot`, the request's
    /// slot on the connection.
    pub(super) async fn round_trip<S: Debug + 'static>(
        &self,
        hop: &Sender<'_>,
        request: &Request,
        body: &mut Body,
        slot: S,
    ) -> Result<Response, Unanswered> {
        let busy = Busy::new(&self.0);
        let request = prepare(hop, request, body).map_err(Unanswered::Failed)?;
        let mut sender = self.0.sender.clone();
        if poll_fn(|cx| sender.poll_ready(cx)).await.is_err() {
            return Err(Unanswered::NotSent);
        }
        let end = body.is_end_stream();
        let (response, stream) = match sender.send_request(request, end) {
            Ok(sent) => sent,
            // The connection has ended in the meantime; other errors are caused by the request.
            Err(error) if error.is_io() || error.is_go_away() => {
                return Err(Unanswered::NotSent);
            }
            Err(error) => return Err(Unanswered::Failed(failed(error))),
        };
        let upload = (!end).then(|| Sending::new(body.take(), stream, &self.0.outflow));
        let (response, upload) = answered(hop.interim, response, upload)
            .await
            .map_err(Unanswered::Failed)?;
        let (parts, stream) = response.into_parts();
        let mut fields = Fields::from_map(&parts.headers);
        let length = http1::settle_length(&mut fields)
            .map_err(|error| Unanswered::Failed(ProxyError::UpstreamHead(error)))?;
        let body = if stream.is_end_stream() {
            Body::empty()
        } else {
            Body::source(Box::new(ResponseBody {
                body: Receiving::new(stream, length),
                _upload: upload.map(Upload::start),
                _busy: busy,
                _slot: slot,
            }))
        };
        Ok(Response {
            status: parts.status,
            fields,
            body,
        })
    }
}

/// A request in progress. It keeps the connection open and monitored by keepalives.
#[derive(Debug)]
struct Busy(Rc<Shared>);

impl Busy {
    fn new(shared: &Rc<Shared>) -> Self {
        shared.busy.set(shared.busy.get() + 1);
        Self(Rc::clone(shared))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.set(self.0.busy.get() - 1);
    }
}

/// Waits for the response's head; also returns the unsent rest of the request.
async fn answered(
    interim: Option<&dyn Interim>,
    response: ResponseFuture,
    mut upload: Option<Sending>,
) -> Result<(http::Response<RecvStream>, Option<Sending>), ProxyError> {
    let mut response = pin!(response);
    let head = poll_fn(|cx| {
        if let Some(sending) = &mut upload {
            match sending.poll(cx) {
                // The client's error takes precedence over its consequences.
                Poll::Ready(Err(Unsent::Body(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(_) => upload = None,
                Poll::Pending => {}
            }
        }
        while let Poll::Ready(Some(Ok(head))) = response.poll_informational(cx) {
            if let Some(interim) = interim {
                interim.send(head.status(), &Fields::from_map(head.headers()));
            }
        }
        response.as_mut().poll(cx).map_err(failed)
    });
    let head = head.await;
    if head.is_err()
        && let Some(sending) = &mut upload
    {
        sending.reset(Reason::CANCEL);
    }
    Ok((head?, upload))
}

/// Driver of a connection.
struct Driver {
    connection: Connection<Wire<Io>, Parcel>,
    ping: Option<PingPong>,
    keepalive: Keepalive,
    traffic: Rc<Traffic>,
    /// A weak reference, so that the driver does not keep the connection open.
    shared: Weak<Shared>,
}

impl Driver {
    fn new(
        mut connection: Connection<Wire<Io>, Parcel>,
        keepalive: Duration,
        traffic: Rc<Traffic>,
        shared: Weak<Shared>,
    ) -> Self {
        Self {
            ping: connection.ping_pong(),
            connection,
            keepalive: Keepalive::every(keepalive),
            traffic,
            shared,
        }
    }

    async fn run(mut self) {
        let ended = poll_fn(|cx| self.poll(cx)).await;
        if let Some(shared) = self.shared.upgrade() {
            shared.gone.set(true);
        }
        if let Err(why) = ended {
            tracing::debug!(why, "upstream HTTP/2 connection ended");
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        self.traffic.begin_turn();
        loop {
            if let Poll::Ready(ended) = Pin::new(&mut self.connection).poll(cx) {
                return Poll::Ready(ended.map_err(|error| error.to_string()));
            }
            if self.traffic.is_flooded() {
                let why = "the endpoint sent too many frames without effect";
                return Poll::Ready(Err(why.to_owned()));
            }
            let shared = self.shared.upgrade();
            let busy = shared.is_some_and(|shared| {
                let streams = self.connection.max_concurrent_send_streams();
                shared
                    .max_streams
                    .set(u32::try_from(streams).unwrap_or(u32::MAX));
                // Fails immediately after a GOAWAY.
                let mut sender = shared.sender.clone();
                let ready = sender.poll_ready(&mut Context::from_waker(Waker::noop()));
                shared.gone.set(matches!(ready, Poll::Ready(Err(_))));
                shared.busy.get() > 0
            });
            if self.traffic.take_activity() {
                self.keepalive.received();
            }
            let Some(ping) = &mut self.ping else {
                return Poll::Pending;
            };
            let _ = ping.poll_pong(cx);
            match ready!(self.keepalive.poll(busy, cx)) {
                KeepaliveStep::SendPing => {
                    // Fails if the last PING is unanswered; that PING serves the same purpose.
                    let _ = ping.send_ping(Ping::opaque());
                }
                KeepaliveStep::Dead => {
                    return Poll::Ready(Err("the endpoint does not answer PING frames".to_owned()));
                }
            }
        }
    }
}

/// Converts a request to HTTP/2.
fn prepare(
    hop: &Sender<'_>,
    request: &Request,
    body: &Body,
) -> Result<http::Request<()>, ProxyError> {
    if request.fields.contains(Known::Expect) {
        // The endpoint's window limits the upload, so the client need not wait.
        if let Some(interim) = hop.interim {
            interim.send(StatusCode::CONTINUE, &Fields::default());
        }
    }
    let mut converted = http2_request(request, hop.cluster.tls().is_some())?;
    set_length(&mut converted, body);
    if request.version < Version::HTTP_2 && hop.is_in_mesh() {
        let name = HeaderName::from_static(Known::XMaglorHttpVersion.as_str());
        let value = HeaderValue::from_static(ORIGINAL_HTTP1);
        converted.headers_mut().insert(name, value);
    }
    Ok(converted)
}

fn failed(error: h2::Error) -> ProxyError {
    // After a GOAWAY, only streams that the endpoint has not processed end with these errors.
    let unseen = error.reason() == Some(Reason::REFUSED_STREAM)
        || (error.is_go_away() && error.reason() == Some(Reason::NO_ERROR));
    if unseen && error.is_remote() {
        return ProxyError::UpstreamRefused;
    }
    ProxyError::UpstreamHttp2(error)
}

/// Converts a request to HTTP/2. The value of `host` becomes part of the target.
fn http2_request(request: &Request, tls: bool) -> Result<http::Request<()>, ProxyError> {
    let bad = |()| ProxyError::DownstreamHead(HeadError::Target);
    let mut uri = UriParts::default();
    uri.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
    let host = request.fields.get(Known::Host).unwrap_or_default();
    uri.authority = Some(host.try_into().map_err(|_| bad(()))?);
    let target = match request.path_and_query() {
        b"" => b"/",
        target => target,
    };
    uri.path_and_query = Some(target.try_into().map_err(|_| bad(()))?);
    let mut converted = http::Request::new(());
    *converted.method_mut() = request.method.clone();
    *converted.uri_mut() = Uri::from_parts(uri).map_err(|_| bad(()))?;
    *converted.version_mut() = Version::HTTP_2;
    *converted.headers_mut() = request.fields.to_map(&LEFT_OUT);
    let te = converted.headers().get(TE);
    if te.is_some_and(|te| te != "trailers") {
        converted.headers_mut().remove(TE);
    }
    Ok(converted)
}

/// Fields that are transferred elsewhere, or have no meaning in HTTP/2 (RFC 9113, section 8.2.2).
const LEFT_OUT: [Known; 7] = {
    let [a, b, c, d, e] = CONNECTION_FIELDS;
    [Known::Host, Known::Expect, a, b, c, d, e]
};

/// Sets the content length if it is known. A length of 0 is set only if the method expects a body (RFC 9110, section
/// 8.6).
fn set_length(request: &mut http::Request<()>, body: &Body) {
    let Some(length) = body.size_hint().exact() else {
        return;
    };
    let expected = matches!(
        *request.method(),
        Method::POST | Method::PUT | Method::PATCH
    );
    if length > 0 || expected {
        let entry = request.headers_mut().entry(CONTENT_LENGTH);
        entry.or_insert_with(|| HeaderValue::from(length));
    }
}

/// The rest of an upload after the response has begun. A task sends it, and is aborted when this is dropped.
#[derive(Debug)]
struct Upload(AbortHandle);

impl Upload {
    fn start(mut sending: Sending) -> Self {
        let task = tokio::task::spawn_local(async move {
            if let Err(Unsent::Body(_)) = poll_fn(|cx| sending.poll(cx)).await {
                sending.reset(Reason::CANCEL);
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Body of a response. It holds the request's slot on the connection.
#[derive(Debug)]
struct ResponseBody<S> {
    body: Receiving,
    _upload: Option<Upload>,
    _busy: Busy,
    _slot: S,
}

impl<S: Debug> Source for ResponseBody<S> {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let frame = ready!(self.body.poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            memory::adopt(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame.map(|frame| {
            frame.map_err(|error| match error.reason() {
                // RFC 9113 §8.1: a reset without error may follow a complete response, but does not complete
                // one.
                Some(Reason::NO_ERROR | Reason::CANCEL) => {
                    ProxyError::UpstreamBody(FramingError::UnexpectedEof)
                }
                _ => ProxyError::UpstreamHttp2(error),
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
