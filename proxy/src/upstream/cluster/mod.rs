//! Run-time state of a cluster, shared by all workers.
//!
//! The endpoints are an immutable snapshot behind an `ArcSwap`; requests read the snapshot, and the control thread
//! replaces it. An endpoint's [`Target`] outlives snapshots, so that its statistics and pooled connections survive
//! changes of other endpoints.

pub(super) mod endpoints;
pub(crate) mod guard;
pub(super) mod original_destination;
mod quality;
pub(super) mod target;

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use hashbrown::HashMap;
use maglor_balance::guard::breaker::Transition;
use maglor_balance::guard::outlier::Sample;
use maglor_balance::{self as balance, Excluded, Index, Outstanding, PickCtx, Rng, Time, Usual};
use maglor_config::Address;
use maglor_config::cluster as config;
use maglor_identity::Live;
use maglor_identity::tls::Client;

use self::endpoints::{retained_names, static_addresses};
use super::{Destinations, Endpoints, Guard, Resolved, Seat, Target};
use crate::net::own_connections::OwnConnections;
use crate::protocol::error::ProxyError;
use crate::runtime::shared::{Report, Shared};
use crate::telemetry::metrics::{
    ClusterMetrics, Failures, Metrics, QueueProtocolMetrics, Refusals,
};
use crate::telemetry::record::{ClusterState, EndpointAddresses, EndpointState, Record};

/// Maximum number of endpoints whose states a story has.
const MOST_ENDPOINTS: usize = 16;

/// The clusters of a configuration, by name.
#[derive(Debug, Default)]
pub(crate) struct Clusters(HashMap<Arc<str>, Arc<Cluster>>);

impl Clusters {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Cluster>> {
        self.0.get(name).cloned()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Cluster>> {
        self.0.values()
    }

    pub(crate) fn insert(&mut self, cluster: Arc<Cluster>) {
        self.0.insert(Arc::clone(&cluster.config.name), cluster);
    }
}

/// A cluster at run time.
#[derive(Debug)]
pub(crate) struct Cluster {
    config: Arc<config::Cluster>,
    tls: Option<ClientTls>,
    metrics: ClusterMetrics,
    /// Usual duration of successful responses. Allocated separately from the fields that requests only read.
    usual: Arc<Usual>,
    /// Metrics of the queue protocol; `None` if the policy does not use it.
    queue_protocol: Option<QueueProtocolMetrics>,
    guard: Guard,
    endpoints: ArcSwap<Endpoints>,
    /// Endpoints that the control plane has sent separately from the cluster; `None` if those of the configuration
    /// are used.
    assigned: ArcSwapOption<Vec<config::Endpoint>>,
    /// Clusters by original destination; `None` if this cluster has endpoints of its own.
    destinations: Option<Destinations>,
    /// Record of own connections; `None` unless the cluster connects to the original destination unchanged, so that
    /// its connections may be redirected in turn.
    pub(super) own_connections: Option<Arc<OwnConnections>>,
}

impl EndpointAddresses for Cluster {
    fn address_of(&self, id: u32) -> Option<Address> {
        let endpoints = self.endpoints.load();
        let mut targets = endpoints.targets().iter();
        let found = targets.find(|target| target.id as u32 == id)?;
        Some(found.address.clone())
    }
}

/// TLS to the endpoints.
#[derive(Clone, Debug)]
pub(crate) enum ClientTls {
    /// Endpoints authenticate by DNS names.
    Names(Arc<rustls::ClientConfig>),
    /// Mutual TLS inside the mesh.
    Mesh(ClientMesh),
}

impl ClientTls {
    pub(crate) fn mesh(&self) -> Option<&ClientMesh> {
        match self {
            Self::Names(_) => None,
            Self::Mesh(mesh) => Some(mesh),
        }
    }

