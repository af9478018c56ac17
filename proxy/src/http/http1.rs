//! One HTTP/1.1 connection from a client.
//!
//! A connection alternates between two shapes. Busy, it is a boxed [`session`] with buffers, a
//! timer and the whole request pipeline in its future. Idle for [`PARK_AFTER`], it is its bare
//! socket in a future of a few hundred bytes, and becomes a session again when bytes arrive.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, StatusCode, Version};
use http_body::{Body as _, Frame, SizeHint};
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use super::service::{RequestContext, Service};
use crate::codec::{
    self, Decoder, Framing, HeadError, Limits, Output, Piece, RequestHead, poll_read_body,
};
use crate::error::ProxyError;
use crate::fields::{Fields, Known};
use crate::io::{Io, Stream};
use crate::message::{Account, Body, Interim, Request, Response, Source};
use crate::timer::Timer;

/// An idle connection keeps its buffers this long.
const PARK_AFTER: Duration = Duration::from_millis(500);
/// A client may pipeline so many bytes while its request is being answered.
const MAX_AHEAD: usize = 64 * 1024;
/// After a response that ends the connection, what the client still sends is read (and dropped)
/// this long and this much, so that a reset does not overtake the response.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1024 * 1024;

/// Serves a connection until it ends.
pub(crate) async fn serve(mut stream: Stream, service: Rc<Service>) {
    loop {
        match Box::pin(session(stream, &service)).await {
            End::Closed => return,
            End::Idle(io) => {
                if !parked(&io, &service).await {
                    return;
                }
                stream = Stream { io, prefix: Bytes::new(), guard: None };
            }
            End::Tunnel(tunnel) => {
                let Tunnel { downstream, upstream, record } = *tunnel;
                return Box::pin(service.tunnel(downstream, upstream, record)).await;
            }
        }
    }
}

/// How a session ends.
enum End {
    Closed,
    Idle(Io),
    Tunnel(Box<Tunnel>),
}

struct Tunnel {
    downstream: Stream,
    upstream: Stream,
    record: Option<Box<dyn Account>>,
}

/// Waits for the next request on a bare socket; false = the connection is to be closed.
async fn parked(io: &Io, service: &Service) -> bool {
    let limit = service.settings().idle_timeout.saturating_sub(PARK_AFTER);
    let mut timeout = pin!(tokio::time::sleep(limit));
    poll_fn(|cx| {
        if service.is_draining() {
            return Poll::Ready(false);
        }
        if io.tcp().poll_read_ready(cx).is_ready() {
            return Poll::Ready(true);
        }
        timeout.as_mut().poll(cx).map(|()| false)
    })
    .await
}

/// Serves requests until the connection closes, idles or becomes a tunnel.
async fn session(stream: Stream, service: &Rc<Service>) -> End {
    let shared = Rc::new(Shared::new(stream));
    loop {
        let head = match poll_fn(|cx| shared.poll_request(cx, service)).await {
            Next::Close => return End::Closed,
            Next::Idle => return shared.into_io().map_or(End::Closed, End::Idle),
            Next::Refuse(error) => {
                refuse(&shared, service, &error).await;
                return End::Closed;
            }
            Next::Request(head) => head,
        };
        match exchange(&shared, service, head).await {
            After::Close => return End::Closed,
            After::Linger => {
                shared.linger().await;
                return End::Closed;
            }
            After::NextRequest => {}
            After::Tunnel(upstream, record) => {
                let Some(downstream) = Shared::into_stream(shared) else { return End::Closed };
                return End::Tunnel(Box::new(Tunnel { downstream, upstream, record }));
            }
        }
    }
}

/// What follows a response.
enum After {
    Close,
    Linger,
    NextRequest,
    Tunnel(Stream, Option<Box<dyn Account>>),
}

/// One request and its response.
async fn exchange(shared: &Rc<Shared>, service: &Rc<Service>, head: RequestHead) -> After {
    let asked = Asked {
        method: head.method.clone(),
        version: head.version,
        keep_alive: head.keep_alive,
    };
    let (request, body) = shared.begin(head);
    let context = RequestContext {
        started: Instant::now(),
        timer: Rc::clone(&shared.timer),
        interim: (asked.version == Version::HTTP_11)
            .then(|| -> Rc<dyn Interim> { Rc::<Shared>::clone(shared) }),
    };
    let response = {
        let mut handling = pin!(service.handle(request, body, context));
        poll_fn(|cx| {
            if let Poll::Ready(response) = handling.as_mut().poll(cx) {
                return Poll::Ready(Some(response));
            }
            shared.poll_watch(cx).map(|()| None)
        })
        .await
    };
    // Dropping the pipeline's future has cancelled the request and logged it.
    let Some(response) = response else { return After::Close };
    respond(shared, service, &asked, response).await
}

