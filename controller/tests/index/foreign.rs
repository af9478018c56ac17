//! EndpointSlices with addresses that do not belong to their author (CVE-2021-25740): pods and Services of other
//! namespaces, and the API server.

use maglor_controller::index::Index;
use maglor_controller::index::facts::{Key, Kind};

use crate::support::{objects, published};

/// An attacker's Service `web` in `shop`, sent to an address by a slice that it writes itself.
fn attack(endpoint: &str, written_by: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: shop}}
spec: {{clusterIP: 10.0.0.1, ports: [{{port: 80, name: http}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  namespace: shop
  labels: {{kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: {written_by}}}
ports: [{{name: http, port: 6443}}]
endpoints: [{{{endpoint}}}]
"
    )
}

fn pod(namespace: &str, address: &str, more: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: p, namespace: {namespace}}}
spec: {{nodeName: n1, containers: [{{name: a}}]{more}}}
status: {{podIPs: [{{ip: {address}}}], conditions: [{{type: Ready, status: 'True'}}]}}
"
    )
}

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: admin, namespace: victim}
spec: {clusterIP: 10.1.0.1, ports: [{port: 6443, name: http}]}
";

const API_SERVER: &str = "
apiVersion: v1
kind: Service
metadata: {name: kubernetes, namespace: default}
spec: {clusterIP: 10.0.0.9, ports: [{port: 443, targetPort: 6443, name: https}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
ports: [{name: https, port: 6443}]
endpoints: [{addresses: [10.1.0.1]}]
";

fn index(texts: &[&str]) -> Index {
    let mut index = Index::default();
    for object in texts.iter().flat_map(|text| objects(text)) {
        index.apply(object);
        index.changes();
    }
    index
}

/// Whether requests to the attacker's Service go to the address.
fn is_sent(index: &Index) -> bool {
    let published = published(index);
    let of_web = |(name, _): &&(String, _)| name.starts_with("Endpoints web.shop");
    let found = published.iter().find(of_web);
    found.is_some_and(|(_, value)| value.to_string().contains("10.1.0.1"))
}

const WRITERS: [&str; 2] = ["me", "endpointslice-controller.k8s.io"];

#[test]
fn endpoints_of_others_are_left_out_in_any_order() {
    let victim = pod("victim", "10.1.0.1", "");
    for writer in WRITERS {
        for endpoint in [
            "addresses: [10.1.0.1]",
            "addresses: ['::ffff:10.1.0.1']",
            "addresses: [10.1.0.1], targetRef: {kind: Service, name: x}",
        ] {
            let attack = attack(endpoint, writer);
            for holder in [&*victim, SERVICE, API_SERVER] {
                assert!(
                    !is_sent(&index(&[&attack, holder])),
                    "{writer} {endpoint} {holder}"
                );
                assert!(
                    !is_sent(&index(&[holder, &attack])),
                    "{writer} {endpoint} {holder}"
                );
            }
        }
        // Named as the attacker's own pod, which has another address, or none so far.
        let named = attack(
            "addresses: [10.1.0.1], targetRef: {kind: Pod, name: p}",
            writer,
        );
        for own in [pod("shop", "10.1.0.7", ""), pod("shop", "''", "")] {
            assert!(!is_sent(&index(&[&named, &own, &victim])), "{writer} {own}");
            assert!(!is_sent(&index(&[&victim, &own, &named])), "{writer} {own}");
        }
    }
}

#[test]
fn what_is_its_writers_or_outside_of_the_cluster_counts() {
    let plain = attack("addresses: [10.1.0.1]", "me");
    assert!(is_sent(&index(&[&plain])), "no part of the cluster has it");
    assert!(is_sent(&index(&[&plain, &pod("shop", "10.1.0.1", "")])));
    // Pods in their node's network share its address.
    let on_node = pod("victim", "10.1.0.1", ", hostNetwork: true");
    assert!(is_sent(&index(&[&plain, &on_node])));
    // A node has one address for the API server and all else.
    let elsewhere = plain.replace("6443", "9100");
    let published = published(&index(&[&elsewhere, API_SERVER]));
    let of_web = published
        .iter()
        .find(|(name, _)| name.starts_with("Endpoints web.shop"));
    assert!(of_web.unwrap().1.to_string().contains("10.1.0.1:9100"));
    // The API server's own Service leads there.
    let own = published
        .iter()
        .find(|(name, _)| name.starts_with("Endpoints kubernetes.default"));
    assert!(own.unwrap().1.to_string().contains("10.1.0.1:6443"));
}

#[test]
fn it_counts_again_when_the_others_have_gone() {
    let mut index = index(&[
        &attack("addresses: [10.1.0.1]", "me"),
        &pod("victim", "10.1.0.1", ""),
    ]);
    assert!(!is_sent(&index));
    index.delete(Kind::Pod, &Key::new("victim", "p"));
    index.changes();
    assert!(is_sent(&index));
    for object in objects(SERVICE) {
        index.apply(object);
    }
    index.changes();
    assert!(!is_sent(&index));
}
