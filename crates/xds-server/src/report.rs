//! The list of connected clients, for operators.

use std::sync::Arc;
use std::time::Duration;

use maglor_xds::Kind;
use maglor_xds::server::{Nack, Protocol, Session};

use crate::Peer;

/// One stream.
#[derive(Clone, Debug)]
pub struct SessionReport {
    /// The client's node id.
    pub node: Arc<str>,
    /// Who it has proved to be, and from where.
    pub peer: Peer,
    /// How it speaks.
    pub protocol: Protocol,
    /// For how long.
    pub age: Duration,
    /// How many resources it asks for by name, by kind.
    pub subscribed: Vec<(Kind, usize)>,
    /// What it has refused and not been sent better since.
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
