//! A response on its way to the client: framing, head, body, and what follows it.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use http_body::{Body as _, Frame};

use super::connection::Shared;
use super::{After, Asked};
use crate::codec::{self, Framing, Output};
use crate::error::ProxyError;
use crate::fields::Known;
use crate::http::service::Service;
use crate::message::{Body, Response};

pub(super) async fn respond(
    shared: &Rc<Shared>,
    service: &Service,
    asked: &Asked,
    mut response: Response,
) -> After {
    if let Some(taken) = response.body.take_over() {
        shared.encode_tunnel_head(&response);
        let flushed = poll_fn(|cx| shared.poll_flush(cx)).await;
        return if flushed.is_ok() {
            After::TakenOver(taken)
        } else {
            After::Close
        };
    }
    let request_read = shared.is_request_read();
    let keep = asked.keep_alive && request_read && !service.is_draining();
    let plan = Plan::new(asked, &response, keep);
    shared.encode_head(&mut response, &plan, asked);
    let chunked = plan.framing == Framing::Chunked;
    let mut writer = Writer {
        body: response.body,
        chunked,
        ended: plan.bodiless,
    };
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
            || matches!(
                response.status,
                StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
            );
        let framing = match response.body.size_hint().exact() {
            Some(length) => Framing::Length(length),
            None if bodiless => Framing::EMPTY,
            None if asked.version == Version::HTTP_10 => Framing::Close,
            None => Framing::Chunked,
        };
        Self {
            framing,
            bodiless,
            keep: keep && framing != Framing::Close,
        }
    }
}

/// Answers a request that could not be read.
pub(super) async fn refuse(shared: &Rc<Shared>, service: &Service, error: &ProxyError) {
    let mut response = service.refuse(error, Version::HTTP_11);
    let asked = Asked {
        method: Method::GET,
        version: Version::HTTP_11,
        keep_alive: false,
    };
    let plan = Plan::new(&asked, &response, false);
    shared.encode_head(&mut response, &plan, &asked);
    let mut writer = Writer {
        body: response.body,
        chunked: false,
        ended: false,
    };
    if let Written::Whole = poll_fn(|cx| shared.poll_write_body(cx, &mut writer)).await {
        shared.linger().await;
    }
}

impl Shared {
    fn encode_head(&self, response: &mut Response, plan: &Plan, asked: &Asked) {
        let fields = &mut response.fields;
        match plan.framing {
            // RFC 9110 §8.6: not even a zero.
            _ if response.status == StatusCode::NO_CONTENT => fields.remove(Known::ContentLength),
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
