//! The gRPC services of the stand-in, and the dispatch between them.
//!
//! All answers are constant: a stream sends its answer once and then stays open.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use hyper::body::Incoming;
use linkerd2_proxy_api::destination::destination_server::{self, Destination, DestinationServer};
use linkerd2_proxy_api::destination::{DestinationProfile, GetDestination, Update};
use linkerd2_proxy_api::identity::identity_server::{self, Identity, IdentityServer};
use linkerd2_proxy_api::identity::{CertifyRequest, CertifyResponse};
use linkerd2_proxy_api::inbound::inbound_server_policies_server::{
    self, InboundServerPolicies, InboundServerPoliciesServer,
};
use linkerd2_proxy_api::inbound::{PortSpec, Server};
use linkerd2_proxy_api::outbound::outbound_policies_server::{
    self, OutboundPolicies, OutboundPoliciesServer,
};
use linkerd2_proxy_api::outbound::{OutboundPolicy, TrafficSpec, traffic_spec};
use tonic::codegen::Service as _;
use tonic::{Request, Response, Status};

use super::Options;
use super::identity::Issuer;
use super::{discovery, policy};

type Answer<T> = Result<Response<T>, Status>;
type Stream<T> = BoxStream<'static, Result<T, Status>>;

/// What the services answer from.
#[derive(Debug)]
pub(super) struct ControlPlane {
    issuer: Issuer,
    /// The endpoints of services, by the service's authority.
    services: BTreeMap<String, Vec<SocketAddr>>,
    mesh: bool,
}

impl ControlPlane {
    pub(super) fn new(options: &Options) -> crate::error::Result<Self> {
        let services = options.service.iter();
        let services = services.map(|one| (name(one.address), one.endpoints.clone()));
        Ok(Self {
            issuer: Issuer::read(&options.directory)?,
            services: services.collect(),
            mesh: options.mesh,
        })
    }

    /// Returns the policy for connections to a service.
    fn outbound_policy(&self, spec: TrafficSpec) -> Result<OutboundPolicy, Status> {
        let authority = authority(spec)?;
        match self.services.contains_key(&authority) {
            true => Ok(policy::outbound(&authority)),
            false => Err(Status::not_found(format!("no service {authority}"))),
        }
    }
}

/// Answers a call to any of the services.
pub(super) async fn call(
    control: Arc<ControlPlane>,
    request: hyper::Request<Incoming>,
) -> hyper::Response<tonic::body::Body> {
    let name = request.uri().path().split('/').nth(1);
    let answered = match name.unwrap_or_default() {
        destination_server::SERVICE_NAME => {
            DestinationServer::from_arc(control).call(request).await
        }
        identity_server::SERVICE_NAME => IdentityServer::from_arc(control).call(request).await,
        inbound_server_policies_server::SERVICE_NAME => {
            let mut server = InboundServerPoliciesServer::from_arc(control);
            server.call(request).await
        }
        outbound_policies_server::SERVICE_NAME => {
            OutboundPoliciesServer::from_arc(control)
                .call(request)
                .await
        }
        other => Ok(Status::unimplemented(other).into_http()),
    };
    answered.unwrap_or_else(|never| match never {})
}

/// Returns a stream that never ends after its first message: the end would mean a lost connection.
fn once<T: Send + 'static>(message: T) -> Response<Stream<T>> {
    let first = stream::iter([Ok(message)]);
    Response::new(first.chain(stream::pending()).boxed())
}

#[tonic::async_trait]
impl Identity for ControlPlane {
    async fn certify(&self, request: Request<CertifyRequest>) -> Answer<CertifyResponse> {
        self.issuer.certify(request.get_ref()).map(Response::new)
    }
}

#[tonic::async_trait]
impl Destination for ControlPlane {
    type GetStream = Stream<Update>;
    type GetProfileStream = Stream<DestinationProfile>;

    async fn get(&self, request: Request<GetDestination>) -> Answer<Self::GetStream> {
        let endpoints = self.services.get(&request.get_ref().path);
        Ok(once(match endpoints {
            Some(endpoints) => discovery::endpoints(endpoints, self.mesh),
            None => discovery::no_service(),
        }))
    }

    async fn get_profile(
        &self,
        request: Request<GetDestination>,
    ) -> Answer<Self::GetProfileStream> {
        let path = &request.get_ref().path;
        let name = path.parse().map_or_else(|_| path.clone(), name);
        let host = name.rsplit_once(':').map_or(&*name, |(host, _)| host);
        Ok(once(discovery::profile(host)))
    }
}

#[tonic::async_trait]
impl InboundServerPolicies for ControlPlane {
    type WatchPortStream = Stream<Server>;

    async fn get_port(&self, _: Request<PortSpec>) -> Answer<Server> {
        Ok(Response::new(policy::inbound()))
    }

    async fn watch_port(&self, _: Request<PortSpec>) -> Answer<Self::WatchPortStream> {
        Ok(once(policy::inbound()))
    }
}

#[tonic::async_trait]
impl OutboundPolicies for ControlPlane {
    type WatchStream = Stream<OutboundPolicy>;

    async fn get(&self, request: Request<TrafficSpec>) -> Answer<OutboundPolicy> {
        self.outbound_policy(request.into_inner())
            .map(Response::new)
    }

    async fn watch(&self, request: Request<TrafficSpec>) -> Answer<Self::WatchStream> {
        self.outbound_policy(request.into_inner()).map(once)
    }
}

/// Returns the authority of the service that a connection is for.
fn authority(spec: TrafficSpec) -> Result<String, Status> {
    match spec.target {
        Some(traffic_spec::Target::Authority(authority)) => Ok(authority),
        Some(traffic_spec::Target::Addr(address)) => SocketAddr::try_from(address)
            .map(name)
            .map_err(|error| Status::invalid_argument(format!("target.addr: {error}"))),
        None => Err(Status::invalid_argument(
            "target is missing; expected an address or an authority",
        )),
    }
}

/// Returns the authority of the service at an address: the proxy discovers the endpoints of names only.
fn name(address: SocketAddr) -> String {
    let host = address.ip().to_string().replace(['.', ':'], "-");
    format!("{host}.bench.svc.cluster.local:{}", address.port())
}

#[cfg(test)]
mod tests;