    /// Returns the configuration for a handshake that begins now.
    pub(crate) fn config(&self) -> Arc<rustls::ClientConfig> {
        match self {
            Self::Names(config) => Arc::clone(config),
            Self::Mesh(mesh) => mesh.client.config(),
        }
    }
}

/// Mutual TLS inside the mesh.
#[derive(Clone, Debug)]
pub(crate) struct ClientMesh {
    pub(crate) client: Arc<Client>,
    /// Identity of this proxy.
    pub(crate) live: Arc<Live>,
    /// Counters of endpoints that failed to authenticate.
    pub(crate) refused: Arc<Refusals>,
    /// Counters of connections that failed because of endpoints.
    pub(crate) failures: Arc<Failures>,
}

/// Endpoints before the resolution of names.
#[derive(Clone, Debug)]
pub(crate) enum Described {
    Assigned(Arc<Vec<config::Endpoint>>),
    Configured(Arc<config::Cluster>),
}

impl std::ops::Deref for Described {
    type Target = [config::Endpoint];

    fn deref(&self) -> &[config::Endpoint] {
        match self {
            Self::Assigned(endpoints) => endpoints,
            Self::Configured(cluster) => &cluster.endpoints,
        }
    }
}

/// An endpoint chosen for a request, which counts as outstanding while this exists.
#[derive(Debug)]
pub(crate) struct Picked {
    pub(crate) target: Arc<Target>,
    pub(crate) outstanding: Outstanding,
    /// Slot of the request at the endpoint; `None` if the number of requests is not limited.
    pub(crate) seat: Option<Seat>,
}

impl Cluster {
    /// Builds a cluster. Endpoints with an address are available immediately, those with a name when the name is
    /// resolved. Targets of `before` (the same cluster in the previous configuration) are kept.
    ///
    /// # Errors
    /// If the policy cannot be built for the endpoints.
    pub(crate) fn new(
        config: Arc<config::Cluster>,
        tls: Option<ClientTls>,
        metrics: &Metrics,
        before: Option<&Self>,
        now: Time,
    ) -> Result<Self, balance::SpecError> {
        let same_wire = before.is_some_and(|before| before.same_wire(&config));
        let old = before
            .filter(|_| same_wire)
            .map(|before| before.endpoints.load_full());
        let assigned = before.and_then(|before| before.assigned.load_full());
        let described = assigned.as_ref().map_or(&config.endpoints, |list| list);
        let mut known = static_addresses(described);
        if let Some(old) = &old {
            known.extend(retained_names(described, old.targets()));
        }
        let old = old.as_deref();
        let endpoints = Endpoints::build(&config, described, &known, old, metrics, now)?;
        let consults = config.policy.is_collaborative();
        let queue_protocol = consults.then(|| metrics.queue_protocol(&config.name));
        let metrics = metrics.cluster(&config.name);
        let guard = Guard::new(&config, before.map(Self::guard));
        let destinations = Destinations::new(&config);
        Ok(Self {
            config,
            tls,
            metrics,
            usual: before.map_or_else(Arc::default, |before| Arc::clone(&before.usual)),
            queue_protocol,
            guard,
            endpoints: ArcSwap::from_pointee(endpoints),
            assigned: ArcSwapOption::new(assigned),
            destinations,
            own_connections: None,
        })
    }

    /// Returns whether connections made with one configuration can be used with the other.
    fn same_wire(&self, other: &config::Cluster) -> bool {
        let own = &self.config;
        own.tls == other.tls
            && own.protocol == other.protocol
            && own.proxy_protocol == other.proxy_protocol
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    pub(crate) fn config(&self) -> &Arc<config::Cluster> {
        &self.config
    }

    pub(crate) fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_ref()
    }

    /// Returns whether connections to the endpoints use mutual TLS inside the mesh.
    pub(crate) fn is_in_mesh(&self) -> bool {
        self.tls().is_some_and(|tls| tls.mesh().is_some())
    }

    pub(crate) fn metrics(&self) -> &ClusterMetrics {
        &self.metrics
    }

    /// Returns the usual duration of successful responses.
    pub(crate) fn usual(&self) -> &Usual {
        &self.usual
    }

    /// Returns the metrics of the queue protocol; `None` if the policy does not use it.
    pub(crate) fn queue_protocol(&self) -> Option<&QueueProtocolMetrics> {
        self.queue_protocol.as_ref()
    }

    /// Returns the clusters by original destination; `None` if this cluster has endpoints.
    pub(crate) fn destinations(&self) -> Option<&Destinations> {
        self.destinations.as_ref()
    }

