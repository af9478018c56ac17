//! A cluster's run-time state, shared by all workers.
//!
//! The endpoints are an immutable snapshot behind an `ArcSwap`; requests read it, the control thread
//! replaces it. An endpoint's [`Target`] outlives snapshots, so that its statistics and pooled
//! connections survive a change of its neighbours.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use maglor_balance::guard::breaker::Transition;
use maglor_balance::guard::limits::{Admission, Slots};
use maglor_balance::guard::outlier::{Monitor, Sample};
use maglor_balance::{
    self as balance, Balancer, EndpointStats, Excluded, Index, Outstanding, PickCtx, Rng, Time,
};
use maglor_config::cluster::{self as config, EndpointAddress};

use super::Guard;
use crate::error::ProxyError;
use crate::metrics::{ClusterMetrics, EndpointMetrics, Metrics};
use crate::shared::{Report, Shared};

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

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Cluster {
    config: Arc<config::Cluster>,
    tls: Option<Arc<rustls::ClientConfig>>,
    metrics: ClusterMetrics,
    guard: Guard,
    endpoints: ArcSwap<Endpoints>,
}

/// One snapshot of a cluster's endpoints; targets are aligned with the balancer's indices.
#[derive(Debug)]
pub(crate) struct Endpoints {
    balancer: Balancer,
    targets: Vec<Arc<Target>>,
}

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Target {
    /// Unique in the process; the key of its pools.
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    /// The DNS name that led here.
    pub(crate) host: Option<Arc<str>>,
    pub(crate) stats: Arc<EndpointStats>,
    /// How many requests it may have.
    pub(crate) requests: Arc<Slots>,
    /// How many connections it may have.
    pub(crate) connections: Arc<Slots>,
    /// What its answers are like.
    pub(crate) monitor: Arc<Monitor>,
    /// When it joined, or returned to service: slow start ramps from here.
    joined: AtomicU64,
    /// Lives as long as the endpoint, and so does its series.
    pub(crate) metrics: Option<EndpointMetrics>,
}

/// The endpoint chosen for a request, which counts as outstanding from now on.
#[derive(Debug)]
pub(crate) struct Picked {
    pub(crate) target: Arc<Target>,
    pub(crate) outstanding: Outstanding,
    /// Its place, where their number is limited.
    pub(crate) seat: Option<Seat>,
}

/// A request's place at an endpoint.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Slots>);

impl Drop for Seat {
    fn drop(&mut self) {
        // Nobody waits for a single endpoint.
        let _ = self.0.release();
    }
}

/// One address of the cluster, with the configured endpoint that it stems from.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) address: SocketAddr,
    pub(crate) endpoint: usize,
}

static NEXT_TARGET: AtomicU64 = AtomicU64::new(0);

impl Cluster {
    /// Builds a cluster; endpoints given by address are there at once, those by name when they are
    /// resolved. Targets of `before` (the same cluster in the previous configuration) live on.
    ///
    /// # Errors
    /// When the policy cannot be built for the endpoints.
    pub(crate) fn new(
        config: Arc<config::Cluster>,
        tls: Option<Arc<rustls::ClientConfig>>,
        metrics: &Metrics,
        before: Option<&Self>,
        now: Time,
    ) -> Result<Self, balance::SpecError> {
        let same_wire = before.is_some_and(|before| before.same_wire(&config));
        let old = before
            .filter(|_| same_wire)
            .map(|before| before.endpoints.load_full());
        let old_targets = old.as_ref().map_or(&[][..], |old| &old.targets);
        let mut known = static_addresses(&config);
        if let Some(old) = &old {
            known.extend(carried_names(&config, &old.targets));
        }
        let endpoints = Endpoints::build(&config, &known, old_targets, metrics, now)?;
        let metrics = metrics.cluster(&config.name);
        let guard = Guard::new(&config);
        Ok(Self {
            config,
            tls,
            metrics,
            guard,
            endpoints: ArcSwap::from_pointee(endpoints),
        })
    }

    /// Whether connections made under the one configuration serve the other.
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

    pub(crate) fn tls(&self) -> Option<&Arc<rustls::ClientConfig>> {
        self.tls.as_ref()
    }

    pub(crate) fn metrics(&self) -> &ClusterMetrics {
        &self.metrics
    }

    pub(crate) fn endpoints(&self) -> Arc<Endpoints> {
        self.endpoints.load_full()
    }

