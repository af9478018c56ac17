//! Configurations, and proxies that run with them.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::anyhow;
use maglor_testkit::{Authority, Identity, Proxy, ProxyBuilder};

use super::Bench;

/// The drain time of connections in seconds when the proxy is stopped.
pub(super) const DRAIN_SECONDS: u64 = 10;

/// A configuration as YAML.
#[derive(Debug, Default)]
pub(super) struct Config {
    listeners: String,
    clusters: String,
    /// Fields of every HTTP listener.
    pub(super) http: String,
    /// Routes before the catch-all route, in YAML's flow style, each followed by a comma.
    pub(super) routes: String,
}

impl Config {
    /// Adds an HTTP listener on a separate port that forwards everything to one cluster.
    pub(super) fn http(
        mut self,
        name: &str,
        protocol: &str,
        tls: Option<&Identity>,
        cluster: &str,
    ) -> Self {
        let routes = format!("{}{{cluster: {cluster}, timeout: 0s}}", self.routes);
        let tls = tls.map(certificates).unwrap_or_default();
        let http = &self.http;
        // Infallible: the target is a String.
        let _ = write!(
            self.listeners,
            "- name: {name}\n  address: 127.0.0.1:0\n{tls}  http:\n    protocol: {protocol}\n{http}    \
             virtual_hosts: [{{domains: ['*'], routes: [{routes}]}}]\n"
        );
        self
    }

    /// Adds a listener that forwards bytes to a cluster.
    pub(super) fn tcp(mut self, name: &str, cluster: &str) -> Self {
        let _ = write!(
            self.listeners,
            "- name: {name}\n  address: 127.0.0.1:0\n  tcp: {{cluster: {cluster}}}\n"
        );
        self
    }

    /// Adds a cluster with `protocol` (`http1`, `http2`).
    pub(super) fn cluster(mut self, name: &str, protocol: &str, servers: &[SocketAddr]) -> Self {
        let servers: Vec<_> = servers.iter().map(|server| format!("'{server}'")).collect();
        let servers = servers.join(", ");
        let _ = writeln!(
            self.clusters,
            "- {{name: {name}, protocol: {protocol}, endpoints: [{servers}]}}"
        );
        self
    }

    pub(super) fn yaml(&self) -> String {
        format!(
            "admin: {{address: 127.0.0.1:0}}\ndrain_timeout: {DRAIN_SECONDS}s\nlisteners:\n{}clusters:\n{}",
            self.listeners, self.clusters
        )
    }

    /// Starts a proxy with this configuration.
    pub(super) fn start(&self, bench: &Bench) -> anyhow::Result<Proxy> {
        let builder = ProxyBuilder::new(&bench.proxy).config(self.yaml());
        builder.try_start().map_err(|error| anyhow!("{error}"))
    }
}

fn certificates(identity: &Identity) -> String {
    format!(
        "  tls: {{certificates: [{{certificate: '{}', private_key: '{}'}}]}}\n",
        identity.cert_file.display(),
        identity.key_file.display()
    )
}

/// Creates an authority and a certificate for `localhost` and `127.0.0.1`.
pub(super) fn localhost() -> (Authority, Identity) {
    let authority = Authority::new();
    let identity = authority.issue(&["localhost", "127.0.0.1"]);
    (authority, identity)
}
