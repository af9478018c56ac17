//! The network of a pod: a namespace in which its application and its real proxy run, at the ports of a real pod.
//!
//! ```text
//! API server's machine ── bridge `pods` ── veth ── eth0 of a pod, with the address of the pod
//! ```
//!
//! The kernel redirects connections as the init containers of meshes arrange it: those that the application opens lead to the
//! outbound port of the proxy, those to the application from other pods to its inbound port.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::sidecar::{APPLICATION, Sidecar};
use crate::child;
use crate::error::{Doing, Error, Result};
use crate::sys;

/// The address of the API server's machine, at which the programs of control planes listen.
pub(super) const HOST: &str = "10.231.0.1";
/// The group of proxies, whose own connections are not redirected.
pub(super) const PROXIES: u32 = 1337;
const BRIDGE: &str = "pods";
/// The bridge's own address, of those of simulated pods (`crates/testkit/src/cluster/addresses.rs`).
const GATEWAY: &str = "10.233.255.254";
const PREFIX: u8 = 16;

/// The network of a pod, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) namespace: Arc<Namespace>,
    /// The end of the pod's veth at the bridge.
    interface: String,
    address: Ipv4Addr,
}

/// A network namespace; it ends with this value and the processes in it.
#[derive(Debug)]
pub(super) struct Namespace(File);

/// Connects the machine of this thread to the networks of pods.
///
/// # Errors
/// `ip` is missing, or the kernel has no bridges.
pub(super) fn prepare() -> Result<()> {
    let address = format!("{GATEWAY}/{PREFIX}");
    run("ip", &format!("link add name {BRIDGE} type bridge"))?;
    run("ip", &format!("address add {address} dev {BRIDGE}"))?;
    run("ip", &format!("link set {BRIDGE} up"))
}

impl Network {
    /// Creates the network of the pod with this address.
    ///
    /// # Errors
    /// This process is not root, `ip` or `nft` is missing, or the kernel rejects the rules.
    pub(super) fn create(address: Ipv4Addr, sidecar: &Sidecar) -> Result<Self> {
        let [_, _, block, number] = address.octets();
        let network = Self {
            namespace: Arc::new(Namespace::create()?),
            interface: format!("pod{block}-{number}"),
            address,
        };
        let (interface, path) = (&network.interface, network.namespace.path());
        run(
            "ip",
            &format!("link add name {interface} type veth peer name eth0 netns {path}"),
        )?;
        run("ip", &format!("link set {interface} master {BRIDGE} up"))?;
        let rules = rules(sidecar);
        network.enter(move || {
            run("ip", "link set lo up")?;
            run("ip", &format!("address add {address}/{PREFIX} dev eth0"))?;
            run("ip", "link set eth0 up")?;
            run("ip", &format!("route add default via {GATEWAY}"))?;
            // Connections to the loopback may leave by this interface, to the control plane.
            let setting = "/proc/sys/net/ipv4/conf/eth0/route_localnet";
            fs::write(setting, "1").doing(format!("write {setting}"))?;
            child::output("nft", &[&rules]).map(drop)
        })??;
        Ok(network)
    }

    /// Returns the address of a port of the pod.
    pub(super) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.address, port))
    }

    /// Runs a closure on a thread in the network.
    pub(super) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let entered = thread::scope(|scope| {
            let thread = scope.spawn(|| self.namespace.enter().map(|()| work()));
            thread.join()
        });
        let entered = entered.map_err(|_| Error::protocol("a thread panicked"))?;
        entered.doing("enter the network of a pod")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // At once: the namespace lives as long as connections in it, but its name is needed for other pods.
        let _ = run("ip", &format!("link delete {}", self.interface));
    }
}

impl Namespace {
    fn create() -> Result<Self> {
        let created = thread::spawn(|| {
            sys::unshare_network()?;
            File::open("/proc/thread-self/ns/net")
        });
        let created = created.join();
        let created = created.map_err(|_| Error::protocol("a thread panicked"))?;
        let file = created.doing("make a network namespace, which needs root")?;
        Ok(Self(file))
    }

    /// Moves this thread into the namespace.
    pub(super) fn enter(&self) -> io::Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        Ok(move_into_link_name_space(self.0.as_fd(), kind)?)
    }

    /// Returns its file, for other processes while this value exists.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

fn run(program: &str, arguments: &str) -> Result<()> {
    let arguments: Vec<_> = arguments.split(' ').collect();
    child::output(program, &arguments).map(drop)
}

fn rules(sidecar: &Sidecar) -> String {
    let Sidecar {
        inbound,
        outbound,
        control,
        ..
    } = sidecar;
    let control = control.iter();
    let control = control
        .map(|(port, at)| format!("ip daddr 127.0.0.1 tcp dport {port} dnat to {HOST}:{at}\n"));
    let control: String = control.collect();
    format!(
        "table ip maglor_planes {{
            chain output {{
                type nat hook output priority -100; policy accept;
                {control}meta skgid {PROXIES} accept
                meta l4proto tcp redirect to :{outbound}
            }}
            chain prerouting {{
                type nat hook prerouting priority -100; policy accept;
                tcp dport {APPLICATION} redirect to :{inbound}
            }}
            chain postrouting {{
                type nat hook postrouting priority 100; policy accept;
                ip saddr 127.0.0.1 oifname eth0 masquerade
            }}
        }}"
    )
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const SIDECAR: Sidecar = Sidecar {
        container: "proxy",
        audience: "audience",
        inbound: 15_006,
        outbound: 15_001,
        metrics: (15_020, "/metrics"),
        control: &[(18_086, 8086)],
    };

    /// In a namespace of its own, in place of the API server's machine.
    #[test]
    fn connections_of_an_application_lead_to_its_proxy() {
        let tested = thread::spawn(|| {
            if let Err(error) = sys::unshare_network() {
                eprintln!("skipped: {error}");
                return;
            }
            prepare().unwrap();
            run("ip", "link set lo up").unwrap();
            run("ip", &format!("address add {HOST}/32 dev lo")).unwrap();
            let address = Ipv4Addr::new(10, 233, 0, 5);
            let network = Network::create(address, &SIDECAR).unwrap();
            let listen = |port: u16| {
                let listened = network.enter(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)));
                listened.unwrap().unwrap()
            };
            let accepts = |listener: &TcpListener, mut client: TcpStream| {
                listener.accept().unwrap().0.write_all(b"x").unwrap();
                client.read_exact(&mut [0]).unwrap();
            };
            let [inbound, outbound] = [SIDECAR.inbound, SIDECAR.outbound].map(listen);
            let client = network.enter(|| TcpStream::connect("10.96.0.7:80"));
            accepts(&outbound, client.unwrap().unwrap());
            let client = TcpStream::connect(network.at(APPLICATION));
            accepts(&inbound, client.unwrap());
            let control = TcpListener::bind((HOST, 8086)).unwrap();
            let client = network.enter(|| TcpStream::connect("127.0.0.1:18086"));
            accepts(&control, client.unwrap().unwrap());
        });
        tested.join().unwrap();
    }
}
