//! The proxies' configurations, as text: as an operator without Kubernetes would write them.

use std::fmt::Write as _;
use std::net::SocketAddr;

use maglor_balance::PolicySpec;

use super::flow::INBOUND;
use super::members::{self, NAMESPACE};
use super::services::{INGRESS, Replica, SERVICES, callers};

/// The name of the listener for the application beside the proxy, or for clients of the ingress.
pub(super) const OUTBOUND: &str = "outbound";

/// The sockets of a replica, all on its own loopback address, as those of a pod are on the pod's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) admin: SocketAddr,
    pub(super) application: SocketAddr,
    pub(super) inbound: SocketAddr,
    pub(super) outbound: SocketAddr,
}

/// The addresses of all replicas, and the balancing policy.
///
/// With a control plane, a proxy's file has only its own addresses and its control plane, as that of a sidecar in a
/// cluster; everything else is discovered.
#[derive(Debug)]
pub(super) struct Mesh<'a> {
    /// The address of the control plane; `None` if there is none, and files have everything.
    pub(super) control_plane: Option<SocketAddr>,
    pub(super) policy: &'a PolicySpec,
    /// The inbound addresses of all replicas, by index in [`SERVICES`].
    pub(super) endpoints: &'a [Vec<SocketAddr>],
    /// The `HOST:PORT` of an OpenTelemetry collector for the spans of all requests.
    pub(super) collector: Option<&'a str>,
}

/// The name of the collector's cluster.
const COLLECTOR: &str = "collector";

/// Every failure is retried on another replica: requests are only reads.
pub(super) const ROUTE: &str = "timeout: 5s, retry: {retry_on: 5xx, attempts: 2}";

/// A failing replica is detected within seconds, so that the demo can show it.
pub(super) const EJECTION: &str = "{interval: 1s, base_ejection_time: 2s, \
    failure_percentage_threshold: 15, enforcing_failure_percentage: 100, \
    failure_percentage_minimum_hosts: 2, failure_percentage_request_volume: 5}";

fn top(admin: SocketAddr, service: &str, collector: Option<&str>) -> String {
    let tracing = match collector {
        Some(_) => format!(
            "tracing: {{cluster: {COLLECTOR}, service_name: {service}, sampling: {{percent: 100}}}}\n"
        ),
        None => String::new(),
    };
    format!(
        "admin: {{address: \"{admin}\"}}\nlog_level: warn\ndrain_timeout: 0s\n\
         identity: {{certificate: certificate.pem, private_key: private_key.pem, \
         trust_bundle: trust_bundle.pem}}\n{tracing}"
    )
}

/// Returns the cluster of the collector.
fn collector_cluster(collector: Option<&str>) -> String {
    collector.map_or_else(String::new, |address| {
        format!("- {{name: {COLLECTOR}, endpoints: [\"{address}\"]}}\n")
    })
}

/// The name of a cluster of the control plane's server.
const CONTROL: &str = "control";

/// Returns the control plane of a proxy.
fn discovers(proxy: &str, address: SocketAddr) -> String {
    format!(
        "control_plane: {{cluster: {CONTROL}, node: {{id: {NAMESPACE}/{proxy}}}}}\n\
         clusters:\n- {{name: {CONTROL}, endpoints: [\"{address}\"]}}\n"
    )
}

impl Mesh<'_> {
    /// Returns the configuration of a replica's sidecar with a control plane.
    fn discovering(&self, replica: Replica, ports: &Ports, control_plane: SocketAddr) -> String {
        let Ports {
            admin,
            application,
            inbound,
            outbound,
        } = ports;
        format!(
            "{}listeners:\n- name: {INBOUND}\n  address: \"{inbound}\"\n  tls: mesh\n  \
             authorization: {{default: deny}}\n  \
             inbound: {{application: \"{application}\", discovery: {NAMESPACE}/{replica}}}\n\
             - name: {OUTBOUND}\n  address: \"{outbound}\"\n  \
             outbound: {{discovery: {{namespace: {NAMESPACE}}}}}\n{}{}",
            top(*admin, SERVICES[replica.service].name, self.collector),
            discovers(&replica.to_string(), control_plane),
            collector_cluster(self.collector)
        )
    }

    /// Returns the configuration of a replica's sidecar: members that may call it are allowed, and
    /// its application can call every other service. Forbidden calls are rejected at the called
    /// service.
    pub(super) fn sidecar(&self, replica: Replica, ports: &Ports) -> String {
        if let Some(control_plane) = self.control_plane {
            return self.discovering(replica, ports, control_plane);
        }
        let service = replica.service;
        let Ports {
            admin,
            application,
            inbound,
            outbound,
        } = ports;
        let own = SERVICES[service].name;
        let ids: Vec<_> = callers(service).map(members::id).collect();
        let ids = ids.join(", ");
        let reports = if self.policy.is_collaborative() {
            format!("    load_reports: {{cluster: {own}, endpoint: \"{inbound}\"}}\n")
        } else {
            String::new()
        };
        let mut text = top(*admin, own, self.collector);
        let _ = write!(
            text,
            "listeners:\n- name: {INBOUND}\n  address: \"{inbound}\"\n  tls: mesh\n  \
             authorization: {{rules: [{{name: callers, from: [{{identities: [{ids}]}}]}}]}}\n  \
             http:\n{reports}    virtual_hosts: [{{domains: [\"*\"], routes: [{{cluster: application}}]}}]\n"
        );
        text.push_str(&self.outbound(*outbound, false));
        let _ = write!(
            text,
            "clusters:\n- {{name: application, endpoints: [\"{application}\"]}}\n"
        );
        for called in 0..SERVICES.len() {
            text.push_str(&self.cluster(called));
        }
        text.push_str(&collector_cluster(self.collector));
        text
    }

    /// Returns the configuration of the ingress: requests with any host go to the first service.
    pub(super) fn ingress(&self, admin: SocketAddr, address: SocketAddr) -> String {
        if let Some(control_plane) = self.control_plane {
            let first = SERVICES[0].name;
            return format!(
                "{}listeners:\n- name: {OUTBOUND}\n  address: \"{address}\"\n  \
                 http: {{discovery: {{host: '{first}.{NAMESPACE}.svc.cluster.local:80'}}}}\n{}{}",
                top(admin, INGRESS, self.collector),
                discovers(INGRESS, control_plane),
                collector_cluster(self.collector)
            );
        }
        let listener = self.outbound(address, true);
        let cluster = self.cluster(0);
        let top = top(admin, INGRESS, self.collector);
        let collector = collector_cluster(self.collector);
        format!("{top}listeners:\n{listener}clusters:\n{cluster}{collector}")
    }

    fn outbound(&self, address: SocketAddr, only_first: bool) -> String {
        let mut text = format!("- name: {OUTBOUND}\n  address: \"{address}\"\n  http:\n");
        text.push_str("    virtual_hosts:\n");
        let hash = if self.policy.uses_hash() {
            ", hash_policy: [{header: x-request-id}]"
        } else {
            ""
        };
        let called = if only_first { 1 } else { SERVICES.len() };
        for service in &SERVICES[..called] {
            let name = service.name;
            let domain = if only_first { "*" } else { name };
            let _ = writeln!(
                text,
                "    - {{domains: [\"{domain}\"], routes: [{{cluster: {name}, {ROUTE}{hash}}}]}}"
            );
        }
        text
    }

    /// Returns the cluster of a service, whose replicas have to prove its identity.
    fn cluster(&self, service: usize) -> String {
        let name = SERVICES[service].name;
        let endpoints = self.endpoints[service].iter();
        let endpoints: Vec<_> = endpoints.map(|address| format!("\"{address}\"")).collect();
        format!(
            "- name: {name}\n  policy: {}\n  tls: {{mesh: {{identities: [{}]}}}}\n  \
             outlier_ejection: {EJECTION}\n  endpoints: [{}]\n",
            self.policy,
            members::id(name),
            endpoints.join(", ")
        )
    }
}

