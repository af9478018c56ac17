//! A network namespace in which the kernel redirects connections to proxies, as in a pod.
//!
//! linkerd2-proxy reads the destination of a connection from the kernel (`SO_ORIGINAL_DST`) and connects to no loopback
//! address. If it takes part in a comparison, all proxies run here, behind the same rule:
//!
//! ```text
//! 10.88.0.1   the origin
//! 10.89.x.y   a service: connections are redirected to the proxy of the client
//! 10.90.x.y   a pod of the service: connections are redirected to the proxy of the server
//! ```
//!
//! All addresses belong to the loopback interface. The namespace ends with the processes in it.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::child;
use crate::error::{Doing, Result};
use crate::sys;

/// The address of the origin.
pub(crate) const ORIGIN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 88, 0, 1));
/// All addresses of the namespace besides 127.0.0.0/8.
pub(crate) const NETWORK: &str = "10.88.0.0/14";
/// The first group of processes whose connections to their own pod are not redirected.
const FIRST_GROUP: u32 = 100_000;

/// States in which the kernel remembers connections that have ended, by default for minutes. Chains of services close
/// 100 000 connections at a time, and once the table of connections is full, packets of all others are dropped.
const CLOSED: [&str; 2] = ["time_wait", "close"];

const TABLE: &str = "maglor_compare";
const OF_SERVICES: u8 = 89;
const OF_PODS: u8 = 90;

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The redirection of this process's namespace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Redirection {
    _entered: (),
}

/// The addresses of a service with a single pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Service {
    /// Where clients connect.
    pub(crate) address: IpAddr,
    /// Where the proxies of clients connect.
    pub(crate) pod: IpAddr,
    /// The group of the pod's proxy, whose own connections reach the pod.
    pub(crate) group: u32,
}

impl Redirection {
    /// Moves this thread, and processes that it starts, into a new namespace.
    ///
    /// # Errors
    /// This process is not root, or `ip`, `nft` or the kernel's support for redirection is missing.
    pub(crate) fn enter() -> Result<Self> {
        // First: without them, the namespace would have no usable network.
        child::output("ip", &["-V"])?;
        child::output("nft", &["--version"])?;
        sys::unshare_network().doing("make a network namespace, which needs root")?;
        child::output("ip", &["link", "set", "lo", "up"])?;
        let prefix = NETWORK.split('/').nth(1).unwrap_or_default();
        let origin = format!("{ORIGIN}/{prefix}");
        child::output("ip", &["address", "add", &origin, "dev", "lo"])?;
        child::output("nft", &[&rules()])?;
        for state in CLOSED {
            let file = format!("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_{state}");
            fs::write(&file, "1").doing(format!("write {file}"))?;
        }
        // Thousands of connections a run, all to the same address, would use up the ports of the next run.
        let reuse = "/proc/sys/net/ipv4/tcp_tw_reuse";
        fs::write(reuse, "1").doing(format!("write {reuse}"))?;
        Ok(Self { _entered: () })
    }

    /// Returns a service that no earlier call returned.
    ///
    /// # Errors
    /// The kernel rejects the rule of its group.
    pub(crate) fn service(self) -> Result<Service> {
        // Relaxed: the counter only has to return different numbers.
        let index = COUNT.fetch_add(1, Ordering::Relaxed);
        let service = Service {
            address: address(OF_SERVICES, index),
            pod: address(OF_PODS, index),
            group: FIRST_GROUP + u32::try_from(index).unwrap_or_default(),
        };
        let own = format!("{} . {}", service.group, service.pod);
        child::output("nft", &[&format!("add element ip {TABLE} own {{ {own} }}")])?;
        Ok(service)
    }

    /// Redirects connections from the first to the second address of each pair; the second is one of 127.0.0.1.
    ///
    /// # Errors
    /// The kernel rejects the rules.
    pub(crate) fn redirect(self, from_to: &[(SocketAddr, SocketAddr)]) -> Result<()> {
        child::output("nft", &[&elements(from_to)]).map(|_| ())
    }
}

