//! The expansion of `inbound` and `outbound`: the equivalent chains, routes and clusters.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

use std::time::Duration;

use maglor_config::cluster::DestinationAddress;
use maglor_config::listener::{HttpProtocol, PathNormalization, TrafficDirection};
use maglor_config::{Config, Filter, HttpFilter, Listener, RouteAction, UpstreamProtocol};

const SIDECAR: &str = "
listeners:
- name: in
  address: 127.0.0.1:15006
  inbound: {ports: {80: http, 81: http2, 82: tcp, 83: tls}}
- name: fixed
  address: 127.0.0.1:15007
  original_destination: false
  inbound: {application: '127.0.0.1:8080', protocol: http}
- name: out
  address: 127.0.0.1:15001
  outbound:
    services:
    - {name: reviews, addresses: ['10.0.0.5:80', '[fd00::5]:80'], cluster: there, timeout: 2s}
    - {name: vault, hosts: [vault.example.com, '*.vault.example.com'], cluster: there, protocol: tls}
    - {name: mysql, addresses: ['10.0.0.6:3306'], cluster: there, protocol: tcp}
- name: strict
  address: 127.0.0.1:15002
  outbound: {services: [{name: by-host, hosts: [a, '*.a'], cluster: there}], unknown: refuse}
- name: denied
  address: 127.0.0.1:15003
  outbound: {unknown: refuse}
clusters:
- {name: there, endpoints: ['127.0.0.1:1']}
";

fn config() -> Config {
    let loaded = maglor_config::parse(SIDECAR, "test").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loaded.warnings, []);
    let again = maglor_config::parse(&loaded.yaml, "printed").unwrap();
    assert_eq!(
        format!("{:?}", loaded.config),
        format!("{:?}", again.config)
    );
    loaded.config
}

/// One line a chain: name, destination or server names, filter and where bytes go.
fn chains(listener: &Listener) -> Vec<String> {
    let describe = |chain: &maglor_config::FilterChain| {
        let matches = &chain.matches;
        let ports = &matches.destination_ports;
        let networks: Vec<_> = matches
            .destination_networks
            .iter()
            .map(ToString::to_string)
            .collect();
        let filter = match &chain.filter {
            Filter::Detect { tcp, .. } => format!("any {}", tcp.cluster),
            Filter::Http(http) => format!("{:?}", http.protocol),
            Filter::Tcp(tcp) => format!("bytes {}", tcp.cluster),
        };
        let names = &matches.server_names;
        format!("{}: {ports:?} {networks:?} {names:?} {filter}", chain.name)
    };
    listener.filter_chains.iter().map(describe).collect()
}

fn http(listener: &Listener, chain: &str) -> HttpFilter {
    let chain = listener
        .filter_chains
        .iter()
        .find(|found| &*found.name == chain);
    match &chain.unwrap().filter {
        Filter::Detect { http, .. } | Filter::Http(http) => (**http).clone(),
        Filter::Tcp(_) => panic!("no HTTP"),
    }
}

/// Virtual hosts: domains, route, cluster, seconds.
fn routes(http: &HttpFilter) -> Vec<String> {
    let describe = |host: &maglor_config::VirtualHost| {
        let [route] = &host.routes[..] else {
            panic!("{host:?}")
        };
        let RouteAction::Forward(forward) = &route.action else {
            panic!("{route:?}")
        };
        let cluster = forward.clusters[0].cluster().unwrap();
        let seconds = forward.timeout.map_or(0, |timeout| timeout.as_secs());
        let attempts = forward.retry.policy.attempts;
        format!(
            "{} {:?} {cluster} {seconds} s {attempts} retries",
            route.name, host.domains
        )
    };
    http.routes.virtual_hosts.iter().map(describe).collect()
}

