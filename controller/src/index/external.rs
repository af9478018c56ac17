//! Decides to which Services of type ExternalName routes may send requests.
//!
//! The external name, which the owner of the Service writes, determines where requests are sent. A route that
//! followed it to a Service of another namespace, to the API server or to the proxy's own host would send requests,
//! from the address and with the identity of a Gateway, to targets that the route's owner may not refer to
//! (CVE-2021-25740). Therefore a name inside the cluster needs the same ReferenceGrant as a direct reference, and a
//! name of the host is rejected. A name in a public zone that resolves to an address inside the cluster is not
//! detected; NetworkPolicies in the Gateways' namespaces can prevent such requests.

use std::collections::{BTreeMap, BTreeSet};

use super::Index;
use super::facts::Key;
use super::facts::service::Service;

/// The target of an external name.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Named {
    /// The proxy's host, or a name that depends on the namespace of the proxy that resolves it.
    Host,
    /// A Service of the cluster.
    Inside(Key),
    /// A Service of the cluster if it exists, because names are completed by the search path of pods.
    Perhaps(Key),
    Outside,
}

/// Services of type ExternalName, by the Service to which their name may refer.
pub(super) type Externals = BTreeMap<Key, BTreeSet<Key>>;

fn named(name: &str, domain: &str) -> Named {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let inside = name
        .strip_suffix(domain)
        .and_then(|rest| rest.strip_suffix('.'));
    let labels: Vec<&str> = inside.unwrap_or(&name).split('.').collect();
    let last = labels.last().copied().unwrap_or_default();
    // All notations that resolvers accept as addresses, including `127.1` and `0x7f000001`.
    let is_address = name.contains(':')
        || last.starts_with("0x")
        || last.bytes().all(|byte| byte.is_ascii_digit());
    if is_address || last == "localhost" || labels.len() < 2 {
        return Named::Host;
    }
    match labels.as_slice() {
        [.., service, namespace, "svc"] => Named::Inside(Key::new(namespace, service)),
        [.., pod, namespace, "pod"] => Named::Inside(Key::new(namespace, pod)),
        // Other names of the cluster's DNS server, and `svc` alone.
        _ if inside.is_some() => Named::Host,
        [.., service, namespace] => Named::Perhaps(Key::new(namespace, service)),
        _ => Named::Outside,
    }
}

impl Index {
    /// Records the Services to which the external name of a Service may refer.
    pub(super) fn note_external(
        &mut self,
        key: &Key,
        before: Option<&Service>,
        now: Option<&Service>,
    ) {
        let domain = self.cluster_domain().to_owned();
        let named =
            |service: Option<&Service>| match named(service?.external_name.as_deref()?, &domain) {
                Named::Perhaps(key) | Named::Inside(key) => Some(key),
                Named::Host | Named::Outside => None,
            };
        if let Some(old) = named(before)
            && let Some(all) = self.externals.get_mut(&old)
        {
            all.remove(key);
            if all.is_empty() {
                self.externals.remove(&old);
            }
        }
        if let Some(new) = named(now) {
            self.externals.entry(new).or_default().insert(key.clone());
        }
    }

    /// Records the Services to which all external names may refer, after a change of the cluster's domain.
    pub(super) fn note_externals(&mut self) {
        self.externals.clear();
        let externals = self
            .services
            .iter()
            .filter(|(_, service)| service.external_name.is_some());
        let externals: Vec<_> = externals
            .map(|(key, service)| (key.clone(), service.clone()))
            .collect();
        for (key, service) in externals {
            self.note_external(&key, None, Some(&service));
        }
        self.invalidate_externals();
    }

    /// Returns why a route of a kind, in a namespace, may not send to a Service of this name; `None` if it may.
    pub(super) fn external_refusal(
        &self,
        from: (&str, &str),
        key: &Key,
        name: &str,
    ) -> Option<String> {
        let to = match named(name, self.cluster_domain()) {
            Named::Host => {
                return Some(format!(
                    "externalName `{name}` of Service {key} is not a host outside the cluster"
                ));
            }
            Named::Perhaps(to) if !self.services.contains_key(&to) => return None,
            Named::Inside(to) | Named::Perhaps(to) => to,
            Named::Outside => return None,
        };
        let may = to.namespace == key.namespace || self.is_granted(from, "Service", &to);
        (!may).then(|| {
            format!("externalName `{name}` of Service {key} is a Service of the cluster, and no ReferenceGrant permits Service {to}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_inside_of_the_cluster_are_known() {
        let inside = |service: &str, namespace: &str| Named::Inside(Key::new(namespace, service));
        for (name, expected) in [
            ("db.example.com", Named::Perhaps(Key::new("com", "example"))),
            (
                "db.example.com.",
                Named::Perhaps(Key::new("com", "example")),
            ),
            ("kubernetes.default.svc", inside("kubernetes", "default")),
            (
                "Kubernetes.Default.svc.cluster.local.",
                inside("kubernetes", "default"),
            ),
            ("web-0.web.shop.svc.cluster.local", inside("web", "shop")),
            (
                "10-1-2-3.shop.pod.cluster.local",
                inside("10-1-2-3", "shop"),
            ),
            (
                "kubernetes.default",
                Named::Perhaps(Key::new("default", "kubernetes")),
            ),
            ("localhost", Named::Host),
            ("a.localhost", Named::Host),
            ("db", Named::Host),
            ("svc.cluster.local", Named::Host),
            ("ns.dns.cluster.local", Named::Host),
            ("127.0.0.1", Named::Host),
            ("127.1", Named::Host),
            ("2130706433", Named::Host),
            ("0x7f.1", Named::Host),
            ("10.0.0.0x1", Named::Host),
            ("::1", Named::Host),
        ] {
            assert_eq!(named(name, "cluster.local"), expected, "{name}");
        }
    }
}
