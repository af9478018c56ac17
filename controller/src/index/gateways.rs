//! Determines which Gateways belong to this mesh, which of their listeners can be served, and which routes these
//! accept.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Index;
use super::facts::gateway::{
    GATEWAY_CONTROLLER, GATEWAY_NAME, Gateway, GatewayClass, Listener, ListenerProtocol, Reference,
    ReferenceGrant, RouteNamespaces, Secret, hostname_fault,
};
use super::facts::route::Parent;
use super::facts::{Key, Namespace, Route, Workload};
use super::links::RouteId;

/// The message for a route that names a listener or port that its Gateway does not have.
pub(crate) const NO_LISTENER: &str = "has no such listener";
/// The suffix of messages about a namespace whose labels are unknown.
pub(crate) const UNKNOWN_LABELS: &str = "; the labels of that namespace are unknown";

/// The facts of Gateways.
#[derive(Debug, Default)]
pub(super) struct Gateways {
    pub(super) classes: BTreeMap<Key, GatewayClass>,
    pub(super) gateways: BTreeMap<Key, Gateway>,
    pub(super) grants: BTreeMap<Key, ReferenceGrant>,
    pub(super) secrets: BTreeMap<Key, Secret>,
}

/// Reason why a condition is false, as in the Gateway API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Problem {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// A listener and its problems.
#[derive(Debug)]
pub(super) struct ValidatedListener<'a> {
    pub(super) listener: &'a Listener,
    /// Why the listener's protocol or an option is not supported; `None` if they are.
    pub(super) unsupported: Option<Problem>,
    /// Why the listener conflicts with another one; `None` if it does not.
    pub(super) conflict: Option<Problem>,
    /// Why a reference of the listener is invalid; `None` if all are valid.
    pub(super) unresolved: Option<Problem>,
    pub(super) certificates: Vec<Arc<(String, String)>>,
    /// The kinds of routes that the listener accepts.
    pub(super) kinds: Vec<&'static str>,
}

impl ValidatedListener<'_> {
    /// Returns whether clients can connect to the listener.
    pub(super) fn is_served(&self) -> bool {
        let certified =
            self.listener.protocol != ListenerProtocol::Https || !self.certificates.is_empty();
        self.unsupported.is_none() && self.conflict.is_none() && certified
    }
}

/// A listener that accepts a route, and the hosts that they have in common.
#[derive(Debug)]
pub(super) struct Attached<'a> {
    pub(super) listener: &'a Listener,
    pub(super) hosts: Vec<String>,
}

impl Index {
    /// Returns a Gateway if it belongs to this mesh.
    pub(super) fn gateway(&self, key: &Key) -> Option<&Gateway> {
        let gateway = self.gateways.gateways.get(key)?;
        self.is_own_class(&gateway.class).then_some(gateway)
    }

    fn is_own_class(&self, name: &str) -> bool {
        let class = self.gateways.classes.get(&Key::new("", name));
        class.is_some_and(|class| class.controller == GATEWAY_CONTROLLER)
    }

    /// Returns the Gateway that a pod serves, according to the pod's label and the service account that only the
    /// Gateway's proxies should have.
    pub(super) fn gateway_of_pod(&self, pod: &Key, workload: &Workload) -> Option<Key> {
        let key = Key::new(&pod.namespace, workload.labels.get(GATEWAY_NAME)?);
        let gateway = self.gateway(&key)?;
        (workload.service_account == made_name(&key.name, &gateway.class)).then_some(key)
    }

    /// Returns the Service of a Gateway's proxies.
    pub(super) fn service_of_gateway(&self, key: &Key) -> Option<Key> {
        let gateway = self.gateway(key)?;
        Some(Key::new(
            &key.namespace,
            &made_name(&key.name, &gateway.class),
        ))
    }

    /// Returns whether a resource of a Gateway API kind in a namespace may refer to a resource of the core group.
    pub(super) fn is_granted(&self, from: (&str, &str), kind: &str, to: &Key) -> bool {
        let grants = self.in_namespace(&self.gateways.grants, &to.namespace);
        let mut grants = grants.map(|(_, grant)| grant);
        from.1 == to.namespace || grants.any(|grant| grant.permits(from, (kind, &to.name)))
    }