#[test]
fn inbound_is_a_chain_a_port_to_one_application() {
    let config = config();
    let [inbound, fixed, ..] = &config.listeners[..] else {
        panic!()
    };
    assert_eq!(
        chains(inbound),
        [
            "80: [80] [] [] Auto",
            "81: [81] [] [] Http2",
            "82: [82] [] [] bytes in/application",
            "83: [83] [] [] bytes in/application",
            "others: [] [] [] any in/application",
        ]
    );
    assert!(inbound.original_destination && !fixed.original_destination);
    assert_eq!(inbound.direction, TrafficDirection::Inbound);
    assert_eq!(inbound.detection_timeout, Duration::from_secs(1));
    assert_eq!(chains(fixed), ["others: [] [] [] Auto"]);
    let http = http(inbound, "others");
    assert_eq!(
        routes(&http),
        ["application [Any] in/application 0 s 2 retries"]
    );
    assert_eq!(http.protocol, HttpProtocol::Auto);
    assert_eq!(http.path_normalization, PathNormalization::Base);
    let cluster = |name: &str| {
        let found = config
            .clusters
            .iter()
            .find(|cluster| &*cluster.name == name);
        found.unwrap_or_else(|| panic!("{name}"))
    };
    let application = cluster("in/application");
    assert_eq!(
        application.original_destination,
        Some(DestinationAddress::Loopback)
    );
    assert_eq!(application.protocol, UpstreamProtocol::Downstream);
    let application = cluster("fixed/application");
    assert_eq!(application.original_destination, None);
    assert_eq!(
        application.endpoints[0].address.to_string(),
        "127.0.0.1:8080"
    );
    let unknown = cluster("out/unknown");
    assert_eq!(unknown.original_destination, Some(DestinationAddress::AsIs));
}

#[test]
fn outbound_is_a_chain_an_address_and_one_for_the_rest() {
    let config = config();
    let [_, _, outbound, strict, none] = &config.listeners[..] else {
        panic!()
    };
    assert_eq!(
        chains(outbound),
        [
            "reviews/10.0.0.5:80: [80] [\"10.0.0.5/32\"] [] any there",
            "reviews/[fd00::5]:80: [80] [\"fd00::5/128\"] [] any there",
            "vault: [] [] [\"vault.example.com\", \"*.vault.example.com\"] bytes there",
            "mysql/10.0.0.6:3306: [3306] [\"10.0.0.6/32\"] [] bytes there",
            "unknown: [] [] [] any out/unknown",
        ]
    );
    assert_eq!(outbound.direction, TrafficDirection::Outbound);
    let by_address = http(outbound, "reviews/10.0.0.5:80");
    assert_eq!(routes(&by_address), ["reviews [Any] there 2 s 2 retries"]);
    let rest = http(outbound, "unknown");
    assert_eq!(
        routes(&rest),
        [
            "reviews [Exact(\"reviews\")] there 2 s 2 retries",
            "unknown [Any] out/unknown 0 s 2 retries"
        ]
    );
    assert_eq!(rest.path_normalization, PathNormalization::Off);
    assert_eq!(chains(strict), ["unknown: [] [] [] Auto"]);
    let hosts = http(strict, "unknown");
    assert_eq!(
        routes(&hosts),
        ["by-host [Exact(\"a\"), Suffix(\".a\")] there 0 s 2 retries"]
    );
    assert!(none.filter_chains.is_empty());
}

#[test]
fn destinations_are_replaced_in_their_own_family() {
    let of =
        |address: DestinationAddress, text: &str| address.of(text.parse().unwrap()).to_string();
    assert_eq!(
        of(DestinationAddress::AsIs, "[::ffff:10.0.0.5]:80"),
        "10.0.0.5:80"
    );
    assert_eq!(
        of(DestinationAddress::Loopback, "10.0.0.5:80"),
        "127.0.0.1:80"
    );
    assert_eq!(
        of(DestinationAddress::Loopback, "[::ffff:10.0.0.5]:80"),
        "127.0.0.1:80"
    );
    assert_eq!(of(DestinationAddress::Loopback, "[fd00::5]:80"), "[::1]:80");
    let other = DestinationAddress::Ip("127.0.0.6".parse().unwrap());
    assert_eq!(of(other, "[fd00::5]:80"), "127.0.0.6:80");
}
