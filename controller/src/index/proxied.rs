//! Services whose requests go through proxies of their own (`ProxyService`): who calls whom then, and whose
//! rules hold.
//!
//! ```text
//! callers ──► Service NAME: the proxies ──► Service NAME-target: the pods
//! ```
//!
//! What a client is asked for, and what it may do, is what the pods' own sidecars say, as without proxies:
//! of requests the proxies tell them who the client is, and are believed; bytes they pass as they come, with the
//! mutual TLS of the client in them.

use std::collections::BTreeSet;

use maglor_config::raw::MeshMode;

use super::Index;
use super::build::endpoints;
use super::facts::service::PROXIED;
use super::facts::{Key, Protocol, Service, Workload};

const SUFFIX: &str = "-target";

/// The name of the Service of the endpoints of one with proxies.
#[must_use]
pub fn target_name(service: &str) -> String {
    format!("{service}{SUFFIX}")
}

/// The Service to whose proxies one of this name would belong.
fn proxied(target: &Key) -> Option<Key> {
    let name = target.name.strip_suffix(SUFFIX)?;
    Some(Key::new(&target.namespace, name))
}

impl Index {
    /// The account of the proxies that send to this Service; `None` = there are none, or they have no
    /// identity.
    fn proxy_account(&self, target: &Key) -> Option<&str> {
        let front = self.services.get(target)?.front.as_ref()?;
        let own = front.service == proxied(target)?.name;
        front.account.as_deref().filter(|_| own)
    }

    /// Whether what is sent to a port has been encrypted by the clients of proxies, for whom these only pass it.
    pub(super) fn passes_bytes(&self, target: &Key, protocol: Protocol) -> bool {
        let bytes = matches!(protocol, Protocol::Tcp | Protocol::Tls);
        bytes && self.proxy_account(target).is_some()
    }

    /// The Service of the pods behind one with proxies that have an identity, and the proxies' account.
    pub(super) fn behind(&self, service: &Key) -> Option<(Key, &str)> {
        let target = Key::new(&service.namespace, &target_name(&service.name));
        let account = self.proxy_account(&target)?;
        Some((target, account))
    }

    /// The SPIFFE ids of the proxies that send to a pod, which say who the clients of requests are. By its
    /// labels: it has to know them before it is ready, and so before it is an endpoint.
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

    /// The Service of the pods behind a proxy.
    pub(super) fn target_of_proxy(&self, pod: &Key, workload: &Workload) -> Option<Key> {
        let service = Key::new(&pod.namespace, workload.labels.get(PROXIED)?);
        let (target, account) = self.behind(&service)?;
        (account == workload.service_account).then_some(target)
    }

    /// Whether proxies take plain text: where one of the pods does, which then says itself whether it takes
    /// what came so.
    pub(super) fn mtls_of_proxy(&self, target: &Key, pod: &Key, workload: &Workload) -> MeshMode {
        let pods = endpoints::pods(self, target);
        if pods.is_empty() {
            return self.mtls(pod, workload);
        }
        let strict = |pod: &Key| {
            let workload = self.workloads.get(pod).filter(|one| one.injected);
            workload.is_some_and(|workload| self.mtls(pod, workload) == MeshMode::Strict)
        };
        match pods.iter().all(strict) {
            true => MeshMode::Strict,
            false => MeshMode::Permissive,
        }
    }

    /// A Service that is, or was, that of the pods behind proxies: which pods those are goes by labels.
    pub(super) fn touch_front(&mut self, key: &Key, versions: [Option<&Service>; 2]) {
        let mut known = versions.into_iter().flatten();
        if known.any(|service| service.front.is_some()) {
            self.touch_workloads(&key.namespace);
        }
    }

    /// What depends on the pods behind a Service with proxies, if this may be the Service of those pods:
    /// what callers are told of it, and its proxies.
    pub(super) fn touch_proxied(&mut self, target: &Key) {
        let Some(service) = proxied(target) else {
            return;
        };
        let in_front = |workload: &Workload| workload.labels.get(PROXIED) == Some(&service.name);
        let proxies: Vec<Key> = self
            .in_namespace(&self.workloads, &service.namespace)
            .filter(|(_, workload)| in_front(workload))
            .map(|(key, _)| key.clone())
            .collect();
        self.dirty.workloads.extend(proxies);
        self.dirty.services.insert(service);
    }
}
