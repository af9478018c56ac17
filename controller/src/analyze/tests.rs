mod gateways;

use super::*;

/// All problems, in order, each by its beginning.
fn found_are(analysis: &Analysis, expected: &[&str]) {
    let found: Vec<String> = analysis.problems.iter().map(ToString::to_string).collect();
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{expected}: {found}");
    }
    assert_eq!(found.len(), expected.len(), "{found:?}");
}

/// All problems, in any order, each given by a part of its message.
fn found_have(analysis: &Analysis, expected: &[&str]) {
    let found: Vec<String> = analysis.problems.iter().map(ToString::to_string).collect();
    let all = found.join("\n");
    for expected in expected {
        assert!(all.contains(expected), "{expected}:\n{all}");
    }
    assert_eq!(found.len(), expected.len(), "{all}");
}

#[test]
fn what_is_not_done_is_named_with_its_line() {
    let text = "# Two resources.
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
metadata: {name: a, namespace: shop}
spec:
  hosts: [a]
  http:
  - match:
    - sourceLabels: {app: b}
    route: [{destination: {host: a}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: s}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: shop}
spec:
  host: a
  trafficPolicy:
    connectionPool:
      tcp:
        tcpKeepalive: {time: 60s}
---
apiVersion: v1
kind: Service
metadata: {name: a, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a, namespace: shop}
spec:
  parentRefs: [{group: '', kind: Service, name: a}]
  rules:
  - backendRefs: [{name: b, port: 80}]
---
a: [
";
    let analysis = analyze(&[("a.yaml".to_owned(), text.to_owned())]);
    assert_eq!((analysis.resources, analysis.others), (4, 1));
    let found: Vec<String> = analysis.problems.iter().map(ToString::to_string).collect();
    let expected = [
        "a.yaml:9: error: VirtualService shop/a: spec.http[0].match[0].sourceLabels: not supported (UnsupportedValue)",
        "a.yaml:24: warning: DestinationRule shop/a: spec.trafficPolicy.connectionPool.tcp.tcpKeepalive: not supported (PartiallySupported)",
        "a.yaml:33: warning: HTTPRoute shop/a: Service shop/b does not exist (BackendNotFound)",
    ];
    assert_eq!(found[..3], expected);
    assert!(
        found[3].starts_with("a.yaml:40: error: document: "),
        "{}",
        found[3]
    );
    assert_eq!(found.len(), 4);
}

#[test]
fn every_kind_of_the_meshs_own_is_looked_at() {
    let text = "--- # The first.
{apiVersion: maglor.dev/v1alpha1, kind: ProxyService, metadata: {name: a}, spec: {targetRef: {name: web}}}
---
apiVersion: maglor.dev/v1alpha1
kind: ProxyService
metadata: {name: b}
spec:
  targetRef: {name: web}
  replicas: 0
---
apiVersion: maglor.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: c}
spec:
  namespaces: [shop]
  windows: 0
---
apiVersion: maglor.dev/v1alpha1
kind: CommunicationGraph
metadata: {name: default}
spec: {maxEdges: 3000}
---
apiVersion: maglor.dev/v1alpha1
kind: TraficPolicy
metadata: {name: d}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: e}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: f}
data: {a: 1, a: 2}
";
    let analysis = analyze(&[("a.yaml".to_owned(), text.to_owned())]);
    assert_eq!((analysis.resources, analysis.others), (4, 2));
    let found: Vec<String> = analysis.problems.iter().map(ToString::to_string).collect();
    let expected = [
        "a.yaml:2: warning: ProxyService a: spec.targetRef: there is no Service web (TargetNotFound)",
        "a.yaml:9: error: ProxyService b: spec.replicas: must be 1 to 100 (Invalid)",
        "a.yaml:16: error: PlacementPolicy c: spec.windows: must be 1 to 1000 (Invalid)",
        "a.yaml:21: error: CommunicationGraph default: spec.maxEdges: must be 0 to 2000 (Invalid)",
        "a.yaml:25: error: TraficPolicy d: unknown kind in `maglor.dev/v1alpha1`; did you mean `TrafficPolicy`? (UnknownKind)",
        "a.yaml:29: warning: EnvoyFilter e: `networking.istio.io/v1alpha3` EnvoyFilter is not supported and has no effect; proxies have no extensions; use a TrafficPolicy for rate limits, faults, retries and limits, an HTTPRoute for headers (UnsupportedKind)",
        "a.yaml:34: error: document: `a` is defined twice (Unreadable)",
    ];
    assert_eq!(found, expected);
}

