//! The policy service's answers: load balancing for clients, and authorization for servers.
//!
//! The values are those that Linkerd's policy controller uses for a Service and a pod without further resources.

use linkerd2_proxy_api::http_route::{HttpRouteMatch, PathMatch, path_match};
use linkerd2_proxy_api::inbound;
use linkerd2_proxy_api::meta::{Metadata, metadata};
use linkerd2_proxy_api::net::IpNetwork;
use linkerd2_proxy_api::outbound::{
    Backend, HttpRoute, OpaqueRoute, OutboundPolicy, ProxyProtocol, Queue, backend, http_route,
    opaque_route, proxy_protocol,
};
use prost_types::Duration;

const DETECTION: Duration = seconds(10);
const QUEUE_CAPACITY: u32 = 100;
const FAILFAST: Duration = seconds(3);
const DEFAULT_RTT: Duration = Duration {
    seconds: 0,
    nanos: 30_000_000,
};
const DECAY: Duration = seconds(10);

const fn seconds(seconds: i64) -> Duration {
    Duration { seconds, nanos: 0 }
}

/// Returns the policy for connections to a service: the protocol is detected, and requests and connections go to the
/// endpoint with the lowest peak EWMA of two.
pub(super) fn outbound(authority: &str) -> OutboundPolicy {
    let routes = || vec![http_route(authority)];
    let detect = proxy_protocol::Detect {
        timeout: Some(DETECTION),
        opaque: Some(proxy_protocol::Opaque {
            routes: vec![opaque_route(authority)],
        }),
        http1: Some(proxy_protocol::Http1 {
            routes: routes(),
            failure_accrual: None,
        }),
        http2: Some(proxy_protocol::Http2 {
            routes: routes(),
            failure_accrual: None,
        }),
    };
    OutboundPolicy {
        protocol: Some(ProxyProtocol {
            kind: Some(proxy_protocol::Kind::Detect(detect)),
        }),
        metadata: Some(named(authority)),
    }
}

/// Returns the policy of a server port: the protocol is detected, and all clients are authorized.
pub(super) fn inbound() -> inbound::Server {
    use inbound::proxy_protocol::{Detect, Kind};
    let route = inbound::HttpRoute {
        metadata: Some(named("default")),
        rules: vec![inbound::http_route::Rule {
            matches: vec![any_path()],
            filters: Vec::new(),
        }],
        ..inbound::HttpRoute::default()
    };
    let detect = Detect {
        timeout: Some(DETECTION),
        http_routes: vec![route],
        http_local_rate_limit: None,
    };
    let label = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    inbound::Server {
        protocol: Some(inbound::ProxyProtocol {
            kind: Some(Kind::Detect(detect)),
        }),
        authorizations: vec![all_unauthenticated()],
        labels: [
            ("group", ""),
            ("kind", "default"),
            ("name", "all-unauthenticated"),
        ]
        .map(label)
        .into(),
        ..inbound::Server::default()
    }
}

fn all_unauthenticated() -> inbound::Authz {
    use std::net::{Ipv4Addr, Ipv6Addr};
    let any = |ip| inbound::Network {
        net: Some(IpNetwork {
            ip: Some(ip),
            prefix_len: 0,
        }),
        except: Vec::new(),
    };
    let permit = inbound::authn::Permit::Unauthenticated(inbound::authn::PermitUnauthenticated {});
    inbound::Authz {
        networks: vec![
            any(Ipv4Addr::UNSPECIFIED.into()),
            any(Ipv6Addr::UNSPECIFIED.into()),
        ],
        authentication: Some(inbound::Authn {
            permit: Some(permit),
        }),
        metadata: Some(named("all-unauthenticated")),
        ..inbound::Authz::default()
    }
}

fn named(name: &str) -> Metadata {
    Metadata {
        kind: Some(metadata::Kind::Default(name.into())),
    }
}

fn any_path() -> HttpRouteMatch {
    HttpRouteMatch {
        path: Some(PathMatch {
            kind: Some(path_match::Kind::Prefix("/".into())),
        }),
        ..HttpRouteMatch::default()
    }
}

fn http_route(authority: &str) -> HttpRoute {
    use http_route::{Distribution, RouteBackend, Rule, distribution};
    let backend = RouteBackend {
        backend: Some(balancer(authority)),
        ..RouteBackend::default()
    };
    let first = distribution::FirstAvailable {
        backends: vec![backend],
    };
    HttpRoute {
        metadata: Some(named("default")),
        hosts: Vec::new(),
        rules: vec![Rule {
            matches: vec![any_path()],
            backends: Some(Distribution {
                kind: Some(distribution::Kind::FirstAvailable(first)),
            }),
            ..Rule::default()
        }],
    }
}

fn opaque_route(authority: &str) -> OpaqueRoute {
    use opaque_route::{Distribution, RouteBackend, Rule, distribution};
    let backend = RouteBackend {
        backend: Some(balancer(authority)),
        filters: Vec::new(),
    };
    let first = distribution::FirstAvailable {
        backends: vec![backend],
    };
    OpaqueRoute {
        metadata: Some(named("default")),
        rules: vec![Rule {
            backends: Some(Distribution {
                kind: Some(distribution::Kind::FirstAvailable(first)),
            }),
            filters: Vec::new(),
        }],
    }
}

fn balancer(authority: &str) -> Backend {
    use backend::{BalanceP2c, EndpointDiscovery, balance_p2c, endpoint_discovery};
    let discovery = endpoint_discovery::Kind::Dst(endpoint_discovery::DestinationGet {
        path: authority.into(),
    });
    let load = balance_p2c::PeakEwma {
        default_rtt: Some(DEFAULT_RTT),
        decay: Some(DECAY),
    };
    Backend {
        metadata: Some(named(authority)),
        queue: Some(Queue {
            capacity: QUEUE_CAPACITY,
            failfast_timeout: Some(FAILFAST),
        }),
        kind: Some(backend::Kind::Balancer(BalanceP2c {
            discovery: Some(EndpointDiscovery {
                kind: Some(discovery),
            }),
            load: Some(balance_p2c::Load::PeakEwma(load)),
        })),
    }
}
