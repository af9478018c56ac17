//! A discovery stream: receives requests and sends responses as resources change.

use std::sync::Arc;

use crate::Message as _;
use crate::frame::{Deframer, frame};
use crate::proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use crate::server::{Nack, Protocol, Session};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::mpsc::{self, Sender};

use crate::grpc_server::body::{Answer, Part};
use crate::grpc_server::state::{Registered, State, closed};
use crate::grpc_server::{Code, Node, Peer, Status};

/// The maximum size of a request in bytes. A request that subscribes to ten thousand names has several hundred thousand
/// bytes.
const REQUEST: usize = 4 << 20;
/// The maximum memory of a stream's subscriptions by name, in bytes of names and of the state for each. It is
/// sufficient for about 25 000 resources.
const NAMED: usize = 8 << 20;
/// The maximum number of responses that are queued for a slow client.
const WAITING: usize = 8;

/// Starts the task of a discovery stream.
pub(crate) fn open(server: Arc<State>, peer: Peer, body: Incoming, protocol: Protocol) -> Answer {
    let (parts, receiver) = mpsc::channel(WAITING);
    let stream = Stream {
        requests: Requests::new(body),
        server,
        peer,
        protocol,
        parts,
    };
    tokio::spawn(stream.run());
    Answer::Stream(receiver)
}

struct Stream {
    server: Arc<State>,
    peer: Peer,
    requests: Requests,
    protocol: Protocol,
    parts: Sender<Part>,
}

/// The messages from a client.
pub(crate) struct Requests {
    body: Incoming,
    deframer: Deframer,
}

impl Requests {
    pub(crate) fn new(body: Incoming) -> Self {
        Self {
            body,
            deframer: Deframer::new(REQUEST),
        }
    }

    /// Returns the next message; `None` at the end. If the wait is cancelled, no message is lost.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            let message = self.deframer.message();
            let message =
                message.map_err(|error| Status::new(Code::ResourceExhausted, error.to_string()))?;
            if message.is_some() {
                return Ok(message);
            }
            match self.body.frame().await {
                Some(Ok(part)) => self.deframer.put(part.data_ref().map_or(&[], |data| data)),
                // The client has closed the stream or disconnected.
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}

/// A request of either protocol variant.
enum Asked {
    Delta(DeltaDiscoveryRequest),
    Whole(DiscoveryRequest),
}

impl Asked {
    fn decode(protocol: Protocol, message: Bytes) -> Result<Self, Status> {
        let decoded = match protocol {
            Protocol::Delta => DeltaDiscoveryRequest::decode(message).map(Self::Delta),
            Protocol::StateOfTheWorld => DiscoveryRequest::decode(message).map(Self::Whole),
        };
        decoded.map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))
    }

    fn node(&mut self) -> Option<Node> {
        match self {
            Self::Delta(request) => request.node.take(),
            Self::Whole(request) => request.node.take(),
        }
    }
}

impl Stream {
    async fn run(mut self) {
        if let Err(status) = self.serve_channel().await {
            // If the client has gone, the status has no receiver.
            let _ = self.parts.send(Err(status)).await;
        }
    }

    async fn serve_channel(&mut self) -> Result<(), Status> {
        let Some(message) = self.requests.next().await? else {
            return Ok(());
        };
        let mut first = Asked::decode(self.protocol, message)?;
        let node = first.node().filter(|node| !node.id.is_empty());
        let node = node.ok_or_else(|| {
            Status::new(Code::InvalidArgument, "the first request has no node.id")
        })?;
        let scope = self.server.policy.authorize(&self.peer, &node)?;
        let session = Session::new(self.protocol, &node.id, scope);
        let open = self.server.open(session, self.peer.clone());
        let mut changes = self.server.changes();
        let mut closing = self.server.closing();
        self.receive(&open, &first)?;
        drop(first);
        loop {
            // Marked before reading: a change during the read wakes the task again.
            changes.mark_unchanged();
            for response in self.due(&open) {
                if self.parts.send(Ok(response)).await.is_err() {
                    return Ok(());
                }
            }
            tokio::select! {
                message = self.requests.next() => match message? {
                    Some(message) => {
                        let asked = Asked::decode(self.protocol, message)?;
                        self.receive(&open, &asked)?;
                    }
                    None => return Ok(()),
                },
                _ = changes.changed() => {}
                () = self.parts.closed() => return Ok(()),
                () = closed(&mut closing) => {
                    return Err(Status::new(Code::Unavailable, "the server is shutting down"));
                }
            }
        }
    }

    fn receive(&self, open: &Registered, asked: &Asked) -> Result<(), Status> {
        let (nack, named, delays) = self.server.with(&open.session, |cache, session, now| {
            let nack = match asked {
                Asked::Delta(request) => session.receive_delta(cache, request, now),
                Asked::Whole(request) => session.receive_whole(cache, request, now),
            };
            (nack, session.named(), session.take_delays())
        });
        let refused = nack.as_ref().map(|nack| nack.kind);
        self.server.policy.answered(&delays, refused);
        if let Some(Nack {
            kind,
            reason,
            change,
            ..
        }) = nack
        {
            let (client, change) = (self.peer.address, change.0);
            tracing::warn!(%client, %kind, %reason, change, "client rejected a response (NACK)");
        }
        match named > NAMED {
            true => Err(Status::new(
                Code::ResourceExhausted,
                "too many resource names in this stream; use a wildcard subscription",
            )),
            false => Ok(()),
        }
    }

    /// Returns the responses that are due, as gRPC frames.
    fn due(&self, open: &Registered) -> Vec<Bytes> {
        self.server
            .with(&open.session, |cache, session, now| match self.protocol {
                Protocol::Delta => session.poll_delta(cache, now).iter().map(frame).collect(),
                Protocol::StateOfTheWorld => {
                    session.poll_whole(cache, now).iter().map(frame).collect()
                }
            })
    }
}