    /// Returns the listeners of a Gateway with their problems.
    pub(super) fn validated_listeners<'a>(
        &'a self,
        key: &Key,
        gateway: &'a Gateway,
    ) -> Vec<ValidatedListener<'a>> {
        let all = &gateway.listeners;
        let validate = |(at, listener): (usize, &'a Listener)| {
            let certificates = self.certificates(key, listener);
            let (kinds, invalid) = kinds(listener);
            let unresolved = invalid.or(certificates.as_ref().err().cloned());
            ValidatedListener {
                unsupported: unsupported(listener),
                conflict: conflict(all, at),
                unresolved,
                certificates: certificates.unwrap_or_default(),
                kinds,
                listener,
            }
        };
        all.iter().enumerate().map(validate).collect()
    }

    fn certificates(
        &self,
        key: &Key,
        listener: &Listener,
    ) -> Result<Vec<Arc<(String, String)>>, Problem> {
        if listener.protocol != ListenerProtocol::Https {
            return Ok(Vec::new());
        }
        if listener.certificates.is_empty() {
            let what = "HTTPS needs `tls.certificateRefs`";
            return Err(Problem::new("InvalidCertificateRef", what));
        }
        let certificates = listener.certificates.iter();
        certificates
            .map(|reference| self.certificate(key, reference))
            .collect()
    }

    fn certificate(
        &self,
        key: &Key,
        reference: &Reference,
    ) -> Result<Arc<(String, String)>, Problem> {
        let invalid = |what: String| Err(Problem::new("InvalidCertificateRef", what));
        let Reference {
            group,
            kind,
            key: secret,
        } = reference;
        if !group.is_empty() || kind != "Secret" {
            return invalid(format!(
                "{group}/{kind} {secret}: only Secrets are supported"
            ));
        }
        if !self.is_granted(("Gateway", &key.namespace), "Secret", secret) {
            let what = format!("no ReferenceGrant permits Secret {secret}");
            return Err(Problem::new("RefNotPermitted", what));
        }
        match self.gateways.secrets.get(secret) {
            None => invalid(format!(
                "Secret {secret} of type kubernetes.io/tls not found, or not in `gateway.certificates` of the installation"
            )),
            Some(found) => match &found.certificate {
                Ok(certificate) => Ok(Arc::clone(certificate)),
                Err(why) => invalid(format!("Secret {secret}: {why}")),
            },
        }
    }

    /// Returns the listeners that accept a route, or why none does; `None` if the Gateway does not belong to this
    /// mesh.
    pub(super) fn attach<'a>(
        &'a self,
        id: &RouteId,
        route: &Route,
        parent: &Parent,
    ) -> Option<Result<Vec<Attached<'a>>, Problem>> {
        let gateway = self.gateway(&parent.key)?;
        Some(self.attach_to(gateway, id, route, parent))
    }

    fn attach_to<'a>(
        &'a self,
        gateway: &'a Gateway,
        id: &RouteId,
        route: &Route,
        parent: &Parent,
    ) -> Result<Vec<Attached<'a>>, Problem> {
        let key = &parent.key;
        let listeners = self.validated_listeners(key, gateway);
        let named = listeners.into_iter().filter(|one| {
            let section = parent.section.as_ref();
            let port = parent.port.is_none_or(|port| port == one.listener.port);
            port && section.is_none_or(|section| *section == one.listener.name)
        });
        let named: Vec<ValidatedListener<'a>> = named.collect();
        if named.is_empty() {
            let what = format!("Gateway {key} {NO_LISTENER}");
            return Err(Problem::new("NoMatchingParent", what));
        }
        let kind = id.0.kind();
        let takes = |one: &&ValidatedListener<'_>| {
            let namespace = &id.1.namespace;
            one.kinds.contains(&kind) && self.takes_namespace(key, one.listener, namespace)
        };
        let taking: Vec<&ValidatedListener<'a>> = named.iter().filter(takes).collect();
        if taking.is_empty() {
            let namespace = &id.1.namespace;
            let chosen = |one: &ValidatedListener<'_>| {
                let by_labels = matches!(one.listener.namespaces, RouteNamespaces::Selector(_));
                by_labels && one.kinds.contains(&kind)
            };
            let unknown = !self.namespaces.contains_key(&Key::new("", namespace));
            let what = format!("Gateway {key} does not accept {kind}s of namespace {namespace}");
            let what = match unknown && named.iter().any(chosen) {
                true => format!("{what}{UNKNOWN_LABELS}"),
                false => what,
            };
            return Err(Problem::new("NotAllowedByListeners", what));
        }
        let attached = taking.into_iter().filter_map(|one| {
            let hosts = hosts(one.listener.hostname.as_deref(), &route.hostnames);
            let listener = one.listener;
            (!hosts.is_empty()).then_some(Attached { listener, hosts })
        });
        let attached: Vec<Attached<'a>> = attached.collect();
        match attached.is_empty() {
            true => {
                let what = format!("no listener of Gateway {key} is for one of spec.hostnames");
                Err(Problem::new("NoMatchingListenerHostname", what))
            }
            false => Ok(attached),
        }
    }

    fn takes_namespace(&self, gateway: &Key, listener: &Listener, namespace: &str) -> bool {
        match &listener.namespaces {
            RouteNamespaces::All => true,
            RouteNamespaces::None => false,
            RouteNamespaces::Same => gateway.namespace == namespace,
            RouteNamespaces::Selector(selector) => {
                match self.namespaces.get(&Key::new("", namespace)) {
                    Some(found) => selector.selects(&found.labels),
                    None => selector.selects(&Namespace::implied(namespace)),
                }
            }
        }
    }

    /// Invalidates all Gateways and their routes, of which there are few.
    pub(super) fn invalidate_gateways(&mut self) {
        let keys: Vec<Key> = self.gateways.gateways.keys().cloned().collect();
        for key in keys {
            self.invalidate_gateway(&key);
        }
        let routes = self.routes.iter();
        let routes = routes.filter(|(_, route)| !route.gateways.is_empty());
        let ids: Vec<_> = routes
            .map(|(id, _)| super::invalidation::status_id(id))
            .collect();
        self.dirty.statuses.extend(ids);
        let classes = self.gateways.classes.keys();
        let classes = classes.map(|key| (super::facts::Kind::GatewayClass, key.clone()));
        let classes: Vec<_> = classes.collect();
        self.dirty.statuses.extend(classes);
    }

    /// Invalidates the Gateway of a Service, whose status contains the Service's addresses and whether there are
    /// endpoints.
    pub(super) fn invalidate_gateway_of(&mut self, service: &Key) {
        let gateways = self.in_namespace(&self.gateways.gateways, &service.namespace);
        let own = gateways.filter(|(key, one)| made_name(&key.name, &one.class) == service.name);
        let ids = own.map(|(key, _)| (super::facts::Kind::Gateway, key.clone()));
        let ids: Vec<_> = ids.collect();
        self.dirty.statuses.extend(ids);
    }

    /// Invalidates a Gateway and its proxies.
    pub(super) fn invalidate_gateway(&mut self, key: &Key) {
        self.dirty.gateways.insert(key.clone());
        let statuses = (super::facts::Kind::Gateway, key.clone());
        self.dirty.statuses.insert(statuses);
        let proxies: Vec<Key> = self
            .in_namespace(&self.workloads, &key.namespace)
            .filter(|(_, one)| one.labels.get(GATEWAY_NAME) == Some(&key.name))
            .map(|(pod, _)| pod.clone())
            .collect();
        self.dirty.workloads.extend(proxies);
    }
}

