//! The server side of a connection.

use std::rc::Rc;

use http::Version;
use tokio::time::Instant;

use super::connection::{Accepting, Admission, Channel, Core, MeshTransport, Role};
use super::frame::{Decoder, Malformed, Reason, encode_words, kind};
use super::stream::check_fields;
use super::{CONNECTION_WINDOW, KEEPALIVE};
use crate::net::io;
use crate::os::memory::{self, Level};
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Known;
use crate::protocol::http1::{self, Framing, HeadError, Limits};
use crate::protocol::message::Request;
use crate::protocol::outbox::Outbox;
use crate::protocol::streams::{self, Driver, STREAM_WINDOW};

/// A connection from a client.
pub(crate) type Server = streams::Server<MeshTransport>;

impl Server {
    /// Creates a server that accepts heads within `limits`, and up to `max_streams` concurrent requests.
    pub(crate) fn new(stream: io::Stream, limits: Limits, max_streams: u32) -> Self {
        let accepting = Accepting::within(Admission {
            limits,
            max_streams,
        });
        let mut output = Outbox::default();
        encode_words(kind::SETTINGS, 0, &[max_streams], output.tail());
        let channel = Channel::of(Role::Server(accepting), output, CONNECTION_WINDOW, ());
        let decoder = Decoder::new(limits.bytes);
        let driver = Driver::new(stream, decoder, KEEPALIVE, Rc::clone(&channel));
        Self::of(channel, driver)
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
        (end, http2): (bool, bool),
        arrived: Instant,
    ) -> Result<(), Malformed> {
        let busy = self.streams.len();
        let Role::Server(accepting) = &mut self.role else {
            return Err(Malformed::Stream(kind::HEAD));
        };
        if id <= accepting.last {
            return Err(Malformed::Stream(kind::HEAD));
        }
        accepting.last = id;
        let Admission {
            limits,
            max_streams,
        } = accepting.admission;
        let refused = busy >= max_streams as usize || memory::level() == Level::Full;
        if id > accepting.until || refused {
            self.reset(id, Reason::Refused);
            return Ok(());
        }
        let text = text.ok_or(HeadError::TooLarge);
        let parsed = text.and_then(|text| parse(text, limits, end, http2));
        let parsed = parsed.map_err(ProxyError::DownstreamHead);
        self.begin(channel, (id, STREAM_WINDOW), parsed, (end, arrived));
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
