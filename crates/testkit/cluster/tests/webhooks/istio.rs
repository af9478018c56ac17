//! Istio's resources in a cluster with their definitions.

use maglor_testkit::cluster::Kubectl;
use serde_json::Value;

use crate::support::installed::until;

/// Without the schemas, which are Istio's.
fn definition(group: &str, kind: &str, plural: &str, subresources: &str) -> String {
    let singular = kind.to_lowercase();
    format!(
        "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}, singular: {singular}}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {subresources}
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"
    )
}

/// Fig. 5 of the paper on the communication graph (DOI 10.1371/journal.pone.0344516), and a Service for it.
const FIGURE_5: &str = "
apiVersion: v1
kind: Service
metadata: {name: service-a, namespace: shop}
spec: {selector: {app: service-a}, ports: [{name: http, port: 80}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: a, namespace: shop}
spec: {selector: {matchLabels: {app: unknown}}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: service-a-circuit-breaker, namespace: shop}
spec:
  host: service-a
  trafficPolicy:
    connectionPool:
      tcp: {maxConnections: 100}
      http: {http1MaxPendingRequests: 100, maxRequestsPerConnection: 100}
    outlierDetection: {consecutive5xxErrors: 5, interval: 10s, baseEjectionTime: 30s}
    loadBalancer: {simple: ROUND_ROBIN}
    tls: {mode: DISABLE}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: service-a-retry-timeout, namespace: shop}
spec:
  hosts: [service-a]
  http:
  - route:
    - {destination: {host: service-a, subset: v1}, weight: 70}
    - {destination: {host: service-a, subset: v2}, weight: 30}
    retries: {attempts: 3, perTryTimeout: 2s, retryOn: 'gateway-error,connect-failure,refused-stream'}
    timeout: 5s
";

const ALSO_UNSUPPORTED: &str = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: partly, namespace: shop}
spec:
  hosts: [service-a]
  http:
  - match: [{uri: {prefix: /partly}}]
    corsPolicy: {allowOrigins: [{exact: '*'}]}
    route: [{destination: {host: service-a}}]
";

/// Definitions are installed after the controller has started; their resources take effect, and are removed with them.
pub(crate) fn istio_is_understood(kubectl: &Kubectl) {
    let kinds = [
        // Requests do not wait because its status cannot be written.
        (
            "security.istio.io",
            "AuthorizationPolicy",
            "authorizationpolicies",
            "{}",
        ),
        (
            "networking.istio.io",
            "DestinationRule",
            "destinationrules",
            "{status: {}}",
        ),
        (
            "networking.istio.io",
            "VirtualService",
            "virtualservices",
            "{status: {}}",
        ),
    ];
    for (group, kind, plural, subresources) in kinds {
        kubectl
            .apply(&definition(group, kind, plural, subresources))
            .unwrap();
        let established = format!("crd/{plural}.{group}");
        let wait = ["wait", "--for=condition=Established", "--timeout=30s"];
        kubectl.run(&[&wait[..], &[&established]].concat()).unwrap();
    }
    kubectl.apply(FIGURE_5).unwrap();
    until("the rule is in force", || {
        let rule = ["get", "destinationrule", "service-a-circuit-breaker"];
        let rule = kubectl
            .json(&[&rule[..], &["-n", "shop"]].concat())
            .unwrap();
        rule["status"]["conditions"][0]["reason"] == "Accepted"
    });
    until("proxies are configured with it", || {
        let cluster = stored(kubectl, "cluster");
        cluster.contains("round-robin") && cluster.contains("max_pending_requests")
    });
    until("proxies are configured with the routes", || {
        let routes = stored(kubectl, "routes");
        ["70", "30", "per_try_timeout", "refused-stream"]
            .iter()
            .all(|part| routes.contains(part))
    });
    kubectl.apply(ALSO_UNSUPPORTED).unwrap();
    until("what is not done is named", || {
        condition(kubectl).contains("corsPolicy")
    });
    for (group, _, plural, _) in kinds {
        let definition = format!("crd/{plural}.{group}");
        kubectl.run(&["delete", &definition]).unwrap();
    }
    until("nothing of it is left", || {
        let (cluster, routes) = (stored(kubectl, "cluster"), stored(kubectl, "routes"));
        !cluster.contains("max_pending_requests") && !routes.contains("per_try_timeout")
    });
}

/// The message of the status of the VirtualService that is not done whole.
fn condition(kubectl: &Kubectl) -> String {
    let one = kubectl.json(&["get", "virtualservice", "partly", "-n", "shop"]);
    one.unwrap()["status"].to_string()
}

/// The configuration of the Service for proxies, from a replica of the controller.
fn stored(kubectl: &Kubectl, kind: &str) -> String {
    let pods: Value = kubectl
        .json(&[
            "get",
            "pods",
            "-n",
            "maglor",
            "-l",
            "app.kubernetes.io/name=maglor-controller",
        ])
        .unwrap();
    let Some(pod) = pods["items"][0]["metadata"]["name"].as_str() else {
        return String::new();
    };
    let name = "service-a.shop.svc.cluster.local:80";
    // Over loopback inside the pod: the API server's own proxy would come from the network.
    let forward = kubectl.forward("maglor", pod, 15011).unwrap();
    let path = format!("/resources?kind={kind}&name={name}");
    forward.get(&path).unwrap_or_default()
}
