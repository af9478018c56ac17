//! An HTTP/1.1 connection to an endpoint, driven by the task of the client that it serves.
//!
//! There is no task for the connection and no channel: polling for the response also sends the rest of the request.
//! Dropping the round trip closes the connection; finishing it returns the connection to its pool.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::Instant;

use super::{Member, Sender};
use crate::net::io::{Io, Stream};
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Known;
use crate::protocol::http1::{
    self, Decoder, Framing, FramingError, HeadError, Limits, Output, Piece, ResponseHead,
};
use crate::protocol::message::{Body, Interim, Message, Request, Response, Source};
use crate::protocol::proxy_protocol::Addresses;
use crate::upstream::{Open, Pool};

/// Limits of a response head: like those of a request head, with room for large cookies.
const LIMITS: Limits = Limits {
    bytes: 128 * 1024,
    headers: 256,
};

/// Size in bytes of the input of a response whose buffer is kept for the next one.
const KEPT: usize = 512;

/// An HTTP/1.1 connection to an endpoint.
#[derive(Debug)]
pub(crate) struct Connection {
    io: Io,
    input: BytesMut,
    output: Output,
    /// The request's body while it is being sent.
    request: Option<Body>,
    chunked_request: bool,
    decoder: Decoder,
    state: State,
    keep_alive: bool,
    /// The client that the connection's PROXY header names; `None` if no header was sent.
    announced: Option<Box<Announced>>,
    /// Number of requests sent so far.
    requests: u32,
    /// Whether `input` has had more than [`KEPT`] bytes of this response.
    is_large: bool,
    /// Size of the informational heads that have arrived before the awaited one.
    informed: u32,
    /// Time at which the connection was last returned to the pool.
    idle_since: Instant,
    home: Member,
    /// Generation of the pool when the connection was created.
    generation: u32,
    open: Open,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Idle,
    /// Waiting for a response head, no byte of which has arrived.
    AwaitHead,
    /// Some bytes of a response head have arrived.
    InHead,
    InBody,
    Failed,
}

/// The client that a PROXY header names; `None` if it names no client with a known address.
#[derive(Debug)]
pub(crate) struct Announced(pub(crate) Option<Addresses>);

impl Connection {
    /// Creates a connection. `announced` is the client that the connection's PROXY header names.
    pub(crate) fn new(
        io: Io,
        home: Rc<Pool>,
        open: Open,
        announced: Option<Announced>,
        now: Instant,
    ) -> Box<Self> {
        Box::new(Self {
            io,
            input: BytesMut::new(),
            output: Output::default(),
            request: None,
            chunked_request: false,
            decoder: Decoder::new(Framing::EMPTY),
            state: State::Idle,
            keep_alive: true,
            announced: announced.map(Box::new),
            requests: 0,
            is_large: false,
            informed: 0,
            idle_since: now,
            generation: home.generation(),
            home: Member::new(home),
            open,
        })
    }

    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    pub(crate) fn idle_since(&self) -> Instant {
        self.idle_since
    }

    pub(crate) fn set_idle_since(&mut self, now: Instant) {
        self.idle_since = now;
    }

    /// Returns whether the connection may serve the client with these addresses. This is false only if the
    /// connection's PROXY header names another client.
    pub(crate) fn is_for(&self, ends: Option<&Addresses>) -> bool {
        self.announced
            .as_deref()
            .is_none_or(|Announced(named)| named.as_ref() == ends)
    }

    /// Returns whether an idle connection can be used for a request, which requires that no bytes have arrived on it.
    pub(crate) fn is_usable(&mut self) -> bool {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        self.input.is_empty() && http1::poll_read(&mut self.io, cx, |_| ()).is_pending()
    }

    fn start(&mut self, request: &Request, body: Body) {
        let exact = body.size_hint().exact();
        let out = self.output.gathered();
        let Request { method, fields, .. } = request;
        http1::encode_request(method, request.path_and_query(), fields, out);
        self.chunked_request = false;
        match exact {
            // A known length is sent as in the client's content-length header. A body that had no such header (from
            // HTTP/2, or an empty body) gets one if the method expects a body.
            Some(length) => {
                let expects_body = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
                let missing = !fields.contains(Known::ContentLength);
                if missing && (length > 0 || expects_body) {
                    encode_length(length, out);
                }
            }
            None => {
                self.chunked_request = true;
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            }
        }
        out.extend_from_slice(b"\r\n");
        self.request = (exact != Some(0)).then_some(body);
        self.state = State::AwaitHead;
        self.requests += 1;
        self.informed = 0;
    }

