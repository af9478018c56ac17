//! Load feedback of requests: admission on arrival, and the guard that counts a request until it ends.

use http::Version;

use super::connection::{RequestContext, Service};
use super::reply;
use crate::mesh::load_feedback::calls::Call;
use crate::mesh::load_feedback::queue_protocol::{PROTOCOL, QueueRequest};
use crate::mesh::load_feedback::reporting::{self, InFlightGuard};
use crate::net::io::Stream;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Known;
use crate::protocol::message::{Request, Response};

impl Service {
    /// Returns the response that opens a channel of the queue protocol; `None` if the request does not ask for one.
    pub(super) fn channel_upgrade(&self, request: &Request) -> Option<Response> {
        self.is_channel_upgrade(request)
            .then(reply::channel_upgrade)
    }

    pub(super) fn is_channel_upgrade(&self, request: &Request) -> bool {
        self.chain.load_reporter.is_some()
            && self.trusts_queue_fields()
            && request.version == Version::HTTP_11
            && request.fields.get(Known::Upgrade) == Some(PROTOCOL)
            && request.fields.has_token(Known::Connection, "upgrade")
    }

    /// Returns whether the queue fields that the client sends are trusted.
    fn trusts_queue_fields(&self) -> bool {
        self.chain.mesh.is_none() || self.client.peer().is_some()
    }

    /// Serves a channel of the queue protocol for the server behind this chain.
    pub(super) async fn serve_channel(&self, downstream: Stream) {
        let Some(load_reporter) = &self.chain.load_reporter else {
            return;
        };
        let host = reporting::Host {
            worker: &self.worker,
            idle_timeout: self.settings().idle_timeout,
            may_report: self.chain.mesh.is_none() || self.client.is_of_own_workload(),
            is_draining: &|| self.is_draining(),
        };
        reporting::serve(downstream, load_reporter, host).await;
    }

    /// Records a request as a call made by the application behind this proxy.
    pub(super) fn call(&self, request: &Request) -> Option<Call> {
        if self.chain.load_reporter.is_some() {
            return None;
        }
        let id = request.fields.get(Known::XRequestId)?;
        self.upstreams.calls.begin(id)
    }

    /// Admits a request to the server behind this chain, if the chain counts the server's requests in flight.
    ///
    /// # Errors
    /// [`ProxyError::Busy`] if more requests are in flight than the balancer's condition allows.
    pub(super) fn count_in_flight(
        &self,
        request: &Request,
        context: &RequestContext,
    ) -> Result<Option<InFlightGuard>, ProxyError> {
        let Some(load_reporter) = &self.chain.load_reporter else {
            return Ok(None);
        };
        let asked = QueueRequest::of(&request.fields).filter(|_| self.trusts_queue_fields());
        let here = (&self.worker, &self.upstreams);
        let guard = InFlightGuard::begin(load_reporter, here, asked, context.started);
        guard.map(Some).map_err(ProxyError::Busy)
    }
}
