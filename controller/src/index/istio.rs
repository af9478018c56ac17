//! Handles Istio's resources in the index. On the same level, this mesh's own policies take precedence over Istio's;
//! a narrower level takes precedence over a wider one.

use std::collections::BTreeMap;

use maglor_config::raw::{self, MeshMode};
use maglor_manifests::istio::DestinationRule;

use super::facts::istio::{self, Facts, ROOTS, Translated};
use super::facts::route::{RouteKind, Rule};
use super::facts::{Age, Key, Kind, Workload};
use super::translate::{closed, shown_name};
use super::{Index, put};

/// Istio's resources, except routes.
#[derive(Debug, Default)]
pub(super) struct Istio {
    pub(super) authorization: BTreeMap<Key, istio::AuthorizationPolicy>,
    pub(super) destinations: BTreeMap<Key, istio::DestinationRule>,
    pub(super) peers: BTreeMap<Key, istio::PeerAuthentication>,
    pub(super) telemetry: BTreeMap<Key, istio::Telemetry>,
}

impl Index {
    pub(super) fn apply_istio(&mut self, key: &Key, facts: Facts) {
        match facts {
            // The pods of an invalid policy deny requests, because other replicas would not know the policy's
            // previous version.
            Facts::AuthorizationPolicy(policy) => {
                if put(&mut self.istio.authorization, key, policy) {
                    self.invalidate_secured(&key.namespace);
                }
            }
            // An invalid rule has no effect, for the same reason.
            Facts::DestinationRule(rule) => {
                if put(&mut self.istio.destinations, key, *rule) {
                    self.invalidate_traffic(&key.namespace);
                }
            }
            Facts::PeerAuthentication(policy) => {
                if put(&mut self.istio.peers, key, policy) {
                    self.invalidate_secured(&key.namespace);
                }
            }
            // An invalid one has no effect.
            Facts::Telemetry(telemetry) => {
                if put(&mut self.istio.telemetry, key, telemetry) {
                    self.invalidate_traced(&key.namespace);
                }
            }
        }
    }

    pub(super) fn remove_istio(&mut self, kind: Kind, key: &Key) {
        match kind {
            Kind::DestinationRule => {
                self.istio.destinations.remove(key);
                self.invalidate_traffic(&key.namespace);
            }
            Kind::IstioAuthorizationPolicy => {
                self.istio.authorization.remove(key);
                self.invalidate_secured(&key.namespace);
            }
            Kind::PeerAuthentication => {
                self.istio.peers.remove(key);
                self.invalidate_secured(&key.namespace);
            }
            Kind::Telemetry => {
                self.istio.telemetry.remove(key);
                self.invalidate_traced(&key.namespace);
            }
            _ => self.remove_route(&(RouteKind::Istio, key.clone())),
        }
    }

    /// Invalidates the pods to which a policy of a namespace may apply.
    fn invalidate_secured(&mut self, namespace: &str) {
        match ROOTS.contains(&namespace) {
            true => self.invalidate_all(),
            false => self.invalidate_modes(namespace),
        }
    }

    /// Returns the `DestinationRule` of a Service: the oldest valid one in its namespace.
    pub(super) fn destination_rule(&self, service: &Key) -> Option<(&Key, &DestinationRule)> {
        let rules = self.in_namespace(&self.istio.destinations, &service.namespace);
        let of_service = rules.filter_map(|(key, rule)| {
            let value = rule.spec.value.as_ref()?;
            let own = istio::service(&value.host, &key.namespace).as_ref() == Some(service);
            own.then_some((&rule.age, (key, value)))
        });
        oldest(of_service)
    }

    /// Returns the message for a missing Service. It explains how the name was interpreted if another Service was
    /// probably meant: `reviews.com` is a Service in namespace `com`.
    pub(super) fn missing(&self, service: &Key, from: &str) -> String {
        let Key { namespace, name } = service;
        let known = || {
            self.in_namespace(&self.services, namespace)
                .next()
                .is_some()
        };
        let is_known =
            namespace == from || self.namespaces.contains_key(&Key::new("", namespace)) || known();
        match is_known {
            true => format!("there is no Service {service}"),
            false => format!(
                "there is no Service {service}: `{name}.{namespace}` refers to Service {name} of namespace {namespace}; for an external host create a Service of type ExternalName"
            ),
        }
    }

    /// Returns the subsets of a Service's `DestinationRule`; `None` if it has none.
    #[must_use]
    pub fn subsets_of_rule(&self, service: &Key) -> Option<Vec<String>> {
        let (_, rule) = self.destination_rule(service)?;
        Some(rule.subsets.iter().map(|one| one.name.clone()).collect())
    }

