//! A snapshot of a cluster's endpoints: an immutable balancer and the targets from which it chooses.

use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use maglor_balance::queue_protocol::Groups;
use maglor_balance::{self as balance, Balancer, Excluded, Index, Time};
use maglor_config::Address;
use maglor_config::cluster::{self as config, EndpointAddress};

use crate::telemetry::metrics::Metrics;
use crate::telemetry::record::Record;
use crate::upstream::Target;

/// A snapshot of a cluster's endpoints. Targets are in the order of the balancer's indices.
#[derive(Debug)]
pub(crate) struct Endpoints {
    balancer: Balancer,
    targets: Vec<Arc<Target>>,
    /// Groups of servers that share a ledger; `None` if the policy uses no ledgers.
    groups: Option<Groups>,
}

/// One address of the cluster, and the configured endpoint to which it belongs.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) address: Address,
    pub(crate) endpoint: usize,
}

impl Endpoints {
    fn new(balancer: Balancer, targets: Vec<Arc<Target>>) -> Self {
        Self {
            groups: balancer.spec().groups(balancer.view()),
            balancer,
            targets,
        }
    }

    pub(crate) fn targets(&self) -> &[Arc<Target>] {
        &self.targets
    }

    pub(crate) fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// Notes the choice of an endpoint: those among which it was chosen, beginning with itself, and their requests in
    /// flight, with this request counted at the chosen one.
    pub(crate) fn note(&self, chosen: Index, record: &Record) {
        // With one endpoint there is nothing to compare.
        if self.targets.len() < 2 {
            return;
        }
        let (before, rest) = self.targets.split_at(chosen.get().min(self.targets.len()));
        let each = rest.iter().chain(before);
        record.candidates(
            self.targets.len(),
            each.map(|target| (target.id, target.stats.outstanding())),
        );
    }

    /// Returns the groups of servers that share a ledger, if the policy uses ledgers.
    pub(crate) fn groups(&self) -> Option<&Groups> {
        self.groups.as_ref()
    }

    /// Returns the indices of the targets with these ids.
    pub(crate) fn indices(&self, ids: &[u64]) -> Excluded {
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

    /// Returns the same endpoints with their current state.
    pub(in crate::upstream) fn refreshed(&self, config: &config::Cluster, now: Time) -> Self {
        let described = self.balancer.view().endpoints().iter().zip(&self.targets);
        let endpoints: Vec<_> = described
            .map(|(endpoint, target)| endpoint.clone().added_at(target.joined()))
            .collect();
        Self::new(
            self.balancer.rebuild(endpoints, &config.view, now),
            self.targets.clone(),
        )
    }

    /// Builds a snapshot. Endpoints that are also in `before` keep their targets, and the policy keeps its state.
    pub(in crate::upstream) fn build(
        config: &config::Cluster,
        described: &[config::Endpoint],
        addresses: &[Resolved],
        before: Option<&Self>,
        metrics: &Metrics,
        now: Time,
    ) -> Result<Self, balance::SpecError> {
        let old = before.map_or(&[][..], Self::targets);
        let old: HashMap<_, _> = old.iter().map(|old| (&old.address, old)).collect();
        let mut seen = HashSet::with_capacity(addresses.len());
        let mut targets: Vec<Arc<Target>> = Vec::with_capacity(addresses.len());
        let mut endpoints = Vec::with_capacity(addresses.len());
        for resolved in addresses {
            let Some(endpoint) = described.get(resolved.endpoint) else {
                continue;
            };
            if !seen.insert(&resolved.address) {
                // If two names resolve to the same address, there is a single endpoint.
                continue;
            }
            let host = match &endpoint.address {
                EndpointAddress::Dns { host, .. } => Some(Arc::clone(host)),
                EndpointAddress::Socket(_) | EndpointAddress::Unix(_) => None,
            };
            let known = old.get(&resolved.address).filter(|old| old.host == host);
            let target = known.map_or_else(
                || {
                    let address = resolved.address.clone();
                    Arc::new(Target::new(config, address, host, metrics, now))
                },
                |known| Arc::clone(known),
            );
            endpoints.push(describe(endpoint, &target));
            targets.push(target);
        }
        let before = before.map(Self::balancer);
        let balancer = Balancer::build_after(&config.policy, before, endpoints, &config.view, now)?;
        Ok(Self::new(balancer, targets))
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

pub(in crate::upstream) fn static_addresses(endpoints: &[config::Endpoint]) -> Vec<Resolved> {
    let endpoints = endpoints.iter().enumerate();
    endpoints
        .filter_map(|(endpoint, described)| {
            let address = match &described.address {
                EndpointAddress::Socket(address) => Address::Ip(*address),
                EndpointAddress::Unix(address) => Address::Unix(address.clone()),
                EndpointAddress::Dns { .. } => return None,
            };
            Some(Resolved { address, endpoint })
        })
        .collect()
}

/// Returns the addresses to which names were resolved before a reload. They are used until the names are resolved
/// again.
pub(in crate::upstream) fn retained_names(
    endpoints: &[config::Endpoint],
    old: &[Arc<Target>],
) -> Vec<Resolved> {
    let mut by_name: HashMap<_, Vec<SocketAddr>> = HashMap::new();
    for target in old {
        if let (Some(host), Some(address)) = (&target.host, target.address.ip()) {
            let name = (Arc::clone(host), address.port());
            by_name.entry(name).or_default().push(address);
        }
    }
    let mut retained = Vec::new();
    for (endpoint, described) in endpoints.iter().enumerate() {
        let EndpointAddress::Dns { host, port } = &described.address else {
            continue;
        };
        let addresses = by_name
            .get(&(Arc::clone(host), *port))
            .into_iter()
            .flatten();
        retained.extend(addresses.map(|&address| Resolved {
            address: address.into(),
            endpoint,
        }));
    }
    retained
}