/// What of the request decides how the response is written.
struct Asked {
    method: Method,
    version: Version,
    keep_alive: bool,
}

async fn respond(
    shared: &Rc<Shared>,
    service: &Service,
    asked: &Asked,
    mut response: Response,
) -> After {
    if let Some((upstream, record)) = response.body.take_tunnel() {
        shared.encode_tunnel_head(&response);
        let flushed = poll_fn(|cx| shared.poll_flush(cx)).await;
        return if flushed.is_ok() { After::Tunnel(upstream, record) } else { After::Close };
    }
    let request_read = shared.inner.borrow().decoder.is_done();
    let keep = asked.keep_alive && request_read && !service.is_draining();
    let plan = Plan::new(asked, &response, keep);
    shared.encode_head(&mut response, &plan, asked);
    let chunked = plan.framing == Framing::Chunked;
    let mut writer = Writer { body: response.body, chunked, ended: plan.bodiless };
    match poll_fn(|cx| shared.poll_write_body(cx, &mut writer)).await {
        Written::Whole if plan.keep => After::NextRequest,
        Written::Whole if !request_read => After::Linger,
        Written::Whole => {
            let _ = poll_fn(|cx| shared.poll_shutdown(cx)).await;
            After::Close
        }
        Written::Broken => {
            shared.abort();
            After::Close
        }
    }
}

/// How a response is framed.
struct Plan {
    framing: Framing,
    bodiless: bool,
    keep: bool,
}

impl Plan {
    fn new(asked: &Asked, response: &Response, keep: bool) -> Self {
        let bodiless = asked.method == Method::HEAD
            || matches!(response.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let framing = match response.body.size_hint().exact() {
            Some(length) => Framing::Length(length),
            None if bodiless => Framing::EMPTY,
            None if asked.version == Version::HTTP_10 => Framing::Close,
            None => Framing::Chunked,
        };
        Self { framing, bodiless, keep: keep && framing != Framing::Close }
    }
}

/// Answers a request that could not be read.
async fn refuse(shared: &Rc<Shared>, service: &Service, error: &ProxyError) {
    let mut response = service.refuse(error);
    let asked = Asked { method: Method::GET, version: Version::HTTP_11, keep_alive: false };
    let plan = Plan::new(&asked, &response, false);
    shared.encode_head(&mut response, &plan, &asked);
    let mut writer = Writer { body: response.body, chunked: false, ended: false };
    if let Written::Whole = poll_fn(|cx| shared.poll_write_body(cx, &mut writer)).await {
        shared.linger().await;
    }
}

impl Interim for Shared {
    /// Queues a 1xx response; it leaves when the connection is next polled.
    fn send(&self, status: StatusCode, fields: &Fields) {
        let mut inner = self.inner.borrow_mut();
        let out = &mut inner.output.gathered;
        codec::encode_response(status, fields, out);
        out.extend_from_slice(b"\r\n");
    }
}

/// What a connection's session and its request's body both need.
#[derive(Debug)]
struct Shared {
    inner: RefCell<Inner>,
    timer: Rc<Timer>,
}

#[derive(Debug)]
struct Inner {
    io: Io,
    input: BytesMut,
    output: Output,
    decoder: Decoder,
    /// Bytes of the request's body that have not been handed on, where that is known.
    length: Option<u64>,
    /// What the timer means before a request: none of it has come, or some of it.
    waiting: Waiting,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Waiting {
    /// Not yet begun to wait.
    Not,
    ForFirstByte,
    ForHead,
}

/// What a connection in want of a request gets.
#[allow(clippy::large_enum_variant, reason = "made once a request, where a box would be an allocation")]
enum Next {
    Close,
    Idle,
    Refuse(ProxyError),
    Request(RequestHead),
}

impl Shared {
    fn new(stream: Stream) -> Self {
        let inner = Inner {
            io: stream.io,
            input: BytesMut::from(stream.prefix),
            output: Output::default(),
            decoder: Decoder::new(Framing::EMPTY),
            length: Some(0),
            waiting: Waiting::Not,
        };
        Self { inner: RefCell::new(inner), timer: Rc::new(Timer::new()) }
    }

    fn into_io(self: Rc<Self>) -> Option<Io> {
        Rc::into_inner(self).map(|shared| shared.inner.into_inner().io)
    }

    fn into_stream(self: Rc<Self>) -> Option<Stream> {
        let inner = Rc::into_inner(self)?.inner.into_inner();
        Some(Stream { io: inner.io, prefix: inner.input.freeze(), guard: None })
    }