    /// Sends the rest of the request. Errors of the socket are not reported, because the response may already have
    /// arrived (an early 413, for example); if not, reading reports the error.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        loop {
            while self.request.is_some() && self.output.has_room() {
                if self.poll_gather(cx)?.is_pending() {
                    break;
                }
            }
            if self.output.is_empty() {
                return if self.request.is_none() {
                    Poll::Ready(Ok(()))
                } else {
                    Poll::Pending
                };
            }
            if ready!(self.output.poll_flush(&mut self.io, cx)).is_err() {
                self.request = None;
                self.output = Output::default();
                self.keep_alive = false;
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads one frame of the request's body.
    fn poll_gather(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, ProxyError> {
        let Some(body) = &mut self.request else {
            return Ok(Poll::Ready(()));
        };
        match std::pin::Pin::new(body).poll_frame(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(None) => {
                if self.chunked_request {
                    self.output.push_chunked_end(None);
                }
                self.request = None;
            }
            Poll::Ready(Some(Err(error))) => return Err(error),
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => self.output.push_data(data, self.chunked_request),
                Err(frame) => {
                    if self.chunked_request {
                        self.output.push_chunked_end(frame.trailers_ref());
                    }
                    self.request = None;
                }
            },
        }
        Ok(Poll::Ready(()))
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        method: &Method,
    ) -> Poll<Result<ResponseHead, ProxyError>> {
        loop {
            if !self.input.is_empty() {
                let parsed = http1::parse_response(&self.input, LIMITS, method);
                if let Some((head, len)) = parsed.map_err(ProxyError::UpstreamHead)? {
                    self.input.advance(len);
                    return Poll::Ready(Ok(head));
                }
            }
            if let Some(head) = ready!(self.poll_read_head(cx, method))? {
                return Poll::Ready(Ok(head));
            }
        }
    }

    /// Reads once. A complete head is parsed in place.
    fn poll_read_head(
        &mut self,
        cx: &mut Context<'_>,
        method: &Method,
    ) -> Poll<Result<Option<ResponseHead>, ProxyError>> {
        let Self {
            io, input, state, ..
        } = self;
        let read = ready!(http1::poll_read(io, cx, |bytes| {
            if bytes.is_empty() {
                return Err(None);
            }
            if !input.is_empty() {
                input.extend_from_slice(bytes);
                return Ok(None);
            }
            match http1::parse_response(bytes, LIMITS, method) {
                Ok(Some((head, len))) => {
                    input.extend_from_slice(&bytes[len..]);
                    Ok(Some(head))
                }
                Ok(None) => {
                    input.extend_from_slice(bytes);
                    Ok(None)
                }
                Err(error) => Err(Some(error)),
            }
        }));
        let untouched = *state == State::AwaitHead;
        *state = State::InHead;
        let reused = untouched && self.requests > 1;
        Poll::Ready(match read {
            Ok(Ok(head)) => Ok(head),
            Ok(Err(Some(error))) => Err(ProxyError::UpstreamHead(error)),
            Ok(Err(None)) => Err(ProxyError::UpstreamClosed { reused }),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Err(ProxyError::UpstreamClosed { reused })
            }
            Err(error) => Err(ProxyError::UpstreamIo(error)),
        })
    }

    fn start_body(&mut self, head: &ResponseHead) {
        self.keep_alive &= head.keep_alive;
        self.decoder = Decoder::new(head.framing);
        self.state = State::InBody;
        self.end_if_done();
    }

    fn end_if_done(&mut self) {
        if self.decoder.is_done() && self.state == State::InBody {
            // The endpoint does not read the rest of a request that is still being sent.
            if self.request.take().is_some() || !self.output.is_empty() {
                self.keep_alive = false;
                self.output = Output::default();
            }
            self.state = State::Idle;
            if std::mem::take(&mut self.is_large) && self.input.is_empty() {
                self.input = BytesMut::new();
            }
        }
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        loop {
            let piece = match self.decoder.decode(&mut self.input) {
                Ok(piece) => piece,
                Err(error) => return Poll::Ready(Some(Err(ProxyError::UpstreamBody(error)))),
            };
            match piece {
                Piece::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Piece::Trailers(trailers) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Piece::End => return Poll::Ready(None),
                Piece::More => match ready!(self.poll_read_body(cx)) {
                    Ok(0) => {
                        if let Err(error) = self.decoder.eof() {
                            return Poll::Ready(Some(Err(ProxyError::UpstreamBody(error))));
                        }
                    }
                    Ok(_) => {}
                    Err(error) => return Poll::Ready(Some(Err(cut_off(error)))),
                },
            }
        }
    }

    fn poll_read_body(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let expected = self.decoder.expected();
        let read = http1::poll_read_body(&mut self.io, &mut self.input, expected, cx);
        self.is_large |= self.input.capacity() > KEPT;
        read
    }