/// All reasons that keep a resource from being in force are reported together, including those for routes to ports
/// without requests.
#[test]
fn nothing_is_in_force_in_vain() {
    let text = "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: shop}
spec:
  hosts: [a]
  http:
  - route: [{destination: {host: a}}]
    corsPolicy: {}
  tcp: []
---
apiVersion: v1
kind: Service
metadata: {name: a, namespace: shop}
spec: {ports: [{port: 80, name: http}, {port: 5432, name: tcp-db}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: b, namespace: shop}
spec:
  parentRefs: [{group: '', kind: Service, name: a, port: 5432}]
  rules: [{backendRefs: [{name: a, port: 80}]}]
";
    let analysis = analyze(&[("a.yaml".to_owned(), text.to_owned())]);
    found_are(
        &analysis,
        &[
            "a.yaml:8: error: VirtualService shop/a: spec.http[0].corsPolicy: not supported; answer CORS in the application",
            "a.yaml:9: error: VirtualService shop/a: spec.tcp: only `http` is supported; remove it: connections go to the Service that the application called (UnsupportedValue)",
            "a.yaml:18: warning: HTTPRoute shop/b: requests cannot be routed on port 5432 of Service shop/a",
        ],
    );
}

/// An API server would reject these values, so they must not be reported as valid.
#[test]
fn what_is_not_of_its_type_is_named() {
    let text = "apiVersion: maglor.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: a}
spec:
  rules:
  - from:
    - namespaces: shop
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: b}
spec:
  parentRefs: [{group: '', kind: Service, name: web}]
  rules:
  - timeouts: {request: 5}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: c}
spec:
  parentRefs: web
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
";
    let analysis = analyze(&[("a.yaml".to_owned(), text.to_owned())]);
    assert_eq!((analysis.resources, analysis.others), (4, 0));
    found_are(
        &analysis,
        &[
            "a.yaml:7: error: AuthorizationPolicy a: spec.rules[0].from[0].namespaces: expected a list",
            "a.yaml:12: error: HTTPRoute default/b: spec: invalid type: integer `5`, expected a string",
            "a.yaml:21: error: GRPCRoute c: spec.parentRefs: ",
        ],
    );
}

