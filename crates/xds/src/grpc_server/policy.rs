//! The identity of clients, and the authorization decisions of the server's operator.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use crate::Kind;
use crate::load::LoadReport;
use crate::server::Scope;
use maglor_identity::SpiffeId;
use tokio::sync::watch;

use crate::grpc_server::{CertifyRequest, CertifyResponse, Code, Node, Status};

/// What is known about the peer of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address of the peer.
    pub address: SocketAddr,
    /// The verified identity of the peer; `None` if the connection does not use mutual TLS of the mesh.
    pub identity: Option<SpiffeId>,
}

/// The future outcome of [`Policy::certify`].
pub type Certified<'a> = Pin<Box<dyn Future<Output = Result<CertifyResponse, Status>> + Send + 'a>>;

/// A value that is dropped when a stream ends.
pub type WhileOpen = Box<dyn Send>;

/// The decisions of the server's operator.
pub trait Policy: Send + Sync {
    /// Decides whether a peer may request resources or send reports at all, regardless of the identity that it will
    /// claim. Nothing is read from a rejected peer.
    ///
    /// # Errors
    /// The status with which the call of a rejected peer ends.
    fn admit(&self, peer: &Peer) -> Result<(), Status> {
        let _ = peer;
        Ok(())
    }

    /// Returns the resources that a peer that claims to be `node` may see.
    ///
    /// # Errors
    /// The status with which the stream ends if the peer may see nothing at all.
    fn authorize(&self, peer: &Peer, node: &Node) -> Result<Scope, Status>;

    /// Called after a client has acknowledged or rejected a response. `delays` contains the age of each change in it;
    /// `refused` is the kind of the rejected resources, `None` if none were rejected.
    fn answered(&self, delays: &[Duration], refused: Option<Kind>) {
        let (_, _) = (delays, refused);
    }

    /// Issues a certificate for a key. By default, all requests are rejected.
    fn certify<'a>(&'a self, peer: &'a Peer, request: CertifyRequest) -> Certified<'a> {
        let (_, _) = (peer, request);
        let status = Status::new(Code::Unimplemented, "certificates are disabled");
        Box::pin(async { Err(status) })
    }

    /// Returns the interval of the clients' load reports; `None`, the default, disables them.
    fn load_interval(&self) -> Option<Duration> {
        None
    }

    /// Returns a receiver that changes with the interval of load reports; `None`, the default, if it never changes.
    fn load_interval_changes(&self) -> Option<watch::Receiver<()>> {
        None
    }

    /// Called when a peer that claims to be `node`, and that [`Policy::authorize`] has accepted, begins to report. It
    /// omits reports without load: until the returned value is dropped, a missing report is one without load.
    fn omits_empty_loads(&self, peer: &Peer, node: &Node) -> Option<WhileOpen> {
        let (_, _) = (peer, node);
        None
    }

    /// Receives a load report of a peer that claims to be `node`, and that [`Policy::authorize`] has accepted before.
    ///
    /// # Errors
    /// The status with which the stream of reports ends if the report is rejected.
    fn load(&self, peer: &Peer, node: &Node, report: &LoadReport) -> Result<(), Status> {
        let (_, _, _) = (peer, node, report);
        Ok(())
    }
}
