//! A proxy with the configuration of a case.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::client::Client;
use crate::child::Guarded;
use crate::error::{Doing, Error, Result};
use crate::http;
use crate::peer::{Peer, Scratch, Subject};
use crate::scenario::Protocol;
use crate::{ports, procfs};

const PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(5);

const ENVOY: &str = include_str!("../../peers/resilience-envoy.yaml");
const MAGLOR: &str = include_str!("../../peers/resilience-maglor.yaml");

/// The lines of YAML that a case adds to a proxy's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fragment {
    /// For the only route.
    pub(super) route: Vec<String>,
    /// For the only cluster.
    pub(super) cluster: Vec<String>,
}

impl Fragment {
    /// Creates a fragment from lines.
    pub(super) fn new(route: &[&str], cluster: &[&str]) -> Self {
        let own = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        Self {
            route: own(route),
            cluster: own(cluster),
        }
    }
}

/// A started proxy; it is stopped when this is dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    subject: Subject,
    admin: SocketAddr,
    child: Guarded,
    scratch: Scratch,
}

/// The parts of the names of counters that concern resilience.
const COUNTERS: [&str; 8] = [
    "breaker", "eject", "health", "outlier", "overflow", "pending", "retr", "tries",
];

impl Proxy {
    /// Starts `peer` on processor `cpu` in front of `endpoints`, and waits until it answers.
    pub(super) async fn start(
        peer: &Peer,
        protocol: Protocol,
        fragment: &Fragment,
        endpoints: &[SocketAddr],
        cpu: usize,
    ) -> Result<Self> {
        let scratch = Scratch::new(peer.subject.key())?;
        let (address, admin) = (ports::free()?, ports::free()?);
        let text = configuration(peer.subject, protocol, fragment, endpoints, address, admin);
        let file = scratch.path().join("proxy.yaml");
        fs::write(&file, text).doing("write a configuration")?;
        let log = scratch.log_file()?;
        let mut command = peer.command(&file);
        scratch.run_in(&mut command, &log)?;
        let child = Guarded::start(peer.subject.key(), &mut command, cpu)?;
        let mut proxy = Self {
            address,
            subject: peer.subject,
            admin,
            child,
            scratch,
        };
        proxy.wait_ready(peer, protocol).await?;
        Ok(proxy)
    }

    async fn wait_ready(&mut self, peer: &Peer, protocol: Protocol) -> Result<()> {
        let began = Instant::now();
        loop {
            let client = Client::new(self.address, protocol);
            let Err(last) = client.get().await else {
                return Ok(());
            };
            let status = self.child.ended()?;
            if status.is_some() || began.elapsed() > PATIENCE {
                let detail = format!("{last}; ended: {status:?}\n{}", self.scratch.log_end());
                return Err(Error::late(peer.subject.to_string(), began, detail));
            }
            sleep(POLL).await;
        }
    }

    /// Returns its own counters, such as the reasons for missing retries and the ejected endpoints.
    pub(super) async fn counters(&self) -> Result<String> {
        let path = match self.subject {
            Subject::Maglor => "/metrics",
            _ => "/stats?usedonly",
        };
        let text = http::text(self.admin, "GET", path, String::new()).await?;
        let zero = |line: &str| line.ends_with(" 0");
        let reports = |line: &&str| {
            let reported = COUNTERS.iter().any(|word| line.contains(word));
            reported && !line.starts_with('#') && !zero(line)
        };
        let lines = text.lines().filter(reports);
        Ok(lines.map(|line| format!("{line}\n")).collect())
    }

    /// Returns its process ids.
    pub(super) fn pids(&self) -> Vec<u32> {
        procfs::tree(self.child.pid())
    }

    /// Returns its configuration, as written to the file.
    pub(super) fn configuration(&self) -> String {
        fs::read_to_string(self.scratch.path().join("proxy.yaml")).unwrap_or_default()
    }
}

fn configuration(
    subject: Subject,
    protocol: Protocol,
    fragment: &Fragment,
    endpoints: &[SocketAddr],
    address: SocketAddr,
    admin: SocketAddr,
) -> String {
    let ports = |address: SocketAddr| address.port().to_string();
    let h2 = protocol == Protocol::H2c;
    if subject == Subject::Maglor {
        let mut cluster = fragment.cluster.clone();
        if h2 {
            cluster.push("protocol: http2".into());
        }
        let list: Vec<_> = endpoints.iter().map(ToString::to_string).collect();
        let text = fill(MAGLOR, "{{route}}", &fragment.route);
        return fill(&text, "{{cluster}}", &cluster)
            .replace("{{endpoints}}", &format!("[{}]", list.join(", ")))
            .replace("{{listen}}", &address.to_string())
            .replace("{{admin}}", &admin.to_string());
    }
    let endpoint = |address: &SocketAddr| {
        let port = address.port();
        format!(
            "- endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}"
        )
    };
    let list: Vec<_> = endpoints.iter().map(endpoint).collect();
    let speaks = if h2 {
        "http2_protocol_options"
    } else {
        "http_protocol_options"
    };
    let text = fill(ENVOY, "{{route}}", &fragment.route);
    let text = fill(&text, "{{cluster}}", &fragment.cluster);
    fill(&text, "{{endpoints}}", &list)
        .replace("{{protocol}}", speaks)
        .replace("{{listen}}", &ports(address))
        .replace("{{admin}}", &ports(admin))
}

/// Replaces each line that consists of `name` by `lines`, with the same indentation.
fn fill(template: &str, name: &str, lines: &[String]) -> String {
    let mut text = String::with_capacity(template.len());
    for line in template.lines() {
        match line.strip_suffix(name) {
            Some(indent) if indent.trim().is_empty() => {
                for inserted in lines {
                    text.push_str(&format!("{indent}{inserted}\n"));
                }
            }
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_completely() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let fragment = Fragment::new(&["timeout: 5s"], &["policy: round-robin", "x: 1"]);
        let endpoints = [address(1001), address(1002)];
        for subject in [Subject::Maglor, Subject::Envoy] {
            for protocol in [Protocol::H1, Protocol::H2c] {
                let places = (address(1003), address(1004));
                let text =
                    configuration(subject, protocol, &fragment, &endpoints, places.0, places.1);
                assert!(!text.contains("{{"), "{text}");
                for port in 1001..=1004 {
                    assert!(text.contains(&port.to_string()), "{port} in {text}");
                }
                assert!(text.contains("timeout: 5s\n"), "{text}");
                let depth = |what: &str| {
                    let line = text.lines().find(|line| line.trim() == what).unwrap();
                    line.len() - what.len()
                };
                assert_eq!(depth("policy: round-robin"), depth("x: 1"));
            }
        }
    }
}