/// Returns the name of all objects created for a Gateway (GEP-1762).
#[must_use]
pub fn made_name(gateway: &str, class: &str) -> String {
    format!("{gateway}-{class}")
}

fn unsupported(listener: &Listener) -> Option<Problem> {
    if let Some(fault) = listener.hostname.as_deref().and_then(hostname_fault) {
        let what = format!("spec.listeners: hostname: {fault}");
        return Some(Problem::new("UnsupportedValue", what));
    }
    match (&listener.protocol, &listener.odd_tls_mode) {
        (ListenerProtocol::Other(protocol), _) => {
            let what = format!("`{protocol}` is not supported; HTTP and HTTPS are");
            Some(Problem::new("UnsupportedProtocol", what))
        }
        (ListenerProtocol::Https, Some(mode)) => {
            let what = format!("tls.mode `{mode}` is not supported; use Terminate");
            Some(Problem::new("UnsupportedValue", what))
        }
        // Accepting every client would differ from the configuration.
        (ListenerProtocol::Https, None) if listener.wants_clients_certificates => {
            let what = "client certificates are not supported here, so all clients are rejected";
            Some(Problem::new("UnsupportedValue", what))
        }
        (ListenerProtocol::Http | ListenerProtocol::Https, _) => None,
    }
}

/// Returns the first other listener that conflicts with this one. Neither of them is served, because the API does not
/// allow to select one (`GatewaySpec.listeners`, "Handling indistinct Listeners").
fn conflict(all: &[Listener], at: usize) -> Option<Problem> {
    let listener = all.get(at).filter(|one| unsupported(one).is_none())?;
    let others = all.iter().enumerate().filter(|(other, _)| *other != at);
    let mut others = others
        .map(|(_, other)| other)
        .filter(|other| other.port == listener.port && unsupported(other).is_none());
    others.find_map(|other| {
        let name = &other.name;
        if other.protocol != listener.protocol {
            let what = format!(
                "listener {name} uses another protocol on port {}",
                other.port
            );
            Some(Problem::new("ProtocolConflict", what))
        } else if other.hostname == listener.hostname {
            let what = format!("listener {name} has the same host and port");
            Some(Problem::new("HostnameConflict", what))
        } else {
            None
        }
    })
}

