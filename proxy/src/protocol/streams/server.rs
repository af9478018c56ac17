//! The server side of one connection.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::closed::Closed;
use super::connection::{Accepted, Channel, Core, Owner, Protocol, Role, Stream};
use super::driver::Driver;
use super::incoming::Incoming;
use crate::os::memory;
use crate::protocol::error::ProxyError;
use crate::protocol::message::{Body, Message, Request};

/// The server side of one connection.
#[derive(Debug)]
pub(crate) struct Server<P: Protocol> {
    pub(in crate::protocol) channel: Rc<Channel<P>>,
    pub(in crate::protocol) driver: RefCell<Driver<P>>,
}

impl<P: Protocol> Server<P> {
    pub(in crate::protocol) fn of(channel: Rc<Channel<P>>, driver: Driver<P>) -> Self {
        Self {
            channel,
            driver: RefCell::new(driver),
        }
    }

    /// Drives the connection; becomes ready when it has ended.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Closed<P::Malformed>> {
        self.driver.borrow_mut().poll(cx)
    }

    /// Returns the requests that have arrived since the last call and were not reset in the meantime.
    pub(crate) fn accepted(&self) -> impl Iterator<Item = Accepted<P>> + use<P> {
        let mut accepted = self.channel.core.borrow_mut().take_accepted();
        accepted.retain(is_live);
        accepted.into_iter()
    }

    /// Announces to the client that it should begin no further streams. Streams that it nevertheless begins are
    /// accepted (RFC 9113, section 6.8).
    pub(crate) fn say_farewell(&self) {
        let core = &mut *self.channel.core.borrow_mut();
        core.goaway(P::LAST_STREAM, P::NO_ERROR);
        self.channel.wake();
    }

    /// Stops accepting streams; the connection ends when the accepted ones have ended.
    pub(crate) fn leave(&self) {
        {
            let core = &mut *self.channel.core.borrow_mut();
            let last = core.last_accepted();
            if let Role::Server(accepting) = &mut core.role {
                accepting.until = last;
            }
            core.goaway(last, P::NO_ERROR);
        }
        self.channel.leave();
    }
}

impl<P: Protocol> Drop for Server<P> {
    /// Closes the connection: streams hold references to it and would keep it alive.
    fn drop(&mut self) {
        drop(self.accepted());
        self.channel.close(Closed::Quiet);
    }
}

/// Returns whether a request was not reset since it has arrived.
fn is_live<P: Protocol>(accepted: &Accepted<P>) -> bool {
    let live = !accepted.owner.stream().is_closed();
    if !live {
        memory::adopt(accepted.head);
    }
    live
}

impl<P: Protocol> Core<P> {
    /// Returns the requests that have arrived since the last call.
    pub(in crate::protocol) fn take_accepted(&mut self) -> Vec<Accepted<P>> {
        match &mut self.role {
            Role::Server(accepting) => std::mem::take(&mut accepting.accepted),
            Role::Client(_) => Vec::new(),
        }
    }

    /// Begins the stream of a request whose head was received at `arrived`, with the length of its body; `None` if the
    /// length is unknown. `end` is whether it has no body.
    pub(in crate::protocol) fn begin(
        &mut self,
        channel: &Rc<Channel<P>>,
        (id, send_window): (u32, u32),
        parsed: Result<(Request, Option<u64>), ProxyError>,
        (end, arrived): (bool, Instant),
    ) {
        let length = parsed.as_ref().map_or(None, |(_, length)| *length);
        let stream = Stream::accepted(channel, id, send_window, (length, end));
        self.streams.insert(id, Rc::clone(&stream));
        let head = parsed
            .as_ref()
            .map_or(0, |(request, _)| request.fields.encoded_len());
        memory::leave(head, false);
        let request = parsed.map(|(request, _)| {
            let body = match end {
                true => Body::empty(),
                false => Body::source(Box::new(Incoming(Rc::clone(&stream)))),
            };
            Message { request, body }
        });
        if let Role::Server(accepting) = &mut self.role {
            accepting.accepted.push(Accepted {
                owner: Owner(stream),
                request,
                arrived,
                head,
            });
        }
    }
}