/// Returns an address of a block; a block has 62 500.
fn address(block: u8, index: usize) -> IpAddr {
    let part = |number: usize| u8::try_from(number % 250).unwrap_or_default();
    IpAddr::from([10, block, part(index / 250), part(index) + 1])
}

fn rules() -> String {
    format!(
        "table ip {TABLE} {{
            map proxies {{ type ipv4_addr . inet_service : inet_service; }}
            set own {{ type gid . ipv4_addr; }}
            chain output {{
                type nat hook output priority -100; policy accept;
                meta skgid . ip daddr @own accept
                meta l4proto tcp redirect to :ip daddr . tcp dport map @proxies
            }}
        }}"
    )
}

fn elements(from_to: &[(SocketAddr, SocketAddr)]) -> String {
    let element = |(from, to): &(SocketAddr, SocketAddr)| {
        format!("{} . {} : {}", from.ip(), from.port(), to.port())
    };
    let elements: Vec<_> = from_to.iter().map(element).collect();
    let elements = elements.join(", ");
    format!("add element ip {TABLE} proxies {{ {elements} }}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};
    use std::thread;

    use super::*;

    #[test]
    fn addresses_differ() {
        let blocks = [OF_SERVICES, OF_PODS];
        let all = blocks.map(|block| (0..1000).map(move |index| address(block, index)));
        let all: BTreeSet<_> = all.into_iter().flatten().collect();
        assert_eq!(all.len(), 2000);
        assert!(!all.contains(&ORIGIN));
    }

    #[test]
    fn elements_map_addresses_to_ports() {
        let from_to = [
            ("10.89.0.1:80", "127.0.0.1:8080"),
            ("10.90.0.1:9", "127.0.0.1:99"),
        ];
        let parsed = from_to.map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap()));
        assert_eq!(
            elements(&parsed),
            "add element ip maglor_compare proxies { 10.89.0.1 . 80 : 8080, 10.90.0.1 . 9 : 99 }"
        );
    }

    /// In a thread: a namespace is that of a thread.
    #[test]
    fn connections_to_a_service_reach_its_proxy() {
        let tested = thread::spawn(|| {
            let redirection = match Redirection::enter() {
                Ok(redirection) => redirection,
                Err(error) => {
                    eprintln!("skipped: {error}");
                    return;
                }
            };
            let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
            let service = redirection.service().unwrap();
            let at = |ip, port| SocketAddr::new(ip, port);
            let to = proxy.local_addr().unwrap();
            let from = [at(service.address, 80), at(service.pod, 81)];
            redirection.redirect(&from.map(|from| (from, to))).unwrap();
            for from in from {
                let mut client = TcpStream::connect(from).unwrap();
                let (mut server, _) = proxy.accept().unwrap();
                server.write_all(b"x").unwrap();
                client.read_exact(&mut [0]).unwrap();
                assert_eq!(client.peer_addr().unwrap(), from);
            }
            // The proxy of the pod reaches the pod.
            let pod = TcpListener::bind(from[1]).unwrap();
            let connect = format!("exec 3<>/dev/tcp/{}/81; cat <&3", service.pod);
            let mut own = Command::new("bash");
            let own = own
                .args(["-c", &connect])
                .gid(service.group)
                .stdin(Stdio::null());
            let mut own = own.stdout(Stdio::piped()).spawn().unwrap();
            pod.accept().unwrap().0.write_all(b"pod").unwrap();
            let mut answer = String::new();
            own.stdout
                .take()
                .unwrap()
                .read_to_string(&mut answer)
                .unwrap();
            assert_eq!(answer, "pod");
            own.wait().unwrap();
            // No proxy is responsible for other ports.
            assert!(TcpStream::connect(at(service.address, 82)).is_err());
            let origin = TcpListener::bind(at(ORIGIN, 80)).unwrap();
            let _client = TcpStream::connect(origin.local_addr().unwrap()).unwrap();
            origin.accept().unwrap();
        });
        tested.join().unwrap();
    }
}
