//! One HTTP/2 connection from a client.
//!
//! The connection's task reads and writes; each request is handled by a task of its own.

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Ping, Reason, RecvStream};
use http::{Method, StatusCode, Version};
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::Instant;

use super::LEAVE_AFTER;
use super::farewell::{Farewell, Over};
use super::service::{RequestContext, Service};
use super::streams::{self, Busy, Streams};
use crate::codec::{self, HeadError};
use crate::error::ProxyError;
use crate::fields::{Fields, Known};
use crate::http2::{
    self, CONNECTION_WINDOW, DATA_FRAME_BUDGET, MAX_FRAME, Outflow, Parcel, Receiving, SEND_BUFFER,
    SERVER_PULSE, STREAM_WINDOW, Sending, Traffic, Unsent, Wire,
};
use crate::io::{Io, Rewind, Stream};
use crate::memory;
use crate::message::{Body, Interim, Request, Response, Source};
use crate::pulse::{Beat, Pulse};
use crate::timer::Timer;

/// Streams that a client may reset before the proxy has answered them (rapid reset).
const MAX_PENDING_RESETS: usize = 100;
const MAX_LOCAL_RESETS: usize = 1024;

/// Serves a connection until it ends.
pub(crate) async fn serve(stream: Stream, service: Rc<Service>) {
    let farewell = Farewell::default();
    let (wire, traffic) = Wire::of_server(farewell.over(Rewind::new(stream.io, stream.prefix)));
    let streams = Rc::new(Streams::default());
    let mut leave = pin!(async {
        // Clients may connect before they have a request.
        let fresh = service.settings().idle_timeout;
        streams::end(&service, &streams, fresh).await;
        farewell.say();
        tokio::time::sleep(LEAVE_AFTER).await;
    });
    // Where the preface has not come yet, it has the time of a head.
    let limit = service.settings().header_timeout;
    let handshake = builder(&service).handshake(wire);
    // Boxed: it ends here, and the connection goes on in this future.
    let mut handshake = Box::pin(tokio::time::timeout(limit, handshake));
    let shaken = poll_fn(|cx| {
        traffic.begin_turn();
        match handshake.as_mut().poll(cx) {
            Poll::Ready(shaken) => Poll::Ready(shaken.ok()),
            Poll::Pending => leave.as_mut().poll(cx).map(|()| None),
        }
    });
    let shaken = shaken.await;
    drop(handshake);
    let result = match shaken {
        None => return,
        Some(Err(error)) => Err(error),
        Some(Ok(connection)) => {
            let mut driver = Driver::new(connection, &traffic);
            let mut leaving = false;
            let ended = poll_fn(|cx| {
                if !leaving && leave.as_mut().poll(cx).is_ready() {
                    leaving = true;
                    driver.connection.graceful_shutdown();
                }
                driver.poll(cx, &service, &streams)
            });
            ended.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(client = %service.client.address, %error, "HTTP/2 connection failed");
    }
}

fn builder(service: &Service) -> Builder {
    let settings = service.settings();
    let header_list = u32::try_from(settings.max_header_bytes).unwrap_or(u32::MAX);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(settings.max_concurrent_streams)
        .max_header_list_size(header_list)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .data_frame_budget(DATA_FRAME_BUDGET)
        .max_send_buffer_size(SEND_BUFFER)
        .max_frame_size(MAX_FRAME)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(Some(MAX_LOCAL_RESETS));
    builder
}

/// The connection, its keep-alive and its limits.
struct Driver<'a> {
    connection: Connection<Wire<Over<Rewind<Io>>>, Parcel>,
    outflow: Rc<Outflow>,
    ping: Option<h2::PingPong>,
    pulse: Pulse,
    traffic: &'a Traffic,
    /// The client was told that it sends too much.
    calmed: bool,
}

impl<'a> Driver<'a> {
    fn new(
        mut connection: Connection<Wire<Over<Rewind<Io>>>, Parcel>,
        traffic: &'a Traffic,
    ) -> Self {
        Self {
            ping: connection.ping_pong(),
            connection,
            outflow: Rc::default(),
            pulse: Pulse::every(SERVER_PULSE),
            traffic,
            calmed: false,
        }
    }

    /// Ready when the connection has ended.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        service: &Rc<Service>,
        streams: &Rc<Streams>,
    ) -> Poll<Result<(), h2::Error>> {
        self.traffic.begin_turn();
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    let busy = Streams::enter(streams);
                    let responder = Responder {
                        respond: RefCell::new(respond),
                        outflow: Rc::clone(&self.outflow),
                    };
                    // Boxed: a future of kilobytes would be moved twice on its way into a task.
                    let answer = Box::pin(answer(Rc::clone(service), request, responder, busy));
                    tokio::task::spawn_local(memory::guard_stream(answer));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending if self.traffic.is_flooded() && !self.calmed => {
                    tracing::debug!("HTTP/2 client sends too many frames that carry nothing");
                    self.calmed = true;
                    self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                }
                Poll::Pending if self.poll_pulse(cx) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether there is something to be sent, or to be done.
    fn poll_pulse(&mut self, cx: &mut Context<'_>) -> bool {
        if self.traffic.take_heard() {
            self.pulse.heard();
        }
        let Some(ping) = &mut self.ping else {
            return false;
        };
        let _ = ping.poll_pong(cx);
        match self.pulse.poll(true, cx) {
            Poll::Pending => return false,
            Poll::Ready(Beat::Ask) => {
                // Fails where the last one is not yet answered, which is asking, too.
                let _ = ping.send_ping(Ping::opaque());
            }
            Poll::Ready(Beat::Dead) => {
                self.ping = None;
                self.connection.abrupt_shutdown(Reason::NO_ERROR);
            }
        }
        true
    }
}

