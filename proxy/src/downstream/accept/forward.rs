//! Forwards the bytes of a connection to an endpoint.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::guard::outlier::Sample;
use maglor_balance::guard::retry::FREE_RETRIES;
use tokio::time::Instant;

use super::{Ends, Local};
use crate::net::io::Stream;
use crate::protocol::detect::{First, first_to_speak};
use crate::protocol::error::ProxyError;
use crate::protocol::proxy_protocol::Addresses;
use crate::routing::listener::TcpChain;
use crate::runtime::worker::Worker;
use crate::telemetry::metrics::ListenerMetrics;
use crate::upstream::relay::relay;
use crate::upstream::{Cluster, ClusterSlot, Picked, Pools, Sender};

/// The client's side of a connection.
pub(super) struct Downstream {
    pub(super) stream: Stream,
    pub(super) ends: Ends,
    /// Whether the client has sent nothing, and presumably waits for the server.
    pub(super) silent: bool,
}

/// Picks an endpoint, connects to it, and relays the bytes. A discovered cluster of the original destination
/// takes precedence over the chain's own cluster.
pub(super) async fn forward(
    downstream: Downstream,
    chain: Arc<TcpChain>,
    discovered: Option<Arc<Cluster>>,
    metrics: Arc<ListenerMetrics>,
    local: Local,
) {
    let Local { worker, upstreams } = local;
    let Downstream {
        mut stream,
        ends,
        silent,
    } = downstream;
    let Some(cluster) = discovered.or_else(|| chain.cluster.load_full()) else {
        metrics.refused_upstream.inc(worker.shard());
        return;
    };
    let now = worker.time(Instant::now());
    let name = Arc::clone(cluster.name());
    let toward = cluster.toward(ends.original, worker.shared(), now);
    let reached = match toward {
        Ok(cluster) => {
            let reached = reach(&cluster, &upstreams.pools, ends.addresses, &worker).await;
            if let Err(error) = &reached {
                cluster.count_overflow(error);
            }
            // Held for as long as the connection: a destination in use is not dropped.
            reached.map(|reached| (cluster, reached))
        }
        Err(error) => Err(error),
    };
    let (cluster, (mut upstream, _place, picked)) = match reached {
        Ok(reached) => reached,
        Err(error) => {
            metrics.refused_upstream.inc(worker.shard());
            tracing::debug!(cluster = %name, %error, "TCP connection rejected");
            return;
        }
    };
    let idle = chain.settings.idle_timeout;
    let counted = Some(cluster.metrics());
    let learned = match silent {
        true => learn(&worker, &ends, idle, &mut stream, &mut upstream).await,
        false => true,
    };
    if learned {
        relay(&worker, &metrics, counted, stream, upstream, idle).await;
    }
    picked.outstanding.finish(worker.time(Instant::now()));
}

/// Waits until one side sends first, and remembers the destination if this is the server. Returns false if neither
/// has sent within `idle`, or if a side has failed.
async fn learn(
    worker: &Worker,
    ends: &Ends,
    idle: Duration,
    client: &mut Stream,
    server: &mut Stream,
) -> bool {
    let first = tokio::time::timeout(idle, first_to_speak(client, server)).await;
    let destination = ends.addresses.map(|both| both.destination);
    match (first, destination) {
        (Ok(Err(_)) | Err(_), _) => return false,
        (Ok(Ok(Some(First::Server))), Some(destination)) => {
            let now = worker.time(Instant::now());
            worker.server_first.learn(destination, now);
        }
        (Ok(Ok(Some(First::Client))), Some(destination)) => {
            worker.server_first.forget(destination);
        }
        (Ok(Ok(_)), _) => {}
    }
    true
}

/// Connects to an endpoint. If that fails, connects to another one, since no data has been sent.
async fn reach(
    cluster: &Arc<Cluster>,
    pools: &Pools,
    addresses: Option<Addresses>,
    worker: &Rc<Worker>,
) -> Result<(Stream, ClusterSlot, Picked), ProxyError> {
    let started = Instant::now();
    let now = worker.time(started);
    let mut slot = ClusterSlot::enter(cluster, now).await?;
    // A client of a Unix socket has no address to hash: each connection is treated as one of a different client.
    let source = addresses.map(|both| both.source.ip().to_string());
    let hash = source.map(|source| maglor_balance::hash_bytes(source.as_bytes()));
    let mut failed = Vec::new();
    loop {
        let picked = worker.with_rng(|rng| cluster.pick(now, hash, &failed, rng))?;
        let target = Arc::clone(&picked.target);
        if let Some(distance) = &cluster.config().delay {
            tokio::time::sleep(worker.with_rng(|rng| distance.draw(rng))).await;
        }
        let sender = Sender {
            cluster,
            target: &target,
            pools,
            now: started,
            ends: addresses.map(Box::new),
            interim: None,
            noted: None,
        };
        let reached = sender.stream().await;
        let sample = match &reached {
            Ok(_) => Some(Sample::Success),
            // Lack of local resources for another connection is not a failure of the endpoint.
            Err(error) => error.is_upstreams().then_some(Sample::LocalFailure),
        };
        if let Some(sample) = sample {
            cluster.record_outcome(&target, sample, worker.shared());
        }
        failed.push(target.id);
        let elsewhere = match sample {
            // Only if endpoints have their own limits.
            None => cluster.config().limits.endpoint.max_connections.is_some(),
            Some(_) => true,
        };
        let further =
            elsewhere && failed.len() <= FREE_RETRIES as usize && cluster.is_usable_beyond(&failed);
        if reached.is_ok() || !further {
            if sample.is_some() {
                worker.with_rng(|rng| slot.record_outcome(reached.is_ok(), None, now, rng));
            }
            return reached.map(|stream| (stream, slot, picked));
        }
    }
}
