//! The list of connected clients, which is shown to operators.

use std::sync::Arc;
use std::time::Duration;

use crate::Kind;
use crate::server::{Nack, Protocol, Session};

use crate::grpc_server::Peer;

/// The state of one stream.
#[derive(Clone, Debug)]
pub struct SessionReport {
    /// The node ID of the client.
    pub node: Arc<str>,
    /// The client's verified identity and its address.
    pub peer: Peer,
    /// The protocol variant of the stream.
    pub protocol: Protocol,
    /// The time since the stream was opened.
    pub age: Duration,
    /// The number of resources requested by name, for each kind.
    pub subscribed: Vec<(Kind, usize)>,
    /// The rejected resources for which no later version has been sent.
    pub nacks: Vec<Nack>,
}

impl SessionReport {
    pub(crate) fn new(session: &Session, peer: &Peer, age: Duration) -> Self {
        let count = |kind| (kind, session.subscribed(kind));
        Self {
            node: Arc::clone(session.node()),
            peer: peer.clone(),
            protocol: session.protocol(),
            age,
            subscribed: Kind::ALL.map(count).to_vec(),
            nacks: session.nacks().cloned().collect(),
        }
    }
}
