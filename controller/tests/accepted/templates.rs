//! Resources that are right, with a field of nearly every sort that holds a text.

use serde::Deserialize as _;
use serde_json::Value;

/// The objects that the others refer to: they are not changed.
pub(super) const AROUND: &str = "
apiVersion: v1
kind: Service
metadata: {name: a, namespace: n}
spec: {clusterIP: 10.0.0.1, ports: [{port: 80, name: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: b, namespace: n}
spec: {clusterIP: 10.0.0.2, ports: [{port: 80, name: http}, {port: 81, name: http-2}]}
---
apiVersion: v1
kind: Service
metadata: {name: c, namespace: n}
spec: {clusterIP: 10.0.0.3, ports: [{port: 80, name: grpc}]}
---
apiVersion: v1
kind: Service
metadata: {name: d, namespace: n}
spec: {clusterIP: None, ports: [{port: 80, name: http}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a-1, namespace: n, labels: {kubernetes.io/service-name: a, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.0.1], nodeName: n1, targetRef: {kind: Pod, name: a1}}]
---
apiVersion: v1
kind: Pod
metadata: {name: a1, namespace: n, labels: {app: a, version: v1}, annotations: {maglor.dev/injected: 'true'}}
spec: {serviceAccountName: a, nodeName: n1}
status: {podIPs: [{ip: 10.1.0.1}], conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: maglor}
spec: {controllerName: maglor.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: n}
spec:
  gatewayClassName: maglor
  listeners:
  - {name: all, port: 80, protocol: HTTP}
  - {name: shop, port: 80, protocol: HTTP, hostname: '*.shop.example'}
";

const CHANGED: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: route, namespace: n}
spec:
  parentRefs: [{group: '', kind: Service, name: a}]
  rules:
  - name: first
    matches:
    - path: {type: PathPrefix, value: /x}
      method: GET
      headers: [{name: x-m, value: exact}, {type: RegularExpression, name: x-r, value: 'a+'}]
      queryParams: [{name: q, value: v}]
    - path: {type: Exact, value: /y}
    - path: {type: RegularExpression, value: '/z[0-9]+'}
    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier: {set: [{name: x-set, value: one}], add: [{name: x-add, value: two}], remove: [x-gone]}
    - type: ResponseHeaderModifier
      responseHeaderModifier: {set: [{name: x-out, value: three}]}
    - type: RequestMirror
      requestMirror: {backendRef: {name: b, port: 80}}
    backendRefs:
    - {name: a, port: 80, weight: 3, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: x-b, value: four}]}}]}
    - {name: b, port: 80, weight: 1}
    timeouts: {request: 10s, backendRequest: 2s}
    retry: {codes: [503], attempts: 2, backoff: 100ms}
  - matches: [{path: {type: PathPrefix, value: /v}}]
    filters: [{type: URLRewrite, urlRewrite: {hostname: a.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /w}}}]
    backendRefs: [{name: b, port: 80}]
  - matches: [{path: {value: /old}}]
    filters: [{type: RequestRedirect, requestRedirect: {scheme: https, hostname: new.example, path: {type: ReplaceFullPath, replaceFullPath: /new}, statusCode: 301}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: beside, namespace: n}
spec:
  parentRefs: [{group: '', kind: Service, name: a}]
  rules:
  - name: first
    matches: [{path: {value: /beside}}]
    filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-set, value: beside}]}}]
    backendRefs: [{name: a, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: grpc, namespace: n}
spec:
  parentRefs: [{group: '', kind: Service, name: c, port: 80}]
  rules:
  - matches:
    - method: {service: shop.Cart, method: Add}
      headers: [{name: x-m, value: exact}]
    - method: {type: RegularExpression, service: 'shop[.].*'}
    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier: {set: [{name: x-set, value: one}]}
    backendRefs: [{name: c, port: 80}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: istio, namespace: n}
spec:
  hosts: [b, b.n.svc.cluster.local]
  exportTo: ['*']
  http:
  - name: first
    match:
    - uri: {prefix: /x}
      method: {exact: GET}
      authority: {exact: b}
      headers: {x-m: {regex: 'a+'}, x-n: {exact: one}}
      withoutHeaders: {x-w: {prefix: two}}
      queryParams: {q: {exact: v}}
    - uri: {exact: /y}
      ignoreUriCase: true
    route:
    - destination: {host: b, subset: v1, port: {number: 80}}
      weight: 75
      headers: {request: {add: {x-b: four}}}
    - destination: {host: a}
      weight: 25
    headers: {request: {set: {x-set: one, x-other: two}, remove: [x-gone]}, response: {add: {x-out: three}}}
    rewrite: {uri: /w, authority: a.example}
    timeout: 10s
    retries: {attempts: 2, perTryTimeout: 2s, retryOn: '5xx,reset'}
    fault: {delay: {fixedDelay: 5s, percentage: {value: 10}}, abort: {httpStatus: 500, percentage: {value: 1}}}
    mirror: {host: a, port: {number: 80}}
    mirrorPercentage: {value: 12.5}
  - match: [{uri: {regex: '/r(.*)'}}]
    route: [{destination: {host: b}}]
    rewrite: {uriRegexRewrite: {match: '/r(.*)', rewrite: '/s\\1'}}
  - match: [{uri: {prefix: /old}}]
    redirect: {uri: /new, authority: new.example, redirectCode: 302}
  - directResponse: {status: 418, body: {string: teapot}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: rule, namespace: n}
spec:
  host: b
  trafficPolicy:
    loadBalancer: {consistentHash: {httpCookie: {name: c, path: /p, ttl: 60s}}}
    connectionPool: {tcp: {maxConnections: 7, connectTimeout: 3s}, http: {http2MaxRequests: 9, idleTimeout: 30s}}
    outlierDetection: {consecutive5xxErrors: 5, interval: 10s, baseEjectionTime: 30s, maxEjectionPercent: 50}
    portLevelSettings: [{port: {number: 81}, loadBalancer: {consistentHash: {httpHeaderName: x-user}}}]
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}, trafficPolicy: {loadBalancer: {simple: RANDOM}}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: istio, namespace: n}
spec:
  action: DENY
  selector: {matchLabels: {app: a}}
  rules:
  - from: [{source: {principals: [cluster.local/ns/n/sa/a], namespaces: [n], notIpBlocks: [10.0.0.0/8]}}]
    to: [{operation: {methods: [GET], paths: [/admin*], hosts: ['*.example'], notPorts: ['8080']}}]
    when: [{key: source.namespace, values: [n], notValues: [m]}, {key: destination.port, values: ['80']}, {key: 'request.headers[x-role]', values: [admin], notValues: [visitor]}]
