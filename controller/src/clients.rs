//! Limits the connections of one port: in total, by source address, and new ones per second.
//!
//! If a source opens connections faster than [`PER_SECOND`], the newest ones are closed before any work is done for
//! them. If the port is full, [`maglor_telemetry::admin::Connections`] closes a connection of the source that has the most.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use maglor_balance::guard::rate::{KeyedBuckets, RateParams};
use maglor_balance::{Rng, Time, hash_bytes};
use maglor_telemetry::admin::{Connections, Limits, Place, Via, network_of};
use maglor_telemetry::{Counter, Registry};
use tokio::time::Instant;

/// Maximum number of new connections of a source per second. A handshake takes half a millisecond of CPU time, so one
/// source can use 5 % of a core.
const PER_SECOND: u32 = 100;
/// Maximum burst of new connections of a source. Behind NAT, all pods of a node (at most 256 by default) are one
/// source, and each has a proxy that opens several connections.
const AT_ONCE: u32 = 1024;
/// Maximum number of sources that are tracked.
const SOURCES: usize = 16_384;

/// Token buckets by source address.
#[derive(Debug)]
pub(crate) struct BySource {
    buckets: KeyedBuckets,
    started: Instant,
}

impl BySource {
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let params = RateParams {
            requests: per_second,
            per: std::time::Duration::from_secs(1),
            burst,
        };
        let mut rng = Rng::seed(RandomState::new().hash_one(0));
        Self {
            buckets: KeyedBuckets::new(params, SOURCES, &mut rng),
            started: Instant::now(),
        }
    }

    /// Takes a token from a source's bucket if it has one.
    pub(crate) fn take(&self, source: IpAddr) -> maglor_balance::guard::rate::Verdict {
        let key = match network_of(source) {
            IpAddr::V4(ip) => hash_bytes(&ip.octets()),
            IpAddr::V6(ip) => hash_bytes(&ip.octets()),
        };
        let now = self.started.elapsed().as_nanos();
        let now = Time::from_nanos(u64::try_from(now).unwrap_or(u64::MAX));
        self.buckets.take(key, now)
    }
}

/// Counters of connections that were closed without a response, by reason.
#[derive(Clone, Debug)]
pub(crate) struct ClientMetrics {
    rate: Counter,
    room: Counter,
    silent: Counter,
}

/// Ports with limits, as named by their label in metrics.
pub(crate) const PORTS: [&str; 3] = ["discovery", "external-metrics", "webhook"];

impl ClientMetrics {
    /// Registers the metrics of all [`PORTS`].
    pub(crate) fn of_ports(registry: &Registry) -> [(&'static str, Self); PORTS.len()] {
        let family = registry.counter(
            "controller_connections_shed_total",
            "Connections closed without a response, by port and reason.",
            &["port", "reason"],
        );
        PORTS.map(|port| {
            let with = |reason| family.with(&[port, reason]);
            let metrics = Self {
                rate: with("rate"),
                room: with("room"),
                silent: with("silent"),
            };
            (port, metrics)
        })
    }

    /// Counts a connection that was closed because a handshake or a request took too long.
    pub(crate) fn silent(&self) {
        self.silent.add_shared(1);
    }
}

/// The connection limits of a port.
#[derive(Debug)]
pub(crate) struct Clients {
    connections: Arc<Connections>,
    rate: BySource,
    pub(crate) metrics: ClientMetrics,
}

impl Clients {
    /// Creates the limits of a port. Loopback is treated like any other source.
    pub(crate) fn new(limits: Limits, metrics: ClientMetrics) -> Self {
        Self {
            connections: Arc::new(Connections::new(limits)),
            rate: BySource::new(PER_SECOND, AT_ONCE),
            metrics,
        }
    }

    /// Admits an accepted connection; `None` if the connection must be closed immediately.
    pub(crate) fn enter(&self, peer: SocketAddr) -> Option<Place> {
        if !self.rate.take(peer.ip()).allowed {
            self.metrics.rate.add_shared(1);
            return None;
        }
        Some(self.place(&self.connections, peer))
    }

    /// Moves an admitted connection to another set with its own limits.
    pub(crate) fn next(&self, before: Place, among: &Arc<Connections>, peer: SocketAddr) -> Place {
        drop(before);
        self.place(among, peer)
    }

    fn place(&self, among: &Arc<Connections>, peer: SocketAddr) -> Place {
        let (place, closed) = among.enter(Via::Network, peer.ip());
        if closed {
            self.metrics.room.add_shared(1);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients() -> Clients {
        let limits = Limits {
            network: 4096,
            source: 4096,
            ..Limits::default()
        };
        let [(_, metrics), ..] = ClientMetrics::of_ports(&Registry::new(1));
        Clients::new(limits, metrics)
    }

    #[test]
    fn a_source_opens_no_more_connections_than_its_rate() {
        let clients = clients();
        let from = |last: u8| SocketAddr::from(([10, 0, 0, last], 1));
        let enter = |last| clients.enter(from(last)).is_some();
        let begun = Instant::now();
        let entered = (0..4 * AT_ONCE).filter(|_| enter(1)).count();
        let more = begun.elapsed().as_secs_f64() * f64::from(PER_SECOND);
        let expected = AT_ONCE as usize..=AT_ONCE as usize + 1 + more as usize;
        assert!(expected.contains(&entered), "{entered}");
        assert!(enter(2), "another source");
    }
}
