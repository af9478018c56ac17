//! Builds the resources of a workload with a sidecar: the inbound configuration of its own proxy and, if it is behind
//! headless Services, the listeners for its address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use maglor_balance::PolicySpec;
use maglor_config::raw::{self, ApplicationPort, Short};
use maglor_xds::MOST_AHEAD;

use super::endpoints::{mutual, ports_of_pod};
use super::routes::unique;
use super::{closed, port_name, service, shown_name, upstream};
use crate::crd::AuthorizationPolicySpec;
use crate::index::facts::{Key, Workload};
use crate::index::resource::{Endpoint, Inbound, Resource, ResourceId, ResourceKind};
use crate::index::{Index, effective};

/// Returns the resources of a workload; empty if there is no such pod or it has no sidecar.
pub(crate) fn resources(index: &Index, key: &Key) -> BTreeMap<ResourceId, Resource> {
    let mut published = BTreeMap::new();
    let Some(workload) = index.workloads.get(key).filter(|one| one.has_sidecar) else {
        return published;
    };
    // The permissions of a proxy's clients are checked by the pods behind it.
    let behind = index.targets_of_proxy(key, workload);
    let (mtls, authorization) = match behind.is_empty() {
        false => (index.mtls_of_proxy(&behind, key, workload), None),
        true => (
            index.mtls(key, workload),
            authorization(index, key, workload),
        ),
    };
    let mut ports = ports(index, key);
    if behind.is_empty() {
        let own = index.port_modes(key, workload);
        for (port, mode) in own.into_iter().filter(|(_, mode)| *mode != mtls) {
            ports.entry(port).or_default().tls = Some(mode);
        }
    }
    let text = |(port, described): (u16, ApplicationPort)| (port.to_string(), Short(described));
    let inbound = Inbound {
        mtls,
        ports: raw::Pairs(ports.into_iter().map(text).collect()),
        authorization,
        delegates: index.delegates(key, workload),
        unknown: index.mesh_spec().and_then(|spec| spec.unknown),
        tracing: index.tracing(key, workload),
        stories: index.mesh_spec().and_then(|spec| spec.stories),
        gateway: match index.gateway_of_pod(key, workload) {
            Some(gateway) => super::gateway::ports(index, &gateway),
            None => Vec::new(),
        },
        forwards: index.forwards(key, workload),
        ahead: ahead(index, key, workload),
        service_account: workload.service_account.clone(),
    };
    published.insert(
        ResourceId::new(ResourceKind::Inbound, &key.to_string()),
        Resource::Inbound(Box::new(inbound)),
    );
    published.extend(by_address(index, key, workload));
    published
}

/// Returns the addresses that a workload will probably call, because other pods of the same owner have called them.
/// Headless Services have no addresses: their pods are requested when they are called.
fn ahead(index: &Index, pod: &Key, workload: &Workload) -> Vec<String> {
    let maker = Key::new(&pod.namespace, &workload.owner);
    let called = index.called.get(&maker).into_iter().flatten();
    let addresses = called.filter_map(|(service, port)| {
        let facts = index.services.get(service)?;
        facts.ports.iter().find(|one| one.port == *port)?;
        Some(SocketAddr::new(*facts.addresses.first()?, *port).to_string())
    });
    addresses.take(MOST_AHEAD).collect()
}

/// Returns the protocols of the workload's ports and their load reports. If two Services share a port, the first one
/// by name applies.
fn ports(index: &Index, pod: &Key) -> BTreeMap<u16, ApplicationPort> {
    let mut found: BTreeMap<u16, (&Key, ApplicationPort)> = BTreeMap::new();
    for (service, _, port, target, address) in ports_of_pod(index, pod) {
        if found
            .get(&target)
            .is_some_and(|(other, _)| *other <= service)
        {
            continue;
        }
        let word = port.protocol.word();
        let http = !matches!(
            word,
            raw::ApplicationProtocol::Tcp | raw::ApplicationProtocol::Tls
        );
        let policy = effective::of(index, service, port.port, None)
            .cluster
            .policy;
        let reports = policy.filter(|_| http).and_then(|policy| {
            let name = port_name(index, service, port.port);
            load_reports(&policy, name, SocketAddr::new(address, target))
        });
        let described = ApplicationPort {
            protocol: Some(word),
            load_reports: reports,
            tls: None,
        };
        found.insert(target, (service, described));
    }
    let each = found.into_iter();
    each.map(|(port, (_, described))| (port, described))
        .collect()
}

/// Returns the load reports of a port, which policies based on servers' true queue lengths need.
fn load_reports(
    policy: &PolicySpec,
    cluster: String,
    endpoint: SocketAddr,
) -> Option<raw::LoadReports> {
    match policy.name() {
        "a-lsq" | "bounce" | "probe" => Some(raw::LoadReports::default()),
        "ledger" => Some(raw::LoadReports {
            cluster: Some(cluster),
            endpoint: Some(endpoint.to_string()),
            orca: None,
        }),
        _ => None,
    }
}