#[test]
fn labels_and_annotations_that_do_nothing_are_named_with_their_line() {
    let text = "apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels:
    maglor.dev/inject: enabled
  annotations:
    maglor.dev/mtls: stict
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata:
      annotations:
        maglor.dev/log-level: debug
        maglor.dev/skip-inbound-port: '22'
---
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
  annotations:
    maglor.dev/mtls: strict
spec: {ports: [{port: 80}]}
";
    let analysis = analyze(&[("a.yaml".to_owned(), text.to_owned())]);
    let found: Vec<String> = analysis.problems.iter().map(ToString::to_string).collect();
    let pod = "spec.template.metadata.annotations";
    let expected = [
        "a.yaml:8: error: Namespace shop: metadata.annotations.maglor.dev/mtls: unknown value `stict`, expected one of `permissive`, `strict` (Invalid)".to_owned(),
        format!("a.yaml:18: warning: Deployment web: {pod}.maglor.dev/skip-inbound-port: unknown key; did you mean `maglor.dev/skip-inbound-ports`? (UnknownKey)"),
        "a.yaml:26: warning: Service web: metadata.annotations.maglor.dev/mtls: ignored here; allowed as annotation of namespaces (MisplacedKey)".to_owned(),
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_would_be_in_force_is_no_problem() {
    let text = "{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {name: default, namespace: istio-system}, spec: {mtls: {mode: STRICT}}}";
    let analysis = analyze(&[("a.json".to_owned(), text.to_owned())]);
    assert_eq!((analysis.resources, analysis.problems.len()), (1, 0));
}

/// Rules without effect are errors; each error is reported once, with the correction.
#[test]
fn what_has_no_effect_is_an_error() {
    let text = "apiVersion: v1
kind: Service
metadata: {name: a, namespace: shop}
spec: {ports: [{port: 80, name: http}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: shop}
spec:
  host: a
  subsets: [{name: v1, labels: {version: v1}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: shop}
spec:
  hosts: [a, '*.example']
  http:
  - route: [{destination: {host: a, subset: v9}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: b, namespace: shop}
spec:
  host: reviews.com
  trafficPolicy:
    connectionPool:
      tcp:
        tcpKeepalive: {time: 60s}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: a, namespace: shop}
spec:
  rules:
  - to: [{operation: {paths: ['/a/{*}']}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: d, namespace: shop}
spec:
  http:
  - delegate: {name: x}
---
apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: t, namespace: shop}
spec:
  cluster:
    limits: {max_requests: 0}
    panic_threshold: 101
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: shop}
spec:
  parentRefs: [{group: '', kind: Service, name: gone}]
  rules: [{backendRefs: [{name: gone, port: 80}]}]
";
    let analysis = analyze(&[("a.yaml".to_owned(), text.to_owned())]);
    found_have(
        &analysis,
        &[
            "a.yaml:17: error: VirtualService shop/a: spec.hosts[1]: `*.example`: wildcard hosts are not supported; name each Service",
            "error: VirtualService shop/a: spec.http[0]: the DestinationRule of Service shop/a has no subset `v9`; it has v1 (SubsetNotFound)",
            "warning: DestinationRule shop/b: spec.host: there is no Service com/reviews: `reviews.com` refers to Service reviews of namespace com",
            "warning: DestinationRule shop/b: spec.trafficPolicy.connectionPool.tcp.tcpKeepalive: not supported (PartiallySupported)",
            "error: AuthorizationPolicy shop/a: spec.rules[0].to[0].operation.paths: the path template `/a/{*}` is not supported, write paths",
            "error: VirtualService shop/d: spec.hosts: missing `hosts`: a VirtualService that another one delegates to is not supported",
            "error: VirtualService shop/d: spec.http[0].delegate: not supported; write the rules",
            "error: TrafficPolicy shop/t: spec.cluster.limits.max_requests: ",
            "error: TrafficPolicy shop/t: spec.cluster.panic_threshold: ",
            "warning: HTTPRoute shop/r: there is no Service shop/gone (NoMatchingParent)",
        ],
    );
}

#[test]
fn all_faults_of_a_route_are_named_at_once() {
    let text = "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a, namespace: shop}
spec:
  parentRefs: [{group: '', kind: Service, name: a}]
  hostnames: ['10.0.0.1', ok.example, 'a_b']
  rules:
  - matches: [{path: {type: PathPrefix, value: /a}}, {path: {type: Near, value: /a}}]
    filters: [{type: ExtensionRef}, {type: CORS}]
    timeouts: {request: soon, backendRequest: later}
    sessionPersistence: {}
    backendRefs: [{name: a, port: 80, filters: [{type: URLRewrite}]}]
  - matches: [{path: {type: RegularExpression, value: '('}}]
    backendRefs: [{name: a, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: a, namespace: shop}
spec: {ports: [{port: 80}]}
";
    let analysis = analyze(&[("a.yaml".to_owned(), text.to_owned())]);
    let found: Vec<String> = analysis.problems.iter().map(ToString::to_string).collect();
    for expected in [
        "a.yaml:6: error: HTTPRoute shop/a: spec.hostnames[0]: ",
        "a.yaml:6: error: HTTPRoute shop/a: spec.hostnames[2]: ",
        "a.yaml:8: error: HTTPRoute shop/a: spec.rules[0].matches[1]",
        "a.yaml:9: error: HTTPRoute shop/a: spec.rules[0].filters[0].type: ",
        "a.yaml:9: error: HTTPRoute shop/a: spec.rules[0].filters[1].type: ",
        "a.yaml:10: error: HTTPRoute shop/a: spec.rules[0].timeouts.request: ",
        "a.yaml:10: error: HTTPRoute shop/a: spec.rules[0].timeouts.backendRequest: ",
        "a.yaml:11: error: HTTPRoute shop/a: spec.rules[0].sessionPersistence: ",
        "a.yaml:12: error: HTTPRoute shop/a: spec.rules[0].backendRefs[0].filters[0].type: ",
        "a.yaml:13: error: HTTPRoute shop/a: spec.rules[1]",
    ] {
        let times = found.iter().filter(|one| one.starts_with(expected)).count();
        assert_eq!(times, 1, "{expected}: {found:#?}");
    }
    assert_eq!(analysis.problems.len(), 10, "{found:#?}");
}

/// A pod that an Istio label excludes still gets a sidecar of this mesh.
#[test]
fn keys_of_istio_are_named() {
    let text = "apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio-injection: enabled}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {istio.io/tag: a}}
spec:
  template:
    metadata:
      labels: {sidecar.istio.io/inject: 'false', app: web}
      annotations: {proxy.istio.io/config: '{}', notistio.io/a: b}
";
    let analysis = analyze(&[("a.yaml".to_owned(), text.to_owned())]);
    let found: Vec<String> = analysis.problems.iter().map(ToString::to_string).collect();
    let expected = [
        "a.yaml:3: warning: Namespace shop: metadata.labels.istio-injection: ignored; write `maglor.dev/inject` (UnknownKey)",
        "a.yaml:11: warning: Deployment web: spec.template.metadata.labels.sidecar.istio.io/inject: ignored; write `maglor.dev/inject` (UnknownKey)",
        "a.yaml:12: warning: Deployment web: spec.template.metadata.annotations.proxy.istio.io/config: ignored (UnknownKey)",
    ];
    assert_eq!(found, expected);
}
