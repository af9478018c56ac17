//! The target ports of a Service: its own, or those of shared proxies that replace them.
//!
//! Dedicated proxies listen on the Service's own target ports. Shared proxies have a separate port for each port of
//! each Service, so that the port identifies the Service for any protocol. Like the selector, the replaced ports are
//! recorded in the Service.

use std::collections::{BTreeMap, BTreeSet};

use maglor_balance::hash_bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::PORTS_RECORD;
use super::fields::text;
use crate::index::facts::service::{PROXY_PORTS, proxy_ports};

/// Ports of shared proxies, by the corresponding port of the Service.
pub(super) type Shared = BTreeMap<u16, u16>;

/// The first port of shared proxies. It is above the usual default ports of programs; ports below 30000 are not node
/// ports.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// A port that was replaced.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Replaced {
    own: Value,
    shared: u16,
}

/// The ports of a Service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Ports {
    /// The Service's own `targetPort`s, by port.
    pub(super) own: BTreeMap<u16, Value>,
    /// The ports that are currently redirected to proxies.
    pub(super) shared: Shared,
}

impl Ports {
    /// Reads a Service. `target` is its target Service, which also records the Service's own ports.
    pub(super) fn read(service: &Value, target: Option<&Value>) -> Self {
        let known = known(service, target);
        let mut ports = Self::default();
        for port in list(service) {
            let Some(number) = number(&port["port"]) else {
                continue;
            };
            let now = &port["targetPort"];
            let replaced = known.get(&number);
            match replaced.filter(|replaced| *now == json!(replaced.shared)) {
                Some(replaced) => {
                    ports.own.insert(number, replaced.own.clone());
                    ports.shared.insert(number, replaced.shared);
                }
                None => drop(ports.own.insert(number, now.clone())),
            }
        }
        ports
    }

    /// Returns whether all ports are redirected to proxies.
    pub(super) fn all_shared(&self) -> bool {
        !self.own.is_empty() && self.own.len() == self.shared.len()
    }

    /// Restores a Service's own ports.
    pub(super) fn restore(&self, service: &mut Value) {
        let ports = service["spec"]["ports"].as_array_mut();
        for port in ports.into_iter().flatten() {
            let own = number(&port["port"]).and_then(|number| self.own.get(&number));
            if let Some(own) = own.filter(|own| !own.is_null()) {
                port["targetPort"] = own.clone();
            }
        }
    }

    /// Formats the record that a Service has while its ports are redirected to proxies.
    pub(super) fn record(&self, shared: &Shared) -> String {
        let replaced = |(port, shared): (&u16, &u16)| {
            let own = self.own.get(port).cloned().unwrap_or_default();
            (
                *port,
                Replaced {
                    own,
                    shared: *shared,
                },
            )
        };
        let all: BTreeMap<u16, Replaced> = shared.iter().map(replaced).collect();
        serde_json::to_string(&all).unwrap_or_default()
    }
}

/// Returns the replaced ports as recorded in the Service or, if it contains no record, in its target Service.
fn known(service: &Value, target: Option<&Value>) -> BTreeMap<u16, Replaced> {
    let record = service["metadata"]["annotations"][PORTS_RECORD].as_str();
    let record = record.and_then(|text| serde_json::from_str(text).ok());
    let mut known: BTreeMap<u16, Replaced> = record.unwrap_or_default();
    let Some(target) = target else { return known };
    for (port, shared) in shared_of(target) {
        let own = || {
            let mut ports = list(target).filter(|one| number(&one["port"]) == Some(port));
            let own = ports.next().map(|one| one["targetPort"].clone());
            own.filter(|own| !own.is_null())
                .unwrap_or_else(|| json!(port))
        };
        known
            .entry(port)
            .or_insert_with(|| Replaced { own: own(), shared });
    }
    known
}

/// Returns the shared ports recorded in a target Service.
pub(super) fn shared_of(target: &Value) -> Shared {
    proxy_ports(text(&target["metadata"]["annotations"][PROXY_PORTS]))
}

