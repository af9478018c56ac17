//! Which endpoints a Service has, and by which addresses others are called.

use std::collections::BTreeMap;

use maglor_config::raw::Short;
use maglor_controller::index::{Index, Resource};

use super::{POD, TWO, slice};
use crate::support;

/// Permission to write slices in one namespace does not affect the Services and pods of others: a Service keeps its
/// own address, and a pod has none but its own.
#[test]
fn a_slice_does_not_take_a_foreign_address() {
    let strange = |port: u16, endpoint: &str| {
        format!(
            "
apiVersion: v1
kind: Service
metadata: {{name: z, namespace: z}}
spec: {{clusterIP: None, clusterIPs: [None], ports: [{{port: {port}, name: http}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: z-1, namespace: z, labels: {{kubernetes.io/service-name: z}}}}
ports: [{{name: http, port: {port}}}]
endpoints: [{{{endpoint}}}]
"
        )
    };
    let pod = |name: &str, namespace: &str, address: &str| {
        let pod = POD
            .replace("NAME", name)
            .replace("namespace: n", &format!("namespace: {namespace}"));
        format!("{pod}status: {{podIPs: [{{ip: {address}}}]}}\n")
    };
    let headless = TWO.replace("clusterIP: 10.0.0.2", "clusterIP: None");
    let own =
        slice("b", "10.1.0.1").replace("[10.1.0.1]", "[10.1.0.1], targetRef: {kind: Pod, name: p}");
    let own = [headless, own, pod("p", "n", "10.1.0.1")].join("---");
    let others = [
        strange(80, "addresses: [10.0.0.1]"),
        strange(80, "addresses: [10.0.0.1], targetRef: {kind: Pod, name: q}"),
        strange(8080, "addresses: [10.1.0.1]"),
        strange(
            8080,
            "addresses: [10.1.0.1], targetRef: {kind: Pod, name: q}",
        ),
    ];
    let published = |texts: &[&str]| {
        let mut index = Index::default();
        for text in texts {
            for object in support::objects(text) {
                index.apply(object);
            }
            index.changes();
        }
        let mut published = support::published(&index);
        let claimed = ["10.0.0.1:80", "10.1.0.1:8080"];
        published.retain(|(name, _)| {
            let listened = name.strip_prefix("Listener ");
            let of_pod = name.ends_with(" 10.1.0.1:8080");
            of_pod || listened.is_some_and(|name| claimed.contains(&name))
        });
        published
    };
    let alone = published(&[&own]);
    assert_eq!(alone.len(), 5, "{alone:?}");
    let outsider = pod("q", "z", "10.1.0.9");
    for other in &others {
        assert_eq!(published(&[&own, other, &outsider]), alone, "{other}");
        assert_eq!(published(&[other, &outsider, &own]), alone, "{other}");
    }
}

/// A pod whose node has restarted has another address than before, and the old one may belong to another pod, whichever
/// of the pod and its slice is received first.
#[test]
fn an_address_that_a_pod_has_lost_is_no_endpoint() {
    let mut index = Index::default();
    let mut endpoints = |text: &str| {
        for object in support::objects(text) {
            index.apply(object);
        }
        index.changes();
        let list = support::published(&index).into_iter();
        let mut list = list.filter(|(name, _)| name == "Endpoints a.n.svc.cluster.local:80");
        let (_, list) = list.next().unwrap();
        let at = |one: &serde_json::Value| one["at"]["address"].as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(at).collect::<Vec<_>>()
    };
    let slice = |address: &str| {
        let managed = "{endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io, ";
        let slice = slice("a", address).replace("labels: {", &format!("labels: {managed}"));
        slice.replace(
            &format!("[{address}]"),
            &format!("[{address}], targetRef: {{kind: Pod, name: p}}"),
        )
    };
    let pod = |address: &str| format!("{}status: {{podIP: {address}}}\n", POD.replace("NAME", "p"));
    let [old, new, third] = ["10.1.0.1", "10.1.0.2", "10.1.0.3"];
    let whole = [TWO, &slice(old), &pod(old)].join("---");
    assert_eq!(endpoints(&whole), [format!("{old}:8080")]);
    assert_eq!(endpoints(&pod(new)), [""; 0], "the slice is behind");
    assert_eq!(endpoints(&slice(new)), [format!("{new}:8080")]);
    assert_eq!(endpoints(&slice(third)), [""; 0], "the slice is ahead");
    assert_eq!(endpoints(&pod(third)), [format!("{third}:8080")]);
}

/// If some endpoints require mutual TLS and others do not support it, no request goes to an endpoint that rejects it.
#[test]
fn a_pod_without_a_sidecar_takes_no_service_away() {
    let mut index = Index::default();
    // How many endpoints are sent what.
    let mut sent = |text: &str| {
        for object in support::objects(text) {
            index.apply(object);
        }
        index.changes();
        let published: BTreeMap<String, serde_json::Value> =
            support::published(&index).into_iter().collect();
        let of = |kind: &str| &published[&format!("{kind} a.n.svc.cluster.local:80")];
        let list = of("Endpoints").as_array().unwrap().iter();
        let at = |one: &serde_json::Value| {
            let address = one["at"]["address"].as_str().unwrap();
            address[7..8].to_owned()
        };
        let tls = of("Cluster")["tls"].is_object();
        (list.map(at).collect::<String>(), tls)
    };
    let both = |list: &str, tls: bool| (list.to_owned(), tls);
    let pod = |at: usize, sidecar: &str| {
        POD.replace("NAME", &format!("p{at}"))
            .replace("'true'", &format!("'{sidecar}'"))
    };
    let slice = |ends: &str| {
        let endpoint = |at: usize| {
            let terminating = ends.contains(&at.to_string());
            format!(
                "{{addresses: [10.1.0.{at}], targetRef: {{kind: Pod, name: p{at}}}, \
                 conditions: {{ready: {}, serving: true, terminating: {terminating}}}}}",
                !terminating
            )
        };
        let all: Vec<_> = (1..=5).map(endpoint).collect();
        slice("a", "10.9.9.9").replace("{addresses: [10.9.9.9]}", &all.join(", "))
    };
    let pods = [pod(1, "true"), pod(2, "true"), pod(3, "none"), slice("")];
    let whole = [TWO, &pods.join("---")].join("---");
    assert_eq!(sent(&whole), both("123", false), "they take both");
    let namespace = |mode: &str| {
        let annotations = format!("{{maglor.dev/mtls: {mode}}}");
        format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: n, annotations: {annotations}}}}}"
        )
    };
    assert_eq!(sent(&namespace("strict")), both("12", true));
    assert_eq!(sent(&pod(4, "none")), both("12", true), "as many");
    assert_eq!(sent(&pod(5, "none")), both("345", false));
    assert_eq!(
        sent(&slice("45")),
        both("12", true),
        "what ends does not count"
    );
    assert_eq!(sent(&namespace("permissive")), both("12345", false));
    let of_one = "{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {name: p, namespace: n}, \
                  spec: {selector: {matchLabels: {only: this}}, mtls: {mode: STRICT}}}";
    assert_eq!(sent(of_one), both("12345", false));
    let strict = pod(1, "true").replace("namespace: n,", "namespace: n, labels: {only: this},");
    assert_eq!(sent(&strict), both("12", true));
    assert_eq!(
        sent(&slice("")),
        both("2345", false),
        "one of them takes both"
    );
}

/// An invalid locality of an endpoint does not prevent proxies from decoding it.
#[test]
fn any_locality_can_be_published() {
    let long = "n".repeat(250);
    for place in [
        "zone: a/b",
        "zone: ' '",
        "nodeName: q, zone: 'x y'",
        &format!("nodeName: {long}, zone: z"),
    ] {
        let mut index = Index::default();
        let slice = slice("a", "10.1.0.1").replace("[10.1.0.1]", &format!("[10.1.0.1], {place}"));
        for object in support::objects(&[TWO, &slice].join("---")) {
            index.apply(object);
        }
        index.changes();
        let lists = index
            .resources()
            .filter_map(|(_, published)| match published {
                Resource::Endpoints(list) if !list.is_empty() => Some(list),
                _ => None,
            });
        let lists: Vec<_> = lists.collect();
        assert_eq!(lists.len(), 1);
        let described = lists[0].iter().map(|one| Short(one.described.clone()));
        let described: Vec<_> = described.collect();
        let checked = maglor_config::resource::endpoints("a", &described);
        assert!(checked.is_ok(), "{place}: {checked:?}");
    }
}