    /// Replaces the endpoints that stem from names.
    ///
    /// # Errors
    /// When the policy cannot be built for the endpoints; the old ones stay.
    pub(crate) fn resolve(
        &self,
        resolved: &[Resolved],
        metrics: &Metrics,
        now: Time,
    ) -> Result<(), balance::SpecError> {
        let mut all = static_addresses(&self.config);
        all.extend_from_slice(resolved);
        let old = self.endpoints.load_full();
        let endpoints = Endpoints::build(&self.config, &all, &old.targets, metrics, now)?;
        self.endpoints.store(Arc::new(endpoints));
        Ok(())
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Chooses an endpoint, one that is not among `tried` where there is one.
    ///
    /// # Errors
    /// [`ProxyError::NoHealthyUpstream`]; [`ProxyError::EndpointsFull`] when each has as many requests
    /// as it may have.
    pub(crate) fn pick(
        &self,
        now: Time,
        hash: Option<u64>,
        tried: &[u64],
        rng: &mut Rng,
    ) -> Result<Picked, ProxyError> {
        let endpoints = self.endpoints.load();
        let mut excluded = endpoints.indices(tried);
        let mut full = Excluded::new();
        loop {
            let context = PickCtx {
                now,
                hash,
                excluded: &excluded,
            };
            let index = endpoints.balancer.pick(&context, rng);
            let target = index.and_then(|index| endpoints.targets.get(index.get()));
            let (Some(index), Some(target)) = (index, target) else {
                return Err(self.nobody());
            };
            // All others are excluded, too: those that have failed are better than those without room.
            if full.contains(&index) {
                if full.len() == excluded.len() {
                    return Err(ProxyError::EndpointsFull);
                }
                excluded.clone_from(&full);
            } else if let Some(seat) = target.seat() {
                return Ok(Picked {
                    target: Arc::clone(target),
                    outstanding: target.stats.begin(now),
                    seat,
                });
            } else {
                full.insert(index);
                excluded.insert(index);
            }
        }
    }

    #[cold]
    fn nobody(&self) -> ProxyError {
        self.metrics.no_endpoint.add_shared(1);
        ProxyError::NoHealthyUpstream
    }

    /// Whether there is a usable endpoint that is not among `tried`.
    pub(crate) fn is_usable_beyond(&self, tried: &[u64]) -> bool {
        let endpoints = self.endpoints.load();
        let view = endpoints.balancer.view();
        let targets = endpoints.targets.iter().enumerate();
        targets
            .filter(|(_, target)| !tried.contains(&target.id))
            .any(|(at, _)| view.is_usable(Index::new(at)))
    }

    /// Takes how an endpoint fared with a request.
    pub(crate) fn judge(&self, target: &Target, sample: Sample, shared: &Shared) {
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

    /// Counts a request that was turned away because of a limit, if that is why.
    pub(crate) fn count_overflow(&self, error: &ProxyError) {
        if let Some(reason) = error.overflow_reason() {
            self.metrics.guards.overflow(reason);
        }
    }

    /// The circuit breaker has changed its state.
    pub(super) fn breaker_changed(&self, transition: Option<Transition>) {
        let Some(Transition { to, open_for }) = transition else {
            return;
        };
        self.metrics.guards.breaker(to);
        let cluster = self.name();
        tracing::warn!(%cluster, state = to.name(), ?open_for, "circuit breaker");
    }

    /// Health, ejection or draining of an endpoint has changed: it counts from now on.
    pub(crate) fn refresh(&self, now: Time) {
        let old = self.endpoints.load_full();
        self.endpoints
            .store(Arc::new(old.refreshed(&self.config, now)));
    }
}

impl Endpoints {
    pub(crate) fn targets(&self) -> &[Arc<Target>] {
        &self.targets
    }

    pub(crate) fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// Positions of these targets.
    fn indices(&self, ids: &[u64]) -> Excluded {
        let mut found = Excluded::new();
        if ids.is_empty() {
            return found;
        }
        for (at, target) in self.targets.iter().enumerate() {
            if ids.contains(&target.id) {
                found.insert(Index::new(at));
            }
        }
        found
    }

    /// The same endpoints with what is known of them now.
    fn refreshed(&self, config: &config::Cluster, now: Time) -> Self {
        let described = self.balancer.view().endpoints().iter().zip(&self.targets);
        let endpoints: Vec<_> = described
            .map(|(endpoint, target)| endpoint.clone().added_at(target.joined()))
            .collect();
        Self {
            balancer: self.balancer.rebuild(endpoints, &config.view, now),
            targets: self.targets.clone(),
        }
    }

    fn build(
        config: &config::Cluster,
        addresses: &[Resolved],
        old: &[Arc<Target>],
        metrics: &Metrics,
        now: Time,
    ) -> Result<Self, balance::SpecError> {
        let mut targets: Vec<Arc<Target>> = Vec::with_capacity(addresses.len());
        let mut endpoints = Vec::with_capacity(addresses.len());
        for resolved in addresses {
            let Some(endpoint) = config.endpoints.get(resolved.endpoint) else {
                continue;
            };
            if targets
                .iter()
                .any(|target| target.address == resolved.address)
            {
                // Two names may lead to one address; it is still one endpoint.
                continue;
            }
            let host = match &endpoint.address {
                EndpointAddress::Dns { host, .. } => Some(Arc::clone(host)),
                EndpointAddress::Socket(_) => None,
            };
            let known = old
                .iter()
                .find(|old| old.address == resolved.address && old.host == host);
            let target = known.map_or_else(
                || Arc::new(Target::new(config, resolved.address, host, metrics, now)),
                Arc::clone,
            );
            endpoints.push(describe(endpoint, &target));
            targets.push(target);
        }
        let balancer = Balancer::build(&config.policy, endpoints, &config.view, now)?;
        Ok(Self { balancer, targets })
    }
}

impl Target {
    fn new(
        config: &config::Cluster,
        address: SocketAddr,
        host: Option<Arc<str>>,
        metrics: &Metrics,
        now: Time,
    ) -> Self {
        let stats = Arc::new(EndpointStats::new());
        let metrics = metrics.endpoint(&config.name, address, &stats);
        // Relaxed: only uniqueness matters.
        let id = NEXT_TARGET.fetch_add(1, Ordering::Relaxed);
        Self {
            id,
            address,
            host,
            stats,
            requests: Arc::new(config.limits.endpoint.requests()),
            connections: Arc::new(config.limits.endpoint.connections()),
            monitor: Arc::new(Monitor::new()),
            joined: AtomicU64::new(now.as_nanos()),
            metrics: Some(metrics),
        }
    }

    /// The same host at another port, which has its own health and nothing else.
    pub(crate) fn at_port(&self, port: u16) -> Arc<Self> {
        let mut address = self.address;
        address.set_port(port);
        Arc::new(Self {
            // Ids of endpoints stay far below: no pool is shared by mistake.
            id: self.id | 1 << 63,
            address,
            host: self.host.clone(),
            stats: Arc::default(),
            requests: Arc::new(Slots::new(None, 0)),
            connections: Arc::new(Slots::new(None, 0)),
            monitor: Arc::new(Monitor::new()),
            joined: AtomicU64::new(0),
            metrics: None,
        })
    }

    fn joined(&self) -> Time {
        // Relaxed: written and read by the control thread alone.
        Time::from_nanos(self.joined.load(Ordering::Relaxed))
    }

    /// A place for a request, or `None` if it has as many as it may have.
    fn seat(&self) -> Option<Option<Seat>> {
        if self.requests.limit().is_none() {
            return Some(None);
        }
        let admitted = self.requests.admit(u32::MAX) == Admission::Admitted;
        admitted.then(|| Some(Seat(Arc::clone(&self.requests))))
    }

    /// It has returned to service.
    pub(crate) fn rejoin(&self, now: Time) {
        self.joined.store(now.as_nanos(), Ordering::Relaxed);
    }
}

fn describe(endpoint: &config::Endpoint, target: &Target) -> balance::Endpoint {
    let described = balance::Endpoint::new(target.address.to_string())
        .weight(endpoint.weight)
        .priority(endpoint.priority)
        .added_at(target.joined())
        .stats(Arc::clone(&target.stats));
    match &endpoint.locality {
        Some(name) => described.locality(config::locality(name)),
        None => described,
    }
}

fn static_addresses(config: &config::Cluster) -> Vec<Resolved> {
    let endpoints = config.endpoints.iter().enumerate();
    endpoints
        .filter_map(|(endpoint, described)| match described.address {
            EndpointAddress::Socket(address) => Some(Resolved { address, endpoint }),
            EndpointAddress::Dns { .. } => None,
        })
        .collect()
}

/// Addresses that names had before a reload: they serve until the names are resolved again.
fn carried_names(config: &config::Cluster, old: &[Arc<Target>]) -> Vec<Resolved> {
    let mut carried = Vec::new();
    for (endpoint, described) in config.endpoints.iter().enumerate() {
        let EndpointAddress::Dns { host, port } = &described.address else {
            continue;
        };
        let same = |target: &&Arc<Target>| {
            target.host.as_ref() == Some(host) && target.address.port() == *port
        };
        let addresses = old.iter().filter(same).map(|target| target.address);
        carried.extend(addresses.map(|address| Resolved { address, endpoint }));
    }
    carried
}
