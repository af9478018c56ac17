//! Writes a response to the client: determines the framing, writes head and body, and decides how the connection
//! continues.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{StatusCode, Version};
use http_body::{Body as _, Frame};

use super::connection::Shared;
use super::{After, RequestFacts};
use crate::http::connection::Service;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Fields, Known};
use crate::protocol::http1::{self, Framing, Output};
use crate::protocol::message::{Body, Response, TakenOver};

pub(super) fn respond(
    shared: &Rc<Shared>,
    service: &Service,
    facts: &RequestFacts,
    mut response: Response,
) -> impl Future<Output = After> {
    async move {
        if let Some(taken) = response.body.take_over() {
            return take_over(shared, &response, taken).await;
        }
        let request_read = shared.is_request_read();
        let keep = facts.keep_alive && request_read && !service.is_draining();
        let plan = Plan::new(facts, &response, keep);
        shared.encode_head(&mut response, &plan, facts);
        // A long body would hold the head.
        response.fields = Fields::none();
        let chunked = plan.framing == Framing::Chunked;
        let mut writer = Writer {
            body: response.body,
            chunked,
            ended: plan.bodiless,
            taken: Taken::default(),
        };
        let written = poll_fn(|cx| shared.poll_write_body(cx, &mut writer)).await;
        if let Written::Whole = written {
            writer.body.delivered();
        }
        match written {
            Written::Whole if plan.keep => After::NextRequest,
            Written::Whole if !request_read => After::Linger,
            Written::Whole => {
                shared.shut_down().await;
                After::Close
            }
            Written::Broken => {
                shared.abort();
                After::Close
            }
        }
    }
}

/// Sends the last HTTP response head of a connection that switches to another protocol.
async fn take_over(shared: &Rc<Shared>, response: &Response, mut taken: TakenOver) -> After {
    shared.encode_tunnel_head(response);
    let flushed = poll_fn(|cx| {
        let flushed = shared.poll_flush(cx);
        match &mut taken.account {
            Some(account) if flushed.is_pending() => account.poll_timeout(cx).map(|error| {
                account.fail(&error);
                false
            }),
            _ => flushed.map(|flushed| flushed.is_ok()),
        }
    });
    match flushed.await {
        true => After::TakenOver(Box::new(taken)),
        false => After::Close,
    }
}

/// Framing of a response.
struct Plan {
    framing: Framing,
    bodiless: bool,
    keep: bool,
}

impl Plan {
    fn new(facts: &RequestFacts, response: &Response, keep: bool) -> Self {
        let bodiless = facts.to_head
            || matches!(
                response.status,
                StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
            );
        let framing = match response.body.size_hint().exact() {
            Some(length) => Framing::Length(length),
            None if bodiless => Framing::EMPTY,
            None if facts.version == Version::HTTP_10 => Framing::Close,
            None => Framing::Chunked,
        };
        Self {
            framing,
            bodiless,
            keep: keep && framing != Framing::Close,
        }
    }
}

/// Responds to a request that could not be parsed.
pub(super) async fn refuse(shared: &Rc<Shared>, service: &Service, error: &ProxyError) {
    let mut response = service.refuse(error, Version::HTTP_11);
    let facts = RequestFacts {
        to_head: false,
        version: Version::HTTP_11,
        keep_alive: false,
    };
    let plan = Plan::new(&facts, &response, false);
    shared.encode_head(&mut response, &plan, &facts);
    let mut writer = Writer {
        body: response.body,
        chunked: false,
        ended: false,
        taken: Taken::default(),
    };
    let writing = poll_fn(|cx| shared.poll_write_body(cx, &mut writer));
    // The time of such a request is not limited by an accounting record.
    let limit = service.settings().stream_idle_timeout;
    if let Ok(Written::Whole) = tokio::time::timeout(limit, writing).await {
        shared.linger().await;
    }
}

impl Shared {
    fn encode_head(&self, response: &mut Response, plan: &Plan, facts: &RequestFacts) {
        let fields = &mut response.fields;
        match plan.framing {
            // RFC 9110 §8.6: a 204 response must not contain `content-length`, not even 0.
            _ if response.status == StatusCode::NO_CONTENT => fields.remove(Known::ContentLength),
            Framing::Length(length) => {
                if !plan.bodiless && !fields.contains(Known::ContentLength) {
                    http1::set_content_length(fields, length);
                }
            }
            Framing::Chunked | Framing::Close => fields.remove(Known::ContentLength),
        }
        let mut inner = self.inner.borrow_mut();
        let out = inner.output.gathered();
        http1::encode_response(response.status, fields, out);
        match plan.framing {
            Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            Framing::Close | Framing::Length(_) => {}
        }
        if !plan.keep {
            out.extend_from_slice(b"connection: close\r\n");
        } else if facts.version == Version::HTTP_10 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    fn encode_tunnel_head(&self, response: &Response) {
        let mut inner = self.inner.borrow_mut();
        let out = inner.output.gathered();
        http1::encode_response(response.status, &response.fields, out);
        out.extend_from_slice(b"\r\n");
    }

    fn taken(&self) -> Taken {
        let inner = self.inner.borrow();
        Taken {
            written: inner.output.written(),
            unacknowledged: inner.unacknowledged(),
        }
    }

    /// Writes the response's body to the client.
    fn poll_write_body(&self, cx: &mut Context<'_>, writer: &mut Writer) -> Poll<Written> {
        loop {
            let mut starved = false;
            while !writer.ended && !starved && self.inner.borrow().output.has_room() {
                // The body may read from this connection, so nothing is borrowed here.
                match Pin::new(&mut writer.body).poll_frame(cx) {
                    Poll::Pending => starved = true,
                    Poll::Ready(Some(Err(_))) => {
                        // The valid part is still sent, as far as the socket accepts it immediately.
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
                Poll::Ready(Err(error)) => {
                    writer.body.lost(&ProxyError::DownstreamIo(error));
                    return Poll::Ready(Written::Broken);
                }
                Poll::Pending => {
                    // A client that reads slowly is not idle, however long one piece takes.
                    if std::mem::replace(&mut writer.taken, self.taken()) != writer.taken {
                        writer.body.moved();
                    }
                    return writer.body.poll_timeout(cx).map(|_| Written::Broken);
                }
            }
        }
    }
}

/// State of writing a response's body to the client.
struct Writer {
    body: Body,
    chunked: bool,
    ended: bool,
    /// The client's progress when writing was last blocked.
    taken: Taken,
}

/// Progress of a client in receiving a response.
#[derive(Debug, Default, Eq, PartialEq)]
struct Taken {
    /// Number of bytes that the socket has accepted.
    written: u64,
    /// Number of the written bytes that the client has not acknowledged; `None` if the kernel does not report it.
    unacknowledged: Option<u32>,
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

/// Result of writing a response.
enum Written {
    Broken,
    Whole,
}