    fn poll_request(&self, cx: &mut Context<'_>, service: &Service) -> Poll<Next> {
        let inner = &mut *self.inner.borrow_mut();
        let limits = service.limits();
        match inner.poll_head(cx, limits) {
            Poll::Ready(next) => {
                inner.waiting = Waiting::Not;
                Poll::Ready(next)
            }
            Poll::Pending => self.poll_wait(inner, cx, service),
        }
    }

    /// No whole head is there: watch the clock.
    fn poll_wait(&self, inner: &mut Inner, cx: &mut Context<'_>, service: &Service) -> Poll<Next> {
        let waiting =
            if inner.input.is_empty() { Waiting::ForFirstByte } else { Waiting::ForHead };
        if waiting == Waiting::ForFirstByte && service.is_draining() {
            return Poll::Ready(Next::Close);
        }
        if inner.waiting != waiting {
            inner.waiting = waiting;
            let settings = service.settings();
            let patience = match waiting {
                Waiting::ForHead => settings.header_timeout,
                _ => settings.idle_timeout.min(PARK_AFTER),
            };
            let now = Instant::now();
            self.timer.set(now, Some(now + patience));
        }
        ready!(self.timer.poll_expired(cx));
        inner.waiting = Waiting::Not;
        Poll::Ready(match waiting {
            Waiting::ForHead => Next::Refuse(ProxyError::HeaderTimeout),
            _ if service.settings().idle_timeout <= PARK_AFTER => Next::Close,
            _ => Next::Idle,
        })
    }

    /// Makes the request out of its head and what follows on the connection.
    fn begin(self: &Rc<Self>, head: RequestHead) -> (Request, Body) {
        {
            let mut inner = self.inner.borrow_mut();
            inner.decoder = Decoder::new(head.framing);
            inner.length = match head.framing {
                Framing::Length(length) => Some(length),
                Framing::Chunked | Framing::Close => None,
            };
        }
        let body = if head.framing.is_empty() {
            Body::empty()
        } else {
            Body::source(Box::new(RequestBody(Rc::clone(self))))
        };
        let RequestHead { method, target, version, fields, .. } = head;
        (Request { method, target, version, fields }, body)
    }