    /// Returns the subsets of a Service's pods with their labels.
    ///
    /// A subset that routes use but no `DestinationRule` defines consists of the pods whose label `version` is the
    /// subset's name, as in Istio's own examples.
    pub(super) fn subsets(&self, service: &Key) -> BTreeMap<String, BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        for id in self.links.routes_of_backend(service) {
            let rules = self.routes.get(id).map(|route| &route.rules);
            let rules = rules.into_iter().flatten().flatten();
            for backend in rules.flat_map(Rule::every_backend) {
                if let (true, Some(subset)) =
                    (backend.service.as_ref() == Some(service), &backend.subset)
                {
                    let labels = [("version".to_owned(), subset.clone())];
                    found.insert(subset.clone(), labels.into());
                }
            }
        }
        if let Some((_, rule)) = self.destination_rule(service) {
            let own = rule.subsets.iter();
            found.extend(own.map(|subset| (subset.name.clone(), subset.labels.clone())));
        }
        found
    }

    /// Returns the mTLS mode of a pod, from the narrowest level that sets it.
    pub(super) fn mtls(&self, pod: &Key, workload: &Workload) -> MeshMode {
        let namespace = self.namespaces.get(&Key::new("", &pod.namespace));
        let of_roots = || {
            let roots = ROOTS.iter().filter(|root| **root != pod.namespace);
            roots
                .into_iter()
                .find_map(|root| self.peer_mode(root, None))
        };
        self.peer_mode(&pod.namespace, Some(workload))
            .or_else(|| namespace.and_then(|one| one.mtls))
            .or_else(|| self.peer_mode(&pod.namespace, None))
            .or_else(|| self.mesh_spec().and_then(|spec| spec.mtls))
            .or_else(of_roots)
            .unwrap_or(MeshMode::Permissive)
    }

    /// Returns the port-specific modes of the oldest `PeerAuthentication` that selects a pod.
    pub(super) fn port_modes(&self, pod: &Key, workload: &Workload) -> BTreeMap<u16, MeshMode> {
        let policies = self.in_namespace(&self.istio.peers, &pod.namespace);
        let selecting = selecting(policies, Some(workload), |policy| policy.selector.as_ref());
        let oldest = oldest(selecting.map(|(age, _, policy)| (age, &policy.ports)));
        oldest.cloned().unwrap_or_default()
    }

    /// Returns the mode of the oldest `PeerAuthentication` that selects a pod or, without a pod, of the one that
    /// applies to the whole namespace.
    fn peer_mode(&self, namespace: &str, workload: Option<&Workload>) -> Option<MeshMode> {
        let policies = self.in_namespace(&self.istio.peers, namespace);
        let selecting = selecting(policies, workload, |policy| policy.selector.as_ref());
        oldest(selecting.filter_map(|(age, _, policy)| Some((age, policy.mode?))))
    }

    /// Adds the rules of Istio's policies for a pod; returns whether there are any policies.
    pub(super) fn authorize(
        &self,
        pod: &Key,
        workload: &Workload,
        together: &mut raw::Authorization,
    ) -> bool {
        let mut any = false;
        for (key, policy) in &self.istio.authorization {
            let here = key.namespace == pod.namespace;
            let everywhere = ROOTS.contains(&key.namespace.as_str());
            let closes = policy.closes.as_ref();
            if (here || everywhere) && closes.is_some_and(|one| one.selects(&workload.labels)) {
                any = true;
                together.rules.push(closed(&format!("istio/{}", key.name)));
            }
            let Some(value) = policy.spec.value.as_ref() else {
                continue;
            };
            let selected = value
                .selector
                .as_ref()
                .is_none_or(|labels| selects(labels, workload));
            if !(here || everywhere) || !selected {
                continue;
            }
            any = true;
            if value.default.is_some() {
                together.default = value.default;
            }
            let from = if here { "" } else { &key.namespace };
            for rule in &value.rules {
                let mut rule = rule.clone();
                let own = rule.name.unwrap_or_default();
                rule.name = Some(shown_name(&match from {
                    "" => format!("istio/{}/{own}", key.name),
                    from => format!("istio/{from}/{}/{own}", key.name),
                }));
                together.rules.push(rule);
            }
        }
        any
    }
}

/// Returns the valid resources that select a workload or, without a workload, those that select all workloads.
pub(super) fn selecting<'a, T: 'a>(
    resources: impl Iterator<Item = (&'a Key, &'a Translated<T>)>,
    workload: Option<&Workload>,
    selector: fn(&T) -> Option<&BTreeMap<String, String>>,
) -> impl Iterator<Item = (&'a Age, &'a Key, &'a T)> {
    resources.filter_map(move |(key, resource)| {
        let value = resource.spec.value.as_ref()?;
        let applies = match (selector(value), workload) {
            (Some(labels), Some(workload)) => selects(labels, workload),
            (None, None) => true,
            _ => false,
        };
        applies.then_some((&resource.age, key, value))
    })
}

/// Returns what belongs to the oldest resource.
pub(super) fn oldest<'a, T>(aged: impl Iterator<Item = (&'a Age, T)>) -> Option<T> {
    let oldest = aged.min_by(|one, other| one.0.cmp(other.0));
    oldest.map(|(_, value)| value)
}

fn selects(labels: &BTreeMap<String, String>, workload: &Workload) -> bool {
    let there = |(name, value): (&String, &String)| workload.labels.get(name) == Some(value);
    labels.iter().all(there)
}
