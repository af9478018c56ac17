//! The client side of a connection.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::Version;
use http_body::Body as _;

use super::closed::Failed;
use super::connection::{Channel, Owner, Role, Stream};
use super::frame::{Reason, flag, kind};
use super::incoming::Incoming;
use super::stream::RESPONSE;
use super::{Closed, INITIAL_STREAMS, Sending};
use crate::net::io::Io;
use crate::protocol::error::{ProxyError, Unanswered};
use crate::protocol::http1::{self, ResponseHead};
use crate::protocol::message::{Body, Interim, Message, Request};

/// A connection to a server, which is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct Client(Rc<Channel>);

/// A response whose body has not been received yet.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) head: ResponseHead,
    /// The body; `None` if there is none.
    pub(crate) body: Option<(Incoming, Owner)>,
}

impl Client {
    /// Creates a client on a connection; calls `ended` when the connection ends.
    pub(crate) fn start(io: Io, ended: impl FnOnce(Closed) + 'static) -> Self {
        let role = Role::Client {
            next: 1,
            max_streams: INITIAL_STREAMS,
            gone: false,
        };
        let channel = Channel::new(io, RESPONSE.bytes, role);
        let driven = Rc::clone(&channel);
        tokio::task::spawn_local(async move {
            ended(poll_fn(|cx| driven.poll(cx)).await);
        });
        Self(channel)
    }

    /// Returns whether no further requests can be sent.
    pub(crate) fn is_gone(&self) -> bool {
        let core = self.0.core.borrow();
        let usable = matches!(core.role, Role::Client { gone: false, next, .. } if next < u32::MAX);
        !usable || !core.is_open()
    }

    /// Returns the maximum number of concurrent requests that the server accepts.
    pub(crate) fn max_streams(&self) -> u32 {
        match self.0.core.borrow().role {
            Role::Client { max_streams, .. } => max_streams,
            Role::Server(_) => 0,
        }
    }

    /// Sends a request, and returns when the head of the response was received.
    pub(crate) fn round_trip(
        &self,
        message: &mut Message,
        interim: Option<&dyn Interim>,
    ) -> impl Future<Output = Result<Answered, Unanswered>> {
        async move {
            poll_fn(|cx| self.0.poll_room(cx)).await;
            let end = message.body.is_end_stream();
            let Some(owner) = self.open(&message.request, end) else {
                return Err(Unanswered::NotSent);
            };
            let mut begun = Begun {
                owner,
                sending: Sending::new(message.body.take()),
                sent: end,
            };
            match poll_fn(|cx| begun.poll_head(interim, cx)).await {
                Ok(head) => Ok(begun.answered(head)),
                Err(Err(error)) => Err(Unanswered::Failed(error)),
                Err(Ok(failed)) => Err(unanswered(failed, begun.sending, &mut message.body)),
            }
        }
    }

    fn open(&self, request: &Request, end: bool) -> Option<Owner> {
        if self.is_gone() {
            return None;
        }
        let core = &mut *self.0.core.borrow_mut();
        let Role::Client { next, .. } = &mut core.role else {
            return None;
        };
        let id = *next;
        *next += 1;
        let mut flags = if end { flag::END } else { 0 };
        if request.version == Version::HTTP_2 {
            flags |= flag::HTTP2;
        }
        core.output.text(kind::HEAD, flags, id, |out| {
            let target = request.path_and_query();
            http1::encode_request(&request.method, target, &request.fields, out);
            out.extend_from_slice(b"\r\n");
        });
        let stream = Stream::opened(&self.0, id, &request.method, end);
        core.streams.insert(id, Rc::clone(&stream));
        self.0.wake();
        Some(Owner(stream))
    }
}

/// A request whose head was sent. In one place, so that a waiting request reserves the space of one reference to it.
struct Begun {
    sending: Sending,
    /// Whether the whole request was sent.
    sent: bool,
    owner: Owner,
}

impl Begun {
    /// Sends the rest of the request until the head of the response has arrived.
    fn poll_head(
        &mut self,
        interim: Option<&dyn Interim>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, Result<Failed, ProxyError>>> {
        let stream = self.owner.stream();
        if !self.sent
            && let Poll::Ready(result) = self.sending.poll(stream, cx)
        {
            if let Err(error) = result {
                return Poll::Ready(Err(Err(error)));
            }
            self.sent = true;
        }
        stream.poll_answer(interim, cx).map_err(Ok)
    }

    /// Returns the response with this head.
    fn answered(self, head: ResponseHead) -> Answered {
        let stream = self.owner.stream();
        if stream.is_read() {
            return Answered { head, body: None };
        }
        if !self.sent {
            // The two directions do not wait for each other.
            tokio::task::spawn_local(send_rest(Rc::clone(stream), self.sending));
        }
        let incoming = Incoming(Rc::clone(stream));
        Answered {
            head,
            body: Some((incoming, self.owner)),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.leave();
    }
}

fn unanswered(failed: Failed, sending: Sending, body: &mut Body) -> Unanswered {
    let whole = match failed {
        Failed::Unseen => sending.untouched(),
        _ => None,
    };
    match whole {
        Some(whole) => {
            *body = whole;
            Unanswered::NotSent
        }
        None => Unanswered::Failed(failed.of_upstream(false)),
    }
}

/// Sends the rest of a request whose response has begun.
async fn send_rest(stream: Rc<Stream>, mut sending: Sending) {
    let sent = poll_fn(|cx| {
        let sent = sending.poll(&stream, cx);
        match stream.poll_closed(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => sent,
        }
    });
    if sent.await.is_err() {
        stream.abandon(Reason::Cancelled);
    }
}
