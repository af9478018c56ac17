//! The resources of the demo's mesh, as files for `maglor-controller --folder`: as in a cluster, but without one.

use std::fmt::Write as _;
use std::net::SocketAddr;

use maglor_balance::PolicySpec;

use super::configuration::{EJECTION, ROUTE};
use super::members::{self, NAMESPACE, TRUST_DOMAIN};
use super::services::{INGRESS, Replica, SERVICES, callers};

/// The first part of the addresses of Services, which no connection uses.
const ADDRESSES: &str = "10.96.0";

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
    text.push_str(&format!("---\n{}", pod(INGRESS, INGRESS)));
    for replica in replicas {
        let pod = pod(&replica.to_string(), SERVICES[replica.service].name);
        text.push_str(&format!("---\n{pod}"));
    }
    text
}

/// Returns a pod with a sidecar.
fn pod(name: &str, service: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {NAMESPACE}\n  \
         labels: {{app: {service}}}\n  annotations: {{maglor.dev/injected: 'true'}}\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: StatefulSet, name: {service}, uid: {service}, controller: true}}]\n\
         spec: {{serviceAccountName: {service}, containers: []}}\n"
    )
}

/// Returns the endpoint of a replica.
pub(super) fn endpoint(replica: Replica, inbound: SocketAddr) -> String {
    let service = SERVICES[replica.service].name;
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: {replica}, namespace: {NAMESPACE}, labels: {{kubernetes.io/service-name: {service}}}}}\n\
         addressType: IPv4\nports: [{{name: http, port: {}}}]\n\
         endpoints:\n- {{addresses: [{}], targetRef: {{kind: Pod, name: {replica}, namespace: {NAMESPACE}}}}}\n",
        inbound.port(),
        inbound.ip(),
    )
}
