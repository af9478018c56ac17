//! Services whose requests go through dedicated proxies (`ProxyService`): the connections between clients, proxies
//! and pods, and the rules for them.
//!
//! ```text
//! callers ──► Service NAME: the proxies ──► Service NAME-target: the pods
//! ```
//!
//! The pods' own sidecars authenticate and authorize clients, as without proxies: the proxies, which the sidecars
//! trust, send the client's identity with each request, and forward TCP connections unchanged, including the client's
//! mutual TLS.
//!
//! Proxies that a group of Services shares have a separate port for each port of each Service. The ports are
//! configured by discovery, so that a Service can join or leave without a restart. Shared proxies are identified by
//! their label and their service account.

use std::collections::BTreeSet;

use maglor_config::proxy_service::{Forward, Spoken};
use maglor_config::raw::MeshMode;

use super::Index;
use super::facts::service::{PROXIED, PROXY_GROUP};
use super::facts::{Key, Protocol, Service, Workload};
use super::translate::{endpoints, port_name};

const SUFFIX: &str = "-target";

/// Returns the name of the target Service, which selects the pods of a Service with proxies.
#[must_use]
pub fn target_name(service: &str) -> String {
    format!("{service}{SUFFIX}")
}

/// Returns the protocol as named by `maglor-proxy service`. TLS that the application terminates is forwarded as
/// bytes.
pub(crate) fn spoken(protocol: Protocol) -> Spoken {
    match protocol {
        Protocol::Http => Spoken::Http,
        Protocol::Http2 => Spoken::Http2,
        Protocol::Auto | Protocol::Tcp | Protocol::Tls => Spoken::Tcp,
    }
}

/// Returns the Service whose target Service has this name.
fn proxied(target: &Key) -> Option<Key> {
    let name = target.name.strip_suffix(SUFFIX)?;
    Some(Key::new(&target.namespace, name))
}

impl Index {
    /// Returns the service account of the proxies that send to this target Service; `None` if there are no proxies or
    /// they have no identity.
    fn proxy_account(&self, target: &Key) -> Option<&str> {
        let front = self.services.get(target)?.front.as_ref()?;
        let own = front.service == proxied(target)?.name;
        front.account.as_deref().filter(|_| own)
    }

    /// Returns whether the proxies of a port forward bytes that the clients have already encrypted.
    pub(super) fn passes_bytes(&self, target: &Key, protocol: Protocol) -> bool {
        protocol.is_bytes() && self.proxy_account(target).is_some()
    }

    /// Returns the target Service of a Service whose proxies have an identity, and the proxies' service account.
    pub(super) fn behind(&self, service: &Key) -> Option<(Key, &str)> {
        let target = Key::new(&service.namespace, &target_name(&service.name));
        let account = self.proxy_account(&target)?;
        Some((target, account))
    }

    /// Returns the SPIFFE IDs of the proxies that send to a pod and may assert the identities of clients. Pods are
    /// selected by labels, because a pod needs the IDs before it is ready, and therefore before it is an endpoint.
    pub(super) fn delegates(&self, pod: &Key, workload: &Workload) -> Vec<String> {
        let services = self.in_namespace(&self.services, &pod.namespace);
        let accounts = services.filter_map(|(key, service)| {
            let selector = &service.front.as_ref()?.selector;
            let there = |(name, value)| workload.labels.get(name) == Some(value);
            let selected = !selector.is_empty() && selector.iter().all(there);
            self.proxy_account(key).filter(|_| selected)
        });
        let identities = accounts.map(|account| self.identity(&pod.namespace, account));
        let once: BTreeSet<String> = identities.collect();
        once.into_iter().collect()
    }

    /// Returns the target Services of a proxy; empty if the pod is not a proxy or has no identity.
    pub(super) fn targets_of_proxy(&self, pod: &Key, workload: &Workload) -> Vec<Key> {
        let own = |target: &Key| self.proxy_account(target) == Some(&*workload.service_account);
        let targets = match workload.labels.get(PROXIED) {
            Some(service) => vec![Key::new(&pod.namespace, &target_name(service))],
            None => self
                .shared_targets(pod, workload)
                .map(|(key, _)| key.clone())
                .collect(),
        };
        targets.into_iter().filter(own).collect()
    }