---
apiVersion: maglor.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: own, namespace: n}
spec:
  selector: {matchLabels: {app: a}}
  rules:
  - name: first
    from: [{identities: ['spiffe://cluster.local/ns/n/sa/a', '*'], namespaces: [n], trust_domains: [cluster.local], networks: [10.0.0.0/8]}]
    to: [{methods: [GET], paths: [/x, '/y/*'], hosts: [a, '*.example'], ports: ['8080']}]
  - {name: second, action: deny, not_from: [{namespaces: [m]}], not_to: [{paths: ['*.css']}]}
---
apiVersion: maglor.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: istio, namespace: n}
spec: {selector: {matchLabels: {app: a}}, rules: [{name: istio/0, to: [{headers: [{name: x-role, values: [admin, 'root*']}]}]}]}
---
apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: policy, namespace: n}
spec:
  targetRefs: [{kind: Service, name: a}]
  cluster:
    policy: lor(choices=2)
    connect_timeout: 7s
    health_check: {http: {path: /h, host: a.example, expected_statuses: ['200']}, interval: 7s, timeout: 2s}
    locality_weights: {eu/a: 3}
  route:
    timeout: 5s
    retry: {attempts: 3, retry_on: [5xx, '503'], retriable_headers: [{name: x-r, exact: v}]}
    hash_policy: [{cookie: {name: s, ttl: 1h, path: /a}}, {header: x-user}]
    rate_limit: {requests: 10, per: 1m, key: {header: x-user}}
    fault: {abort: {http_status: 503, percent: 1}, headers: [{name: x-f, exact: v}]}
---
apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: wide, namespace: n}
spec: {cluster: {policy: random}, route: {timeout: 9s, hedge: 50ms}}
---
apiVersion: maglor.dev/v1alpha1
kind: MeshConfig
metadata: {name: default}
spec: {mtls: permissive, route: {retry: {attempts: 1, per_try_timeout: 3s}}, cluster: {connect_timeout: 1s}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: peers, namespace: n}
spec: {selector: {matchLabels: {app: a}}, mtls: {mode: STRICT}, portLevelMtls: {'8080': {mode: PERMISSIVE}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: odd, namespace: n}
spec:
  gatewayClassName: maglor
  listeners:
  - {name: all, port: 80, protocol: HTTP}
  - {name: shop, port: 80, protocol: HTTP, hostname: '*.shop.example'}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: front, namespace: n}
spec:
  parentRefs: [{name: web}]
  hostnames: [www.shop.example, '*.b.example']
  rules:
  - matches: [{path: {value: /front}}]
    filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-set, value: front}]}}]
    backendRefs: [{name: a, port: 80}]
";

pub(super) fn all() -> Vec<Value> {
    let documents = serde_yaml::Deserializer::from_str(CHANGED);
    documents
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}