/// Where responses go; shared, because informational ones are sent from the depth of the pipeline.
struct Responder {
    respond: RefCell<SendResponse<Parcel>>,
    outflow: Rc<Outflow>,
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Responder")
    }
}

impl Interim for Responder {
    fn send(&self, status: StatusCode, fields: &Fields) {
        let mut response = http::Response::new(());
        *response.status_mut() = status;
        *response.headers_mut() = fields.to_map(&crate::mux::CONNECTION_FIELDS);
        // Fails where the stream is over.
        let _ = self.respond.borrow_mut().send_informational(response);
    }
}

/// One request and its response.
async fn answer(
    service: Rc<Service>,
    request: http::Request<RecvStream>,
    responder: Responder,
    _busy: Busy,
) {
    let responder = Rc::new(responder);
    let response = {
        let mut handling = pin!(handle(&service, request, &responder));
        let handled = poll_fn(|cx| match handling.as_mut().poll(cx) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => {
                let reset = responder.respond.borrow_mut().poll_reset(cx);
                reset.map(|_| None)
            }
        });
        handled.await
    };
    // Dropping the pipeline's future has cancelled the request and logged it.
    if let Some(response) = response {
        deliver(&responder, response).await;
    }
}

async fn handle(
    service: &Rc<Service>,
    request: http::Request<RecvStream>,
    responder: &Rc<Responder>,
) -> Response {
    if request.headers().len() > service.settings().max_headers {
        let error = ProxyError::DownstreamHead(HeadError::TooManyHeaders);
        return service.refuse(&error, Version::HTTP_2);
    }
    if request.method() == Method::CONNECT {
        // A stream cannot become a tunnel here.
        return service.refuse(&ProxyError::ConnectNotAllowed, Version::HTTP_2);
    }
    // Before its head is copied: in the form of HPACK it may be a hundredth of its size.
    if service.worker.holders.refuses() {
        return service.refuse(&ProxyError::MemoryBudget, Version::HTTP_2);
    }
    let context = RequestContext {
        started: Instant::now(),
        timer: Rc::new(Timer::new()),
        interim: Some(Rc::<Responder>::clone(responder) as Rc<dyn Interim>),
    };
    let bodiless = request.method() == Method::HEAD;
    let (request, body) = match incoming(request) {
        Ok(incoming) => incoming,
        Err(error) => {
            return service.refuse(&ProxyError::DownstreamHead(error), Version::HTTP_2);
        }
    };
    let mut response = service.handle(request, body, context).await;
    if response.status == StatusCode::SWITCHING_PROTOCOLS {
        // Cannot be asked for by HTTP/2, hence never forwarded.
        response.status = StatusCode::BAD_GATEWAY;
    }
    if bodiless {
        response.body.leave_out();
    }
    response
}

/// What h2 lets pass and HTTP/1.1 does not, which may be spoken behind this proxy. The length of the body, where
/// it is known.
fn check(request: &mut Request) -> Result<Option<u64>, HeadError> {
    let authority = request.target.authority;
    let authority = authority.map(|authority| request.fields.slice(authority));
    codec::check_authority(authority, &request.fields)?;
    // RFC 9113 §8.3.1: of OPTIONS only.
    if request.path_and_query() == b"*" && request.method != Method::OPTIONS {
        return Err(HeadError::Target);
    }
    codec::settle_length(&mut request.fields)
}

fn incoming(request: http::Request<RecvStream>) -> Result<(Request, Body), HeadError> {
    let (parts, stream) = request.into_parts();
    // RFC 9113 §8.3.1: neither is empty, and a path begins with a slash.
    let target = parts.uri.path_and_query().map_or("", |path| path.as_str());
    if parts.uri.scheme_str() == Some("") || !(target.starts_with('/') || target == "*") {
        return Err(HeadError::Target);
    }
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
    let length = check(&mut request)?;
    let body = if stream.is_end_stream() {
        Body::empty()
    } else {
        Body::source(Box::new(RequestBody(Receiving::new(stream, length))))
    };
    Ok((request, body))
}

async fn deliver(responder: &Responder, response: Response) {
    let Response {
        status,
        mut fields,
        mut body,
    } = response;
    // What a rule has added: h2 would refuse the whole.
    http2::remove_connection_fields(&mut fields);
    let end = body.is_end_stream();
    if !end
        && !fields.contains(Known::ContentLength)
        && let Some(length) = body.size_hint().exact()
    {
        codec::set_content_length(&mut fields, length);
    }
    // An empty body is asked for nothing.
    body.settle_if_ended();
    let mut converted = http::Response::new(());
    *converted.status_mut() = status;
    *converted.headers_mut() = fields.to_map(&[]);
    let sent = responder.respond.borrow_mut().send_response(converted, end);
    let stream = match sent {
        Ok(stream) if !end => stream,
        Ok(_) => return,
        Err(error) => {
            tracing::debug!(%error, "HTTP/2 response not sent");
            responder
                .respond
                .borrow_mut()
                .send_reset(Reason::INTERNAL_ERROR);
            return;
        }
    };
    let mut sending = Sending::new(body, stream, &responder.outflow);
    if let Err(Unsent::Body(_)) = poll_fn(|cx| sending.poll(cx)).await {
        // What was good so far still leaves, the head first of all: a reset would overtake it.
        tokio::task::yield_now().await;
        sending.reset(Reason::INTERNAL_ERROR);
    }
}

/// The body of a request.
#[derive(Debug)]
struct RequestBody(Receiving);

impl Source for RequestBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let frame = ready!(self.0.poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            frame.map_err(|error| match error.reason() {
                Some(Reason::NO_ERROR | Reason::CANCEL) => ProxyError::ClientGone,
                _ => ProxyError::DownstreamHttp2(error),
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
