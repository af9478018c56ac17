//! The server side of one connection.

use std::rc::Rc;

use super::KEEPALIVE;
use super::connection::{Accepting, Admission, Channel, Closed, Core, Limits, Role};
use super::dispatch::Batch;
use super::frame::MAX_PAYLOAD;
use super::head::Unfit;
use super::inbox::Inbox;
use super::reason::Reason;
use super::repeated::Repeated;
use crate::net::io;
use crate::protocol::error::ProxyError;
use crate::protocol::streams::{self, Driver};

/// The server side of one connection.
pub(crate) type Server = streams::Server<super::connection::Http2>;

impl Limits {
    /// Returns the maximum length of a field block in bytes. It is larger than the limit of a head, so that a head
    /// somewhat above its limit still gets a response.
    pub(super) fn block(self) -> usize {
        self.head.bytes + MAX_PAYLOAD
    }
}

impl Admission {
    pub(super) fn new(limits: Limits, refuses: impl Fn() -> bool + 'static) -> Self {
        Self {
            limits,
            refuses: Box::new(refuses),
            repeated: Repeated::default(),
        }
    }

    /// Returns the limits that SETTINGS announce to the client: concurrent streams, and bytes of a head.
    pub(super) fn announced(&self) -> (u32, u32) {
        let bytes = u32::try_from(self.limits.head.bytes);
        (self.limits.streams, bytes.unwrap_or(u32::MAX))
    }
}

impl Server {
    /// Creates a server on a connection. `refuses` is called before a head is decoded, and returns whether memory is
    /// lacking.
    pub(crate) fn new(
        stream: io::Stream,
        limits: Limits,
        refuses: impl Fn() -> bool + 'static,
    ) -> Self {
        let admission = Admission::new(limits, refuses);
        let channel = Channel::new(Role::Server(Accepting::within(admission)));
        let inbox = Inbox::new(limits.block());
        let driver = Driver::new(stream, inbox, KEEPALIVE, Rc::clone(&channel));
        Self::of(channel, driver)
    }

    /// Returns whether the client's preface, or the rest of a head, is missing.
    pub(crate) fn is_in_head(&self) -> bool {
        let driver = self.driver.borrow();
        driver.ended.is_none() && driver.inbox.is_in_head()
    }

    /// Ends the connection because the preface or a head has taken too long.
    pub(crate) fn time_out(&self) {
        self.driver.borrow_mut().end(Closed::HeadTimeout);
        self.channel.wake();
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
        let Admission {
            limits,
            refuses,
            repeated,
        } = &mut accepting.admission;
        let limits = *limits;
        if id > accepting.until || self.streams.len() >= limits.streams as usize {
            batch.hpack.skip(block)?;
            return self.blame(batch, id, Reason::RefusedStream);
        }
        if circular {
            batch.hpack.skip(block)?;
            return self.blame(batch, id, Reason::Protocol);
        }
        // Checked before the head is decoded, which may be a hundred times larger than its HPACK encoding.
        let parsed = if refuses() {
            batch.hpack.skip(block)?;
            Err(ProxyError::MemoryBudget)
        } else {
            match repeated.request(batch.hpack, block, limits.head, end)? {
                Ok(head) => Ok(head),
                Err(Unfit::Refused(error)) => Err(ProxyError::DownstreamHead(error)),
                Err(Unfit::Malformed) => {
                    tracing::debug!(stream = id, "malformed HTTP/2 request");
                    return self.blame(batch, id, Reason::Protocol);
                }
            }
        };
        let windows = (id, self.more.stream_window);
        let parsed = parsed.map(|head| (head.request, head.length));
        self.begin(batch.channel, windows, parsed, (end, batch.now()));
        Ok(())
    }
}
