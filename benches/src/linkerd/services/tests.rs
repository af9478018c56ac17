//! The answers, read by the generated clients.

use linkerd2_proxy_api::destination::destination_client::DestinationClient;
use linkerd2_proxy_api::destination::{
    NoEndpoints, WeightedAddr, protocol_hint, tls_identity, update,
};
use linkerd2_proxy_api::identity::identity_client::IdentityClient;
use linkerd2_proxy_api::inbound::authn::Permit;
use linkerd2_proxy_api::inbound::inbound_server_policies_client::InboundServerPoliciesClient;
use linkerd2_proxy_api::outbound::outbound_policies_client::OutboundPoliciesClient;
use linkerd2_proxy_api::outbound::{backend, http_route, proxy_protocol};

use super::*;
use crate::http::block_on;
use crate::linkerd::{Documents, NAME};

const SERVICE: &str = "10.89.0.7:80";
const AUTHORITY: &str = "10-89-0-7.bench.svc.cluster.local:80";
const ENDPOINTS: [&str; 2] = ["10.90.0.1:80", "10.90.0.2:81"];

fn control(mesh: bool) -> Arc<ControlPlane> {
    let directory = tempfile::tempdir().unwrap();
    Documents::create()
        .unwrap()
        .write(directory.path())
        .unwrap();
    let options = Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        directory: directory.path().into(),
        service: vec![
            format!("{SERVICE}={}", ENDPOINTS.join(","))
                .parse()
                .unwrap(),
        ],
        mesh,
    };
    Arc::new(ControlPlane::new(&options).unwrap())
}

/// Returns the first message, and asserts that the stream stays open.
async fn first<T>(mut stream: tonic::Streaming<T>) -> T {
    let message = stream.message().await.unwrap().unwrap();
    let mut next = Box::pin(stream.message());
    assert!(futures_util::poll!(&mut next).is_pending());
    message
}

async fn discovered(mesh: bool, service: &str) -> Option<update::Update> {
    let mut client = DestinationClient::new(DestinationServer::from_arc(control(mesh)));
    let request = GetDestination {
        path: service.into(),
        ..GetDestination::default()
    };
    let got = client.get(request).await.unwrap();
    first(got.into_inner()).await.update
}