/// Returns the kinds of routes that a listener accepts, and a problem if it names unsupported kinds.
fn kinds(listener: &Listener) -> (Vec<&'static str>, Option<Problem>) {
    const ALL: [&str; 2] = ["GRPCRoute", "HTTPRoute"];
    let possible = match listener.protocol {
        ListenerProtocol::Http | ListenerProtocol::Https => &ALL[..],
        ListenerProtocol::Other(_) => &[],
    };
    let Some(wanted) = &listener.kinds else {
        return (possible.to_vec(), None);
    };
    let named = |kind: &&&str| {
        let mut known = wanted.iter().filter(|one| one.is_known());
        known.any(|one| one.kind == **kind)
    };
    let kinds = possible.iter().filter(named).copied().collect();
    let odd = wanted.iter().find(|one| !one.is_known());
    let invalid = odd.map(|one| {
        let what = format!("allowedRoutes.kinds: `{}` is not supported", one.kind);
        Problem::new("InvalidRouteKinds", what)
    });
    (kinds, invalid)
}

/// Returns the hosts that a listener and a route have in common; `*` stands for all hosts.
fn hosts(listener: Option<&str>, route: &[String]) -> Vec<String> {
    if route.is_empty() {
        return vec![listener.unwrap_or("*").to_owned()];
    }
    let listener = listener.unwrap_or("*");
    let common = route.iter().filter_map(|host| {
        if covers(listener, host) {
            Some(host.clone())
        } else if covers(host, listener) {
            Some(listener.to_owned())
        } else {
            None
        }
    });
    let mut hosts: Vec<String> = common.collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

/// Returns whether `pattern` matches every host that `host` matches: `*.example.com` covers `a.example.com` and
/// `*.a.example.com`, but not `example.com`.
pub(super) fn covers(pattern: &str, host: &str) -> bool {
    if pattern == "*" || pattern == host {
        return true;
    }
    let Some(suffix) = pattern.strip_prefix('*') else {
        return false;
    };
    let name = host.strip_prefix("*.").unwrap_or(host);
    host != "*" && name.ends_with(suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_both() {
        let cases: [(Option<&str>, &[&str], &[&str]); 8] = [
            (None, &[], &["*"]),
            (None, &["a.com"], &["a.com"]),
            (Some("a.com"), &[], &["a.com"]),
            (
                Some("*.com"),
                &["a.com", "b.org", "*.b.com"],
                &["*.b.com", "a.com"],
            ),
            (Some("a.b.com"), &["*.com", "*.b.com"], &["a.b.com"]),
            (Some("*.b.com"), &["b.com"], &[]),
            (Some("a.com"), &["b.com"], &[]),
            (Some("*.a.com"), &["*.com"], &["*.a.com"]),
        ];
        for (listener, route, expected) in cases {
            let route: Vec<String> = route.iter().map(|host| (*host).to_owned()).collect();
            assert_eq!(hosts(listener, &route), expected, "{listener:?} {route:?}");
        }
    }

    #[test]
    fn of_listeners_that_cannot_be_distinguished_none_is_picked() {
        let listener = |name: &str, host: Option<&str>, protocol| Listener {
            name: name.to_owned(),
            hostname: host.map(str::to_owned),
            port: 80,
            protocol,
            ..Listener::default()
        };
        let reasons = |all: &[Listener]| -> Vec<Option<&str>> {
            let each = (0..all.len()).map(|at| conflict(all, at));
            each.map(|one| one.map(|one| one.reason)).collect()
        };
        let of_hosts = [
            // A listener that is not served causes no conflict.
            listener("tcp", None, ListenerProtocol::Other("TCP".to_owned())),
            listener("a", Some("a.com"), ListenerProtocol::Http),
            listener("b", Some("b.com"), ListenerProtocol::Http),
            listener("again", Some("a.com"), ListenerProtocol::Http),
        ];
        let both = Some("HostnameConflict");
        assert_eq!(reasons(&of_hosts), [None, both, None, both]);
        let mut of_protocols = [
            listener("a", Some("a.com"), ListenerProtocol::Http),
            listener("b", Some("b.com"), ListenerProtocol::Http),
            listener("tls", None, ListenerProtocol::Https),
        ];
        assert_eq!(reasons(&of_protocols), [Some("ProtocolConflict"); 3]);
        of_protocols[2].port = 443;
        assert_eq!(reasons(&of_protocols), [None; 3]);
    }
}
