//! The client side of one connection: what happens to a request whose head was sent.

use std::rc::Rc;
use std::task::{Context, Poll};

use super::closed::Failure as _;
use super::connection::{Channel, Owner, Protocol, ResponseHead};
use super::incoming::Incoming;
use super::sending::Sending;
use crate::protocol::error::{ProxyError, Unanswered};
use crate::protocol::message::{Body, Interim};

/// A connection to a server, which is closed when this is dropped and the streams have ended.
#[derive(Debug)]
pub(crate) struct Client<P: Protocol>(pub(in crate::protocol) Rc<Channel<P>>);

impl<P: Protocol> Drop for Client<P> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A response whose body has not been received yet.
#[derive(Debug)]
pub(crate) struct Answered<P: Protocol> {
    pub(crate) head: ResponseHead,
    /// The body; `None` if there is none.
    pub(crate) body: Option<(Incoming<P>, Owner<P>)>,
}

/// A request whose head was sent. In one place, so that a waiting request reserves the space of one reference to it.
pub(in crate::protocol) struct Begun<P: Protocol> {
    sending: Sending,
    /// Whether the whole request was sent.
    sent: bool,
    owner: Owner<P>,
}

/// Reason why there is no head of a response.
pub(in crate::protocol) enum Headless<F> {
    /// The body of the request has failed.
    Request(ProxyError),
    Stream(F),
}

impl<P: Protocol> Begun<P> {
    /// `sent` is whether the request has no body.
    pub(in crate::protocol) fn new(owner: Owner<P>, body: &mut Body, sent: bool) -> Self {
        Self {
            sending: Sending::new(body.take()),
            sent,
            owner,
        }
    }

    /// Sends the rest of the request until the head of the response has arrived.
    pub(in crate::protocol) fn poll_head(
        &mut self,
        interim: Option<&dyn Interim>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, Headless<P::Failed>>> {
        let stream = self.owner.stream();
        if !self.sent
            && let Poll::Ready(result) = self.sending.poll(stream, cx)
        {
            if let Err(error) = result {
                return Poll::Ready(Err(Headless::Request(error)));
            }
            self.sent = true;
        }
        stream.poll_answer(interim, cx).map_err(Headless::Stream)
    }

    /// Returns the response with this head. `body` is the request's again if none of it was read and the server has not
    /// processed the request.
    pub(in crate::protocol) fn answered(
        self,
        head: Result<ResponseHead, Headless<P::Failed>>,
        body: &mut Body,
    ) -> Result<Answered<P>, Unanswered> {
        match head {
            Ok(head) => Ok(self.respond(head)),
            Err(Headless::Request(error)) => Err(Unanswered::Failed(error)),
            Err(Headless::Stream(failed)) => {
                if failed.is_unseen()
                    && let Some(whole) = self.sending.untouched()
                {
                    *body = whole;
                    return Err(Unanswered::NotSent);
                }
                Err(Unanswered::Failed(failed.of_upstream(false)))
            }
        }
    }

    fn respond(self, head: ResponseHead) -> Answered<P> {
        let stream = self.owner.stream();
        if stream.is_read() {
            return Answered { head, body: None };
        }
        if !self.sent {
            // The two directions do not wait for each other.
            let (stream, mut sending) = (Rc::clone(stream), self.sending);
            tokio::task::spawn_local(async move { sending.finish(&stream, P::CANCELLED).await });
        }
        let incoming = Incoming(Rc::clone(stream));
        Answered {
            head,
            body: Some((incoming, self.owner)),
        }
    }
}
