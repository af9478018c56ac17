//! For any order of additions and removals, the output of the index equals that of a new index, and the sum
//! of its changes.

use std::collections::BTreeMap;

use maglor_controller::index::facts::{Key, Kind, Object};
use maglor_controller::index::{Change, Changes, Index, Resource, ResourceId};
use maglor_testkit::property::runner;
use proptest::prelude::*;

use crate::support;

/// Kinds of resources that a step may touch; a name and a variant choose the rest.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: usize,
    name: usize,
    variant: usize,
    delete: bool,
    /// Whether the changed resources are read after each event.
    ask: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        0..Kind::ALL.len(),
        0..3usize,
        0..4usize,
        prop::bool::weighted(0.2),
        any::<bool>(),
    );
    let step = step.prop_map(|(kind, name, variant, delete, ask)| Step {
        kind,
        name,
        variant,
        delete,
        ask,
    });
    prop::collection::vec(step, 1..60)
}

/// The content of a resource.
fn text(kind: &str, version: &str, name: usize, v: usize) -> String {
    let other = (name + 1) % 3;
    match kind {
        "Service" => [
            "spec: {clusterIP: 10.0.0.9, selector: {v: '1'}, ports: [{port: 80, name: http}], trafficDistribution: PreferSameNode}",
            "spec: {clusterIP: None, ports: [{port: 80, name: http}, {port: 90, name: tcp}]}",
            // An address that goes from one to another.
            "spec: {clusterIP: 10.9.9.8, ports: [{port: 80, appProtocol: tcp, name: http}]}",
            "spec: {type: ExternalName, externalName: a.example, ports: [{port: 90, name: tcp}]}",
        ][v]
            .replace("10.0.0", &format!("10.0.{name}")),
        "EndpointSlice" => format!(
            "ports: [{{name: http, port: {http}}}, {{name: tcp, port: 90}}]
endpoints:
- {{addresses: [{own}], nodeName: n{v}, hostname: h{v}, targetRef: {{kind: Pod, name: n{other}, uid: u{v}}}}}
- {{addresses: [10.2.{name}.{v}], nodeName: n{name}, conditions: {{ready: false, serving: true, terminating: true}}}}",
            http = match v {
                2 => 80,
                _ => 8080 + v,
            },
            own = match v {
                // The address of a Service.
                2 => "10.9.9.8".to_owned(),
                3 => "10.9.9.9".to_owned(),
                _ => format!("10.1.{name}.{v}"),
            }
        ),
        "Pod" => format!(
            "spec: {{serviceAccountName: sa{}, nodeName: n{other}}}\nstatus: {{phase: {}, podIPs: [{}], conditions: [{{type: Ready, status: '{}'}}]}}",
            v % 2,
            ["Running", "Pending", "Failed", "Running"][(name + v) % 4],
            ["", "{ip: 10.1.0.0}, {ip: 10.1.0.1}", "{ip: 10.9.9.9}", ""][v],
            ["True", "False"][v / 2],
        ),
        "DestinationRule" => format!(
            "spec: {{host: n{other}, trafficPolicy: {{loadBalancer: {}}}, subsets: [{{name: s{v}, labels: {{v: '{v}'}}}}]}}",
            match v {
                1 => "{consistentHash: {httpHeaderName: x-user}}",
                _ => "{simple: RANDOM}",
            }
        ),
        "VirtualService" => format!(
            "spec: {{hosts: [n{name}, n{other}], http: [{{match: [{{port: 80}}], route: [{{destination: {{host: n{v}, subset: s1}}, weight: 1}}, {{destination: {{host: n{other}}}, weight: 2}}]}}]}}"
        ),
        "PeerAuthentication" => match v {
            0 => "spec: {mtls: {mode: STRICT}}".to_owned(),
            _ => format!("spec: {{selector: {{matchLabels: {{v: '{v}'}}}}, mtls: {{mode: STRICT}}}}"),
        },
        "AuthorizationPolicy" if version.starts_with("security") => match v {
            0 => "spec: {}".to_owned(),
            _ => format!("spec: {{selector: {{matchLabels: {{v: '{v}'}}}}, action: DENY, rules: [{{}}]}}"),
        },
        "Telemetry" => match v {
            0 => format!("spec: {{tracing: [{{randomSamplingPercentage: {name}}}]}}"),
            1 => "spec: {tracing: [{disableSpanReporting: true}]}".to_owned(),
            _ => format!("spec: {{selector: {{matchLabels: {{v: '{v}'}}}}, tracing: [{{customTags: {{tag: {{literal: {{value: n{name}}}}}}}}}]}}"),
        },
        "HTTPRoute" | "GRPCRoute" => format!(
            "spec:
  parentRefs: [{{group: '', kind: Service, name: n{name}}}, {{group: '', kind: Service, name: n{other}, port: 80}}]
  rules: [{{backendRefs: [{{name: n{v}, port: 80}}, {{name: n{other}, port: 90}}]}}]"
        ),
        "TrafficPolicy" => match v {
            0 => "spec: {cluster: {policy: random}}".to_owned(),
            1 => format!("spec: {{targetRefs: [{{name: n{other}}}], cluster: {{policy: ledger}}}}"),
            2 => format!("spec: {{targetRefs: [{{name: n{name}, port: 80}}], route: {{timeout: 1s}}}}"),
            _ => format!("spec: {{targetRefs: [{{name: n{name}}}], route: {{timeout: 2s}}}}"),
        },
        "AuthorizationPolicy" => match v {
            0 => "spec: {default: deny}".to_owned(),
            1 => "spec: {audit: true, rules: [{}]}".to_owned(),
            _ => format!("spec: {{selector: {{matchLabels: {{v: '{v}'}}}}, rules: [{{name: r{v}}}]}}"),
        },
        "MeshConfig" => ["spec: {mtls: strict}", "spec: {route: {timeout: 9s}}", "spec: {trustDomain: t}", "spec: {unknown: refuse}", "spec: {tracing: {collector: 'otel:4317'}}", "spec: {stories: true}"]
            [v]
            .to_owned(),
        _ => String::new(),
    }
}

