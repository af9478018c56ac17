//! Who asks, and what the operator of the server says to that.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use maglor_identity::SpiffeId;
use maglor_xds::server::Scope;

use crate::{CertifyRequest, CertifyResponse, Code, Node, Status};

/// What is known of whoever is at the other end of a connection.
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
    /// Which resources a peer may see that says it is `node`.
    ///
    /// # Errors
    /// When it may see nothing at all: its stream ends so.
    fn authorize(&self, peer: &Peer, node: &Node) -> Result<Scope, Status>;

    /// Certifies a key; by default nobody's.
    fn certify<'a>(&'a self, peer: &'a Peer, request: CertifyRequest) -> Certified<'a> {
        let (_, _) = (peer, request);
        let status = Status::new(Code::Unimplemented, "nobody is certified here");
        Box::pin(async { Err(status) })
    }
}
