//! The addresses of a proxy, and where its clients connect.

use std::net::SocketAddr;

use super::Peer;
use super::origin::Origin;
use super::scratch::Scratch;
use crate::error::Result;
use crate::ports;

/// The addresses of one proxy, or of a pair.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) h1: SocketAddr,
    pub(super) h2: SocketAddr,
    pub(super) admin: SocketAddr,
    /// Where the proxy beside the server listens.
    pub(super) inbound: SocketAddr,
    pub(super) upstreams: [SocketAddr; 2],
    /// For the proxy that cannot translate between protocols.
    pub(super) origin_h2: SocketAddr,
    /// Where clients connect, by protocol: the proxy itself, or a service that is redirected to it.
    pub(super) clients: [SocketAddr; 2],
    /// Where the proxy beside the client connects: the proxy beside the server, or a pod that is redirected to it.
    pub(super) server: SocketAddr,
    /// The group of the proxy beside the server, whose connections to the pod are not redirected.
    pub(super) group: Option<u32>,
    /// The number of clients' connections for which there has to be room.
    pub(super) connections: usize,
}

impl Places {
    /// Chooses free ports: Maglor detects HTTP/1.1 and HTTP/2 on one port, the others need two. Behind a redirection,
    /// chooses a service, too, and redirects it.
    pub(super) fn choose(peer: &Peer, origin: &Origin) -> Result<Self> {
        let h1 = ports::free()?;
        let h2 = if peer.subject.is_maglor() {
            h1
        } else {
            ports::free()?
        };
        let inbound = ports::free()?;
        let mut places = Self {
            h1,
            h2,
            admin: ports::free()?,
            inbound,
            upstreams: origin.upstreams,
            origin_h2: origin.h2,
            clients: [h1, h2],
            server: inbound,
            group: None,
            connections: peer.connections,
        };
        if let Some(redirection) = origin.redirection {
            let service = redirection.service()?;
            places.group = Some(service.group);
            places.clients = [h1, h2].map(|own| SocketAddr::new(service.address, own.port()));
            places.server = SocketAddr::new(service.pod, origin.upstreams[0].port());
            let mut from_to = vec![(places.clients[0], h1), (places.server, inbound)];
            from_to.extend((h1 != h2).then_some((places.clients[1], h2)));
            redirection.redirect(&from_to)?;
        }
        Ok(places)
    }

    /// Fills in the addresses, and the directory of certificates, in a template.
    pub(super) fn fill(&self, template: &str, scratch: &Scratch) -> String {
        let [first, second] = self.upstreams;
        let mut text = template.replace("{{dir}}", &scratch.path().display().to_string());
        text = text.replace("{{connections}}", &self.connections.to_string());
        for (name, address) in [("upstream_ip", first), ("server_ip", self.server)] {
            text = text.replace(&format!("{{{{{name}}}}}"), &address.ip().to_string());
        }
        for (name, address) in [
            ("h1", self.h1),
            ("h2", self.h2),
            ("admin", self.admin),
            ("inbound", self.inbound),
            ("upstream_1", first),
            ("upstream_2", second),
            ("server", self.server),
        ] {
            text = text.replace(&format!("{{{{{name}}}}}"), &address.port().to_string());
        }
        text
    }
}
