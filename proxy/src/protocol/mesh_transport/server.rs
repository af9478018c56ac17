//! The server side of a connection.

use std::rc::Rc;
use std::task::{Context, Poll};

use http::Version;

use super::Closed;
pub(crate) use super::connection::Accepted;
use super::connection::{Accepting, Channel, Core, Owner, Role, Stream};
use super::frame::{Malformed, Reason, kind};
use super::incoming::Incoming;
use super::stream::check_fields;
use crate::net::io::Io;
use crate::os::memory::{self, Level};
use crate::protocol::fields::Known;
use crate::protocol::http1::{self, Framing, HeadError, Limits};
use crate::protocol::message::{Body, Message, Request};

/// A connection from a client.
#[derive(Debug)]
pub(crate) struct Server(Rc<Channel>);

impl Accepting {
    pub(super) fn last(&self) -> u32 {
        self.last
    }
}

impl Server {
    /// Creates a server that accepts heads within `limits`, and up to `max_streams` concurrent requests.
    pub(crate) fn new(io: Io, limits: Limits, max_streams: u32) -> Self {
        let accepting = Accepting {
            limits,
            max_streams,
            last: 0,
            until: u32::MAX,
            accepted: Vec::new(),
        };
        let channel = Channel::new(io, limits.bytes, Role::Server(accepting));
        let words = [max_streams];
        let core = &mut *channel.core.borrow_mut();
        core.output.words(kind::SETTINGS, 0, &words);
        Self(Rc::clone(&channel))
    }

    /// Drives the connection; becomes ready when it has ended.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Closed> {
        self.0.poll(cx)
    }

    /// Returns the requests that have arrived since the last call and were not reset in the meantime.
    pub(crate) fn accepted(&self) -> impl Iterator<Item = Accepted> {
        let accepted = match &mut self.0.core.borrow_mut().role {
            Role::Server(accepting) => std::mem::take(&mut accepting.accepted),
            Role::Client { .. } => Vec::new(),
        };
        let live = |accepted: &Accepted| !accepted.owner.stream().is_closed();
        accepted.into_iter().filter(live)
    }

    /// Announces to the client that it should begin no further streams. Streams that it nevertheless begins are
    /// accepted.
    pub(crate) fn say_farewell(&self) {
        let words = [u32::MAX, Reason::Done as u32];
        let core = &mut *self.0.core.borrow_mut();
        core.output.words(kind::GOAWAY, 0, &words);
        self.0.wake();
    }

    /// Stops accepting streams; the connection ends when the accepted ones have ended.
    pub(crate) fn leave(&self) {
        {
            let core = &mut *self.0.core.borrow_mut();
            if let Role::Server(accepting) = &mut core.role {
                accepting.until = accepting.last;
            }
            core.goaway(Reason::Done);
        }
        self.0.leave();
    }
}

impl Drop for Server {
    /// Closes the connection: streams hold references to it and would keep it alive.
    fn drop(&mut self) {
        drop(self.accepted());
        self.0.close(Closed::Quiet);
    }
}

impl Core {
    /// Accepts a request whose head was received. `flags` are whether the request has no body, and whether it was
    /// originally HTTP/2.
    pub(super) fn accept(
        &mut self,
        channel: &Rc<Channel>,
        id: u32,
        text: Option<&[u8]>,
        flags: (bool, bool),
    ) -> Result<(), Malformed> {
        let busy = self.streams.len();
        let Role::Server(accepting) = &mut self.role else {
            return Err(Malformed::Stream(kind::HEAD));
        };
        if id <= accepting.last {
            return Err(Malformed::Stream(kind::HEAD));
        }
        accepting.last = id;
        let refused = busy >= accepting.max_streams as usize || memory::level() == Level::Full;
        if id > accepting.until || refused {
            self.reset(id, Reason::Refused);
            return Ok(());
        }
        let (end, http2) = flags;
        let text = text.ok_or(HeadError::TooLarge);
        let parsed = text.and_then(|text| parse(text, accepting.limits, end, http2));
        let length = parsed.as_ref().map_or(None, |(_, length)| *length);
        let stream = Stream::accepted(channel, id, length, end);
        self.streams.insert(id, Rc::clone(&stream));
        let body = match end {
            true => Body::empty(),
            false => Body::source(Box::new(Incoming(Rc::clone(&stream)))),
        };
        accepting.accepted.push(Accepted {
            owner: Owner(stream),
            request: parsed.map(|(request, _)| Message { request, body }),
        });
        Ok(())
    }
}

/// Parses a request and the length of its body; `None` if the length is unknown.
fn parse(
    text: &[u8],
    limits: Limits,
    end: bool,
    http2: bool,
) -> Result<(Request, Option<u64>), HeadError> {
    // The parser ignores an empty line before a request, for old HTTP/1.1 clients.
    if text.first().is_some_and(u8::is_ascii_whitespace) {
        return Err(HeadError::Malformed);
    }
    let Some((head, length)) = http1::parse_request(text, limits)? else {
        return Err(HeadError::Malformed);
    };
    if length != text.len() {
        return Err(HeadError::Malformed);
    }
    if head.framing == Framing::Chunked {
        return Err(HeadError::ConnectionField);
    }
    check_fields(&head.fields)?;
    let announced = match head.framing {
        Framing::Length(length) if head.fields.contains(Known::ContentLength) => Some(length),
        _ => None,
    };
    if end && announced.is_some_and(|length| length > 0) {
        return Err(HeadError::ContentLength);
    }
    let request = Request {
        method: head.method,
        target: head.target,
        version: if http2 {
            Version::HTTP_2
        } else {
            Version::HTTP_11
        },
        fields: head.fields,
    };
    Ok((request, announced))
}