async fn endpoints(mesh: bool) -> Vec<WeightedAddr> {
    match discovered(mesh, AUTHORITY).await {
        Some(update::Update::Add(set)) => set.addrs,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_service_has_no_endpoints_and_no_policy() {
    block_on(async {
        let expected = update::Update::NoEndpoints(NoEndpoints { exists: false });
        assert_eq!(
            discovered(true, "10-89-0-8.bench.svc.cluster.local:80").await,
            Some(expected)
        );
        let service = OutboundPoliciesServer::from_arc(control(true));
        let spec = TrafficSpec {
            source_workload: "bench".into(),
            target: Some(traffic_spec::Target::Authority(
                "other.bench.svc.cluster.local:80".into(),
            )),
        };
        let refused = OutboundPoliciesClient::new(service).watch(spec).await;
        assert_eq!(refused.unwrap_err().code(), tonic::Code::NotFound);
        Ok(())
    })
    .unwrap();
}

#[test]
fn endpoints_of_a_mesh_have_an_identity_and_the_hint_of_http2() {
    block_on(async {
        for mesh in [false, true] {
            let endpoints = endpoints(mesh).await;
            for (endpoint, expected) in endpoints.iter().zip(ENDPOINTS) {
                let address = SocketAddr::try_from(endpoint.addr.unwrap()).unwrap();
                assert_eq!(address.to_string(), expected);
                let identity = endpoint.tls_identity.clone().and_then(|one| one.strategy);
                let hint = endpoint.protocol_hint.and_then(|hint| hint.protocol);
                let name = tls_identity::DnsLikeIdentity { name: NAME.into() };
                let expected = tls_identity::Strategy::DnsLikeIdentity(name);
                assert_eq!(identity, mesh.then_some(expected));
                let expected = protocol_hint::Protocol::H2(protocol_hint::H2 {});
                assert_eq!(hint, mesh.then_some(expected));
            }
            assert_eq!(endpoints.len(), ENDPOINTS.len());
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_profile_leaves_the_routes_to_the_policy() {
    block_on(async {
        let mut client = DestinationClient::new(DestinationServer::from_arc(control(false)));
        let request = GetDestination {
            path: SERVICE.into(),
            ..GetDestination::default()
        };
        let got = client.get_profile(request).await.unwrap();
        let profile = first(got.into_inner()).await;
        assert_eq!(
            profile.fully_qualified_name,
            "10-89-0-7.bench.svc.cluster.local"
        );
        assert!(profile.routes.is_empty() && profile.endpoint.is_none());
        Ok(())
    })
    .unwrap();
}

/// Returns the authority that the balancer of an outbound policy discovers.
fn balanced(policy: OutboundPolicy) -> String {
    let Some(proxy_protocol::Kind::Detect(detect)) = policy.protocol.and_then(|one| one.kind)
    else {
        panic!("the protocol is not detected")
    };
    let rule = detect.http1.unwrap().routes[0].rules[0].clone();
    let Some(http_route::distribution::Kind::FirstAvailable(first)) =
        rule.backends.and_then(|backends| backends.kind)
    else {
        panic!("no first available backend")
    };
    let backend = first.backends[0].backend.clone().unwrap();
    let Some(backend::Kind::Balancer(balancer)) = backend.kind else {
        panic!("no balancer")
    };
    assert!(matches!(
        balancer.load,
        Some(backend::balance_p2c::Load::PeakEwma(_))
    ));
    let Some(backend::endpoint_discovery::Kind::Dst(destination)) =
        balancer.discovery.and_then(|discovery| discovery.kind)
    else {
        panic!("no destination")
    };
    destination.path
}

#[test]
fn clients_balance_over_the_service_of_a_connection() {
    block_on(async {
        let mut client =
            OutboundPoliciesClient::new(OutboundPoliciesServer::from_arc(control(true)));
        let address: SocketAddr = SERVICE.parse().unwrap();
        let spec = TrafficSpec {
            source_workload: "bench".into(),
            target: Some(traffic_spec::Target::Addr(address.into())),
        };
        let watched = client.watch(spec.clone()).await.unwrap().into_inner();
        assert_eq!(balanced(first(watched).await), AUTHORITY);
        let got = client.get(spec).await.unwrap().into_inner();
        assert_eq!(balanced(got), AUTHORITY);
        let refused = client.get(TrafficSpec::default()).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        Ok(())
    })
    .unwrap();
}

#[test]
fn servers_detect_the_protocol_and_authorize_all_clients() {
    block_on(async {
        let service = InboundServerPoliciesServer::from_arc(control(true));
        let mut client = InboundServerPoliciesClient::new(service);
        let got = client.get_port(PortSpec::default()).await.unwrap();
        let watched = client.watch_port(PortSpec::default()).await.unwrap();
        let server = first(watched.into_inner()).await;
        assert_eq!(got.into_inner(), server);
        let kind = server.protocol.and_then(|protocol| protocol.kind);
        let Some(linkerd2_proxy_api::inbound::proxy_protocol::Kind::Detect(detect)) = kind else {
            panic!("{kind:?}")
        };
        assert_eq!(detect.http_routes.len(), 1);
        let permits = server.authorizations.into_iter();
        let permits: Vec<_> = permits
            .map(|one| one.authentication.and_then(|authn| authn.permit))
            .collect();
        assert!(matches!(permits[..], [Some(Permit::Unauthenticated(_))]));
        Ok(())
    })
    .unwrap();
}

#[test]
fn the_identity_service_signs() {
    block_on(async {
        let control = control(true);
        let key = maglor_identity::KeyRequest::generate().unwrap();
        let request = CertifyRequest {
            identity: NAME.into(),
            token: b"token".to_vec(),
            certificate_signing_request: key.der().unwrap(),
        };
        let mut client = IdentityClient::new(IdentityServer::from_arc(control));
        let got = client.certify(request).await.unwrap().into_inner();
        let chain = [vec![got.leaf_certificate], got.intermediate_certificates].concat();
        // Fails unless the certificate belongs to the key.
        key.certified(chain).unwrap();
        Ok(())
    })
    .unwrap();
}
