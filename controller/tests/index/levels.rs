//! Merging the policies of several levels.

use maglor_config::resource;
use maglor_controller::index::{Index, Resource};

use crate::support;

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: a, namespace: n}
spec: {clusterIP: 10.0.0.1, ports: [{port: 80, name: http}]}
";

/// Policies that are valid on each level are also valid when merged, because a proxy accepts a resource as a whole or
/// not at all.
#[test]
fn what_is_right_by_itself_is_right_together() {
    let mesh = [
        "",
        "hedge: {delay: 200ms}}, cluster: {protocol: http2, health_check: {grpc: {}}",
        "hedge: {}, retry: {retry_on: [5xx], per_try_timeout: 300ms}",
        "retry: {retry_on: [5xx], per_try_timeout: 10s}",
    ];
    let service = [
        "",
        "timeout: 100ms}, cluster: {protocol: http1",
        "timeout: 1s, hedge: {delay: 500ms}",
        "retry: {retry_on: [connect-failure]}",
        "retry: {retry_on: [5xx], per_try_timeout: 50ms}",
        "timeout: 30s, hedge: {delay: 20s}",
    ];
    let rule = [
        "",
        "timeouts: {request: 90ms}",
        "timeouts: {request: 1s, backendRequest: 40ms}",
    ];
    let mut hedged = 0;
    for mesh in mesh {
        for service in service {
            for rule in rule {
                let text = format!(
                    "{SERVICE}
---
{{apiVersion: maglor.dev/v1alpha1, kind: MeshConfig, metadata: {{name: default}}, spec: {{route: {{{mesh}}}}}}}
---
{{apiVersion: maglor.dev/v1alpha1, kind: TrafficPolicy, metadata: {{name: a, namespace: n}}, spec: {{route: {{{service}}}}}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: a, namespace: n}}
spec: {{parentRefs: [{{group: '', kind: Service, name: a}}], rules: [{{backendRefs: [{{name: a, port: 80}}], {rule}}}]}}
"
                );
                let mut index = Index::default();
                for object in support::objects(&text) {
                    index.apply(object);
                }
                index.changes();
                for (_, key, status) in index.statuses() {
                    let status = status.to_json().to_string();
                    assert!(!status.contains("\"False\""), "{key}: {status}");
                }
                for (id, published) in index.resources() {
                    let checked = match published {
                        Resource::Routes(table) => {
                            let routes = table.virtual_hosts.iter().flat_map(|host| &host.routes);
                            hedged += routes.filter(|route| route.hedge.is_some()).count();
                            resource::routes(table).err()
                        }
                        Resource::Cluster(cluster) => resource::cluster(cluster, true).err(),
                        _ => None,
                    };
                    assert!(checked.is_none(), "{id:?} of {text}: {checked:?}");
                }
            }
        }
    }
    assert!(hedged > 10, "what makes sense stays: {hedged}");
}

/// Without a timeout, neither a request nor its attempts are limited.
#[test]
fn an_attempt_has_no_limit_by_default() {
    let objects = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a, namespace: n}
spec: {parentRefs: [{group: '', kind: Service, name: a}], rules: [{backendRefs: [{name: a, port: 80}], timeouts: {backendRequest: 20s}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: n}
spec: {hosts: [a], http: [{retries: {attempts: 2, perTryTimeout: 20s}, route: [{destination: {host: a}}]}]}
---
apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: a, namespace: n}
spec: {targetRefs: [{name: a}], route: {retry: {retry_on: [5xx], per_try_timeout: 20s}}}
";
    for object in objects.split("---") {
        let mut index = Index::default();
        for object in support::objects(&[SERVICE, object].join("---")) {
            index.apply(object);
        }
        index.changes();
        for (_, key, status) in index.statuses() {
            let status = status.to_json().to_string();
            assert!(!status.contains("\"False\""), "{key}: {status}");
        }
        let tables = index
            .resources()
            .filter_map(|(_, published)| match published {
                Resource::Routes(table) => Some(table),
                _ => None,
            });
        let routes = tables.flat_map(|table| &table.virtual_hosts[0].routes);
        let per_try: Vec<_> = routes
            .map(|route| {
                route
                    .retry
                    .as_ref()
                    .unwrap()
                    .0
                    .per_try_timeout
                    .unwrap()
                    .0
                    .as_secs()
            })
            .collect();
        assert_eq!(per_try, [20], "{object}");
    }
}

