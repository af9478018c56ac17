//! A connection that many requests share, in HTTP/2 by hyper.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Parts as UriParts, Scheme};
use http::{HeaderName, HeaderValue, StatusCode, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::multiplexed::{Slot, Unanswered};
use super::send::Sender;
use crate::codec::{self, FramingError, HeadError};
use crate::error::ProxyError;
use crate::fields::{Fields, Known};
use crate::io::Io;
use crate::message::{Body, CARRIED_HTTP1, Request, Response, Source};

/// Window of a stream: memory at the edge scales with it.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Window of a connection, so that one slow stream does not stop the others.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const MAX_FRAME: u32 = 16 * 1024;
const MAX_HEADER_LIST: u32 = 128 * 1024;
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module's documentation. Closed when it is dropped and its streams are done.
#[derive(Debug)]
pub(super) struct Http2 {
    sender: SendRequest<Body>,
    /// Streams at once that the endpoint allows, as far as it has said.
    max_streams: Rc<Cell<u32>>,
}

impl Http2 {
    /// Speaks over a connection.
    pub(super) async fn start(io: Io) -> Result<Self, ProxyError> {
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
        let max_streams = Rc::new(Cell::new(u32::MAX));
        let said = Rc::clone(&max_streams);
        // Ends when its last sender is dropped and its streams are done, or the endpoint closes.
        tokio::task::spawn_local(async move {
            let mut connection = pin!(connection);
            let ended = poll_fn(|cx| {
                let ended = connection.as_mut().poll(cx);
                if ended.is_pending() {
                    let streams = connection.current_max_send_streams();
                    said.set(u32::try_from(streams).unwrap_or(u32::MAX));
                }
                ended
            });
            if let Err(error) = ended.await {
                tracing::debug!(%error, "upstream HTTP/2 connection ended");
            }
        });
        Ok(Self {
            sender,
            max_streams,
        })
    }

    pub(super) fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }

    /// How many requests the endpoint takes at once.
    pub(super) fn max_streams(&self) -> u32 {
        // One that takes none now is asked all the same, rather than connected to again and again.
        self.max_streams.get().max(1)
    }

    /// Sends a request and returns the response as soon as its head is there.
    pub(super) async fn exchange(
        &self,
        hop: &Sender<'_>,
        request: &Request,
        body: Body,
        slot: Slot,
    ) -> Result<Response, Unanswered> {
        let (body, lent) = Lent::of(body);
        let request = prepare(hop, request, body).map_err(Unanswered::Failed)?;
        let mut sender = self.sender.clone();
        if sender.ready().await.is_err() {
            return Err(Unanswered::NotSent(Lent::back(lent)));
        }
        let response = match sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut error) => {
                return Err(match error.take_message() {
                    Some(_) => Unanswered::NotSent(Lent::back(lent)),
                    // The client's fault comes before what follows from it.
                    None => Unanswered::Failed(
                        Lent::failure(lent).unwrap_or_else(|| failed(error.into_error())),
                    ),
                });
            }
        };
        let (parts, body) = response.into_parts();
        let mut fields = Fields::from_map(&parts.headers);
        codec::settle_length(&mut fields)
            .map_err(|error| Unanswered::Failed(ProxyError::UpstreamHead(error)))?;
        let body = if body.is_end_stream() {
            Body::empty()
        } else {
            Body::source(Box::new(ResponseBody { body, _slot: slot }))
        };
        Ok(Response {
            status: parts.status,
            fields,
            body,
        })
    }
}

/// A request's body while hyper has it, which says of none why it has failed.
#[derive(Debug)]
struct Lent {
    body: Body,
    failure: Option<ProxyError>,
}

/// What is left of it here; nothing of one that is empty.
type Owner = Option<Rc<RefCell<Lent>>>;

impl Lent {
    fn of(body: Body) -> (Body, Owner) {
        if body.is_empty() {
            return (body, None);
        }
        let failure = None;
        let lent = Rc::new(RefCell::new(Self { body, failure }));
        (
            Body::source(Box::new(Borrowed(Rc::clone(&lent)))),
            Some(lent),
        )
    }

    /// The body, of which hyper has read nothing.
    fn back(owner: Owner) -> Body {
        owner.map_or_else(Body::empty, |lent| {
            std::mem::replace(&mut lent.borrow_mut().body, Body::empty())
        })
    }

    fn failure(owner: Owner) -> Option<ProxyError> {
        owner?.borrow_mut().failure.take()
    }
}

/// What hyper is given.
#[derive(Debug)]
struct Borrowed(Rc<RefCell<Lent>>);

impl Source for Borrowed {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let lent = &mut *self.0.borrow_mut();
        let frame = ready!(Pin::new(&mut lent.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            frame.map_err(|error| {
                lent.failure = Some(error);
                ProxyError::ClientGone
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.0.borrow().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.borrow().body.size_hint()
    }
}

/// The request as it leaves by HTTP/2.
fn prepare(
    hop: &Sender<'_>,
    request: &Request,
    body: Body,
) -> Result<http::Request<Body>, ProxyError> {
    if request.fields.contains(Known::Expect) {
        // The endpoint's window says how much it takes; the client need not wait.
        if let Some(interim) = hop.interim {
            interim.send(StatusCode::CONTINUE, &Fields::default());
        }
    }
    let mut converted = http2_request(request, body, hop.cluster.tls().is_some())?;
    if request.version < Version::HTTP_2 && hop.is_in_mesh() {
        let name = HeaderName::from_static(Known::XMaglorHttpVersion.as_str());
        let value = HeaderValue::from_static(CARRIED_HTTP1);
        converted.headers_mut().insert(name, value);
    }
    Ok(converted)
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
fn http2_request(
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
    *converted.version_mut() = Version::HTTP_2;
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
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        // RFC 9113 §8.1: a reset without error may follow a response, but does not end one. For hyper it does.
        if frame.is_none() && !self.body.is_end_stream() {
            let cut_off = ProxyError::UpstreamBody(FramingError::UnexpectedEof);
            return Poll::Ready(Some(Err(cut_off)));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(ProxyError::UpstreamHttp2)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
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
