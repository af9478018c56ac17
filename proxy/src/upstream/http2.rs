//! HTTP/2 connections of one worker to one endpoint.
//!
//! Streams share connections up to `max_concurrent_streams`; then another connection is opened. At
//! most one is being opened at a time, so that a burst does not become a burst of handshakes.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http::uri::{Parts as UriParts, Scheme};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio::time::Instant;

use super::Open;
use crate::codec::HeadError;
use crate::error::ProxyError;
use crate::fields::{Fields, Known};
use crate::io::Io;
use crate::message::{Body, Request, Response, Source};

/// Window of a stream: memory at the edge scales with it.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Window of a connection, so that one slow stream does not stop the others.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const MAX_FRAME: u32 = 16 * 1024;
const MAX_HEADER_LIST: u32 = 128 * 1024;
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Http2 {
    connections: RefCell<Vec<Rc<Connection>>>,
    opening: Mutex<()>,
    /// The endpoint has chosen HTTP/1.1 when it could last choose.
    declined: Cell<bool>,
    max_streams: u32,
    /// Told when a stream has ended.
    returned: Rc<Notify>,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    streams: Cell<u32>,
    idle_since: Cell<Instant>,
    /// It has turned a request away.
    gone: Cell<bool>,
    returned: Rc<Notify>,
    _open: Open,
}

impl Connection {
    fn is_gone(&self) -> bool {
        self.gone.get() || self.sender.is_closed()
    }
}

/// A place on a connection; given back on drop.
#[derive(Debug)]
pub(crate) struct Slot(Rc<Connection>);

impl Drop for Slot {
    fn drop(&mut self) {
        let Connection {
            streams, returned, ..
        } = &*self.0;
        streams.set(streams.get() - 1);
        returned.notify_one();
    }
}

impl Http2 {
    pub(crate) fn new(max_streams: u32, returned: Rc<Notify>) -> Self {
        Self {
            connections: RefCell::default(),
            opening: Mutex::new(()),
            declined: Cell::new(false),
            max_streams,
            returned,
        }
    }

    /// A place on a live connection; `connect` makes a new one where there is none.
    pub(crate) async fn slot(
        &self,
        now: Instant,
        connect: impl Future<Output = Result<(Io, Open), ProxyError>>,
    ) -> Result<Slot, ProxyError> {
        if let Some(slot) = self.free_slot(now) {
            return Ok(slot);
        }
        let _turn = self.opening.lock().await;
        if let Some(slot) = self.free_slot(now) {
            return Ok(slot);
        }
        let (io, open) = connect.await?;
        self.adopt(io, now, open).await
    }

    /// Whether the endpoint has chosen HTTP/1.1 when it could last choose.
    pub(crate) fn is_declined(&self) -> bool {
        self.declined.get()
    }

    /// The turn to open a connection whose endpoint may choose HTTP/2. Nobody waits where it last chose
    /// otherwise.
    pub(crate) async fn turn(&self) -> Opening<'_> {
        let turn = match self.is_declined() {
            true => None,
            false => Some(self.opening.lock().await),
        };
        Opening {
            // Those who have waited for somebody who has learnt that need not take turns, either.
            _turn: turn.filter(|_| !self.is_declined()),
            declined: &self.declined,
        }
    }

    /// Makes a connection of a stream that speaks HTTP/2, and takes a place on it.
    pub(crate) async fn adopt(&self, io: Io, now: Instant, open: Open) -> Result<Slot, ProxyError> {
        let connection = Rc::new(handshake(io, now, open, Rc::clone(&self.returned)).await?);
        self.connections.borrow_mut().push(Rc::clone(&connection));
        Ok(occupy(&connection, now))
    }

    /// A place on a connection that is there already.
    pub(crate) fn free_slot(&self, now: Instant) -> Option<Slot> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| !connection.is_gone());
        let free = connections
            .iter()
            .filter(|c| c.streams.get() < self.max_streams);
        free.min_by_key(|connection| connection.streams.get())
            .map(|c| occupy(c, now))
    }

    /// Closes connections without streams that have idled too long.
    pub(crate) fn sweep(&self, now: Instant, idle_timeout: Duration) {
        self.connections.borrow_mut().retain(|connection| {
            let busy = connection.streams.get() > 0;
            if busy {
                connection.idle_since.set(now);
            }
            let fresh = now - connection.idle_since.get() < idle_timeout;
            !connection.is_gone() && (busy || fresh)
        });
    }
}

