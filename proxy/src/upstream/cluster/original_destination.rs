//! Clusters whose endpoint is the original destination of each connection (`type: original-destination`).
//!
//! Each destination has its own cluster with one endpoint, so that circuit breakers, limits and pools are separate,
//! and no special case is needed to choose an endpoint and send to it.

use std::hash::BuildHasher as _;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::{DefaultHashBuilder, HashMap};
use maglor_balance::Time;
use maglor_config::cluster::{self as config, DestinationAddress, EndpointAddress};

use crate::net::io::Io;
use crate::net::own_connections::OwnConnection;
use crate::protocol::error::ProxyError;
use crate::runtime::shared::Shared;
use crate::upstream::Cluster;

/// Idle time after which a destination is dropped when a new one is added.
const FORGET: Duration = Duration::from_secs(60);
/// Number of parts of the table. Adding a destination copies only its part, not the whole table.
const PARTS: usize = 16;
/// Maximum number of destinations in a part. Beyond this, a destination's cluster is built for a single connection or
/// request.
const MAX_IN_PART: usize = 256;

/// Destinations of a cluster of this type.
#[derive(Debug)]
pub(crate) struct Destinations {
    address: DestinationAddress,
    hasher: DefaultHashBuilder,
    parts: Box<[ArcSwap<Part>]>,
}

type Part = HashMap<SocketAddr, Arc<Known>>;

/// One destination.
#[derive(Debug)]
struct Known {
    cluster: Arc<Cluster>,
    /// Time of last use in nanoseconds.
    used: AtomicU64,
}

impl Destinations {
    /// Creates an empty table; `None` for a cluster with endpoints.
    pub(in crate::upstream) fn new(config: &config::Cluster) -> Option<Self> {
        Some(Self {
            address: config.original_destination?,
            hasher: DefaultHashBuilder::default(),
            parts: (0..PARTS).map(|_| ArcSwap::default()).collect(),
        })
    }

    /// Returns the clusters of the known destinations.
    pub(crate) fn clusters(&self) -> Vec<Arc<Cluster>> {
        let mut clusters = Vec::new();
        for part in &self.parts {
            let part = part.load();
            clusters.extend(part.values().map(|known| Arc::clone(&known.cluster)));
        }
        clusters
    }

    fn part(&self, address: SocketAddr) -> &ArcSwap<Part> {
        &self.parts[self.hasher.hash_one(address) as usize % PARTS]
    }

    fn find(&self, address: SocketAddr, now: Time) -> Option<Arc<Cluster>> {
        let known = self.part(address).load();
        let found = known.get(&address)?;
        // Relaxed: the time need not be exact.
        found.used.store(now.as_nanos(), Ordering::Relaxed);
        Some(Arc::clone(&found.cluster))
    }

    fn remember(&self, address: SocketAddr, cluster: &Arc<Cluster>, now: Time) {
        let new = Arc::new(Known {
            cluster: Arc::clone(cluster),
            used: AtomicU64::new(now.as_nanos()),
        });
        let oldest = now.as_nanos().saturating_sub(FORGET.as_nanos() as u64);
        self.part(address).rcu(|known| {
            let mut known = HashMap::clone(known);
            known.retain(|_, known| {
                known.used.load(Ordering::Relaxed) >= oldest
                    || Arc::strong_count(&known.cluster) > 1
            });
            if known.len() < MAX_IN_PART {
                known.entry(address).or_insert_with(|| Arc::clone(&new));
            }
            known
        });
    }
}

impl Cluster {
    /// Returns the cluster for a connection with this original destination; this is the cluster itself unless its
    /// type is `original-destination`.
    ///
    /// # Errors
    /// [`ProxyError::NoOriginalDestination`] if the type requires a destination and there is none;
    /// [`ProxyError::OwnPort`] if this proxy listens at the destination for its operator or its application only.
    pub(crate) fn toward(
        self: Arc<Self>,
        destination: Option<SocketAddr>,
        shared: &Shared,
        now: Time,
    ) -> Result<Arc<Self>, ProxyError> {
        let Some(destinations) = self.destinations() else {
            return Ok(self);
        };
        let destination = destination.ok_or(ProxyError::NoOriginalDestination)?;
        let address = destinations.address.of(destination);
        // The destination in a client's PROXY header may be any address.
        if shared.own_connections.is_private(address) {
            return Err(ProxyError::OwnPort);
        }
        if let Some(cluster) = destinations.find(address, now) {
            return Ok(cluster);
        }
        let config = Arc::new(at(self.config(), address));
        let cluster = Self::new(config, self.tls().cloned(), &shared.metrics, None, now);
        let mut cluster = cluster.map_err(|_| ProxyError::NoHealthyUpstream)?;
        if destinations.address == DestinationAddress::AsIs {
            cluster.own_connections = Some(Arc::clone(&shared.own_connections));
        }
        let cluster = Arc::new(cluster);
        destinations.remember(address, &cluster, now);
        // If another worker was first, its pools and limits are used.
        Ok(destinations.find(address, now).unwrap_or(cluster))
    }
}

impl Cluster {
    /// Records a new connection, in order to recognize it if it is redirected back to this proxy.
    pub(in crate::upstream) fn recognised(&self, io: &Io) -> Option<OwnConnection> {
        let all = self.own_connections.as_ref()?;
        Some(all.enter(io.tcp().local_addr().ok()?))
    }
}

/// Returns the configuration of the cluster with this address as its only endpoint.
fn at(config: &config::Cluster, address: SocketAddr) -> config::Cluster {
    config::Cluster {
        original_destination: None,
        endpoints: vec![config::Endpoint {
            address: EndpointAddress::Socket(address),
            weight: NonZeroU32::MIN,
            priority: 0,
            locality: None,
        }],
        ..config.clone()
    }
}
