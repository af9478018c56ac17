//! The client side of a connection.

use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;
use http::Version;
use http_body::Body as _;

use super::connection::{Channel, Closed, MeshTransport, Opening, Owner, Role, Stream};
use super::frame::{Decoder, flag, kind};
use super::protocol::encode_text;
use super::stream::RESPONSE;
use super::{CONNECTION_WINDOW, INITIAL_STREAMS, KEEPALIVE};
use crate::net::io::{self, Io};
use crate::protocol::error::Unanswered;
use crate::protocol::http1;
use crate::protocol::message::{Interim, Message, Request};
use crate::protocol::outbox::Outbox;
use crate::protocol::streams::{self, Begun, Driver, STREAM_WINDOW};

/// A connection to a server, which is closed when this is dropped.
pub(crate) type Client = streams::Client<MeshTransport>;
pub(crate) type Answered = streams::Answered<MeshTransport>;

impl Client {
    /// Creates a client on a connection; calls `ended` when the connection ends.
    pub(crate) fn start(io: Io, ended: impl FnOnce(Closed) + 'static) -> Self {
        let role = Role::Client(Opening {
            next: 1,
            max_streams: INITIAL_STREAMS,
            gone: false,
        });
        let channel = Channel::of(role, Outbox::default(), CONNECTION_WINDOW, ());
        let stream = io::Stream {
            io,
            prefix: Bytes::new(),
            guard: None,
        };
        let decoder = Decoder::new(RESPONSE.bytes);
        let mut driver = Driver::new(stream, decoder, KEEPALIVE, Rc::clone(&channel));
        tokio::task::spawn_local(async move {
            ended(poll_fn(|cx| driver.poll(cx)).await);
        });
        Self(channel)
    }

    /// Returns whether no further requests can be sent.
    pub(crate) fn is_gone(&self) -> bool {
        let core = self.0.core.borrow();
        let usable = matches!(&core.role, Role::Client(Opening { gone: false, next, .. }) if *next < u32::MAX);
        !usable || core.closed.is_some()
    }

    /// Returns the maximum number of concurrent requests that the server accepts.
    pub(crate) fn max_streams(&self) -> u32 {
        match &self.0.core.borrow().role {
            Role::Client(opening) => opening.max_streams,
            Role::Server(_) => 0,
        }
    }

    /// Sends a request, and returns when the head of the response was received.
    ///
    /// Not an `async fn`, whose future would reserve space for each argument twice.
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
            let mut begun = Begun::new(owner, &mut message.body, end);
            let head = poll_fn(|cx| begun.poll_head(interim, cx)).await;
            begun.answered(head, &mut message.body)
        }
    }

    fn open(&self, request: &Request, end: bool) -> Option<Owner> {
        if self.is_gone() {
            return None;
        }
        let core = &mut *self.0.core.borrow_mut();
        let Role::Client(opening) = &mut core.role else {
            return None;
        };
        let id = opening.next;
        opening.next += 1;
        let mut flags = if end { flag::END } else { 0 };
        if request.version == Version::HTTP_2 {
            flags |= flag::HTTP2;
        }
        encode_text(&mut core.output, kind::HEAD, flags, id, |out| {
            let target = request.path_and_query();
            http1::encode_request(&request.method, target, &request.fields, out);
            out.extend_from_slice(b"\r\n");
        });
        let windows = (STREAM_WINDOW, STREAM_WINDOW);
        let stream = Stream::opened(&self.0, id, windows, (&request.method, end));
        core.streams.insert(id, Rc::clone(&stream));
        self.0.wake();
        Some(streams::Owner(stream))
    }
}
