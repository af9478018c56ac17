//! Network namespaces as hosts: each with its own address and a delay of its packets.
//!
//! ```text
//! host 1 ── veth, netem ──┐
//! host 2 ── veth, netem ──┼── bridge in a separate namespace
//! …                       ┘
//! ```
//!
//! Nothing is created outside the namespaces, so the machine's own network does not change, and
//! everything is removed when the value is dropped. It requires root and `ip`, a delay also `tc`
//! and the kernel's `sch_netem`; if these are missing, a test skips itself with the error of
//! [`Network::new`]:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! match maglor_testkit::netns::Network::new(2, Duration::from_millis(5)) {
//!     Ok(network) => {
//!         let status = network.hosts()[0].command("true").status();
//!         assert!(status.unwrap().success());
//!     }
//!     Err(missing) => println!("skipped: {missing}"),
//! }
//! ```

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The most hosts of a network.
const MOST: u8 = 250;

/// Hosts that can reach each other.
#[derive(Debug)]
pub struct Network {
    hosts: Vec<Host>,
    _bridge: Namespace,
}

/// A host, with its own loopback interface.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
    address: Ipv4Addr,
}

/// The reason why there is no network. One line each.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NetworkError {
    /// A command failed.
    #[error(
        "network namespaces need root and ip, delays also tc and sch_netem: `{command}`: {detail}"
    )]
    Command {
        /// The command as typed.
        command: String,
        /// Its output.
        detail: String,
    },
    /// Too many hosts.
    #[error("{0} hosts; a network has at most {MOST}")]
    TooMany(usize),
}

/// A namespace that is removed when this is dropped.
#[derive(Debug)]
struct Namespace(String);

impl Network {
    /// Creates a network of `hosts` hosts; a packet is delayed by `delay` on leaving its host, so
    /// that a round trip takes twice that.
    ///
    /// # Errors
    ///
    /// This machine does not allow it; a test then skips itself.
    pub fn new(hosts: usize, delay: Duration) -> Result<Self, NetworkError> {
        let count = u8::try_from(hosts).ok().filter(|count| *count <= MOST);
        let count = count.ok_or(NetworkError::TooMany(hosts))?;
        // Relaxed: the counter only has to return different numbers.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |what: &str| format!("maglor-{}-{number}-{what}", std::process::id());
        let bridge = Namespace::new(name("bridge"))?;
        bridge.ip("link add name bridge type bridge")?;
        bridge.ip("link set bridge up")?;
        let host = |index: u8| {
            let namespace = Namespace::new(name(&format!("host{index}")))?;
            let address = Ipv4Addr::new(10, 88, 0, index);
            let port = format!("port{index}");
            let host = &namespace.0;
            bridge.ip(&format!(
                "link add name {port} type veth peer name eth0 netns {host}"
            ))?;
            bridge.ip(&format!("link set {port} master bridge up"))?;
            namespace.ip("link set lo up")?;
            namespace.ip(&format!("address add {address}/24 dev eth0"))?;
            namespace.ip("link set eth0 up")?;
            if delay > Duration::ZERO {
                let micros = delay.as_micros();
                namespace.tc(&format!(
                    "qdisc add dev eth0 root netem delay {micros}us limit 100000"
                ))?;
            }
            Ok(Host { namespace, address })
        };
        Ok(Self {
            hosts: (1..=count).map(host).collect::<Result<_, _>>()?,
            _bridge: bridge,
        })
    }

    /// Returns the hosts.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }
}

impl Host {
    /// Returns the address of the namespace in the network.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns a command that runs on this host. Kill the child before the network is dropped.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace.0, program]);
        command
    }
}

impl Namespace {
    fn new(name: String) -> Result<Self, NetworkError> {
        run("ip", &["netns", "add", &name])?;
        Ok(Self(name))
    }

    fn ip(&self, words: &str) -> Result<(), NetworkError> {
        self.run("ip", words)
    }

    fn tc(&self, words: &str) -> Result<(), NetworkError> {
        self.run("tc", words)
    }

    fn run(&self, program: &str, words: &str) -> Result<(), NetworkError> {
        let words = ["-n", &self.0].into_iter().chain(words.split(' '));
        run(program, &words.collect::<Vec<_>>())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let mut command = Command::new("ip");
        command.args(["netns", "delete", &self.0]);
        // Namespaces that cannot be removed are left to the next reboot; the test is valid all the
        // same.
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

fn run(program: &str, words: &[&str]) -> Result<(), NetworkError> {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output();
    let detail = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            text.lines().next().unwrap_or("it failed").to_owned()
        }
        Err(error) => error.to_string(),
    };
    Err(NetworkError::Command {
        command: format!("{program} {}", words.join(" ")),
        detail,
    })
}