    /// Sends the rest of the request until the head of its final response has arrived. `interim` gets the informational
    /// heads before it.
    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
        interim: Option<&dyn Interim>,
    ) -> Poll<Result<ResponseHead, ProxyError>> {
        loop {
            if let Poll::Ready(Err(error)) = self.poll_send(cx) {
                return Poll::Ready(Err(error));
            }
            let mut head = ready!(self.poll_head(cx, &request.method))?;
            if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Poll::Ready(Ok(head));
            }
            // Their total size is limited like that of one head, since they are buffered for a client that may not
            // read.
            let length = u32::try_from(head.fields.encoded_len()).unwrap_or(u32::MAX);
            self.informed = self.informed.saturating_add(length);
            if self.informed as usize > LIMITS.bytes {
                return Poll::Ready(Err(ProxyError::UpstreamHead(HeadError::TooLarge)));
            }
            if let Some(interim) = interim {
                head.fields.remove_hop_by_hop();
                // RFC 9110 §8.6: not allowed in responses without content.
                head.fields.remove(Known::ContentLength);
                interim.send(head.status, &head.fields);
            }
        }
    }

    /// Returns the response with this head; its body owns the connection.
    fn answered(mut self: Box<Self>, head: ResponseHead) -> Response {
        self.start_body(&head);
        let body = if self.is_end_stream() {
            self.release();
            Body::empty()
        } else {
            Body::source(self)
        };
        Response {
            status: head.status,
            fields: head.fields,
            body,
        }
    }

    /// Returns the socket for a tunnel.
    fn into_stream(self: Box<Self>) -> Stream {
        Stream {
            io: self.io,
            prefix: self.input.freeze(),
            guard: Some(Box::new(self.open)),
        }
    }
}

impl Source for Connection {
    /// Returns the next frame of the response, and continues to send the request.
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        if self.state != State::InBody {
            return Poll::Ready(None);
        }
        let sending = self.request.is_some() || !self.output.is_empty();
        if sending && let Poll::Ready(Err(error)) = self.poll_send(cx) {
            self.state = State::Failed;
            return Poll::Ready(Some(Err(error)));
        }
        let frame = ready!(self.poll_piece(cx));
        if matches!(frame, Some(Err(_))) {
            self.state = State::Failed;
        } else {
            self.end_if_done();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Idle
    }

    fn size_hint(&self) -> SizeHint {
        let remaining = self.decoder.remaining();
        remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Returns the connection to its pool, or closes it.
    fn release(self: Box<Self>) {
        if self.keep_alive && self.state == State::Idle && self.input.is_empty() {
            let home = self.home.pool();
            home.put_idle(self);
        }
    }
}

fn encode_length(length: u64, out: &mut BytesMut) {
    let mut digits = itoa::Buffer::new();
    http1::encode_header(b"content-length", digits.format(length).as_bytes(), out);
}

fn cut_off(error: io::Error) -> ProxyError {
    if error.kind() == io::ErrorKind::ConnectionReset {
        return ProxyError::UpstreamBody(FramingError::UnexpectedEof);
    }
    ProxyError::UpstreamIo(error)
}

impl<'a> Sender<'a> {
    /// Sends a request and returns the response as soon as its head has arrived. The returned body owns the connection.
    ///
    /// The future does not hold the body, which is the connection's from here on.
    pub(super) fn over_http1<'b>(
        &'b self,
        mut connection: Box<Connection>,
        Message { request, body }: &'b mut Message,
    ) -> impl Future<Output = Result<Response, ProxyError>> + use<'a, 'b> {
        connection.start(request, body.take());
        let request = &*request;
        async move {
            let answer = poll_fn(|cx| connection.poll_answer(cx, request, self.interim));
            let head = answer.await?;
            // A head that is compared by reference would be kept while the protocol changes.
            if let StatusCode::SWITCHING_PROTOCOLS = head.status {
                // Boxed: the futures of all requests would reserve space for it.
                return Box::pin(switch(connection, request, head)).await;
            }
            Ok(connection.answered(head))
        }
    }
}

/// Makes a tunnel of a connection that switches to another protocol.
async fn switch(
    mut connection: Box<Connection>,
    request: &Request,
    mut head: ResponseHead,
) -> Result<Response, ProxyError> {
    // Only a switch to the requested protocol is accepted; another one may not be allowed (RFC 9110 §7.8).
    let asked = request.fields.get(Known::Upgrade);
    let agreed = head.fields.get(Known::Upgrade);
    let is_asked = |agreed: &[u8]| asked.is_some_and(|it| it.eq_ignore_ascii_case(agreed));
    if !agreed.is_some_and(is_asked) {
        return Err(ProxyError::UnexpectedUpgrade);
    }
    // RFC 9110 §7.8: the new protocol begins after the complete request.
    poll_fn(|cx| connection.poll_send(cx)).await?;
    head.fields.remove(Known::ContentLength);
    Ok(Response {
        status: head.status,
        fields: head.fields,
        body: Body::tunnel(connection.into_stream()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every waiting request over HTTP/1.1 has one: it fits into a block of the allocator.
    #[test]
    fn a_connection_stays_within_a_block() {
        let size = size_of::<Connection>();
        assert!(size <= 256, "{size} bytes");
    }
}
