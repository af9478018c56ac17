//! State shared by a client's connection and the body of its current request: the socket and its input and output
//! buffers.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::StatusCode;
use http_body::{Frame, SizeHint};
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use super::PARK_AFTER;
use crate::http::connection::{LEAVE_AFTER, Service};
use crate::http::handling::RequestStream;
use crate::net::io::{Io, Stream};
use crate::net::send_queue;
use crate::os::memory;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Fields;
use crate::protocol::http1::{
    self, Decoder, Framing, HeadError, Limits, Output, Piece, RequestHead, poll_read_body,
};
use crate::protocol::message::{Body, Interim, Message, Request, Source};
use crate::runtime::timers::Timer;

/// Number of bytes that a client may pipeline while its request is being answered.
const MAX_AHEAD: usize = 64 * 1024;
/// Number of bytes of an unwanted body that are read so that the connection can be kept.
const DISCARD: usize = 64 * 1024;
/// How long, and how many bytes, a client's data is read and dropped after a response that ends the connection, so
/// that a reset does not overtake the response.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1024 * 1024;

/// State that the connection's session and the body of the current request share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) inner: RefCell<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    io: Io,
    input: BytesMut,
    pub(super) output: Output,
    pub(super) decoder: Decoder,
    /// What the timer is set for while no request is being handled.
    waiting: Waiting,
    /// When the first byte of the request arrived, if this was before the wait for its head.
    begun: Option<Instant>,
    /// Here, where it takes no space beside `waiting`.
    timer: Timer,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Waiting {
    /// The timer is not set.
    Not,
    ForFirstByte,
    ForHead,
    /// The connection will be closed, but a request may be on its way.
    ForLastRequest,
}

/// Result of waiting for a request.
type Next = Result<RequestHead, NoRequest>;

/// Why there is no further request.
pub(super) enum NoRequest {
    Close,
    Idle,
    Refuse(ProxyError),
}

impl Shared {
    pub(super) fn new(stream: Stream, begun: Option<Instant>) -> Self {
        let inner = Inner {
            io: stream.io,
            input: BytesMut::from(stream.prefix),
            output: Output::default(),
            decoder: Decoder::new(Framing::EMPTY),
            waiting: Waiting::Not,
            begun,
            timer: Timer::new(),
        };
        Self {
            inner: RefCell::new(inner),
        }
    }

    /// Returns the timer, which is free while a request is handled.
    pub(super) fn timer(&self) -> Timer {
        self.inner.borrow().timer.clone()
    }

    pub(super) fn into_io(self: Rc<Self>) -> Option<Io> {
        Rc::into_inner(self).map(|shared| shared.inner.into_inner().io)
    }

    pub(super) fn into_stream(self: Rc<Self>) -> Option<Stream> {
        let inner = Rc::into_inner(self)?.inner.into_inner();
        Some(Stream {
            io: inner.io,
            prefix: inner.input.freeze(),
            guard: None,
        })
    }

    /// Returns whether bytes of a further request have been received.
    pub(super) fn has_input(&self) -> bool {
        !self.inner.borrow().input.is_empty()
    }

    pub(super) fn poll_request(&self, cx: &mut Context<'_>, service: &Service) -> Poll<Next> {
        let inner = &mut *self.inner.borrow_mut();
        let limits = service.limits();
        match inner.poll_head(cx, limits) {
            Poll::Ready(next) => {
                memory::rebase(inner.input.capacity() + inner.output.capacity());
                inner.waiting = Waiting::Not;
                inner.begun = None;
                // A waiting request would hold the buffer of its head, of which it has a copy.
                if inner.input.is_empty() {
                    inner.input = BytesMut::new();
                }
                Poll::Ready(next)
            }
            Poll::Pending => Self::poll_wait(inner, cx, service),
        }
    }

    /// Checks the timeouts while there is no complete head.
    fn poll_wait(inner: &mut Inner, cx: &mut Context<'_>, service: &Service) -> Poll<Next> {
        let waiting = match inner.input.is_empty() {
            true if service.is_draining() => Waiting::ForLastRequest,
            true => Waiting::ForFirstByte,
            false => Waiting::ForHead,
        };
        if inner.waiting != waiting {
            inner.waiting = waiting;
            let settings = service.settings();
            let patience = match waiting {
                Waiting::ForHead => settings.header_timeout,
                Waiting::ForLastRequest => settings.idle_timeout.min(LEAVE_AFTER),
                _ => settings.idle_timeout.min(PARK_AFTER),
            };
            let now = Instant::now();
            let since = inner.begun.take().unwrap_or(now);
            inner.timer.set(now, Some(since + patience));
        }
        ready!(inner.timer.poll_expired(cx));
        inner.waiting = Waiting::Not;
        Poll::Ready(Err(match waiting {
            Waiting::ForHead => NoRequest::Refuse(ProxyError::HeaderTimeout),
            Waiting::ForLastRequest => NoRequest::Close,
            _ if service.settings().idle_timeout <= PARK_AFTER => NoRequest::Close,
            _ => NoRequest::Idle,
        }))
    }

    /// Creates a request from its head and the body that follows on the connection.
    pub(super) fn begin(self: &Rc<Self>, head: RequestHead) -> Message {
        self.inner.borrow_mut().decoder = Decoder::new(head.framing);
        let body = if head.framing.is_empty() {
            Body::empty()
        } else {
            Body::source(Box::new(RequestBody(Rc::clone(self))))
        };
        let RequestHead {
            method,
            target,
            version,
            fields,
            ..
        } = head;
        let request = Request {
            method,
            target,
            version,
            fields,
        };
        Message { request, body }
    }

