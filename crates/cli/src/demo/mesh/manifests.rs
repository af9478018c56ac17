//! The resources of the demo's mesh, as files for `maglor-controller --folder`: as in a cluster, but without one.

use std::fmt::Write as _;
use std::net::SocketAddr;

use maglor_balance::PolicySpec;

use super::configuration::{EJECTION, ROUTE};
use super::members::{self, NAMESPACE, TRUST_DOMAIN};
use super::services::{INGRESS, Replica, SERVICES, callers};

/// The first part of the addresses of Services, which no connection uses.
const ADDRESSES: &str = "10.96.0";

/// The nodes of the resources, among which the replicas are spread. All processes run on this machine: the nodes only
/// show what a placement would move.
const NODES: [&str; 3] = ["edge-1", "edge-2", "edge-3"];
/// Requested CPU of a replica, in thousandths of a core.
const CPU_MILLIS: usize = 500;

/// Returns the node of a replica: the replicas of each service are spread, regardless of its calls.
fn node(replica: Replica) -> &'static str {
    NODES[(replica.service + usize::from(replica.number.get())) % NODES.len()]
}

/// Returns the nodes, with room for a quarter more than the replicas.
fn nodes(replicas: usize) -> String {
    let of_each = (replicas * 5 / 4).div_ceil(NODES.len()) + 1;
    let millis = of_each * CPU_MILLIS;
    let nodes = NODES.map(|name| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n\
             status: {{allocatable: {{cpu: {millis}m, memory: 8Gi}}}}\n"
        )
    });
    nodes.concat()
}

/// Returns the resources that stay for the whole demo: all but the endpoints of `replicas`.
pub(super) fn mesh(policy: &PolicySpec, replicas: impl Iterator<Item = Replica>) -> String {
    let hash = if policy.uses_hash() {
        ", hash_policy: [{header: x-request-id}]"
    } else {
        ""
    };
    let mut text = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n---\n\
         apiVersion: maglor.dev/v1alpha1\nkind: MeshConfig\nmetadata: {{name: default}}\n\
         spec: {{mtls: strict, trustDomain: {TRUST_DOMAIN}}}\n---\n\
         apiVersion: maglor.dev/v1alpha1\nkind: TrafficPolicy\n\
         metadata: {{name: all, namespace: {NAMESPACE}}}\n\
         spec:\n  cluster: {{policy: '{policy}', outlier_ejection: {EJECTION}}}\n  route: {{{ROUTE}{hash}}}\n"
    );
    for (number, service) in SERVICES.iter().enumerate() {
        let name = service.name;
        let ids: Vec<_> = callers(number).map(members::id).collect();
        let ids = ids.join(", ");
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n\
             spec: {{clusterIP: {ADDRESSES}.{}, ports: [{{name: http, port: 80}}]}}\n\
             ---\napiVersion: maglor.dev/v1alpha1\nkind: AuthorizationPolicy\n\
             metadata: {{name: {name}, namespace: {NAMESPACE}}}\n\
             spec:\n  selector: {{matchLabels: {{app: {name}}}}}\n  \
             rules: [{{name: callers, from: [{{identities: [{ids}]}}]}}]\n",
            number + 10
        );
    }
    text.push_str(&format!("---\n{}", pod(INGRESS, INGRESS, NODES[0])));
    let mut count = 1;
    for replica in replicas {
        let service = SERVICES[replica.service].name;
        let pod = pod(&replica.to_string(), service, node(replica));
        text.push_str(&format!("---\n{pod}"));
        count += 1;
    }
    text.push_str(&nodes(count));
    text
}

/// Returns a pod with a sidecar.
fn pod(name: &str, service: &str, node: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {NAMESPACE}\n  \
         labels: {{app: {service}}}\n  annotations: {{maglor.dev/injected: 'true'}}\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: StatefulSet, name: {service}, uid: {service}, controller: true}}]\n\
         spec:\n  nodeName: {node}\n  serviceAccountName: {service}\n  \
         containers: [{{name: {service}, resources: {{requests: {{cpu: {CPU_MILLIS}m, memory: 64Mi}}}}}}]\n"
    )
}

/// Returns the endpoint of a replica.
pub(super) fn endpoint(replica: Replica, inbound: SocketAddr) -> String {
    let service = SERVICES[replica.service].name;
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: {replica}, namespace: {NAMESPACE}, labels: {{kubernetes.io/service-name: {service}}}}}\n\
         addressType: IPv4\nports: [{{name: http, port: {}}}]\n\
         endpoints:\n- {{addresses: [{}], nodeName: {}, targetRef: {{kind: Pod, name: {replica}, namespace: {NAMESPACE}}}}}\n",
        inbound.port(),
        inbound.ip(),
        node(replica),
    )
}
