//! Paths to an admin port through the ports of the data plane: connections of a proxy to itself come from its own host.

use std::net::{IpAddr, SocketAddr};

use super::attempts::Attempt;
use super::pages::Port;

/// Hosts by which routes of the fixture lead to an admin port, and others that name one.
const HOSTS: [&str; 9] = [
    "admin.example",
    "own.example",
    "localhost.example",
    "loopback.example",
    "localhost",
    "localhost:15020",
    "127.0.0.1:15020",
    "[::1]:15020",
    "0.0.0.0:15020",
];
/// The addresses of the sidecar's listeners.
const INBOUND: u16 = 15_006;
const OUTBOUND: u16 = 15_001;

/// A way to a page of a port: where to connect, and with what host.
pub(crate) type Way = (SocketAddr, Attempt);

/// Through the listener of a Gateway, or of the proxies of a `ProxyService`.
pub(crate) fn through_proxy(listener: SocketAddr, port: &Port) -> Vec<Way> {
    let own = port.address.to_string();
    let hosts = HOSTS.into_iter().chain([own.as_str()]);
    let attempts = hosts.flat_map(|host| of_host(host, &port.private));
    let attempts: Vec<_> = attempts.chain(tunnels(&own)).collect();
    attempts
        .into_iter()
        .map(|attempt| (listener, attempt))
        .collect()
}

/// By the listeners of a sidecar, to which only connections that the kernel redirects are meant to come.
pub(crate) fn through_sidecar(port: &Port) -> Vec<Way> {
    let at = |number: u16| SocketAddr::new(port.address.ip(), number);
    let listeners = [INBOUND, OUTBOUND, 9080].map(at);
    let through = listeners
        .into_iter()
        .flat_map(|listener| through_proxy(listener, port));
    through.collect()
}

/// From a pod with a sidecar: services whose targets are admin ports, and admin ports themselves.
pub(crate) fn through_own_sidecar(services: &[IpAddr], ports: &[Port]) -> Vec<Way> {
    let private = &ports[0].private;
    let mut ways = Vec::new();
    for service in services {
        // 80 is of requests, 81 of bytes.
        for number in [80, 81] {
            for host in ["localhost", "127.0.0.1:15020", "admin-of-details.shop"] {
                let attempts = of_host(host, private);
                ways.extend(attempts.map(|attempt| ((*service, number).into(), attempt)));
            }
        }
    }
    for port in ports {
        let attempts = of_host("localhost", &port.private);
        ways.extend(attempts.map(|attempt| (port.address, attempt)));
    }
    ways
}

fn of_host(host: &str, paths: &[String]) -> impl Iterator<Item = Attempt> {
    let fields = format!("host: {host}\r\n");
    paths.iter().flat_map(move |path| {
        ["GET", "POST"].map(|method| Attempt::refused(&format!("{method} {path}"), &fields))
    })
}

/// Requests to be connected to an admin port.
fn tunnels(own: &str) -> Vec<Attempt> {
    let authorities = ["127.0.0.1:15020", "localhost:15020", own];
    let of = |authority: &str| {
        let fields = format!("host: {authority}\r\n");
        [
            format!("CONNECT {authority}"),
            format!("GET http://{authority}/config"),
            format!("POST http://{authority}/drain"),
            format!("GET //{authority}/config"),
        ]
        .map(|line| Attempt::refused(&line, &fields))
    };
    authorities
        .iter()
        .flat_map(|authority| of(authority))
        .collect()
}
