//! Configurations of proxies, as text.

use std::fmt::Write as _;
use std::path::Path;

use super::plan::{INBOUND, Listener, OUTBOUND, Process, Route};
use crate::peer::Subject;

/// Returns the configuration of a proxy. With the directory of certificates, sidecars use mutual TLS between each other.
pub(super) fn text(subject: Subject, process: &Process, certificates: Option<&Path>) -> String {
    let certificates = certificates.map(|path| path.display().to_string());
    match subject {
        Subject::Envoy => envoy(process, certificates.as_deref()),
        _ => maglor(process, certificates.as_deref()),
    }
}

/// Returns whether the connections of a cluster are to other sidecars.
fn is_outbound(cluster: &str) -> bool {
    cluster.starts_with(OUTBOUND)
}

/// Returns routes with different destinations, each with a name.
fn clusters(process: &Process) -> Vec<(String, &Route)> {
    let routes = |listener: &Listener| listener.routes.len();
    let mut clusters = Vec::with_capacity(process.listeners.iter().map(routes).sum());
    for listener in &process.listeners {
        for (index, route) in listener.routes.iter().enumerate() {
            clusters.push((format!("{}-{index}", listener.name), route));
        }
        let peers = listener.peers.as_ref();
        clusters.extend(peers.map(|peers| (format!("{}-peers", listener.name), peers)));
    }
    clusters
}

fn list(route: &Route) -> String {
    let endpoints: Vec<_> = route.endpoints.iter().map(ToString::to_string).collect();
    endpoints.join(", ")
}

/// Returns Maglor's configuration: no retries, so that a failure is visible; no time limit, because
/// queues are measured.
fn maglor(process: &Process, certificates: Option<&str>) -> String {
    let mut text = format!(
        "admin: {{address: {}}}\nlog_level: warn\ndrain_timeout: 0s\n",
        process.admin
    );
    if let Some(path) = certificates {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "identity: {{certificate: {path}/leaf.pem, private_key: {path}/key.pem, trust_bundle: {path}/root.pem}}"
        );
    }
    text.push_str("listeners:\n");
    for listener in &process.listeners {
        let Listener {
            name,
            address,
            routes,
            peers,
            ..
        } = listener;
        let _ = writeln!(text, "- name: {name}\n  address: {address}");
        if certificates.is_some() && *name == INBOUND {
            text.push_str("  tls: mesh\n");
        }
        text.push_str("  http:\n");
        if peers.is_some() {
            let reports = format!("{{cluster: {name}-peers, endpoint: \"{address}\"}}");
            let _ = writeln!(text, "    load_reports: {reports}");
        }
        text.push_str(
            "    virtual_hosts:
",
        );
        for (index, route) in routes.iter().enumerate() {
            let host = &route.host;
            let _ = write!(
                text,
                "    - domains: [\"{host}\"]\n      routes:\n      - cluster: {name}-{index}\n        \
                 timeout: 0s\n        retry: {{attempts: 0}}\n"
            );
            if ["maglev", "ring-hash"]
                .iter()
                .any(|one| route.policy.starts_with(one))
            {
                // As in sidecars, which hash the address of their application.
                text.push_str("        hash_policy: [{source_address: true}]\n");
            }
        }
    }
    text.push_str("clusters:\n");
    for (name, route) in clusters(process) {
        let _ = write!(
            text,
            "- name: {name}\n  policy: {}\n  outlier_ejection: {{max_ejection_percent: 0}}\n  \
             endpoints: [{}]\n",
            route.policy,
            list(route)
        );
        if certificates.is_some() && is_outbound(&name) {
            text.push_str("  tls: mesh\n");
        }
    }
    text
}

/// Returns Envoy's configuration, with policies by its names.
fn envoy(process: &Process, certificates: Option<&str>) -> String {
    let port = process.admin.port();
    let mut text = format!(
        "admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}\n\
         static_resources:\n  listeners:\n"
    );
    for listener in &process.listeners {
        text.push_str(&envoy_listener(listener, certificates));
    }
    text.push_str("  clusters:\n");
    for (name, route) in clusters(process) {
        let policy = match route.policy.as_str() {
            "random" => "RANDOM",
            "round-robin" => "ROUND_ROBIN",
            _ => "LEAST_REQUEST",
        };
        let endpoint = |address: &std::net::SocketAddr| {
            let (ip, port) = (address.ip(), address.port());
            format!(
                "{{ endpoint: {{ address: {{ socket_address: {{ address: {ip}, port_value: {port} }} }} }} }}"
            )
        };
        let endpoints: Vec<_> = route.endpoints.iter().map(endpoint).collect();
        let _ = write!(
            text,
            "  - name: {name}\n    type: STATIC\n    connect_timeout: 5s\n    lb_policy: {policy}\n    \
             circuit_breakers: {{ thresholds: [{{ max_connections: 1000000, max_pending_requests: \
             1000000, max_requests: 1000000 }}] }}\n    load_assignment:\n      cluster_name: {name}\n      \
             endpoints: [{{ lb_endpoints: [{}] }}]\n",
            endpoints.join(", ")
        );
        if let Some(path) = certificates.filter(|_| is_outbound(&name)) {
            let socket = envoy_socket("Upstream", "sni: inbound.mesh.test", path);
            let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
            let _ = write!(
                text,
                "    transport_socket: {socket}\n    typed_extension_protocol_options:\n      {options}:\n        \
                 \"@type\": type.googleapis.com/{options}\n        explicit_http_config: {{ http2_protocol_options: {{}} }}\n"
            );
        }
    }
    text
}

