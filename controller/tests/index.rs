//! Output of the index for given resources: `index/CASE.yaml` has the resources, `index/CASE.expected` the output.
//! `UPDATE=1` rewrites the latter: read the difference.

mod borders;
mod closed;
mod endpoints;
mod external;
mod foreign;
mod levels;

use std::path::Path;

use maglor_controller::index::facts::{Key, Kind};
use maglor_controller::index::{Change, Index, Resource};

use crate::support;

#[test]
fn resources_lead_to_what_is_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/index");
    let mut cases = 0;
    let mut stale = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        cases += 1;
        let mut index = Index::default();
        for object in support::objects(&std::fs::read_to_string(&path).unwrap()) {
            index.apply(object);
        }
        index.changes();
        let text = support::rendered(&support::published(&index));
        let expected = path.with_extension("expected");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&expected, &text).unwrap();
        }
        if std::fs::read_to_string(&expected).unwrap_or_default() != text {
            stale.push(format!("{}:\n{text}", expected.display()));
        }
    }
    assert!(cases > 5, "the cases were found");
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}

const TWO: &str = "
apiVersion: v1
kind: Service
metadata: {name: a, namespace: n}
spec: {clusterIP: 10.0.0.1, ports: [{port: 80, name: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: b, namespace: n}
spec: {clusterIP: 10.0.0.2, ports: [{port: 80, name: http}]}
";

fn slice(service: &str, addresses: &str) -> String {
    format!(
        "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {service}-1, namespace: n, labels: {{kubernetes.io/service-name: {service}}}}}
ports: [{{name: http, port: 8080}}]
endpoints: [{{addresses: [{addresses}]}}]
"
    )
}

fn names(changes: &[Change]) -> Vec<String> {
    let name = |change: &Change| match change {
        Change::Remove(id) => format!("- {:?} {}", id.kind, id.name),
        Change::Set(id, _) => format!("+ {:?} {}", id.kind, id.name),
    };
    changes.iter().map(name).collect()
}

/// After a route is removed, its former parents no longer refer to it.
#[test]
fn a_route_that_is_attached_to_nothing_of_the_mesh_loses_its_status() {
    let route = |parent: &str| {
        let text = format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: r, namespace: n}}, \
             spec: {{parentRefs: [{parent}], rules: [{{backendRefs: [{{name: a, port: 80}}]}}]}}}}"
        );
        support::objects(&text).remove(0)
    };
    let reported = |index: &mut Index| {
        let changes = index.changes().statuses;
        let routes = changes.into_iter().filter(|one| one.0 == Kind::HttpRoute);
        let json = routes.map(|(_, _, status)| status.map(|status| status.to_json()));
        json.collect::<Vec<_>>()
    };
    let mut index = Index::default();
    index.apply(route("{group: '', kind: Service, name: a}"));
    let first = reported(&mut index).remove(0).unwrap();
    assert_eq!(first["parents"].as_array().unwrap().len(), 1);
    index.apply(route("{name: of-another}"));
    let left = reported(&mut index);
    assert_eq!(left, [Some(serde_json::json!({"parents": []}))]);
    index.delete(Kind::HttpRoute, &Key::new("n", "r"));
    assert!(reported(&mut index).is_empty());
}

/// When the address of a removed Service is reused, the new Service applies, in any order of events.
#[test]
fn an_address_goes_from_one_service_to_another() {
    let service = |name: &str| {
        let text = TWO.split("---").next().unwrap();
        support::objects(&text.replace("name: a,", &format!("name: {name},"))).remove(0)
    };
    let key = |name: &str| Key::new("n", name);
    let reported = |index: &mut Index| {
        let changes = names(&index.changes().resources);
        let of_address = changes
            .into_iter()
            .filter(|one| one.contains("10.0.0.1:80"));
        of_address.collect::<Vec<_>>()
    };
    let mut index = Index::default();
    index.apply(service("b"));
    assert_eq!(reported(&mut index), ["+ Listener 10.0.0.1:80"]);
    // At once, as a file that is replaced; then the new one first, and the old one first.
    index.delete(Kind::Service, &key("b"));
    index.apply(service("a"));
    assert_eq!(reported(&mut index), ["+ Listener 10.0.0.1:80"]);
    index.apply(service("c"));
    assert_eq!(reported(&mut index), ["+ Listener 10.0.0.1:80"]);
    index.delete(Kind::Service, &key("a"));
    assert_eq!(reported(&mut index), [""; 0]);
    index.delete(Kind::Service, &key("c"));
    assert_eq!(reported(&mut index), ["- Listener 10.0.0.1:80"]);
}

