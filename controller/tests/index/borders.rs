//! Objects of one namespace change nothing for the pods, Services and clients of another: the table of
//! docs/controller.md ("Who may change what for whom").

use maglor_controller::index::Index;
use serde_json::Value;

use crate::support::{objects, published};

/// A Service of `victim` with a pod that has a sidecar, and a client in each namespace.
const FIXTURE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: victim}
---
apiVersion: v1
kind: Namespace
metadata: {name: attacker}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: victim}
spec: {clusterIP: 10.0.0.1, selector: {app: web}, ports: [{port: 80, targetPort: 8080, name: http}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: victim, labels: {app: web}, annotations: {maglor.dev/injected: 'true'}}
spec: {nodeName: n1, serviceAccountName: web, containers: [{name: web, ports: [{containerPort: 8080}]}]}
status: {podIPs: [{ip: 10.1.0.1}], conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: victim, labels: {kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.0.1], targetRef: {kind: Pod, name: web-0}}]
---
apiVersion: v1
kind: Service
metadata: {name: own, namespace: attacker}
spec: {clusterIP: 10.0.0.2, ports: [{port: 80, targetPort: 8080, name: http}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: victim}
spec: {parentRefs: [{group: '', kind: Service, name: web}], rules: [{backendRefs: [{name: web, port: 80}], timeouts: {request: 3s}}]}
";

/// A resource that the attacker writes into its own namespace, about the victim.
const HOSTILE: &[(&str, &str)] = &[
        (
            "TrafficPolicy",
            "
apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: a, namespace: attacker}
spec: {targetRefs: [{group: '', kind: Service, name: web}], cluster: {limits: {max_requests: 1}}}
---
apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: b, namespace: attacker}
spec: {cluster: {limits: {max_requests: 1}}}",
        ),
        (
            "AuthorizationPolicy",
            "
apiVersion: maglor.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: a, namespace: attacker}
spec: {rules: [{action: allow}]}
---
apiVersion: maglor.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: b, namespace: attacker}
spec: {selector: {matchLabels: {app: web}}, rules: [{action: nonsense}]}",
        ),
        (
            "HTTPRoute",
            "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a, namespace: attacker}
spec: {parentRefs: [{group: '', kind: Service, name: web, namespace: victim}], rules: [{backendRefs: [{name: own, port: 80}]}]}",
        ),
        (
            "GRPCRoute",
            "
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: a, namespace: attacker}
spec: {parentRefs: [{group: '', kind: Service, name: web, namespace: victim}], rules: [{backendRefs: [{name: own, port: 80}]}]}",
        ),
        (
            "VirtualService",
            "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: attacker}
spec: {hosts: [web.victim.svc.cluster.local], http: [{route: [{destination: {host: own.attacker.svc.cluster.local}}]}]}",
        ),
        (
            "DestinationRule",
            "
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: attacker}
spec: {host: web.victim.svc.cluster.local, trafficPolicy: {tls: {mode: DISABLE}, connectionPool: {http: {http1MaxPendingRequests: 1}}}}",
        ),
        (
            "PeerAuthentication",
            "
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: attacker}
spec: {mtls: {mode: DISABLE}}",
        ),
        (
            "AuthorizationPolicy of Istio",
            "
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: a, namespace: attacker}
spec: {action: CUSTOM, selector: {matchLabels: {app: web}}}",
        ),
        (
            "EndpointSlice",
            "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-2, namespace: attacker, labels: {kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.9.0.1]}, {addresses: [10.1.0.1], targetRef: {kind: Pod, name: web-0}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: own-1, namespace: attacker, labels: {kubernetes.io/service-name: own}}
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.0.1]}]",
        ),
        (
            "Service",
            "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: attacker}
spec: {type: ExternalName, externalName: web.victim.svc.cluster.local, ports: [{port: 80, name: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-endpoints, namespace: attacker, labels: {maglor.dev/proxy-service: web}}
spec: {clusterIP: 10.0.0.7, selector: {app: web}, ports: [{port: 80, name: http}]}",
        ),
        (
            "ReferenceGrant",
            "
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: a, namespace: attacker}
spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: attacker}], to: [{group: '', kind: Service}]}",
        ),
        (
            "Pod",
            "
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: attacker, labels: {app: web}, annotations: {maglor.dev/injected: 'true'}}
spec: {nodeName: n1, serviceAccountName: web, containers: [{name: web}]}
status: {podIPs: [{ip: 10.9.0.2}], conditions: [{type: Ready, status: 'True'}]}",
        ),
];

fn apply(index: &mut Index, text: &str) {
    for object in objects(text) {
        index.apply(object);
    }
    index.changes();
}

/// The resources of all clients but the attacker, and the statuses of other namespaces' resources.
fn of_others(index: &Index) -> Vec<(String, Value)> {
    let mut published = published(index);
    published.retain(|(name, _)| !name.contains("attacker"));
    published
}

/// Nothing has changed; additions are only for the attacker's own addresses.
fn is_unchanged(before: &[(String, Value)], index: &Index, what: &str) {
    let now = of_others(index);
    for (name, value) in before {
        let now = now.iter().find(|(one, _)| one == name);
        assert_eq!(Some(value), now.map(|(_, value)| value), "{what}: {name}");
    }
}

#[test]
fn what_one_namespace_writes_changes_nothing_for_another() {
    for (kind, text) in HOSTILE {
        let mut index = Index::default();
        apply(&mut index, FIXTURE);
        let before = of_others(&index);
        assert!(
            before
                .iter()
                .any(|(name, _)| name.starts_with("Inbound victim/web-0")),
            "{before:?}"
        );
        apply(&mut index, text);
        is_unchanged(&before, &index, kind);
        // Whichever was there first.
        let mut index = Index::default();
        apply(&mut index, text);
        apply(&mut index, FIXTURE);
        is_unchanged(&before, &index, &format!("{kind}, which was there before"));
    }
}