/// See [`Http2::turn`].
pub(crate) struct Opening<'a> {
    _turn: Option<MutexGuard<'a, ()>>,
    declined: &'a Cell<bool>,
}

impl Opening<'_> {
    /// The endpoint has chosen.
    pub(crate) fn learn(&self, http2: bool) {
        self.declined.set(!http2);
    }
}

fn occupy(connection: &Rc<Connection>, now: Instant) -> Slot {
    connection.streams.set(connection.streams.get() + 1);
    connection.idle_since.set(now);
    Slot(Rc::clone(connection))
}

/// Why a request has no response.
#[derive(Debug)]
pub(crate) enum Unanswered {
    Failed(ProxyError),
    /// It was not sent: the endpoint has let its connection go (GOAWAY), which may show only now.
    NotSent(Box<http::Request<Body>>),
}

impl Slot {
    /// Sends a request and returns the response as soon as its head is there.
    pub(crate) async fn exchange(
        self,
        request: http::Request<Body>,
    ) -> Result<Response, Unanswered> {
        let mut sender = self.0.sender.clone();
        if sender.ready().await.is_err() {
            return Err(self.not_sent(request));
        }
        let response = match sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut error) => {
                return Err(match error.take_message() {
                    Some(request) => self.not_sent(request),
                    None => Unanswered::Failed(failed(error.into_error())),
                });
            }
        };
        let (parts, body) = response.into_parts();
        let body = if body.is_end_stream() {
            Body::empty()
        } else {
            Body::source(Box::new(ResponseBody { body, _slot: self }))
        };
        Ok(Response {
            status: parts.status,
            fields: Fields::from_map(&parts.headers),
            body,
        })
    }

    fn not_sent(&self, request: http::Request<Body>) -> Unanswered {
        self.0.gone.set(true);
        Unanswered::NotSent(Box::new(request))
    }
}

impl From<Unanswered> for ProxyError {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Failed(error) => error,
            Unanswered::NotSent(_) => Self::UpstreamRefused,
        }
    }
}

fn failed(error: hyper::Error) -> ProxyError {
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<h2::Error>() {
            // After a GOAWAY only streams that the endpoint has not looked at end like this.
            let unseen = error.reason() == Some(h2::Reason::REFUSED_STREAM)
                || (error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR));
            if unseen && error.is_remote() {
                return ProxyError::UpstreamRefused;
            }
        }
        cause = inner.source();
    }
    ProxyError::UpstreamHttp2(error)
}

/// A request as HTTP/2 has it: what HTTP/1.1 says in `host` stands in the target.
pub(crate) fn http2_request(
    request: &Request,
    body: Body,
    tls: bool,
) -> Result<http::Request<Body>, ProxyError> {
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
    let mut converted = http::Request::new(body);
    *converted.method_mut() = request.method.clone();
    *converted.uri_mut() = Uri::from_parts(uri).map_err(|_| bad(()))?;
    *converted.version_mut() = http::Version::HTTP_2;
    *converted.headers_mut() = request.fields.to_map(&[Known::Host, Known::Expect]);
    Ok(converted)
}

/// A response's body; holds its place on the connection.
#[derive(Debug)]
struct ResponseBody {
    body: Incoming,
    _slot: Slot,
}

impl Source for ResponseBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        Pin::new(&mut self.body)
            .poll_frame(cx)
            .map_err(ProxyError::UpstreamHttp2)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

async fn handshake(
    io: Io,
    now: Instant,
    open: Open,
    returned: Rc<Notify>,
) -> Result<Connection, ProxyError> {
    let (sender, connection) = Builder::new(LocalExecutor)
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(MAX_FRAME)
        .max_header_list_size(MAX_HEADER_LIST)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .handshake(TokioIo::new(io))
        .await
        .map_err(ProxyError::UpstreamHttp2)?;
    // Ends when its last sender is dropped and its streams are done, or the endpoint closes.
    tokio::task::spawn_local(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "upstream HTTP/2 connection ended");
        }
    });
    Ok(Connection {
        sender,
        streams: Cell::new(0),
        idle_since: Cell::new(now),
        gone: Cell::new(false),
        returned,
        _open: open,
    })
}

/// Runs hyper's tasks on the worker's own thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