/// An endpoint that comes changes the endpoints of its Service, and nothing else.
#[test]
fn only_what_changed_is_given_again() {
    let mut index = Index::default();
    let apply = |index: &mut Index, text: &str| {
        for object in support::objects(text) {
            index.apply(object);
        }
        names(&index.changes().resources)
    };
    apply(&mut index, TWO);
    let endpoints = "+ Endpoints a.n.svc.cluster.local:80";
    assert_eq!(apply(&mut index, &slice("a", "10.1.0.1")), [endpoints]);
    assert!(
        apply(&mut index, &slice("a", "10.1.0.1")).is_empty(),
        "nothing has changed"
    );
    assert!(apply(&mut index, TWO).is_empty(), "nothing has changed");
    assert_eq!(apply(&mut index, &slice("a", "10.1.0.2")), [endpoints]);
}

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: n, annotations: {maglor.dev/injected: 'true'}}
spec: {serviceAccountName: a}
";

/// Slices and pods have watches of their own, and either may be behind. A pod that is not known is no pod
/// without a sidecar: what goes to the others stays under mutual TLS.
#[test]
fn a_slice_that_is_ahead_of_the_pods_or_behind_them_changes_no_tls() {
    let mut index = Index::default();
    let apply = |index: &mut Index, text: &str| {
        for object in support::objects(text) {
            index.apply(object);
        }
        names(&index.changes().resources)
    };
    let slice = |pods: &str| {
        let of = |(at, pod): (usize, &str)| {
            format!("{{addresses: [10.1.0.{at}], targetRef: {{kind: Pod, name: {pod}}}}}")
        };
        let endpoints: Vec<_> = pods.split(' ').enumerate().map(of).collect();
        slice("a", "10.9.9.9").replace(
            "endpoints: [{addresses: [10.9.9.9]}]",
            &format!("endpoints: [{}]", endpoints.join(", ")),
        )
    };
    let pod = |name: &str| POD.replace("NAME", name);
    apply(&mut index, TWO);
    apply(&mut index, &pod("p0"));
    let endpoints = "+ Endpoints a.n.svc.cluster.local:80";
    let published = apply(&mut index, &slice("p0"));
    assert_eq!(
        published,
        [
            "+ Cluster a.n.svc.cluster.local:80",
            endpoints,
            "+ Inbound n/p0"
        ],
        "mutual TLS"
    );
    assert!(
        apply(&mut index, &slice("p0 p1")).is_empty(),
        "the slice is ahead"
    );
    let published = apply(&mut index, &pod("p1"));
    assert_eq!(published, [endpoints, "+ Inbound n/p1"]);
    index.delete(Kind::Pod, &Key::new("n", "p0"));
    let published = names(&index.changes().resources);
    assert_eq!(
        published,
        [endpoints, "- Inbound n/p0"],
        "the slice is behind"
    );
    assert!(apply(&mut index, &slice("p0 p1")).is_empty());
}

/// Locality depends on the caller: the location of a proxy without inbound side, such as that of a Gateway, is known
/// where it runs, too, and followed where its node gets a zone later.
#[test]
fn a_pod_that_only_calls_is_somewhere_too() {
    let mut index = Index::default();
    let places = |index: &mut Index, text: &str| {
        for object in support::objects(text) {
            index.apply(object);
        }
        let places = index.changes().places.into_iter();
        let text = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
        let said = places.map(|(pod, place)| {
            let place = place.map(|place| format!("{} {}", text(place.node), text(place.zone)));
            format!("{pod}: {}", text(place))
        });
        said.collect::<Vec<_>>()
    };
    let pod = |name: &str, injected: &str| {
        let pod = POD.replace("NAME", name).replace("'true'", injected);
        pod.replace("serviceAccountName: a", "nodeName: n1")
    };
    let pods = [
        pod("caller", "outbound"),
        pod("both", "'true'"),
        pod("none", "'no'"),
    ];
    let reported = places(&mut index, &pods.join("---"));
    assert_eq!(reported, ["n/both: n1 -", "n/caller: n1 -"]);
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/zone: z}}}";
    let reported = places(&mut index, node);
    assert_eq!(reported, ["n/both: n1 z", "n/caller: n1 z"]);
    index.delete(Kind::Pod, &Key::new("n", "caller"));
    assert_eq!(places(&mut index, ""), ["n/caller: -"]);
}

