//! The network of the API server's machine: simulated pods have servers and proxies there.
//!
//! All addresses of pods and Services lead to this machine. The kernel redirects connections as in pods:
//!
//! ```text
//! a Service, from the user of a pod      to the outbound port of this pod's proxy
//! a pod, to a port that is redirected    to the inbound port of this pod's proxy, except from this proxy itself
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::child;
use crate::error::Result;

/// The port of all applications, and the ports of sidecars at which proxies of other pods connect.
const REDIRECTED: [u16; 3] = [8080, 4143, 15006];
/// The addresses of Services and of simulated pods (`crates/cluster/src/addresses.rs`).
const LOCAL: [&str; 2] = ["10.96.0.0/16", "10.233.0.0/16"];
const TABLE: &str = "maglor_planes";
/// The first user of applications, and the first group of proxies.
const FIRST: u32 = 200_000;
/// The first port of proxies; each has a block of [`PORTS`].
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 4;

/// A pod's numbers on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    index: u16,
    pub(super) ip: Ipv4Addr,
}

impl Place {
    /// Returns the numbers of the pod with this index, from 0.
    pub(super) fn new(index: u16, ip: Ipv4Addr) -> Self {
        Self { index, ip }
    }

    /// Returns the user of the application, whose connections to Services go to the proxy.
    pub(super) fn user(self) -> u32 {
        FIRST + u32::from(self.index)
    }

    /// Returns the group of the proxy.
    pub(super) fn group(self) -> u32 {
        FIRST + u32::from(self.index)
    }

    pub(super) fn inbound(self) -> SocketAddr {
        self.listener(0)
    }

    pub(super) fn outbound(self) -> SocketAddr {
        self.listener(1)
    }

    pub(super) fn admin(self) -> SocketAddr {
        self.listener(2)
    }

    /// Returns the address of a fourth listener.
    pub(super) fn control(self) -> SocketAddr {
        self.listener(3)
    }

    fn listener(self, which: u16) -> SocketAddr {
        let port = FIRST_PORT + self.index * PORTS + which;
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
    }
}

/// Directs all addresses of pods and Services to the machine of this thread.
///
/// # Errors
/// `ip` or `nft` is missing, or the kernel rejects the rules.
pub(super) fn prepare() -> Result<()> {
    for range in LOCAL {
        child::output("ip", &["route", "replace", "local", range, "dev", "lo"])?;
    }
    child::output("nft", &[&rules()]).map(drop)
}

/// Redirects the connections of pods to their proxies, in place of all earlier redirections.
///
/// # Errors
/// The kernel rejects the rules.
pub(super) fn redirect(places: &[Place]) -> Result<()> {
    for map in ["clients", "servers", "own"] {
        let kind = if map == "own" { "set" } else { "map" };
        child::output("nft", &[&format!("flush {kind} ip {TABLE} {map}")])?;
    }
    if places.is_empty() {
        return Ok(());
    }
    child::output("nft", &[&elements(places)]).map(drop)
}

fn rules() -> String {
    let [services, _] = LOCAL;
    format!(
        "add table ip {TABLE}; delete table ip {TABLE}; table ip {TABLE} {{
            map clients {{ type uid : inet_service; }}
            map servers {{ type ipv4_addr . inet_service : inet_service; }}
            set own {{ type gid . ipv4_addr; }}
            chain output {{
                type nat hook output priority -100; policy accept;
                meta skgid . ip daddr @own accept
                ip daddr {services} tcp dport 80 redirect to :meta skuid map @clients
                meta l4proto tcp redirect to :ip daddr . tcp dport map @servers
            }}
        }}"
    )
}

fn elements(places: &[Place]) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    let clients = places.iter();
    let clients = clients.map(|place| format!("{} : {}", place.user(), place.outbound().port()));
    let servers = places.iter().flat_map(|place| {
        let to = place.inbound().port();
        REDIRECTED.map(|port| format!("{} . {port} : {to}", place.ip))
    });
    let own = places.iter();
    let own = own.map(|place| format!("{} . {}", place.group(), place.ip));
    format!(
        "add element ip {TABLE} clients {{ {} }}; add element ip {TABLE} servers {{ {} }}; \
         add element ip {TABLE} own {{ {} }}",
        joined(clients.collect()),
        joined(servers.collect()),
        joined(own.collect()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_has_ports_of_its_own() {
        let places = [0, 1].map(|index| Place::new(index, Ipv4Addr::new(10, 233, 0, 5)));
        let [first, second] = places.map(|place| {
            [
                place.inbound(),
                place.outbound(),
                place.admin(),
                place.control(),
            ]
        });
        assert!(first.iter().all(|address| !second.contains(address)));
        let text = elements(&places[..1]);
        assert_eq!(
            text,
            "add element ip maglor_planes clients { 200000 : 20001 }; add element ip maglor_planes servers \
             { 10.233.0.5 . 8080 : 20000, 10.233.0.5 . 4143 : 20000, 10.233.0.5 . 15006 : 20000 }; \
             add element ip maglor_planes own { 200000 . 10.233.0.5 }"
        );
    }
}
