//! Whether a request is allowed, and for whom: its client, or who a proxy in front says it is.

use maglor_config::tls::MeshMode;

use crate::http::accounting::Record;
use crate::http::client::assertion::Assertion;
use crate::http::connection::Service;
use crate::http::reply;
use crate::mesh::authorization::{Denied, Facts, RequestFacts};
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Known;
use crate::protocol::message::{Account as _, Request, Response};
use crate::routing::route::{Table, without_port};

/// What a request is denied by whose client nobody can make out.
const UNREADABLE: &str = "x-maglor-client";
/// What a request is denied by that a proxy in front has taken in plain text, where that is not taken.
const UNIDENTIFIED: &str = "mtls";

impl Service {
    /// Who the client of a request is, where that is said by a proxy in front that is believed.
    ///
    /// # Errors
    /// Where that cannot be read, or is somebody who could not have come here without it.
    pub(super) fn asserted_client(
        &self,
        request: &Request,
        table: &Table,
    ) -> Result<Option<Assertion>, Denied> {
        let peer = self.client.peer();
        if !peer.is_some_and(|peer| table.delegates.contains(peer)) {
            return Ok(None);
        }
        let asserted = Assertion::of(&request.fields).map_err(|_| Denied(UNREADABLE.into()))?;
        let unidentified = asserted
            .as_ref()
            .is_some_and(|asserted| asserted.id.is_none());
        if unidentified && self.chain.mesh == Some(MeshMode::Strict) {
            return Err(Denied(UNIDENTIFIED.into()));
        }
        Ok(asserted)
    }

    /// Whether the listener's rules allow the request.
    pub(super) fn authorize(&self, request: &Request, table: &Table) -> Result<(), Denied> {
        let asserted = self.asserted_client(request, table)?;
        let Some(authorization) = &table.authorization else {
            return Ok(());
        };
        let own = self.client.peer();
        // What a proxy in front asks for itself is how busy the server is.
        if own.is_some_and(|own| table.delegates.contains(own)) && self.is_channel_upgrade(request)
        {
            return Ok(());
        }
        let host = request.host().unwrap_or_default();
        let facts = Facts {
            peer: asserted
                .as_ref()
                .map_or(own, |asserted| asserted.id.as_ref()),
            client: match &asserted {
                Some(asserted) => asserted.ip,
                None => self.client.address.ip(),
            },
            port: self.ends.map(|ends| ends.destination.port()),
            request: Some(RequestFacts {
                method: &request.method,
                path: request.path(),
                host: str::from_utf8(host).map_or(host, |host| without_port(host).as_bytes()),
                fields: &request.fields,
            }),
        };
        authorization.check(&facts, self.worker.shard())
    }

    /// The answer to a request that is not allowed. Only members of the mesh are told by which rule.
    pub(super) fn deny(&self, denied: &Denied, grpc: bool, record: &mut Record) -> Response {
        record.unrouted(&self.chain.unrouted);
        record.fail(&ProxyError::Denied);
        let mut response = reply::error(&ProxyError::Denied, self.server(), grpc);
        if self.client.peer().is_some() {
            let Denied(rule) = denied;
            response.fields.push(Known::XMaglorDenied, rule.as_bytes());
        }
        response
    }
}
