//! Shared connections of one worker to one endpoint: HTTP/2, or the mesh transport.
//!
//! Requests share a connection up to `max_concurrent_streams`; beyond this, another connection is opened. At most one
//! connection is opened at a time, so that a burst of requests does not cause a burst of handshakes. Requests that
//! wait for a connection also share its failure; otherwise they would time out one after another.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::io;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, Version};
use http_body::{Frame, SizeHint};
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};
use tokio::time::Instant;

use super::Sender;
use crate::net::io::Io;
use crate::os::memory;
use crate::protocol::error::{ProxyError, Unanswered};
use crate::protocol::fields::{Fields, Known};
use crate::protocol::http2;
use crate::protocol::http2::client::Outgoing;
use crate::protocol::mesh_transport;
use crate::protocol::mesh_transport::client::Client;
use crate::protocol::message::{Body, Message, Request, Response, Source};
use crate::protocol::streams::{Answered, Incoming, Owner, Protocol};
use crate::telemetry::metrics::Failures;
use crate::upstream::Open;

/// Shared connections to one endpoint.
#[derive(Debug)]
pub(crate) struct Multiplexed {
    connections: RefCell<Vec<Rc<Connection>>>,
    opening: Arc<Mutex<()>>,
    /// Number of failed connection attempts, and the reason of the last failure.
    failed: RefCell<(u64, Option<Unopened>)>,
    /// Maximum number of requests of each connection.
    max_requests: Cell<Option<NonZeroU32>>,
    /// Whether the endpoint chose HTTP/1.1 at the last negotiation.
    declined: Cell<bool>,
    /// Notified when a stream has ended.
    returned: Rc<Notify>,
}

#[derive(Debug)]
struct Connection {
    carrier: Carrier,
    streams: Cell<u32>,
    /// Number of requests so far.
    requests: Cell<u32>,
    idle_since: Cell<Instant>,
    /// Whether the endpoint has refused a request on this connection.
    gone: Cell<bool>,
    returned: Rc<Notify>,
    open: Open,
}

/// Protocol of a connection.
#[derive(Debug)]
enum Carrier {
    Http2(http2::Client),
    MeshTransport(Client),
}

impl Connection {
    fn is_gone(&self) -> bool {
        self.gone.get()
            || match &self.carrier {
                Carrier::Http2(http2) => http2.is_gone(),
                Carrier::MeshTransport(client) => client.is_gone(),
            }
    }

    /// Returns whether the connection accepts no further requests, for any reason.
    fn is_worn(&self, max_requests: Option<NonZeroU32>) -> bool {
        self.is_gone() || max_requests.is_some_and(|most| self.requests.get() >= most.get())
    }

    /// Returns whether a new body may currently have to wait for others.
    fn is_short(&self) -> bool {
        match &self.carrier {
            Carrier::Http2(http2) => http2.is_short(),
            Carrier::MeshTransport(_) => false,
        }
    }

    /// Returns whether bodies that the endpoint does not read can delay others.
    fn has_shared_window(&self) -> bool {
        matches!(self.carrier, Carrier::Http2(_))
    }

    /// Returns whether a new body need not wait for others. An endpoint may give a connection only as much credit as
    /// a single stream, all of which an unread upload can hold permanently.
    fn has_credit(&self, now: Instant) -> bool {
        match &self.carrier {
            Carrier::Http2(http2) => http2.has_credit(now),
            // Both ends renew the connection's credit independently of the streams.
            Carrier::MeshTransport(_) => true,
        }
    }

    /// Returns whether another request may share the connection.
    fn has_room(&self, max_streams: u32) -> bool {
        let max_streams = match &self.carrier {
            Carrier::Http2(http2) => max_streams.min(http2.max_streams()),
            Carrier::MeshTransport(client) => max_streams.min(client.max_streams()),
        };
        self.streams.get() < max_streams
    }
}

/// A request's slot on a connection; released on drop.
#[derive(Debug)]
pub(crate) struct Slot(Rc<Connection>);

impl Drop for Slot {
    fn drop(&mut self) {
        let Connection {
            streams,
            returned,
            open,
            ..
        } = &*self.0;
        streams.set(streams.get() - 1);
        returned.notify_one();
        if streams.get() == 0 {
            open.offer();
        }
    }
}

impl Multiplexed {
    pub(crate) fn new(returned: Rc<Notify>) -> Self {
        Self {
            connections: RefCell::default(),
            opening: Arc::default(),
            failed: RefCell::default(),
            max_requests: Cell::new(None),
            declined: Cell::new(false),
            returned,
        }
    }

    /// Sets the maximum number of requests of each connection.
    pub(super) fn set_max_requests(&self, most: Option<NonZeroU32>) {
        self.max_requests.set(most);
    }

