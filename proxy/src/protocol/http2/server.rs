//! The server side of one connection.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::KEEPALIVE;
use super::closed::Closed;
use super::connection::{Accepted, Accepting, Channel, Core, Limits, Owner, Role, Stream};
use super::dispatch::Batch;
use super::driver::{Driver, Inbox};
use super::frame::{LAST_STREAM, MAX_PAYLOAD};
use super::head::Unfit;
use super::incoming::Incoming;
use super::reason::Reason;
use super::repeated::Repeated;
use crate::net::io;
use crate::os::memory;
use crate::protocol::error::ProxyError;
use crate::protocol::http1;
use crate::protocol::message::{Body, Message};

impl Limits {
    /// Returns the maximum length of a field block in bytes. It is larger than the limit of a head, so that a head
    /// somewhat above its limit still gets a response.
    pub(super) fn block(self) -> usize {
        self.head.bytes + MAX_PAYLOAD
    }
}

/// The server side of one connection.
pub(crate) struct Server {
    channel: Rc<Channel>,
    driver: RefCell<Driver>,
}

impl Accepting {
    pub(super) fn new(limits: Limits, refuses: impl Fn() -> bool + 'static) -> Self {
        Self {
            limits,
            refuses: Box::new(refuses),
            last: 0,
            until: LAST_STREAM,
            repeated: Repeated::default(),
            accepted: Vec::new(),
        }
    }

    pub(super) fn last(&self) -> u32 {
        self.last
    }

    pub(super) fn limits(&self) -> http1::Limits {
        self.limits.head
    }

    /// Returns the limits that SETTINGS announce to the client: concurrent streams, and bytes of a head.
    pub(super) fn announced(&self) -> (u32, u32) {
        let bytes = u32::try_from(self.limits.head.bytes);
        (self.limits.streams, bytes.unwrap_or(u32::MAX))
    }

    /// Returns the requests that have arrived since the last call.
    pub(super) fn take_all(&mut self) -> Vec<Accepted> {
        std::mem::take(&mut self.accepted)
    }
}

/// Returns whether a request was not reset since it has arrived.
fn is_live(accepted: &Accepted) -> bool {
    let live = !accepted.owner.stream().is_closed();
    if !live {
        memory::adopt(accepted.head);
    }
    live
}

impl Server {
    /// Creates a server on a connection. `refuses` is called before a head is decoded, and returns whether memory is
    /// lacking.
    pub(crate) fn new(
        stream: io::Stream,
        limits: Limits,
        refuses: impl Fn() -> bool + 'static,
    ) -> Self {
        let accepting = Accepting::new(limits, refuses);
        let channel = Channel::new(Role::Server(accepting));
        let inbox = Inbox::new(limits.block());
        Self {
            driver: RefCell::new(Driver::new(stream, inbox, KEEPALIVE, Rc::clone(&channel))),
            channel,
        }
    }

    /// Drives the connection; becomes ready when it has ended.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Closed> {
        self.driver.borrow_mut().poll(cx)
    }

    /// Returns whether the client's preface, or the rest of a head, is missing.
    pub(crate) fn is_in_head(&self) -> bool {
        self.driver.borrow().is_in_head()
    }

    /// Ends the connection because the preface or a head has taken too long.
    pub(crate) fn time_out(&self) {
        self.driver.borrow_mut().end(Closed::HeadTimeout);
        self.channel.wake();
    }

    /// Returns the requests that have arrived since the last call and were not reset in the meantime.
    pub(crate) fn accepted(&self) -> impl Iterator<Item = Accepted> + use<> {
        let mut accepted = match &mut self.channel.core.borrow_mut().role {
            Role::Server(accepting) => accepting.take_all(),
            Role::Client(_) => Vec::new(),
        };
        accepted.retain(is_live);
        accepted.into_iter()
    }

    /// Announces to the client that it should begin no further streams. Streams that it nevertheless begins are
    /// accepted (RFC 9113, section 6.8).
    pub(crate) fn say_farewell(&self) {
        let core = &mut *self.channel.core.borrow_mut();
        core.goaway(LAST_STREAM, Reason::NoError);
        self.channel.wake();
    }

    /// Stops accepting streams; the connection ends when the accepted ones have ended.
    pub(crate) fn leave(&self) {
        let core = &mut *self.channel.core.borrow_mut();
        let last = core.last_accepted();
        if let Role::Server(accepting) = &mut core.role {
            accepting.until = last;
        }
        core.leaving = true;
        core.goaway(last, Reason::NoError);
        self.channel.wake();
    }
}

impl Drop for Server {
    /// Closes the connection: streams hold references to it and would keep it alive.
    fn drop(&mut self) {
        drop(self.accepted());
        self.channel.close(Closed::Quiet);
    }
}

impl Core {
    /// Accepts a request whose head was received. `flags` are whether the request has no body, and whether its stream
    /// depends on itself.
    pub(super) fn accept(
        &mut self,
        batch: &mut Batch<'_>,
        id: u32,
        block: &[u8],
        (end, circular): (bool, bool),
    ) -> Result<(), Closed> {
        let Role::Server(accepting) = &mut self.role else {
            return Ok(());
        };
        accepting.last = id;
        let limits = accepting.limits;
        if id > accepting.until || self.streams.len() >= limits.streams as usize {
            batch.hpack.skip(block)?;
            return self.blame(batch, id, Reason::RefusedStream);
        }
        if circular {
            batch.hpack.skip(block)?;
            return self.blame(batch, id, Reason::Protocol);
        }
        // Checked before the head is decoded, which may be a hundred times larger than its HPACK encoding.
        let parsed = if (accepting.refuses)() {
            batch.hpack.skip(block)?;
            Err(ProxyError::MemoryBudget)
        } else {
            let repeated = &mut accepting.repeated;
            match repeated.request(batch.hpack, block, limits.head, end)? {
                Ok(head) => Ok(head),
                Err(Unfit::Refused(error)) => Err(ProxyError::DownstreamHead(error)),
                Err(Unfit::Malformed) => {
                    tracing::debug!(stream = id, "malformed HTTP/2 request");
                    return self.blame(batch, id, Reason::Protocol);
                }
            }
        };
        let length = parsed.as_ref().map_or(None, |head| head.length);
        let stream = Stream::accepted(batch.channel, id, self.stream_window, (length, end));
        self.streams.insert(id, Rc::clone(&stream));
        let head = parsed
            .as_ref()
            .map_or(0, |head| head.request.fields.encoded_len());
        memory::leave(head, false);
        let request = parsed.map(|head| {
            let body = match end {
                true => Body::empty(),
                false => Body::source(Box::new(Incoming(Rc::clone(&stream)))),
            };
            Message {
                request: head.request,
                body,
            }
        });
        if let Role::Server(accepting) = &mut self.role {
            accepting.accepted.push(Accepted {
                owner: Owner(stream),
                request,
                arrived: batch.now(),
                head,
            });
        }
        Ok(())
    }
}
