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

/// What is known of the peer of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Who it has proved to be, where the connection is one of the mesh.
    pub identity: Option<SpiffeId>,
}

/// The outcome of [`Policy::certify`], some time later.
pub type Certified<'a> = Pin<Box<dyn Future<Output = Result<CertifyResponse, Status>> + Send + 'a>>;

/// What the server's operator decides.
pub trait Policy: Send + Sync {
    /// Whether a peer may ask for resources or report at all, regardless of the identity it will claim: nothing is
    /// read of one that may not.
    ///
    /// # Errors
    /// When it may not: its call ends so.
    fn admit(&self, peer: &Peer) -> Result<(), Status> {
        let _ = peer;
        Ok(())
    }

    /// Which resources a peer may see that says it is `node`.
    ///
    /// # Errors
    /// When it may see nothing at all: its stream ends so.
    fn authorize(&self, peer: &Peer, node: &Node) -> Result<Scope, Status>;

    /// A client has answered: how long each change that it was sent took since it was made, and the kind of the
    /// resources that it refuses, if it refuses any.
    fn answered(&self, delays: &[Duration], refused: Option<Kind>) {
        let (_, _) = (delays, refused);
    }

    /// Issues a certificate for a key; rejected by default.
    fn certify<'a>(&'a self, peer: &'a Peer, request: CertifyRequest) -> Certified<'a> {
        let (_, _) = (peer, request);
        let status = Status::new(Code::Unimplemented, "certificates are disabled");
        Box::pin(async { Err(status) })
    }

    /// How often clients are to report what they have sent where; by default never.
    fn load_interval(&self) -> Option<Duration> {
        None
    }

    /// Takes a report of a peer that says it is `node`; [`Policy::authorize`] has let it in before.
    ///
    /// # Errors
    /// If it is rejected: the status that ends its stream of reports.
    fn load(&self, peer: &Peer, node: &Node, report: &LoadReport) -> Result<(), Status> {
        let (_, _, _) = (peer, node, report);
        Ok(())
    }
}
