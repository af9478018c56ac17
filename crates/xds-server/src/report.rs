//! The list of connected clients, for operators.

use std::sync::Arc;
use std::time::Duration;

use maglor_xds::Kind;
use maglor_xds::server::{Nack, Protocol, Session};

use crate::Peer;

/// The state of one stream.
#[derive(Clone, Debug)]
pub struct SessionReport {
    /// The client's node id.
    pub node: Arc<str>,
    /// Its verified identity and its address.
    pub peer: Peer,
    /// The protocol variant in use.
    pub protocol: Protocol,
    /// The age of the stream.
    pub age: Duration,
    /// The number of resources requested by name, by kind.
    pub subscribed: Vec<(Kind, usize)>,
    /// Rejected resources for which no later version has been sent yet.
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