    /// Returns whether connections serve more than one request at a time, so that waiting for one is worthwhile.
    fn is_shared(&self) -> bool {
        self.max_requests.get() != Some(NonZeroU32::MIN)
    }

    fn failures(&self) -> u64 {
        self.failed.borrow().0
    }

    /// Returns the error of the last failed attempt, if more than `before` attempts have failed.
    ///
    /// # Errors
    /// The reason of that failure.
    pub(super) fn share_failure(&self, before: u64) -> Result<(), ProxyError> {
        match &*self.failed.borrow() {
            (failures, Some(why)) if *failures != before => Err(why.again()),
            _ => Ok(()),
        }
    }

    /// Records the reason of a failed attempt, for the requests that wait for the attempt.
    pub(super) fn note_failure(&self, error: &ProxyError) {
        let failures = self.failures() + 1;
        *self.failed.borrow_mut() = (failures, Unopened::of(error));
    }

    /// Returns whether the endpoint chose HTTP/1.1 at the last negotiation.
    pub(crate) fn is_declined(&self) -> bool {
        self.declined.get()
    }

    /// Waits for the turn to open a connection. Returns immediately if the endpoint last chose a protocol without
    /// shared connections, or if connections are not shared.
    pub(crate) async fn turn(&self) -> Opening {
        let before = self.failures();
        let turn = match self.is_declined() || !self.is_shared() {
            true => None,
            false => Some(Arc::clone(&self.opening).lock_owned().await),
        };
        Opening {
            // Requests that have waited for an attempt with this outcome need no turn, either.
            turn: turn.filter(|_| !self.is_declined()),
            before,
        }
    }

    /// Records the protocol that the endpoint has chosen.
    pub(crate) fn learn(&self, shared: bool) {
        self.declined.set(!shared);
    }

    /// Creates a shared connection from a stream with a shareable protocol, and takes a slot on it.
    pub(crate) fn adopt(
        &self,
        io: Io,
        now: Instant,
        open: Open,
        failures: Option<Arc<Failures>>,
    ) -> Slot {
        let carrier = match io.alpn() {
            Some(mesh_transport::ALPN) => {
                Carrier::MeshTransport(Client::start(io, move |closed| {
                    tracing::debug!(%closed, "connection to a member of the mesh ended");
                    if let Some(failures) = failures {
                        failures.count(closed);
                    }
                }))
            }
            _ => Carrier::Http2(http2::Client::start(io, http2::client::REQUESTS)),
        };
        let connection = Rc::new(Connection {
            carrier,
            streams: Cell::new(0),
            requests: Cell::new(0),
            idle_since: Cell::new(now),
            gone: Cell::new(false),
            returned: Rc::clone(&self.returned),
            open,
        });
        self.connections.borrow_mut().push(Rc::clone(&connection));
        occupy(&connection, now)
    }

    /// Returns a slot on an existing connection with fewer streams than `max_streams`; for a request that needs
    /// `credit`, on a connection that has it.
    ///
    /// The fullest connection is filled first, so that frames of many requests are read and written together, and
    /// connections that traffic does not need become idle. Only bodies that share a window are distributed over
    /// connections.
    pub(crate) fn free_slot(&self, now: Instant, max_streams: u32, credit: bool) -> Option<Slot> {
        let mut connections = self.connections.borrow_mut();
        let most = self.max_requests.get();
        let is_free = |c: &Connection| {
            c.has_room(max_streams) && (!credit || c.has_credit(now)) && !c.is_worn(most)
        };
        // The last one is being filled; no other is inspected while it has room.
        if let Some(last) = connections.last()
            && is_free(last)
            && !(credit && last.has_shared_window())
        {
            return Some(occupy(last, now));
        }
        connections.retain(|connection| !connection.is_worn(most));
        let free = connections.iter().enumerate().filter(|(_, c)| is_free(c));
        let key = |(_, c): &(usize, &Rc<Connection>)| match credit && c.has_shared_window() {
            true => (c.is_short(), c.streams.get()),
            false => (false, u32::MAX - c.streams.get()),
        };
        let (chosen, _) = free.min_by_key(key)?;
        let last = connections.len() - 1;
        connections.swap(chosen, last);
        connections.last().map(|c| occupy(c, now))
    }

    /// Closes a connection without streams; returns whether there was one.
    pub(super) fn close_one_idle(&self) -> bool {
        let mut connections = self.connections.borrow_mut();
        let idle = connections.iter().position(|c| c.streams.get() == 0);
        let closed = idle.map(|at| connections.swap_remove(at));
        drop(connections);
        closed.is_some()
    }

    /// Drops all connections, which close when their streams have ended.
    pub(super) fn leave(&self) {
        self.connections.borrow_mut().clear();
    }