/// Of a pod that has ended nothing is left but its record, however long that is kept.
#[test]
fn a_pod_that_has_ended_is_none() {
    let mut index = Index::default();
    let phase = |phase: &str| format!("{}status: {{phase: {phase}}}\n", POD.replace("NAME", "job"));
    for ended in ["Succeeded", "Failed"] {
        for object in support::objects(&phase("Running")) {
            index.apply(object);
        }
        let changes = index.changes();
        assert_eq!(names(&changes.resources).last().unwrap(), "+ Inbound n/job");
        assert_eq!(changes.places.len(), 1);
        for object in support::objects(&phase(ended)) {
            index.apply(object);
        }
        let changes = index.changes();
        assert_eq!(names(&changes.resources), ["- Inbound n/job"]);
        assert_eq!(changes.places, [(Key::new("n", "job"), None)]);
        assert!(index.topology().pods.is_empty());
        index.delete(Kind::Pod, &Key::new("n", "job"));
        assert!(index.changes().resources.is_empty());
    }
}

/// Referenced resources are published before those that refer to them, and removed after them.
#[test]
fn changes_are_made_before_they_are_broken() {
    let mut index = Index::default();
    for object in support::objects(TWO) {
        index.apply(object);
    }
    let order = |changes: &[Change]| -> Vec<String> {
        let words = names(changes).into_iter();
        let mut words: Vec<String> = words
            .map(|name| name.split(' ').take(2).collect::<Vec<_>>().join(" "))
            .collect();
        words.dedup();
        words
    };
    let come = order(&index.changes().resources);
    assert_eq!(come, ["+ Cluster", "+ Endpoints", "+ Listener", "+ Routes"]);
    for object in support::objects(TWO) {
        index.delete(object.kind, &object.key);
    }
    let go = order(&index.changes().resources);
    assert_eq!(go, ["- Routes", "- Listener", "- Endpoints", "- Cluster"]);
}

/// The calls of a Deployment's pods are prefetched by its new pods, and by no others.
#[test]
fn what_others_of_its_kind_have_called_a_pod_asks_for_ahead() {
    let pod = |name: &str, owner: &str| {
        format!(
            "
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: n
  labels: {{pod-template-hash: 5d4f}}
  annotations: {{maglor.dev/injected: 'true'}}
  ownerReferences: [{{kind: ReplicaSet, name: {owner}-5d4f, controller: true}}]
spec: {{serviceAccountName: {owner}, containers: []}}
"
        )
    };
    let mut index = Index::default();
    let others = [pod("web-1", "web"), pod("cart-1", "cart")].join("---");
    for object in support::objects(&format!("{TWO}---{others}")) {
        index.apply(object);
    }
    index.changes();
    let (web, port) = (Key::new("n", "web"), |service: &str, port| {
        (Key::new("n", service), port)
    });
    // Unknown ports and removed Services are not prefetched.
    let called = [port("a", 80), port("b", 81), port("gone", 80)];
    index.set_called([(web.clone(), called.into())].into());
    let ahead = |changes: &[Change]| -> Vec<(String, Vec<String>)> {
        let reported = changes.iter().filter_map(|change| match change {
            Change::Set(id, Resource::Inbound(one)) => Some((id.name.clone(), one.ahead.clone())),
            _ => None,
        });
        reported.collect()
    };
    let reported = |pod: &str| (pod.to_owned(), vec!["10.0.0.1:80".to_owned()]);
    assert_eq!(ahead(&index.changes().resources), [reported("n/web-1")]);
    // A new one gets it immediately.
    for object in support::objects(&pod("web-2", "web")) {
        index.apply(object);
    }
    assert_eq!(ahead(&index.changes().resources), [reported("n/web-2")]);
    index.set_called([(web, [port("a", 80)].into())].into());
    assert!(index.changes().resources.is_empty(), "nothing is different");
}