/// Returns Envoy's mutual TLS 1.3 with HTTP/2, for one side of a connection.
fn envoy_socket(side: &str, own: &str, path: &str) -> String {
    format!(
        "{{ name: envoy.transport_sockets.tls, typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.\
         transport_sockets.tls.v3.{side}TlsContext, {own}, common_tls_context: {{ alpn_protocols: [h2], tls_params: {{ \
         tls_minimum_protocol_version: TLSv1_3, tls_maximum_protocol_version: TLSv1_3 }}, tls_certificates: [{{ \
         certificate_chain: {{ filename: \"{path}/leaf.pem\" }}, private_key: {{ filename: \"{path}/key.pem\" }} }}], \
         validation_context: {{ trusted_ca: {{ filename: \"{path}/root.pem\" }} }} }} }} }}"
    )
}

fn envoy_listener(listener: &Listener, certificates: Option<&str>) -> String {
    let Listener {
        name,
        address,
        routes,
        ..
    } = listener;
    let port = address.port();
    let mut hosts = String::new();
    for (index, route) in routes.iter().enumerate() {
        let host = &route.host;
        // Writing to a string does not fail.
        let _ = writeln!(
            hosts,
            "          - {{ name: {name}-{index}, domains: [\"{host}\"], routes: [{{ match: {{ prefix: / }}, \
             route: {{ cluster: {name}-{index}, timeout: 0s }} }}] }}"
        );
    }
    let socket = certificates.filter(|_| *name == INBOUND).map(|path| {
        let socket = envoy_socket("Downstream", "require_client_certificate: true", path);
        format!("transport_socket: {socket}\n      ")
    });
    let socket = socket.unwrap_or_default();
    format!(
        "  - name: {name}\n    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}\n    \
         filter_chains:\n    - {socket}filters:\n      - name: envoy.filters.network.http_connection_manager\n        \
         typed_config:\n          \"@type\": type.googleapis.com/envoy.extensions.filters.network.\
         http_connection_manager.v3.HttpConnectionManager\n          stat_prefix: {name}\n          \
         codec_type: AUTO\n          use_remote_address: true\n          generate_request_id: false\n          \
         http_filters:\n          - name: envoy.filters.http.router\n            typed_config:\n              \
         \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router\n          \
         route_config:\n            virtual_hosts:\n  {}",
        hosts.replace('\n', "\n  ").trim_end_matches(' ')
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::plan::Duty;

    #[test]
    fn every_address_is_in_the_text() {
        let address = |port: u16| ([127, 0, 0, 1], port).into();
        let route = |host: &str, port| Route {
            host: host.into(),
            policy: "lor(choices=2)".into(),
            endpoints: vec![address(port), address(port + 1)],
        };
        let process = Process {
            duty: Duty::Sidecar,
            host: "a".into(),
            group: None,
            admin: address(1000),
            listeners: vec![
                Listener {
                    name: "inbound",
                    address: address(1001),
                    service: None,
                    routes: vec![route("*", 1010)],
                    peers: Some(route("s", 1040)),
                },
                Listener {
                    name: "outbound",
                    address: address(1002),
                    service: None,
                    routes: vec![route("a", 1020), route("b", 1030)],
                    peers: None,
                },
            ],
        };
        for subject in [Subject::Envoy, Subject::Maglor] {
            let certificates = Some(Path::new("/certificates"));
            let secured = text(subject, &process, certificates);
            let text = text(subject, &process, None);
            // Once where connections of other sidecars arrive, and in each cluster of other sidecars.
            let tls =
                |text: &str| text.matches("tls: mesh").count() + text.matches("TlsContext").count();
            assert_eq!((tls(&text), tls(&secured)), (0, 3), "{secured}");
            assert!(secured.contains("/certificates/root.pem"), "{secured}");
            for port in [1000, 1001, 1002, 1010, 1011, 1020, 1021, 1030, 1031] {
                assert!(text.contains(&port.to_string()), "{port} in {text}");
            }
            for cluster in ["inbound-0", "outbound-0", "outbound-1"] {
                assert!(text.matches(cluster).count() >= 2, "{cluster} in {text}");
            }
        }
    }
}
