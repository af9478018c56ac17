//! One HTTP/2 connection from a client, by hyper.

use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::Instant;

use super::LEAVE_AFTER;
use super::farewell::Farewell;
use super::service::{RequestContext, Service};
use super::streams::{self, Streams};
use crate::codec::{self, HeadError};
use crate::error::ProxyError;
use crate::fields::Fields;
use crate::io::{Rewind, Stream};
use crate::message::{Body, Request, Response, Source};
use crate::timer::Timer;
use crate::upstream::LocalExecutor;

/// Window of a stream: memory at the edge scales with it.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Window of a connection, so that one slow stream does not stop the others.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// What may wait to be sent on a stream.
const SEND_BUFFER: usize = 64 * 1024;
const MAX_FRAME: u32 = 16 * 1024;
/// Streams that a client may reset before the proxy has answered them (rapid reset).
const MAX_PENDING_RESETS: usize = 100;
const MAX_LOCAL_RESETS: usize = 1024;
const PING_INTERVAL: Duration = Duration::from_secs(60);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves a connection until it ends.
pub(crate) async fn serve(stream: Stream, service: Rc<Service>) {
    let settings = service.settings();
    let header_list = u32::try_from(settings.max_header_bytes).unwrap_or(u32::MAX);
    let mut builder = Builder::new(LocalExecutor);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(settings.max_concurrent_streams)
        .max_header_list_size(header_list)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_frame_size(MAX_FRAME)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_LOCAL_RESETS)
        .auto_date_header(false)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let streams = Rc::new(Streams::default());
    let handler = {
        let (service, streams) = (Rc::clone(&service), Rc::clone(&streams));
        service_fn(move |request| {
            let (service, busy) = (Rc::clone(&service), Streams::enter(&streams));
            async move {
                let response = handle(&service, request).await;
                drop(busy);
                Ok::<_, Infallible>(response)
            }
        })
    };
    let farewell = Farewell::default();
    let io = TokioIo::new(farewell.over(Rewind::new(stream.io, stream.prefix)));
    let mut connection = pin!(builder.serve_connection(io, handler));
    let mut leave = pin!(async {
        streams::end(&service, &streams).await;
        farewell.say();
        tokio::time::sleep(LEAVE_AFTER).await;
    });
    let mut leaving = false;
    let result = poll_fn(|cx| {
        if !leaving && leave.as_mut().poll(cx).is_ready() {
            leaving = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    });
    if let Err(error) = result.await {
        tracing::debug!(client = %service.client.address, %error, "HTTP/2 connection failed");
    }
}

async fn handle(service: &Rc<Service>, request: http::Request<Incoming>) -> http::Response<Body> {
    if request.headers().len() > service.settings().max_headers {
        let error = ProxyError::DownstreamHead(HeadError::TooManyHeaders);
        return outgoing(service.refuse(&error, Version::HTTP_2));
    }
    if request.method() == Method::CONNECT {
        // A stream cannot become a tunnel here.
        return outgoing(service.refuse(&ProxyError::ConnectNotAllowed, Version::HTTP_2));
    }
    let context = RequestContext {
        started: Instant::now(),
        timer: Rc::new(Timer::new()),
        interim: None,
    };
    let bodiless = request.method() == Method::HEAD;
    let (mut request, body) = incoming(request);
    if let Err(error) = check(&mut request) {
        return outgoing(service.refuse(&ProxyError::DownstreamHead(error), Version::HTTP_2));
    }
    let mut response = service.handle(request, body, context).await;
    if response.status == StatusCode::SWITCHING_PROTOCOLS {
        // Cannot be asked for by HTTP/2, hence never forwarded.
        response.status = StatusCode::BAD_GATEWAY;
    }
    if bodiless {
        response.body.leave_out();
    }
    outgoing(response)
}

/// What hyper lets pass and HTTP/1.1 does not, which may be spoken behind this proxy.
fn check(request: &mut Request) -> Result<(), HeadError> {
    let authority = request.target.authority;
    let authority = authority.map(|authority| request.fields.slice(authority));
    codec::check_authority(authority, &request.fields)?;
    // RFC 9113 §8.3.1: of OPTIONS only.
    if request.path_and_query() == b"*" && request.method != Method::OPTIONS {
        return Err(HeadError::Target);
    }
    codec::settle_length(&mut request.fields)
}

fn incoming(request: http::Request<Incoming>) -> (Request, Body) {
    let (parts, body) = request.into_parts();
    let mut request = Request {
        method: parts.method,
        target: codec::Target::default(),
        version: parts.version,
        fields: Fields::from_map(&parts.headers),
    };
    if let Some(target) = parts.uri.path_and_query() {
        request.set_path_and_query(target.as_str().as_bytes());
    }
    if let Some(authority) = parts.uri.authority() {
        request.target.authority = Some(request.fields.add_text(authority.as_str().as_bytes()));
    }
    let body = if body.is_end_stream() {
        Body::empty()
    } else {
        Body::source(Box::new(RequestBody(body)))
    };
    (request, body)
}

fn outgoing(mut response: Response) -> http::Response<Body> {
    // hyper asks an empty body for nothing.
    response.body.settle_if_ended();
    let mut converted = http::Response::new(response.body);
    *converted.status_mut() = response.status;
    *converted.headers_mut() = response.fields.to_map(&[]);
    converted
}

/// The body of a request.
#[derive(Debug)]
struct RequestBody(Incoming);

impl Source for RequestBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let frame = ready!(Pin::new(&mut self.0).poll_frame(cx));
        // A reset without error is an end for hyper, wherever the body was.
        if frame.is_none() && !self.0.is_end_stream() {
            return Poll::Ready(Some(Err(ProxyError::ClientGone)));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(ProxyError::DownstreamHttp2)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