/// Formats the shared ports for the annotation of the target Service.
pub(super) fn written(shared: &Shared) -> String {
    let one = |(port, shared): (&u16, &u16)| format!("{port}={shared}");
    shared.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Assigns a proxy port to each port of a Service, which has its own target ports. `before` are its current proxy
/// ports, which are kept where possible; `taken` are those of other Services.
///
/// The search starts at a hash of the name, so that a recently freed port is rarely reused by another Service: a node
/// with an outdated configuration may still send requests to it.
pub(super) fn allot(service: &Value, before: &Shared, taken: &BTreeSet<u16>) -> Shared {
    let meta = &service["metadata"];
    let place = format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]));
    let own = list(service).filter_map(|port| number(&port["targetPort"]));
    // The Service's own target ports are not used for proxies.
    let mut taken: BTreeSet<u16> = taken.iter().copied().chain(own).collect();
    let mut allotted = Shared::new();
    for port in list(service).filter_map(|port| number(&port["port"])) {
        let begin = hash_bytes(format!("{place}:{port}").as_bytes()) % u64::from(COUNT);
        let begin = u16::try_from(begin).unwrap_or_default();
        let search = (0..COUNT).map(|step| FIRST + (begin + step) % COUNT);
        let mut candidates = before.get(&port).copied().into_iter().chain(search);
        if let Some(shared) = candidates.find(|shared| !taken.contains(shared)) {
            taken.insert(shared);
            allotted.insert(port, shared);
        }
    }
    allotted
}

fn list(service: &Value) -> impl Iterator<Item = &Value> {
    service["spec"]["ports"].as_array().into_iter().flatten()
}

fn number(value: &Value) -> Option<u16> {
    u16::try_from(value.as_u64()?)
        .ok()
        .filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn service(ports: &Value) -> Value {
        json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"ports": ports}})
    }

    #[test]
    fn own_ports_are_found_again() {
        let own =
            service(&json!([{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": 8081}]));
        let before = Ports::read(&own, None);
        assert!(before.shared.is_empty() && !before.all_shared());
        let shared = allot(&own, &Shared::new(), &BTreeSet::new());
        let mut switched = own.clone();
        switched["spec"]["ports"][0]["targetPort"] = json!(shared[&80]);
        switched["spec"]["ports"][1]["targetPort"] = json!(shared[&81]);
        let mut target = own.clone();
        target["metadata"]["annotations"] = json!({PROXY_PORTS: written(&shared)});
        assert_eq!(shared_of(&target), shared);
        let mut recorded = switched.clone();
        recorded["metadata"]["annotations"] = json!({PORTS_RECORD: before.record(&shared)});
        for (service, target) in [(&recorded, None), (&switched, Some(&target))] {
            let read = Ports::read(service, target);
            assert!(read.all_shared());
            assert_eq!((&read.own, &read.shared), (&before.own, &shared));
            let mut restored = service.clone();
            read.restore(&mut restored);
            assert_eq!(restored["spec"], own["spec"]);
        }
        // Another writer has changed the target of one port.
        recorded["spec"]["ports"][1]["targetPort"] = json!(9000);
        let read = Ports::read(&recorded, Some(&target));
        assert!(!read.all_shared() && read.shared.len() == 1);
        assert_eq!(
            (&read.own[&80], &read.own[&81]),
            (&json!("http"), &json!(9000))
        );
    }

    proptest! {
        /// Every port has a unique proxy port, different from its own, and keeps it.
        #[test]
        fn ports_are_distinguished(
            numbers in proptest::collection::btree_set(1..60_000u16, 1..20),
            own in 1..65_535u16,
            taken in proptest::collection::btree_set(FIRST..FIRST + COUNT, 0..200),
        ) {
            let ports: Vec<Value> = numbers
                .iter()
                .map(|port| json!({"port": port, "targetPort": own}))
                .collect();
            let service = service(&json!(ports));
            let shared = allot(&service, &Shared::new(), &taken);
            let different: BTreeSet<u16> = shared.values().copied().collect();
            prop_assert_eq!(different.len(), numbers.len());
            prop_assert!(different.is_disjoint(&taken) && !different.contains(&own));
            prop_assert!(different.iter().all(|port| (FIRST..FIRST + COUNT).contains(port)));
            prop_assert_eq!(&allot(&service, &shared, &taken), &shared);
            // A port that now belongs to another Service is abandoned.
            let first = *shared.values().next().unwrap();
            let again = allot(&service, &shared, &BTreeSet::from([first]));
            prop_assert!(!again.values().any(|port| *port == first));
        }
    }
}