    /// Closes connections without streams whose idle timeout has passed.
    pub(crate) fn sweep(&self, now: Instant, idle_timeout: Duration) {
        self.connections.borrow_mut().retain(|connection| {
            let busy = connection.streams.get() > 0;
            if busy {
                connection.idle_since.set(now);
            }
            let fresh = now - connection.idle_since.get() < idle_timeout;
            !connection.is_worn(self.max_requests.get()) && (busy || fresh)
        });
    }
}

/// The result of [`Multiplexed::turn`].
pub(crate) struct Opening {
    /// The turn, held by the attempt and not by the request, because later requests wait for the attempt.
    pub(super) turn: Option<Turn>,
    /// Number of failed attempts before the wait.
    pub(super) before: u64,
}

pub(super) type Turn = OwnedMutexGuard<()>;

/// Reason why a connection could not be opened.
#[derive(Debug)]
enum Unopened {
    Late,
    Left,
    Failed(io::ErrorKind, String),
    System(i32),
}

impl Unopened {
    /// Converts an error; `None` if it concerns only one request.
    fn of(error: &ProxyError) -> Option<Self> {
        match error {
            ProxyError::ConnectTimeout => Some(Self::Late),
            ProxyError::EndpointLeft => Some(Self::Left),
            ProxyError::Connect(error) => Some(match error.raw_os_error() {
                Some(code) => Self::System(code),
                None => Self::Failed(error.kind(), error.to_string()),
            }),
            _ => None,
        }
    }

    /// Returns the same error for another request.
    fn again(&self) -> ProxyError {
        match self {
            Self::Late => ProxyError::ConnectTimeout,
            Self::Left => ProxyError::EndpointLeft,
            Self::Failed(kind, why) => ProxyError::Connect(io::Error::new(*kind, why.clone())),
            Self::System(code) => ProxyError::Connect(io::Error::from_raw_os_error(*code)),
        }
    }
}

fn occupy(connection: &Rc<Connection>, now: Instant) -> Slot {
    connection.streams.set(connection.streams.get() + 1);
    let requests = connection.requests.get().saturating_add(1);
    connection.requests.set(requests);
    connection.idle_since.set(now);
    Slot(Rc::clone(connection))
}

impl Slot {
    /// Sends a request and returns the response as soon as its head has arrived.
    pub(crate) fn round_trip(
        self,
        hop: &Sender<'_>,
        message: &mut Message,
    ) -> impl Future<Output = Result<Response, Unanswered>> {
        async move {
            match &self.0.carrier {
                Carrier::Http2(client) => {
                    let Message { request, body } = message;
                    let outgoing = over_http2(hop, request);
                    match client.round_trip(outgoing, body, hop.interim).await {
                        Ok(answered) => Ok(self.response(answered)),
                        Err(error) => Err(self.unanswered(error)),
                    }
                }
                Carrier::MeshTransport(client) => {
                    match client.round_trip(message, hop.interim).await {
                        Ok(answered) => Ok(self.response(answered)),
                        Err(error) => Err(self.unanswered(error)),
                    }
                }
            }
        }
    }

    fn unanswered(&self, error: Unanswered) -> Unanswered {
        if let Unanswered::NotSent = error {
            // A connection on which a request was refused accepts no others.
            self.0.gone.set(true);
        }
        error
    }

    /// Returns a response; its body holds the slot.
    fn response<P: Protocol>(self, answered: Answered<P>) -> Response {
        let Answered { head, body } = answered;
        let body = body.map_or_else(Body::empty, |(incoming, owner)| {
            Body::source(Box::new(ResponseBody {
                incoming,
                _owner: owner,
                _slot: self,
            }))
        });
        Response {
            status: head.status,
            fields: head.fields,
            body,
        }
    }
}

/// Body of a response. It holds the request's slot on the connection.
#[derive(Debug)]
struct ResponseBody<P: Protocol> {
    incoming: Incoming<P>,
    _owner: Owner<P>,
    _slot: Slot,
}

/// Prepares a request for HTTP/2.
fn over_http2<'a>(hop: &Sender<'_>, request: &'a Request) -> Outgoing<'a> {
    if request.fields.contains(Known::Expect) {
        // The endpoint's window limits the upload, so the client need not wait.
        if let Some(interim) = hop.interim {
            interim.send(StatusCode::CONTINUE, &Fields::default());
        }
    }
    Outgoing {
        request,
        https: hop.cluster.tls().is_some(),
        marks_http1: request.version < Version::HTTP_2 && hop.is_in_mesh(),
    }
}

impl<P: Protocol> Source for ResponseBody<P> {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let frame = self.incoming.poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            memory::adopt(frame.data_ref().map_or(0, Bytes::len));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