/// The resource of a step; different variants differ in what others depend on.
fn object(step: Step) -> Object {
    let Step {
        kind,
        name,
        variant: v,
        ..
    } = step;
    let (version, kind, _) = Kind::ALL[kind].names();
    let text = text(kind, version, name, v);
    let name = match kind {
        "MeshConfig" => "default".to_owned(),
        // The Service of the pods behind n0 and its proxies.
        "Service" if name == 2 => "n0-target".to_owned(),
        _ => format!("n{name}"),
    };
    // Two of the kinds are in two namespaces, so that there are consumers.
    let namespace = match (kind, v) {
        ("HTTPRoute" | "VirtualService", 3) => "client",
        ("PeerAuthentication" | "Telemetry", 2) => "istio-system",
        _ => "n",
    };
    let header = format!(
        "
apiVersion: {version}
kind: {kind}
metadata:
  name: {name}
  namespace: {namespace}
  uid: u{v}
  creationTimestamp: 2026-01-0{}T00:00:00Z
  labels: {{v: '{v}', endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io, kubernetes.io/service-name: {}, maglor.dev/proxy-service: n{}, topology.kubernetes.io/zone: z{v}}}
  annotations: {{maglor.dev/injected: '{}', maglor.dev/mtls: '{}', maglor.dev/proxy-account: sa{}}}
{text}
",
        v + 1,
        ["n0", "n1", "n0-target"][v % 3],
        v / 2,
        v > 0,
        ["strict", "permissive", "", "strict"][v],
        v % 2,
    );
    support::objects(&header).remove(0)
}

/// The result of all changes.
fn follow(seen: &mut BTreeMap<ResourceId, Resource>, changes: Changes) {
    for change in changes.resources {
        match change {
            Change::Remove(id) => {
                assert!(seen.remove(&id).is_some(), "{id:?} was not there");
            }
            Change::Set(id, resource) => {
                assert_ne!(
                    seen.insert(id.clone(), resource.clone()),
                    Some(resource),
                    "{id:?}"
                );
            }
        }
    }
}

fn check(steps: &[Step]) {
    let mut index = Index::default();
    let mut there: BTreeMap<(Kind, Key), Object> = BTreeMap::new();
    let mut seen = BTreeMap::new();
    for step in steps {
        let object = object(*step);
        let id = (object.kind, object.key.clone());
        if step.delete {
            index.delete(object.kind, &object.key);
            there.remove(&id);
        } else {
            index.apply(object.clone());
            there.insert(id, object);
        }
        if step.ask {
            follow(&mut seen, index.changes());
        }
    }
    follow(&mut seen, index.changes());
    let found = support::published(&index);

    let mut scratch = Index::default();
    for kind in Kind::ALL {
        let of_kind = there.values().filter(|object| object.kind == kind);
        scratch.reset(kind, of_kind.cloned().collect(), &[]);
    }
    scratch.changes();
    let expected = support::published(&scratch);
    assert_eq!(support::rendered(&found), support::rendered(&expected));

    // The published changes add up to the state.
    let holds: BTreeMap<_, _> = index
        .resources()
        .map(|(id, resource)| (id.clone(), resource.clone()))
        .collect();
    assert_eq!(seen, holds);
}

#[test]
fn the_order_does_not_matter() {
    runner(6, 200)
        .run(&steps(), |steps| {
            check(&steps);
            Ok(())
        })
        .unwrap();
}
