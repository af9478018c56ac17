//! Gateways, and the routes to them.

use super::*;

/// A Gateway is judged without the file of its class, and a route with the file of its Gateway only.
#[test]
fn gateways_are_judged_without_their_class() {
    let text = "apiVersion: gateway.networking.k8s.io/v1beta1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: theirs
  listeners: [{name: http, port: 80, protocol: HTTP}, {name: bytes, port: 90, protocol: TCP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a, namespace: shop}
spec:
  parentRefs:
  - {name: web}
  - {name: wbe}
  rules:
  - {filters: [{type: CORS}], backendRefs: [{name: a, port: 80}]}
  - {matches: [{path: {value: x}}], backendRefs: [{name: a, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: g, namespace: shop}
spec: {from: [], to: []}
";
    let analysis = analyze(&[("a.yaml".to_owned(), text.to_owned())]);
    assert_eq!((analysis.resources, analysis.others), (3, 0));
    found_are(
        &analysis,
        &[
            "a.yaml:5: warning: Gateway web: spec.gatewayClassName: GatewayClass `theirs`",
            "a.yaml:6: error: Gateway shop/web: spec.listeners: bytes: `TCP` is not supported",
            "a.yaml:14: error: HTTPRoute a: spec.parentRefs[1]: Gateway shop/wbe is in none of the files",
            "a.yaml:16: error: HTTPRoute shop/a: spec.rules[0].filters[0].type: the filter `CORS`",
            "a.yaml:17: error: HTTPRoute shop/a: spec.rules[1]: match.path.prefix: the path `x`",
        ],
    );
}

/// Fields that are not read, and Gateways of another controller, are named; a namespace can be chosen by its name
/// although no file has that label.
#[test]
fn nothing_of_a_gateway_is_left_out_silently() {
    let text = "apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: theirs}
spec: {controllerName: acme.io/gateway-controller, description: Theirs, parametersRef: {group: a, kind: B, name: c}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: foreign, namespace: shop}
spec: {gatewayClassName: theirs, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: maglor
  infrastructure: {labels: {a: b}, annotations: {c: d}}
  tls: {backend: {clientCertificateRef: {name: x}}}
  listeners:
  - name: http
    port: 80
    protocol: HTTP
    allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {kubernetes.io/metadata.name: other}}}}
  - name: labelled
    port: 81
    protocol: HTTP
    allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: a}}}}
  - {name: udp, port: 53, protocol: UDP, allowedRoutes: {kinds: [{kind: UDPRoute}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a, namespace: other}
spec:
  parentRefs: [{name: web, namespace: shop, sectionName: http}]
  rules:
  - timeouts: {request: 1s, idle: 1s}
    filters:
    - {type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /x}}}
  - filters:
    - {type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: /x}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: b, namespace: shop}
spec: {parentRefs: [{name: web, sectionName: gone}, {name: foreign}, {name: web, sectionName: http}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: c, namespace: other}
spec: {parentRefs: [{name: web, namespace: shop, sectionName: labelled}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
";
    let analysis = analyze(&[("a.yaml".to_owned(), text.to_owned())]);
    found_have(
        &analysis,
        &[
            "a.yaml:9: warning: Gateway foreign: spec.gatewayClassName: GatewayClass `theirs` belongs to controller `acme.io/gateway-controller`, so",
            "a.yaml:17: warning: Gateway web: spec.tls.backend: not supported (PartiallySupported)",
            "error: Gateway shop/web: spec.listeners: udp: `UDP` is not supported",
            "warning: HTTPRoute a: spec.rules[0].timeouts.idle: not supported (PartiallySupported)",
            "error: HTTPRoute shop/b: Gateway shop/web has no listener with this name and port (NoMatchingParent)",
            "warning: HTTPRoute b: spec.parentRefs[1]: Gateway shop/foreign has another controller's class",
            "error: HTTPRoute shop/b: Gateway shop/web does not accept HTTPRoutes of namespace shop (NotAllowedByListeners)",
            "warning: HTTPRoute other/c: Gateway shop/web does not accept HTTPRoutes of namespace other; the labels of that namespace are unknown",
        ],
    );
}