    pub(crate) fn endpoints(&self) -> Arc<Endpoints> {
        self.endpoints.load_full()
    }

    /// Returns whether the target is a current endpoint.
    pub(crate) fn has(&self, target: &Arc<Target>) -> bool {
        let endpoints = self.endpoints.load();
        endpoints.targets().iter().any(|one| one.id == target.id)
    }

    /// Replaces the endpoints of resolved names.
    ///
    /// # Errors
    /// If the policy cannot be built for the endpoints; the previous endpoints stay.
    pub(crate) fn resolve(
        &self,
        resolved: &[Resolved],
        metrics: &Metrics,
        now: Time,
    ) -> Result<(), balance::SpecError> {
        let described = self.described();
        let mut all = static_addresses(&described);
        all.extend_from_slice(resolved);
        self.replace(&described, &all, metrics, now)
    }

    /// Returns the endpoints before name resolution: those of the control plane, or of the configuration.
    pub(crate) fn described(&self) -> Described {
        match self.assigned.load_full() {
            Some(assigned) => Described::Assigned(assigned),
            None => Described::Configured(Arc::clone(&self.config)),
        }
    }

    /// Replaces the endpoints; those that stay keep their targets.
    fn replace(
        &self,
        described: &[config::Endpoint],
        all: &[Resolved],
        metrics: &Metrics,
        now: Time,
    ) -> Result<(), balance::SpecError> {
        let old = self.endpoints.load_full();
        let endpoints = Endpoints::build(&self.config, described, all, Some(&old), metrics, now)?;
        self.warn_of_uneven_shares(old.targets().len(), endpoints.targets().len());
        self.endpoints.store(Arc::new(endpoints));
        Ok(())
    }

    /// Logs once that there are more endpoints than the policy's table can balance evenly.
    fn warn_of_uneven_shares(&self, before: usize, endpoints: usize) {
        let policy = &self.config.policy;
        if policy.uneven_shares(before).is_some() {
            return;
        }
        if let Some(uneven) = policy.uneven_shares(endpoints) {
            tracing::warn!(
                cluster = %self.name(),
                endpoints,
                parameter = uneven.parameter,
                value = uneven.value,
                wanted = uneven.wanted,
                "hash table too small for the number of endpoints; their shares are unequal"
            );
        }
    }

