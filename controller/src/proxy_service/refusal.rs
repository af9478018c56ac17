//! Reasons why a Service cannot have proxies.

use std::collections::BTreeMap;

use maglor_config::proxy_service::Spoken;
use maglor_manifests::inject::ADMIN_PORT;
use serde_json::Value;

use super::claim::Claim;
use super::front::SHARED_LABELS;
use super::group::{Group, contradicts};
use super::listening::{TargetPort, declared, target_port};
use super::observed::Observed;
use super::selector::Selector;
use super::{LABEL, target_name};
use crate::index::facts::Protocol;
use crate::index::facts::service::PROXY_GROUP;
use crate::index::spoken;

/// Reason why proxies are not possible. Existing proxies are removed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// A field that must be equal in a group has different values.
    #[error(
        "spec.{field}: must be equal in all ProxyServices of a group; the older ProxyService {older} has another value; use the same \
         value, or remove the field here"
    )]
    Contradiction {
        /// Name of the field of `spec`.
        field: &'static str,
        /// The `ProxyService` whose value applies.
        older: String,
    },
    /// Another controller would revert the selector.
    #[error("Service {service} belongs to {owner}, which manages its selector")]
    Controlled {
        /// Name of the Service.
        service: String,
        /// The owner, as `KIND NAME`.
        owner: String,
    },
    /// The type of the Service is `ExternalName`.
    #[error("Service {0} is of type ExternalName and has no endpoints")]
    ExternalName(String),
    /// The Service is headless (`clusterIP: None`).
    #[error("Service {0} is headless: clients connect to its pods directly")]
    Headless(String),
    /// Some of the traffic must not leave the client's node.
    #[error("Service {service} has `{field}: Local`: requests at nodes without a proxy would fail")]
    Local {
        /// Name of the Service.
        service: String,
        /// Name of the field of the Service's `spec`.
        field: &'static str,
    },
    /// The name of the target Service or another label would be too long.
    #[error(
        "the name of Service {0} is too long: with the suffix `-target` it must have at most 63 characters"
    )]
    LongName(String),
    /// An object of another writer has the name of one that would be created.
    #[error("{0} exists and is not owned by this ProxyService")]
    NameTaken(String),
    /// The Service has no selector.
    #[error("Service {0} has no selector; its endpoints are managed by hand")]
    NoSelector(String),
    /// Proxies cannot serve a port.
    #[error("Service {service}, port {port}: {why}")]
    Port {
        /// Name of the Service.
        service: String,
        /// Number of the Service's port.
        port: u64,
        /// Why proxies cannot serve the port.
        why: &'static str,
    },
    /// The Service itself belongs to proxies.
    #[error("Service {0} was itself created for a ProxyService")]
    Proxied(String),
    /// The Service publishes endpoints that are not ready, which would receive requests.
    #[error(
        "Service {0} has `publishNotReadyAddresses`: proxies would get requests before they are ready"
    )]
    PublishesNotReady(String),
    /// Proxies cannot have a label of the Service's selector.
    #[error(
        "the selector of Service {service} has `{label}`, which Kubernetes sets on each pod, so it would select no proxy"
    )]
    ReservedLabel {
        /// Name of the Service.
        service: String,
        /// Name of the label.
        label: String,
    },
    /// The Service binds each client to one endpoint.
    #[error(
        "Service {0} has `sessionAffinity`: it would bind clients to a proxy, not to an endpoint; use `policy: maglev` for the target instead"
    )]
    SessionAffinity(String),
    /// The Service does not exist.
    #[error("there is no Service {0}")]
    TargetNotFound(String),
    /// Shared proxies have none of the labels of the Service's selector.
    #[error(
        "the selector of Service {0} has none of the labels by which proxies of a group are selected ({labels}); add \
         one of them, or remove `group`",
        labels = SHARED_LABELS.join(", ")
    )]
    UncommonLabels(String),
}

