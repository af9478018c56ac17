//! The identity of clients, and the operator's authorization of them.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use maglor_identity::SpiffeId;
use maglor_xds::Kind;
use maglor_xds::load::LoadReport;
use maglor_xds::server::Scope;

use crate::{CertifyRequest, CertifyResponse, Code, Node, Status};

/// The known facts about the peer of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Its verified identity, if the connection uses mutual TLS of the mesh.
    pub identity: Option<SpiffeId>,
}

/// The future outcome of [`Policy::certify`].
pub type Certified<'a> = Pin<Box<dyn Future<Output = Result<CertifyResponse, Status>> + Send + 'a>>;

/// The decisions of the server's operator.
pub trait Policy: Send + Sync {
    /// Decides whether a peer may request resources or send reports at all, regardless of the
    /// identity it will claim. Nothing is read from a peer that may not.
    ///
    /// # Errors
    /// When it may not: the status ends its call.
    fn admit(&self, peer: &Peer) -> Result<(), Status> {
        let _ = peer;
        Ok(())
    }

    /// Returns the resources that a peer may see that claims to be `node`.
    ///
    /// # Errors
    /// When it may see nothing at all: the status ends its stream.
    fn authorize(&self, peer: &Peer, node: &Node) -> Result<Scope, Status>;

    /// Called after a client has acknowledged or rejected: `delays` holds the age of each change
    /// that it was sent, `refused` the kind of the resources that it rejects, if any.
    fn answered(&self, delays: &[Duration], refused: Option<Kind>) {
        let (_, _) = (delays, refused);
    }

    /// Issues a certificate for a key; rejected by default.
    fn certify<'a>(&'a self, peer: &'a Peer, request: CertifyRequest) -> Certified<'a> {
        let (_, _) = (peer, request);
        let status = Status::new(Code::Unimplemented, "certificates are disabled");
        Box::pin(async { Err(status) })
    }

    /// Returns the interval of the clients' load reports; `None`, the default, disables them.
    fn load_interval(&self) -> Option<Duration> {
        None
    }

    /// Receives a load report of a peer that claims to be `node`; [`Policy::authorize`] has
    /// accepted it before.
    ///
    /// # Errors
    /// If it is rejected: the status that ends its stream of reports.
    fn load(&self, peer: &Peer, node: &Node, report: &LoadReport) -> Result<(), Status> {
        let (_, _, _) = (peer, node, report);
        Ok(())
    }
}
