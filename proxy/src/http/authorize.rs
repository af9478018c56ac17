//! The rules of the listener for a request.

use maglor_config::tls::MeshMode;

use super::accounting::Accounting;
use super::client::assertion::Assertion;
use super::connection::Service;
use super::reply;
use crate::mesh::authorization::{Denied, Facts, RequestFacts};
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Known;
use crate::protocol::message::{Account, Request, Response};
use crate::routing::route::{Table, without_port};

/// The rule that denies a request with an unreadable client assertion.
const UNREADABLE: &str = "x-maglor-client";
/// The rule that denies a request that a trusted proxy has received in plain text, where mTLS is required.
const UNIDENTIFIED: &str = "mtls";

impl Service {
    /// Returns the client of a request that a trusted proxy in front has asserted, if there is one.
    ///
    /// # Errors
    /// If the assertion cannot be parsed, or has no identity where mTLS is required.
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

    /// Checks the listener's rules for the request.
    pub(super) fn authorize(&self, request: &Request, table: &Table) -> Result<(), Denied> {
        let asserted = self.asserted_client(request, table)?;
        let Some(authorization) = &table.authorization else {
            return Ok(());
        };
        let own = self.client.peer();
        // A request that a trusted proxy makes for itself opens a channel for load reports.
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
            port: self.destination.map(|address| address.port()),
            request: Some(RequestFacts {
                method: &request.method,
                path: request.path(),
                host: str::from_utf8(host).map_or(host, |host| without_port(host).as_bytes()),
                fields: &request.fields,
            }),
        };
        authorization.check(&facts, self.worker.shard())
    }

    /// Returns the response to a request that is not allowed. The name of the rule is sent to mesh members only.
    pub(super) fn deny(
        &self,
        denied: &Denied,
        grpc: bool,
        accounting: &mut Accounting,
    ) -> Response {
        let Denied(rule) = denied;
        accounting.unrouted(&self.chain.unrouted);
        accounting.fail(&ProxyError::Denied);
        if let Some(recording) = accounting.recording() {
            recording.rule("authorization", rule.to_string());
        }
        let mut response = reply::error(&ProxyError::Denied, self.server(), grpc);
        if self.client.peer().is_some() {
            response.fields.push(Known::XMaglorDenied, rule.as_bytes());
        }
        response
    }
}