    /// Replaces the endpoints with those of the control plane. Those that stay keep their connections, statistics and
    /// state.
    ///
    /// # Errors
    /// If the policy cannot be built for the endpoints; the previous endpoints stay.
    pub(crate) fn assign(
        &self,
        described: &[config::Endpoint],
        metrics: &Metrics,
        now: Time,
    ) -> Result<(), balance::SpecError> {
        let before = self.assigned.load();
        if before
            .as_ref()
            .is_some_and(|before| ***before == *described)
        {
            return Ok(());
        }
        let mut all = static_addresses(described);
        all.extend(retained_names(described, self.endpoints.load().targets()));
        self.replace(described, &all, metrics, now)?;
        self.assigned.store(Some(Arc::new(described.to_vec())));
        Ok(())
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Chooses an endpoint, preferably not one of `failed`.
    ///
    /// # Errors
    /// [`ProxyError::NoHealthyUpstream`] if there is no usable endpoint; [`ProxyError::EndpointsFull`] if each
    /// endpoint has its maximum number of requests.
    pub(crate) fn pick(
        &self,
        now: Time,
        hash: Option<u64>,
        failed: &[u64],
        rng: &mut Rng,
    ) -> Result<Picked, ProxyError> {
        self.pick_noted(now, hash, (failed, None), rng)
    }

    /// Like [`Self::pick`], for a request with a record.
    pub(crate) fn pick_noted(
        &self,
        now: Time,
        hash: Option<u64>,
        (failed, record): (&[u64], Option<&Record>),
        rng: &mut Rng,
    ) -> Result<Picked, ProxyError> {
        let endpoints = self.endpoints.load();
        let mut excluded = endpoints.indices(failed);
        let mut full = Excluded::new();
        loop {
            let context = PickCtx {
                now,
                hash,
                excluded: &excluded,
            };
            let index = endpoints.balancer().pick(&context, rng);
            let target = index.and_then(|index| endpoints.targets().get(index.get()));
            let (Some(index), Some(target)) = (index, target) else {
                return Err(self.no_endpoint());
            };
            // Only endpoints that have failed are left; they are preferable to full ones.
            if full.contains(&index) {
                if full.len() == excluded.len() {
                    return Err(ProxyError::EndpointsFull);
                }
                excluded.clone_from(&full);
            } else if let Some(picked) = target.take(&self.guard, now) {
                if let Some(record) = record {
                    endpoints.note(index, record);
                }
                self.measure_choice(&endpoints, index, now);
                return Ok(picked);
            } else {
                full.insert(index);
                excluded.insert(index);
            }
        }
    }

    /// Measures the quality of a choice if it is in the sample.
    pub(crate) fn measure_choice(&self, endpoints: &Endpoints, chosen: Index, now: Time) {
        if quality::is_sampled(now) {
            let quality = quality::measure(endpoints, chosen);
            let metrics = &self.metrics.choices;
            metrics.count(quality.missed_idle, quality.imbalance);
        }
    }

    /// Counts a request without a usable endpoint; returns the error for the request.
    #[cold]
    pub(crate) fn no_endpoint(&self) -> ProxyError {
        self.metrics.no_endpoint.add_shared(1);
        ProxyError::NoHealthyUpstream
    }

    /// Returns whether there is a usable endpoint that is not among `failed`.
    pub(crate) fn is_usable_beyond(&self, failed: &[u64]) -> bool {
        let endpoints = self.endpoints.load();
        let view = endpoints.balancer().view();
        let targets = endpoints.targets().iter().enumerate();
        targets
            .filter(|(_, target)| !failed.contains(&target.id))
            .any(|(at, _)| view.is_usable(Index::new(at)))
    }

    /// Records the outcome of a request at an endpoint.
    pub(crate) fn record_outcome(&self, target: &Target, sample: Sample, shared: &Shared) {
        let Some(params) = &self.config.outlier else {
            return;
        };
        if let Some(finding) = target.monitor.record(sample, params) {
            shared.report(Report {
                cluster: Arc::clone(self.name()),
                target: target.id,
                finding,
            });
        }
    }

    /// Returns the state of guards and endpoints, for the story of a request that was rejected.
    #[cold]
    pub(crate) fn state(&self) -> ClusterState {
        let (guard, endpoints) = (&self.guard, self.endpoints.load());
        let limits = &self.config.limits;
        let each = endpoints.targets().iter().take(MOST_ENDPOINTS);
        ClusterState {
            name: Arc::clone(self.name()),
            requests: guard.requests.active(),
            max_requests: limits.max_requests,
            waiting: guard.waiting(),
            max_pending: limits.max_pending_requests,
            connections: guard.connections.active(),
            max_connections: limits.max_connections,
            breaker: guard.breaker().map(|breaker| breaker.phase().name()),
            total: endpoints.targets().len(),
            usable: endpoints.balancer().view().usable(),
            endpoints: each
                .map(|target| EndpointState {
                    address: target.address.clone(),
                    in_flight: target.stats.outstanding(),
                    healthy: target.stats.is_healthy(),
                    ejected: target.stats.is_ejected(),
                    draining: target.stats.is_draining(),
                })
                .collect(),
        }
    }

    /// Counts a request that was rejected because of a limit.
    pub(crate) fn count_overflow(&self, error: &ProxyError) {
        if let Some(reason) = error.overflow_reason() {
            self.metrics.guards.overflow(reason);
        }
    }

    /// Logs and counts a change of the circuit breaker's state.
    pub(super) fn breaker_changed(&self, transition: Option<Transition>) {
        let Some(Transition { to, open_for }) = transition else {
            return;
        };
        self.metrics.guards.breaker(to);
        let cluster = self.name();
        tracing::warn!(%cluster, state = to.name(), ?open_for, "circuit breaker changed state");
    }

    /// Applies a change in the health, ejection or draining of an endpoint.
    pub(crate) fn refresh(&self, now: Time) {
        let old = self.endpoints.load_full();
        self.endpoints
            .store(Arc::new(old.refreshed(&self.config, now)));
    }
}