/// Merges all policies that select the workload. Rule names are made unique, since policies of two kinds may contain
/// the same name.
fn authorization(index: &Index, key: &Key, workload: &Workload) -> Option<raw::Authorization> {
    let mut together = of_policies(index, key, workload)?;
    let mut names = BTreeSet::new();
    for rule in &mut together.rules {
        let own = rule.name.take().unwrap_or_default();
        rule.name = Some(unique(&mut names, &own));
    }
    Some(together)
}

fn of_policies(index: &Index, key: &Key, workload: &Workload) -> Option<raw::Authorization> {
    let here = index.in_namespace(&index.authorization, &key.namespace);
    let selected = here.filter_map(|(name, policy)| {
        let spec = policy.spec.value.as_ref()?;
        let selector = spec.selector.as_ref();
        let selected = selector.is_none_or(|selector| selector.selects(&workload.labels));
        selected.then_some((name.name.as_str(), spec))
    });
    let (attempted, in_force): (Vec<_>, Vec<_>) =
        selected.partition(|(_, spec)| spec.audit == Some(true));
    let mut together = merged(&in_force);
    let before = together.rules.len();
    let here = index.in_namespace(&index.authorization, &key.namespace);
    let closing = here.filter(|(_, policy)| {
        let closes = policy.closes.as_ref();
        closes.is_some_and(|closes| closes.selects(&workload.labels))
    });
    together
        .rules
        .extend(closing.map(|(policy, _)| closed(&policy.name)));
    let is_closed = together.rules.len() > before;
    let of_others = index.authorize(key, workload, &mut together);
    if of_others || is_closed || !in_force.is_empty() {
        // If other rules are enforced, audited deny rules are listed in addition. The default effect of an audited
        // policy cannot be evaluated together with that of enforced policies.
        let mut asked = merged(&attempted).rules;
        asked.retain(denies);
        for rule in &mut asked {
            rule.action = Some(raw::AuthorizationAction::Audit);
        }
        together.rules.append(&mut asked);
        return Some(together);
    }
    // If no policy is enforced, the audited policies are evaluated completely, including their default.
    let attempts = !attempted.is_empty();
    attempts.then(|| raw::Authorization {
        audit: Some(true),
        ..merged(&attempted)
    })
}

fn denies(rule: &raw::AuthorizationRule) -> bool {
    rule.action == Some(raw::AuthorizationAction::Deny)
}

/// Merges the rules of policies, each prefixed with its policy's name, and the policies' defaults.
fn merged(policies: &[(&str, &AuthorizationPolicySpec)]) -> raw::Authorization {
    let mut together = raw::Authorization::default();
    for (policy, spec) in policies {
        // A policy without rules allows nothing, even in combination with policies whose rules only deny.
        let default = spec.default.or(match spec.rules.is_empty() {
            true => Some(raw::Effect::Deny),
            false => None,
        });
        if together.default != Some(raw::Effect::Deny) {
            together.default = default.or(together.default);
        }
        for (at, rule) in spec.rules.iter().enumerate() {
            let own = rule.name.clone().unwrap_or_else(|| at.to_string());
            together.rules.push(raw::AuthorizationRule {
                name: Some(shown_name(&format!("{policy}/{own}"))),
                ..rule.clone()
            });
        }
    }
    together
}

/// Returns the listeners for a pod behind a headless Service, which clients call by its address, so that these calls
/// also use mutual TLS. Addresses in a slice are used only if they are the pod's own.
fn by_address(index: &Index, pod: &Key, workload: &Workload) -> Vec<(ResourceId, Resource)> {
    let mut published = Vec::new();
    let mut seen = BTreeSet::new();
    for (key, facts, port, target, address) in ports_of_pod(index, pod) {
        let own = workload.may_have(address);
        if !facts.headless || !own || !seen.insert((address, target)) {
            continue;
        }
        let name = SocketAddr::new(address, target).to_string();
        let effective = effective::of(index, key, port.port, None);
        let identity = index.identity(&pod.namespace, &workload.service_account);
        let mut cluster = raw::Cluster {
            tls: mutual([identity].into())
                .filter(|_| workload.takes(target) && !effective.plain_text),
            ..effective.cluster
        };
        cluster.protocol.get_or_insert(upstream(port.protocol));
        published.extend(service::single(
            &name,
            port.protocol,
            &cluster,
            &effective.route,
        ));
        let endpoint = Endpoint {
            described: raw::Endpoint {
                address: Some(name.clone()),
                ..raw::Endpoint::default()
            },
            draining: false,
        };
        published.push((
            ResourceId::new(ResourceKind::Endpoints, &name),
            Resource::Endpoints(vec![endpoint]),
        ));
    }
    published
}