/// Returns the configuration of a proxy that is no member: TLS without a certificate, to a server
/// that it does not verify.
pub(super) fn intruder(admin: SocketAddr, listener: SocketAddr, victim: SocketAddr) -> String {
    format!(
        "admin: {{address: \"{admin}\"}}\nlog_level: error\ndrain_timeout: 0s\n\
         listeners:\n- name: {OUTBOUND}\n  address: \"{listener}\"\n  http:\n    \
         virtual_hosts: [{{domains: [\"*\"], routes: [{{cluster: victim, retry: {{attempts: 0}}}}]}}]\n\
         clusters:\n- name: victim\n  tls: {{insecure_skip_verify: true}}\n  endpoints: [\"{victim}\"]\n"
    )
}

/// Returns the name of a service's proxies; the ingress has no replicas.
pub(super) fn service_name(service: Option<usize>) -> &'static str {
    service.map_or(INGRESS, |service| SERVICES[service].name)
}

#[cfg(test)]
mod tests {
    use super::super::services::{RATINGS, REVIEWS};
    use super::*;

    fn valid(text: &str) -> maglor_config::Loaded {
        let loaded = maglor_config::parse(text, "demo").unwrap_or_else(|error| {
            unreachable!("{error}\n{text}");
        });
        assert_eq!(loaded.warnings, [], "{text}");
        loaded
    }

    #[test]
    fn configurations_are_valid_for_every_policy() {
        let address = |port| SocketAddr::from(([127, 64, 0, 1], port));
        let endpoints =
            [7001, 7002, 7003, 7004].map(|port| vec![address(port), address(port + 10)]);
        let ports = Ports {
            admin: address(1),
            application: address(2),
            inbound: address(7003),
            outbound: address(4),
        };
        for (policy, collector) in [
            ("lor(choices=2)", None),
            ("maglev(table_size=251)", Some("127.0.0.1:4317")),
            ("bounce(tries=3)", None),
            ("ledger(group=40,fallback=bounce)", Some("[::1]:4317")),
            ("a-lsq(choices=2,overhead=10)", None),
        ] {
            let policy = policy.parse().unwrap();
            let mesh = Mesh {
                control_plane: None,
                policy: &policy,
                endpoints: &endpoints,
                collector,
            };
            let loaded = valid(&mesh.sidecar(Replica::new(REVIEWS, 1), &ports));
            assert_eq!(
                loaded.config.clusters.len(),
                5 + usize::from(collector.is_some())
            );
            let text = mesh.sidecar(
                Replica::new(RATINGS, 1),
                &Ports {
                    inbound: address(7004),
                    ..ports
                },
            );
            assert!(
                text.contains(
                    "from: [{identities: [spiffe://demo.maglor/ns/bookinfo/sa/reviews]}]"
                )
            );
            valid(&text);
            valid(&mesh.ingress(address(1), address(2)));
            let discovering = Mesh {
                control_plane: Some(address(5)),
                ..mesh
            };
            let loaded = valid(&discovering.sidecar(Replica::new(REVIEWS, 1), &ports));
            // The control plane, the application, and what the application calls.
            let expected = 3 + usize::from(collector.is_some());
            assert_eq!(loaded.config.clusters.len(), expected);
            valid(&discovering.ingress(address(1), address(2)));
        }
        // Its warning is right: it does not look whom it speaks to.
        let text = intruder(address(1), address(2), address(3));
        let loaded = maglor_config::parse(&text, "intruder").unwrap();
        assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
    }
}