impl Refusal {
    /// Returns the reason in the status condition.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Contradiction { .. } => "Contradiction",
            Self::Controlled { .. } => "Controlled",
            Self::ExternalName(_) => "ExternalName",
            Self::Headless(_) => "Headless",
            Self::Local { .. } => "LocalTrafficPolicy",
            Self::LongName(_) => "LongName",
            Self::NameTaken(_) => "NameTaken",
            Self::NoSelector(_) => "NoSelector",
            Self::Port { .. } => "UnsupportedPort",
            Self::Proxied(_) => "Proxied",
            Self::PublishesNotReady(_) => "PublishesNotReady",
            Self::ReservedLabel { .. } => "ReservedLabel",
            Self::SessionAffinity(_) => "SessionAffinity",
            Self::TargetNotFound(_) => "TargetNotFound",
            Self::UncommonLabels(_) => "UncommonLabels",
        }
    }
}

/// Maximum length of the name of a Kubernetes Service (RFC 1035), and of the value of a label.
const LONGEST: usize = 63;

/// Labels that Kubernetes overwrites in the pods of a Deployment, regardless of its template.
const RESERVED: [&str; 4] = [
    maglor_manifests::inject::INJECT,
    "pod-template-hash",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Returns the first reason against proxies for the Service that a `ProxyService` names, as far as it can be
/// determined from these two objects. Returns `None` for an invalid `ProxyService`, which is reported elsewhere.
#[must_use]
pub fn refusal_of(resource: &Value, service: Option<&Value>) -> Option<Refusal> {
    let claim = Claim::read(resource);
    claim.spec.as_ref().ok()?;
    of(&Observed {
        namespace: claim.key.namespace.clone(),
        name: claim.service.clone(),
        claims: vec![claim],
        service: service.cloned(),
        ..Observed::default()
    })
}

/// Returns the first reason against proxies; `None` if they are possible.
pub(super) fn of(seen: &Observed) -> Option<Refusal> {
    let name = || seen.name.clone();
    let Some(service) = &seen.service else {
        return Some(Refusal::TargetNotFound(name()));
    };
    let selected = seen.selected().unwrap_or_default();
    let service = &selected.own_service(service);
    let spec = &service["spec"];
    if service["metadata"]["labels"][LABEL].is_string() {
        return Some(Refusal::Proxied(name()));
    }
    if spec["type"] == "ExternalName" {
        return Some(Refusal::ExternalName(name()));
    }
    if spec["clusterIP"] == "None" {
        return Some(Refusal::Headless(name()));
    }
    if target_name(&seen.name).len() > LONGEST {
        return Some(Refusal::LongName(name()));
    }
    let own = selected.own;
    if own.is_empty() {
        return Some(Refusal::NoSelector(name()));
    }
    if own.contains_key(LABEL) || own.contains_key(PROXY_GROUP) {
        return Some(Refusal::Proxied(name()));
    }
    if let Some(owner) = controller(service) {
        let service = name();
        return Some(Refusal::Controlled { service, owner });
    }
    for field in ["internalTrafficPolicy", "externalTrafficPolicy"] {
        if spec[field] == "Local" {
            let service = name();
            return Some(Refusal::Local { service, field });
        }
    }
    if spec["publishNotReadyAddresses"] == true {
        return Some(Refusal::PublishesNotReady(name()));
    }
    if spec["sessionAffinity"] == "ClientIP" {
        return Some(Refusal::SessionAffinity(name()));
    }
    let unfit = port(seen, spec)
        .or_else(|| alone(seen, spec, &own))
        .or_else(|| taken(seen));
    unfit.or_else(|| {
        let claim = seen.claims.iter().find(|claim| !claim.deleting)?;
        of_group(seen.group.as_ref()?, seen, claim)
    })
}

/// Returns a reason against dedicated proxies. Shared proxies do not have these restrictions, since they are selected
/// by common labels and have a separate port for each port of a Service.
fn alone(seen: &Observed, spec: &Value, own: &Selector) -> Option<Refusal> {
    let claim = seen.claims.iter().find(|claim| !claim.deleting);
    let wanted = claim.and_then(|claim| claim.spec.as_ref().ok());
    if wanted.is_some_and(|wanted| wanted.group.is_some()) {
        return None;
    }
    if let Some(label) = RESERVED.into_iter().find(|label| own.contains_key(*label)) {
        return Some(Refusal::ReservedLabel {
            service: seen.name.clone(),
            label: label.to_owned(),
        });
    }
    let mut bytes: BTreeMap<TargetPort, bool> = BTreeMap::new();
    spec["ports"].as_array()?.iter().find_map(|port| {
        let passed = spoken(declared(port)) == Spoken::Tcp;
        let first = *bytes.entry(target_port(port)).or_insert(passed);
        (first != passed).then(|| Refusal::Port {
            service: seen.name.clone(),
            port: port["port"].as_u64().unwrap_or(0),
            why: "another port with the same target port has another protocol; declare the same protocol for both",
        })
    })
}

fn controller(service: &Value) -> Option<String> {
    let owners = service["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    let text = |name: &str| owner[name].as_str().unwrap_or_default();
    Some(format!("{} {}", text("kind"), text("name")))
}

fn port(seen: &Observed, spec: &Value) -> Option<Refusal> {
    let refuse = |port: u64, why| Refusal::Port {
        service: seen.name.clone(),
        port,
        why,
    };
    let ports = spec["ports"].as_array()?;
    if ports.is_empty() {
        return Some(refuse(0, "the Service has no port"));
    }
    ports.iter().find_map(|port| {
        let number = port["port"].as_u64().unwrap_or(0);
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        if protocol != "TCP" {
            return Some(refuse(number, "only TCP is supported"));
        }
        if declared(port) == Protocol::Auto {
            let why = "the protocol is not declared; set `appProtocol` to `http`, `kubernetes.io/h2c`, `tcp` …";
            return Some(refuse(number, why));
        }
        (target_port(port) == TargetPort::Number(ADMIN_PORT)).then(|| {
            refuse(
                number,
                "the target port is the admin port of the proxies",
            )
        })
    })
}

fn taken(seen: &Observed) -> Option<Refusal> {
    let made = [
        ("Service", &seen.target),
        ("TrafficPolicy", &seen.policy),
        ("TrafficPolicy", &seen.sidecar_policy),
        ("Deployment", &seen.deployment),
        ("ServiceAccount", &seen.account),
        ("HorizontalPodAutoscaler", &seen.autoscaler),
    ];
    made.into_iter().find_map(|(kind, there)| {
        let there = there.as_ref()?;
        if seen.ours(Some(there)).or(seen.made(Some(there))).is_some() {
            return None;
        }
        let name = there["metadata"]["name"].as_str().unwrap_or_default();
        Some(Refusal::NameTaken(format!("{kind} {name}")))
    })
}

/// Returns why a Service cannot be a member of the group.
fn of_group(group: &Group, seen: &Observed, claim: &Claim) -> Option<Refusal> {
    let wanted = claim.spec.as_ref().ok()?.group.as_deref();
    wanted.filter(|_| wanted == seen.front.group())?;
    let own = seen.selected().unwrap_or_default().own;
    if !own.keys().any(|key| SHARED_LABELS.contains(&key.as_str())) {
        return Some(Refusal::UncommonLabels(seen.name.clone()));
    }
    let oldest = group
        .claims
        .first()
        .filter(|oldest| oldest.uid != claim.uid)?;
    let (older, younger) = (oldest.spec.as_ref().ok()?, claim.spec.as_ref().ok()?);
    let field = contradicts(older, younger)?;
    Some(Refusal::Contradiction {
        field,
        older: oldest.key.name.clone(),
    })
}
