//! The destination service's answers: the endpoints of a service, and its profile.

use std::net::SocketAddr;

use linkerd2_proxy_api::destination::{
    DestinationProfile, NoEndpoints, ProtocolHint, TlsIdentity, Update, WeightedAddr,
    WeightedAddrSet, protocol_hint, tls_identity, update,
};

use super::identity::NAME;

const WEIGHT: u32 = 10_000;

/// Returns the endpoints of a service; with `mesh`, those of proxies that accept mutual TLS and HTTP/2.
pub(super) fn endpoints(addresses: &[SocketAddr], mesh: bool) -> Update {
    let endpoint = |address: &SocketAddr| WeightedAddr {
        addr: Some((*address).into()),
        weight: WEIGHT,
        tls_identity: mesh.then(identity),
        protocol_hint: mesh.then(http2),
        ..WeightedAddr::default()
    };
    let set = WeightedAddrSet {
        addrs: addresses.iter().map(endpoint).collect(),
        ..WeightedAddrSet::default()
    };
    Update {
        update: Some(update::Update::Add(set)),
    }
}

/// Returns the answer about a service that does not exist.
pub(super) fn no_service() -> Update {
    Update {
        update: Some(update::Update::NoEndpoints(NoEndpoints { exists: false })),
    }
}

/// Returns the profile of a service without routes: the policy decides.
pub(super) fn profile(name: &str) -> DestinationProfile {
    DestinationProfile {
        fully_qualified_name: name.into(),
        ..DestinationProfile::default()
    }
}

fn identity() -> TlsIdentity {
    let name = || tls_identity::DnsLikeIdentity { name: NAME.into() };
    TlsIdentity {
        strategy: Some(tls_identity::Strategy::DnsLikeIdentity(name())),
        server_name: Some(name()),
    }
}

fn http2() -> ProtocolHint {
    let protocol = protocol_hint::Protocol::H2(protocol_hint::H2 {});
    ProtocolHint {
        protocol: Some(protocol),
        opaque_transport: None,
    }
}