/// Equal backends are merged, and their weights are added, with any sum.
#[test]
fn weights_add_up_to_what_a_proxy_takes() {
    let route = |refs: &str| {
        format!(
            "{SERVICE}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: a, namespace: n}}
spec: {{parentRefs: [{{group: '', kind: Service, name: a}}], rules: [{{backendRefs: [{refs}]}}]}}
"
        )
    };
    let full = "port: 80, weight: 1000000}";
    let missing = format!("{{name: b, {full}, {{name: c, {full}");
    for (refs, expected) in [
        (
            format!("{missing}, {{name: a, {full}"),
            vec![1_000_000, 500_000],
        ),
        (
            format!("{missing}, {{name: a, port: 80}}"),
            vec![1_000_000, 1],
        ),
        (
            format!("{{name: b, {full}, {{name: a, {full}"),
            vec![1_000_000, 1_000_000],
        ),
    ] {
        let mut index = Index::default();
        for object in support::objects(&route(&refs)) {
            index.apply(object);
        }
        index.changes();
        let mut tables = index
            .resources()
            .filter_map(|(_, published)| match published {
                Resource::Routes(table) => Some(table),
                _ => None,
            });
        let table = tables.next().unwrap();
        let checked = resource::routes(table);
        assert!(checked.is_ok(), "{refs}: {checked:?}");
        let shares = &table.virtual_hosts[0].routes[0].clusters;
        let weights: Vec<_> = shares.iter().map(|share| share.weight.unwrap()).collect();
        assert_eq!(weights, expected, "{refs}");
    }
}

/// Names appear in logs and metrics; odd and long names are served all the same.
#[test]
fn whatever_is_called_can_be_served() {
    let (long, rule) = ("r".repeat(250), "s".repeat(200));
    let objects = format!(
        "{SERVICE}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {long}, namespace: n}}
spec:
  parentRefs: [{{group: '', kind: Service, name: a}}]
  rules:
  - {{name: {rule}, matches: [{{path: {{value: /a}}}}, {{path: {{value: /b}}}}], backendRefs: [{{name: a, port: 80}}]}}
  - {{name: {rule}, backendRefs: [{{name: a, port: 80}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: b, namespace: n}}
spec: {{clusterIP: 10.0.0.2, ports: [{{port: 80, name: http}}]}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: b, namespace: n}}
spec: {{hosts: [b], http: [{{name: \"my  route\", route: [{{destination: {{host: b, subset: v 1}}}}]}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: p, namespace: n, annotations: {{maglor.dev/injected: 'true'}}}}
spec: {{serviceAccountName: a}}
---
apiVersion: maglor.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {{name: {long}, namespace: n}}
spec: {{rules: [{{name: {rule}}}, {{name: {rule}t}}]}}
"
    );
    let mut index = Index::default();
    for object in support::objects(&objects) {
        index.apply(object);
    }
    index.changes();
    for (_, key, status) in index.statuses() {
        let status = status.to_json().to_string();
        assert!(!status.contains("\"False\""), "{key}: {status}");
    }
    let (mut routes, mut rules) = (0, Vec::new());
    for (id, published) in index.resources() {
        match published {
            Resource::Routes(table) => {
                let checked = resource::routes(table);
                assert!(checked.is_ok(), "{id:?}: {checked:?}");
                routes += table.virtual_hosts[0].routes.len();
            }
            Resource::Cluster(cluster) => {
                let checked = resource::cluster(cluster, true);
                assert!(checked.is_ok(), "{id:?}: {checked:?}");
            }
            Resource::Inbound(inbound) => {
                let published = inbound.authorization.iter().flat_map(|one| &one.rules);
                rules.extend(published.map(|rule| rule.name.clone().unwrap()));
            }
            _ => {}
        }
    }
    assert_eq!((routes, rules.len()), (4, 2));
    assert!(
        rules[0] != rules[1] && rules.iter().all(|name| name.len() <= 253),
        "{rules:?}"
    );
}