    /// Sends informational responses while a request is being handled, reads ahead up to a limit, and becomes ready when
    /// the client has disconnected.
    pub(super) fn poll_watch(&self, cx: &mut Context<'_>) -> Poll<()> {
        let inner = &mut *self.inner.borrow_mut();
        if !inner.output.is_empty()
            && let Poll::Ready(Err(_)) = inner.output.poll_flush(&mut inner.io, cx)
        {
            return Poll::Ready(());
        }
        // While the body is being read, its reader detects the end of the stream.
        if !inner.decoder.is_done() {
            return Poll::Pending;
        }
        while inner.input.len() < MAX_AHEAD {
            let input = &mut inner.input;
            let read = http1::poll_read(&mut inner.io, cx, |bytes| {
                input.extend_from_slice(bytes);
                bytes.len()
            });
            if matches!(ready!(read), Ok(0) | Err(_)) {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Returns whether all of the request's body has been read.
    ///
    /// The received part of an unwanted body is read here, so that a client whose small request is rejected need not
    /// reconnect.
    pub(super) fn is_request_read(self: &Rc<Self>) -> bool {
        let is_wanted = Rc::strong_count(self) > 1;
        let inner = &mut *self.inner.borrow_mut();
        if !is_wanted && !inner.decoder.is_done() {
            inner.discard_body();
        }
        inner.decoder.is_done()
    }

    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.inner.borrow_mut();
        inner.output.poll_flush(&mut inner.io, cx)
    }

    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner.borrow_mut().io).poll_shutdown(cx)
    }

    /// Shuts down the write side. The TLS alert is sent if there is room for it.
    pub(super) async fn shut_down(&self) {
        let _ = tokio::time::timeout(LINGER, poll_fn(|cx| self.poll_shutdown(cx))).await;
    }

    /// Closes the connection so that the client cannot mistake this for a normal end.
    pub(super) fn abort(&self) {
        let inner = self.inner.borrow();
        // A zero linger time does not block. If setting it fails, the client sees a normal end.
        let _ = socket2::SockRef::from(inner.io.tcp()).set_linger(Some(Duration::ZERO));
    }

    pub(super) async fn linger(&self) {
        let draining = async {
            if poll_fn(|cx| self.poll_shutdown(cx)).await.is_err() {
                return;
            }
            let mut left = LINGER_BYTES;
            while left > 0 {
                let read = poll_fn(|cx| {
                    http1::poll_read(&mut self.inner.borrow_mut().io, cx, <[u8]>::len)
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
    /// Returns the number of bytes that the socket has accepted and the client has not acknowledged.
    pub(super) fn unacknowledged(&self) -> Option<u32> {
        send_queue::unacknowledged(self.io.tcp())
    }

    /// Reads the available part of the body, up to a limit.
    fn discard_body(&mut self) {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut discarded = 0;
        while discarded < DISCARD {
            match self.decoder.decode(&mut self.input) {
                Ok(Piece::Data(data)) => discarded += data.len(),
                Ok(Piece::More) => {
                    let expected = self.decoder.expected();
                    let read = poll_read_body(&mut self.io, &mut self.input, expected, cx);
                    if !matches!(read, Poll::Ready(Ok(1..))) {
                        return;
                    }
                }
                Ok(Piece::Trailers(_) | Piece::End) | Err(_) => return,
            }
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>, limits: Limits) -> Poll<Next> {
        loop {
            if !self.input.is_empty() {
                match http1::parse_request(&self.input, limits) {
                    Ok(Some((head, len))) => {
                        self.input.advance(len);
                        return Poll::Ready(Ok(head));
                    }
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(refused(error)),
                }
            }
            let input = &mut self.input;
            let read = ready!(http1::poll_read(&mut self.io, cx, |bytes| {
                if bytes.is_empty() {
                    return Some(Err(NoRequest::Close));
                }
                if !input.is_empty() {
                    input.extend_from_slice(bytes);
                    return None;
                }
                match http1::parse_request(bytes, limits) {
                    Ok(Some((head, len))) => {
                        input.extend_from_slice(&bytes[len..]);
                        Some(Ok(head))
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
                Err(_) => return Poll::Ready(Err(NoRequest::Close)),
            }
        }
    }
}

fn refused(error: HeadError) -> Next {
    Err(NoRequest::Refuse(ProxyError::DownstreamHead(error)))
}

impl RequestStream for Shared {
    fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_watch(cx)
    }
}

impl Interim for Shared {
    /// Queues a 1xx response, which is sent at the next poll of the connection.
    fn send(&self, status: StatusCode, fields: &Fields) {
        let mut inner = self.inner.borrow_mut();
        let out = inner.output.gathered();
        http1::encode_response(status, fields, out);
        out.extend_from_slice(b"\r\n");
    }
}

/// The body of a request, read from the client's connection on demand.
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
            // Pieces that are kept or still to be sent hold the buffer.
            if inner.decoder.is_done() && inner.input.is_empty() {
                inner.input = BytesMut::new();
            }
            match piece {
                Piece::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
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
        let remaining = self.0.inner.borrow().decoder.remaining();
        remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every waiting request over HTTP/1.1 has one: with the counts of its references it fits into a block of the
    /// allocator.
    #[test]
    fn the_state_of_a_connection_stays_within_a_block() {
        let size = size_of::<Shared>() + 2 * size_of::<usize>();
        assert!(size <= 160, "{size} bytes");
    }
}