    /// Returns the target Services of a shared proxy, ordered by name.
    fn shared_targets<'a>(
        &'a self,
        pod: &'a Key,
        workload: &'a Workload,
    ) -> impl Iterator<Item = (&'a Key, &'a Service)> {
        let group = workload.labels.get(PROXY_GROUP);
        let services = self.in_namespace(&self.services, &pod.namespace);
        services.filter(move |(key, service)| {
            let front = service.front.as_ref();
            front.is_some_and(|front| {
                let account = front.account.as_deref();
                group.is_some()
                    && front.group.as_ref() == group
                    && proxied(key).is_some_and(|own| own.name == front.service)
                    && account.is_none_or(|account| account == workload.service_account)
            })
        })
    }

    /// Returns the ports of a shared proxy. If two Services use the same port, the first one by name gets it.
    pub(super) fn forwards(&self, pod: &Key, workload: &Workload) -> Vec<Forward> {
        let mut taken = BTreeSet::new();
        let mut found = Vec::new();
        for (key, service) in self.shared_targets(pod, workload) {
            let front = service.front.iter().flat_map(|front| &front.ports);
            for (own, shared) in front {
                let Some(port) = service.port(*own).filter(|_| taken.insert(*shared)) else {
                    continue;
                };
                found.push(Forward {
                    port: *shared,
                    protocol: spoken(port.protocol),
                    host: port_name(self, key, *own),
                });
            }
        }
        found
    }

    /// Returns the mTLS mode of proxies: they accept plain text if any of the pods behind them does on any port. Each
    /// pod then determines whether it accepts requests that a proxy has received in plain text.
    pub(super) fn mtls_of_proxy(
        &self,
        targets: &[Key],
        pod: &Key,
        workload: &Workload,
    ) -> MeshMode {
        let pods: BTreeSet<Key> = targets
            .iter()
            .flat_map(|target| endpoints::pods(self, target))
            .collect();
        if pods.is_empty() {
            return self.mtls(pod, workload);
        }
        let strict = |pod: &Key| {
            let workload = self.workloads.get(pod).filter(|one| one.injected);
            workload.is_some_and(|workload| {
                let ports = self.port_modes(pod, workload);
                let mut modes = ports.into_values().chain([self.mtls(pod, workload)]);
                modes.all(|mode| mode == MeshMode::Strict)
            })
        };
        match pods.iter().all(strict) {
            true => MeshMode::Strict,
            false => MeshMode::Permissive,
        }
    }

    /// Invalidates a Service that is or was a target Service, because its pods are selected by labels.
    pub(super) fn invalidate_front(&mut self, key: &Key, versions: [Option<&Service>; 2]) {
        let mut known = versions.into_iter().flatten();
        if known.any(|service| service.front.is_some()) {
            self.invalidate_workloads(&key.namespace);
        }
    }

    /// Invalidates the configuration of callers and proxies, which depends on the pods of a target Service. Does
    /// nothing for other Services.
    pub(super) fn invalidate_proxied(&mut self, target: &Key) {
        let Some(service) = proxied(target) else {
            return;
        };
        let front = self.services.get(target);
        let group = front.and_then(|target| target.front.as_ref()?.group.clone());
        let in_front = |workload: &Workload| {
            let label = |name: &str| workload.labels.get(name);
            label(PROXIED) == Some(&service.name)
                || (group.is_some() && label(PROXY_GROUP) == group.as_ref())
        };
        let proxies: Vec<Key> = self
            .in_namespace(&self.workloads, &service.namespace)
            .filter(|(_, workload)| in_front(workload))
            .map(|(key, _)| key.clone())
            .collect();
        self.dirty.workloads.extend(proxies);
        self.dirty.services.insert(service);
    }
}