    /// While a request is being handled: send informational responses, read ahead a little, and
    /// notice that the client has gone (Ready).
    fn poll_watch(&self, cx: &mut Context<'_>) -> Poll<()> {
        let inner = &mut *self.inner.borrow_mut();
        if !inner.output.is_empty() {
            if let Poll::Ready(Err(_)) = inner.output.poll_flush(&mut inner.io, cx) {
                return Poll::Ready(());
            }
        }
        // While the body is being read, its reader sees the end of the stream.
        if !inner.decoder.is_done() {
            return Poll::Pending;
        }
        while inner.input.len() < MAX_AHEAD {
            let input = &mut inner.input;
            let read = codec::poll_read(&mut inner.io, cx, |bytes| {
                input.extend_from_slice(bytes);
                bytes.len()
            });
            if matches!(ready!(read), Ok(0) | Err(_)) {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    fn encode_head(&self, response: &mut Response, plan: &Plan, asked: &Asked) {
        let fields = &mut response.fields;
        match plan.framing {
            Framing::Length(length) => {
                if !plan.bodiless && !fields.contains(Known::ContentLength) {
                    codec::set_content_length(fields, length);
                }
            }
            Framing::Chunked | Framing::Close => fields.remove(Known::ContentLength),
        }
        let mut inner = self.inner.borrow_mut();
        let out = &mut inner.output.gathered;
        codec::encode_response(response.status, fields, out);
        match plan.framing {
            Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            Framing::Close | Framing::Length(_) => {}
        }
        if !plan.keep {
            out.extend_from_slice(b"connection: close\r\n");
        } else if asked.version == Version::HTTP_10 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    fn encode_tunnel_head(&self, response: &Response) {
        let mut inner = self.inner.borrow_mut();
        let out = &mut inner.output.gathered;
        codec::encode_response(response.status, &response.fields, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Moves the response's body to the client.
    fn poll_write_body(&self, cx: &mut Context<'_>, writer: &mut Writer) -> Poll<Written> {
        loop {
            let mut starved = false;
            while !writer.ended && !starved && self.inner.borrow().output.has_room() {
                // The body may read from this very connection: nothing is borrowed here.
                match Pin::new(&mut writer.body).poll_frame(cx) {
                    Poll::Pending => starved = true,
                    Poll::Ready(Some(Err(_))) => {
                        // What was good so far still leaves, as far as it can at once.
                        let _ = self.poll_flush(cx);
                        return Poll::Ready(Written::Broken);
                    }
                    Poll::Ready(frame) => {
                        let frame = frame.and_then(Result::ok);
                        writer.take(frame, &mut self.inner.borrow_mut().output);
                    }
                }
            }
            match self.poll_flush(cx) {
                Poll::Ready(Ok(())) if writer.ended => return Poll::Ready(Written::Whole),
                Poll::Ready(Ok(())) if !starved => {}
                Poll::Ready(Ok(())) => return self.poll_watch(cx).map(|()| Written::Broken),
                Poll::Ready(Err(_)) => return Poll::Ready(Written::Broken),
                Poll::Pending => return writer.body.poll_timeout(cx).map(|_| Written::Broken),
            }
        }
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.inner.borrow_mut();
        inner.output.poll_flush(&mut inner.io, cx)
    }

    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner.borrow_mut().io).poll_shutdown(cx)
    }

    /// Closes in a way that the client cannot take for a normal end.
    fn abort(&self) {
        let inner = self.inner.borrow();
        // A zero linger time cannot block; where it fails, the close is merely less clear.
        let _ = socket2::SockRef::from(inner.io.tcp()).set_linger(Some(Duration::ZERO));
    }

    async fn linger(&self) {
        let draining = async {
            if poll_fn(|cx| self.poll_shutdown(cx)).await.is_err() {
                return;
            }
            let mut left = LINGER_BYTES;
            while left > 0 {
                let read = poll_fn(|cx| {
                    codec::poll_read(&mut self.inner.borrow_mut().io, cx, <[u8]>::len)
                });
                match read.await {
                    Ok(n) if n > 0 => left = left.saturating_sub(n),
                    _ => return,
                }
            }
        };
        let _ = tokio::time::timeout(LINGER, draining).await;
    }
}

impl Inner {
    fn poll_head(&mut self, cx: &mut Context<'_>, limits: Limits) -> Poll<Next> {
        loop {
            if !self.input.is_empty() {
                match codec::parse_request(&self.input, limits) {
                    Ok(Some((head, len))) => {
                        self.input.advance(len);
                        return Poll::Ready(Next::Request(head));
                    }
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(refused(error)),
                }
            }
            let input = &mut self.input;
            let read = ready!(codec::poll_read(&mut self.io, cx, |bytes| {
                if bytes.is_empty() {
                    return Some(Next::Close);
                }
                if !input.is_empty() {
                    input.extend_from_slice(bytes);
                    return None;
                }
                match codec::parse_request(bytes, limits) {
                    Ok(Some((head, len))) => {
                        input.extend_from_slice(&bytes[len..]);
                        Some(Next::Request(head))
                    }
                    Ok(None) => {
                        input.extend_from_slice(bytes);
                        None
                    }
                    Err(error) => Some(refused(error)),
                }
            }));
            match read {
                Ok(Some(next)) => return Poll::Ready(next),
                Ok(None) => {}
                Err(_) => return Poll::Ready(Next::Close),
            }
        }
    }
}

fn refused(error: HeadError) -> Next {
    Next::Refuse(ProxyError::DownstreamHead(error))
}

/// A response's body on its way to the client.
struct Writer {
    body: Body,
    chunked: bool,
    ended: bool,
}

impl Writer {
    fn take(&mut self, frame: Option<Frame<Bytes>>, output: &mut Output) {
        let frame = frame.map(Frame::into_data);
        match frame {
            Some(Ok(data)) => {
                output.push_data(data, self.chunked);
                if !self.chunked && self.body.is_end_stream() {
                    self.ended = true;
                }
            }
            Some(Err(trailers)) => {
                if self.chunked {
                    output.push_chunked_end(trailers.trailers_ref());
                }
                self.ended = true;
            }
            None => {
                if self.chunked {
                    output.push_chunked_end(None);
                }
                self.ended = true;
            }
        }
    }
}

/// How writing a response went.
enum Written {
    Broken,
    Whole,
}

/// The body of a request, read from the client's connection when somebody asks for it.
#[derive(Debug)]
struct RequestBody(Rc<Shared>);

impl Source for RequestBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let inner = &mut *self.0.inner.borrow_mut();
        loop {
            let piece = match inner.decoder.decode(&mut inner.input) {
                Ok(piece) => piece,
                Err(error) => return Poll::Ready(Some(Err(ProxyError::DownstreamBody(error)))),
            };
            match piece {
                Piece::Data(data) => {
                    if let Some(length) = &mut inner.length {
                        *length -= data.len() as u64;
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Piece::Trailers(trailers) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Piece::End => return Poll::Ready(None),
                Piece::More => {
                    let expected = inner.decoder.expected();
                    let read = poll_read_body(&mut inner.io, &mut inner.input, expected, cx);
                    match ready!(read) {
                        Ok(0) => return Poll::Ready(Some(Err(ProxyError::ClientGone))),
                        Ok(_) => {}
                        Err(error) => {
                            return Poll::Ready(Some(Err(ProxyError::DownstreamIo(error))));
                        }
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.inner.borrow().decoder.is_done()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.inner.borrow().length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

