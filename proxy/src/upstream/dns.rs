//! Endpoints given by name: resolved when the cluster appears and again when the answer expires.
//!
//! Runs on the control thread. A name that cannot be resolved keeps its last addresses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::LookupIpStrategy;
use maglor_config::cluster::EndpointAddress;

use super::Cluster;
use super::Resolved;
use crate::shared::Shared;

/// Resolves names for all clusters.
#[derive(Clone, Debug)]
pub(crate) struct Resolver(TokioResolver);

impl Resolver {
    /// Reads the system's resolver configuration (`/etc/resolv.conf`, `/etc/hosts`).
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn new() -> Result<Self, hickory_resolver::net::NetError> {
        let mut builder = TokioResolver::builder_tokio()?;
        builder.options_mut().ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
        Ok(Self(builder.build()?))
    }

    /// Keeps a cluster's names resolved; never returns.
    pub(crate) async fn follow(self, cluster: Arc<Cluster>, shared: Arc<Shared>) {
        let failures = shared.metrics.control.dns_failures.with(&[cluster.name()]);
        loop {
            let round = self.resolve(&cluster).await;
            failures.add_shared(round.failures);
            let now = shared.time(tokio::time::Instant::now());
            if let Err(error) = cluster.resolve(&round.resolved, &shared.metrics, now) {
                tracing::warn!(cluster = %cluster.name(), %error, "resolved endpoints not applied");
            }
            tokio::time::sleep(round.valid_for).await;
        }
    }

    async fn resolve(&self, cluster: &Cluster) -> Round {
        let refresh = cluster.config().dns_refresh;
        let mut round = Round {
            resolved: Vec::new(),
            valid_for: refresh.max,
            failures: 0,
        };
        for (endpoint, described) in cluster.described().iter().enumerate() {
            let EndpointAddress::Dns { host, port } = &described.address else {
                continue;
            };
            let found = match self.0.lookup_ip(host.as_ref()).await {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(cluster = %cluster.name(), name = %host, %error, "not resolved");
                    round.failures += 1;
                    round.valid_for = refresh.min;
                    round.keep(cluster, host, *port, endpoint);
                    continue;
                }
            };
            let ttl = found
                .valid_until()
                .saturating_duration_since(Instant::now());
            round.valid_for = round.valid_for.min(ttl.clamp(refresh.min, refresh.max));
            round.resolved.extend(found.iter().map(|ip| Resolved {
                address: SocketAddr::new(ip, *port),
                endpoint,
            }));
        }
        round
    }
}

/// What one look at all names of a cluster gave.
struct Round {
    resolved: Vec<Resolved>,
    valid_for: Duration,
    failures: u64,
}

impl Round {
    /// Keeps the addresses that a name had.
    fn keep(&mut self, cluster: &Cluster, host: &Arc<str>, port: u16, endpoint: usize) {
        let endpoints = cluster.endpoints();
        let of_name = endpoints
            .targets()
            .iter()
            .filter(|target| target.host.as_ref() == Some(host) && target.address.port() == port);
        self.resolved.extend(of_name.map(|target| Resolved {
            address: target.address,
            endpoint,
        }));
    }
}
