//! Routes to Services of type ExternalName: names inside of the cluster need the grant of a direct reference
//! (CVE-2021-25740).

use maglor_controller::index::Index;
use maglor_controller::index::facts::{Key, Kind};

use crate::support::{objects, published};

/// An attacker's namespace `shop`: a route of the mesh and one of a Gateway, to `out`, which stands for this name.
fn attack(name: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: shop}}
spec: {{clusterIP: 10.0.0.1, ports: [{{port: 80, name: http}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: out, namespace: shop}}
spec: {{type: ExternalName, externalName: {name}, ports: [{{port: 80, name: http}}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: mesh, namespace: shop}}
spec: {{parentRefs: [{{group: '', kind: Service, name: web}}], rules: [{{backendRefs: [{{name: out, port: 80}}]}}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: entry, namespace: shop}}
spec: {{parentRefs: [{{name: web, namespace: edge}}], rules: [{{backendRefs: [{{name: out, port: 80}}]}}]}}
"
    )
}

const EDGE: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: maglor}
spec: {controllerName: maglor.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: edge}
spec:
  gatewayClassName: maglor
  listeners: [{name: all, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]
";

const VICTIM: &str = "
apiVersion: v1
kind: Service
metadata: {name: admin, namespace: victim}
spec: {clusterIP: 10.0.0.2, ports: [{port: 80, name: http}]}
";

const GRANT: &str = "
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: shop, namespace: victim}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}]
  to: [{group: '', kind: Service, name: admin}]
";

fn index(texts: &[&str]) -> Index {
    let mut index = Index::default();
    for object in texts.iter().flat_map(|text| objects(text)) {
        index.apply(object);
    }
    index.changes();
    index
}

fn apply(index: &mut Index, text: &str) {
    for object in objects(text) {
        index.apply(object);
    }
    index.changes();
}

/// Whether routes lead to the name, and both statuses agree.
fn leads(index: &Index) -> bool {
    let published = published(index);
    let text = |name: &str| {
        let found = published.iter().find(|(one, _)| one == name);
        found
            .map(|(_, value)| value.to_string())
            .unwrap_or_default()
    };
    let tables = published
        .iter()
        .filter(|(name, _)| name.starts_with("Routes "));
    let tables: Vec<bool> = tables
        .map(|(_, table)| table.to_string().contains("\"cluster\":\"out.shop."))
        .collect();
    assert!(
        tables.len() >= 2,
        "of the mesh, and of the Gateway: {published:?}"
    );
    // The listener of `out` itself, which is not a route, always leads to it.
    let routed = tables.iter().filter(|leads| **leads).count() > 1;
    for name in [
        "status of HTTPRoute shop/mesh",
        "status of HTTPRoute shop/entry",
    ] {
        let refused = text(name).contains("RefNotPermitted");
        assert_eq!(routed, !refused, "{name}: {}", text(name));
    }
    routed
}

#[test]
fn a_name_outside_of_the_cluster_needs_no_grant() {
    assert!(leads(&index(&[EDGE, VICTIM, &attack("api.example.com")])));
}

#[test]
fn a_name_of_the_host_or_of_the_api_server_is_refused() {
    for name in [
        "localhost",
        "127.0.0.1",
        "10.0.0.2",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "10-0-0-2.victim.pod.cluster.local",
        "admin",
    ] {
        assert!(
            !leads(&index(&[EDGE, VICTIM, &attack(&format!("'{name}'"))])),
            "{name}"
        );
    }
}

#[test]
fn a_service_of_another_namespace_needs_a_grant() {
    for name in [
        "admin.victim.svc.cluster.local",
        "admin.victim.svc",
        "admin.victim",
        "ADMIN.victim.svc.",
    ] {
        let attack = attack(name);
        let mut index = index(&[EDGE, VICTIM, &attack]);
        assert!(!leads(&index), "{name}");
        apply(&mut index, GRANT);
        assert!(leads(&index), "{name}: granted");
        index.delete(Kind::ReferenceGrant, &Key::new("victim", "shop"));
        index.changes();
        assert!(!leads(&index), "{name}: no more");
    }
    // Its own namespace.
    assert!(leads(&index(&[
        EDGE,
        &attack("web.shop.svc.cluster.local")
    ])));
}

/// The name is written before its Service exists.
#[test]
fn a_service_that_comes_later_is_guarded_too() {
    let mut index = index(&[EDGE, &attack("admin.victim")]);
    assert!(
        leads(&index),
        "there is no such Service, so it is a name of the outside"
    );
    apply(&mut index, VICTIM);
    assert!(!leads(&index));
    index.delete(Kind::Service, &Key::new("victim", "admin"));
    index.changes();
    assert!(leads(&index));
}

#[test]
fn the_domain_of_the_cluster_counts() {
    const CONFIG: &str = "
apiVersion: maglor.dev/v1alpha1
kind: MeshConfig
metadata: {name: default}
spec: {clusterDomain: corp.internal}
";
    let attack = attack("admin.victim.svc.corp.internal");
    let mut index = index(&[EDGE, VICTIM, &attack]);
    assert!(leads(&index), "of another cluster");
    apply(&mut index, CONFIG);
    assert!(!leads(&index));
}
