//! An inbound listener that is configured by the control plane for its workload.

use maglor_testkit::{Load, Proxy, RawHttp1, TIMEOUT, Upstream, eventually};
use maglor_xds::Kind;

use crate::support;
use crate::support::collector::{Collector, Transport};
use crate::support::control_plane::ControlPlane;
use crate::support::mesh::Root;
use crate::support::start;

const WORKLOAD: &str = "shop/cart-1";

/// Starts a sidecar in front of an application, with the inbound listener of `maglor-proxy sidecar`. With
/// `identity` it supports mutual TLS.
fn sidecar(control: &ControlPlane, application: &Upstream, identity: &str) -> Proxy {
    let tls = if identity.is_empty() { "" } else { "tls: mesh" };
    start(&format!(
        "admin: {{address: '127.0.0.1:0'}}
control_plane: {{cluster: control, node: {{id: {WORKLOAD}}}}}
{identity}
listeners:
- name: inbound
  address: 127.0.0.1:0
  {tls}
  authorization: {{default: deny}}
  inbound: {{application: '{}', discovery: {WORKLOAD}}}
clusters:
- {{name: control, endpoints: ['{}']}}
",
        application.address(),
        control.address
    ))
}

fn get(proxy: &Proxy, path: &str) -> u16 {
    RawHttp1::connect(proxy.listener("inbound"))
        .get(path)
        .status
}

fn known(proxy: &Proxy) -> bool {
    proxy.metric("maglor_xds_inbound", &[]) == 1.0
}

#[test]
fn no_client_is_accepted_before_the_control_plane_responds() {
    let (control, application) = (ControlPlane::start(), Upstream::start("cart"));
    let proxy = sidecar(&control, &application, "");
    assert_eq!(get(&proxy, "/"), 403);
    let ready = proxy.admin_get("/ready");
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains(WORKLOAD), "{}", ready.text());
    control.inbound(WORKLOAD, "{tls: permissive}");
    eventually(TIMEOUT, "it is known", || known(&proxy));
    assert_eq!(get(&proxy, "/"), 200);
    assert_eq!(proxy.admin_get("/ready").status, 200);
}

#[test]
fn rules_and_ports_change_under_open_connections() {
    let (control, application) = (ControlPlane::start(), Upstream::start("cart"));
    control.inbound(WORKLOAD, "{}");
    let proxy = sidecar(&control, &application, "");
    eventually(TIMEOUT, "it is known", || known(&proxy));
    let mut client = RawHttp1::connect(proxy.listener("inbound"));
    assert_eq!(client.get("/secret").status, 200);
    control.inbound(
        WORKLOAD,
        "{authorization: {rules: [{name: closed, action: deny, to: [{paths: /secret}]}]}}",
    );
    eventually(TIMEOUT, "the rule", || client.get("/secret").status == 403);
    assert_eq!(client.get("/").status, 200, "on the same connection");
    let config = proxy.admin_get("/config");
    assert!(config.text().contains("name: closed"), "{}", config.text());
    // A port with a policy has a chain of its own.
    let port = proxy.listener("inbound").port();
    control.inbound(
        WORKLOAD,
        &format!("{{ports: {{{port}: {{protocol: http, load_reports: {{}}}}}}}}"),
    );
    eventually(TIMEOUT, "the port", || {
        proxy.admin_get("/config").text().contains("load_reports")
    });
    assert_eq!(get(&proxy, "/secret"), 200);
    // A client removed from the rules is no longer allowed.
    assert_eq!(client.get("/secret").status, 200);
}

#[test]
fn what_is_wrong_is_refused_by_field_and_the_last_good_one_stays() {
    let (control, application) = (ControlPlane::start(), Upstream::start("cart"));
    control.inbound(
        WORKLOAD,
        "{authorization: {rules: [{name: first, to: [{paths: /open}]}]}}",
    );
    let proxy = sidecar(&control, &application, "");
    eventually(TIMEOUT, "it is known", || known(&proxy));
    for (bad, field) in [
        ("{ports: {99999: http}}", "inbound.ports.99999"),
        ("{tls: strict}", "needs an `identity`"),
        (
            "{tls: permissive, ports: {80: {tls: strict}}}",
            "inbound.ports.80.tls",
        ),
        (
            "{authorization: {rules: [{name: a}, {name: a}]}}",
            "authorization.rules[1].name",
        ),
        ("{tracing: {collector: nowhere}}", "tracing.collector"),
    ] {
        control.inbound(WORKLOAD, bad);
        eventually(TIMEOUT, "it is refused", || control.refusal().is_some());
        let reason = control.refusal().unwrap();
        assert!(
            reason.contains(field) && reason.contains(WORKLOAD),
            "{bad}: {reason}"
        );
        assert_eq!((get(&proxy, "/open"), get(&proxy, "/")), (200, 403));
        control.inbound(
            WORKLOAD,
            "{authorization: {rules: [{name: first, to: [{paths: /open}]}]}}",
        );
        eventually(TIMEOUT, "it is taken", || control.refusal().is_none());
    }
}

/// A replica of the control plane that was disconnected may not have been notified of the workload yet.
#[test]
fn the_last_word_holds_although_a_server_knows_no_such_workload() {
    let (control, application) = (ControlPlane::start(), Upstream::start("cart"));
    control.inbound(WORKLOAD, "{}");
    let proxy = sidecar(&control, &application, "");
    eventually(TIMEOUT, "it is known", || known(&proxy));
    // A new file does not change the configuration of the control plane.
    let text = std::fs::read_to_string(proxy.config_file()).unwrap();
    support::reload(&proxy, &format!("{text}drain_timeout: 9s\n"));
    assert_eq!(get(&proxy, "/"), 200);
    let updates = || proxy.metric("maglor_xds_updates_total", &["result=\"accepted\""]);
    let before = updates();
    control.remove(Kind::Inbound, WORKLOAD);
    eventually(TIMEOUT, "it was said", || updates() > before);
    assert!(known(&proxy));
    assert_eq!(get(&proxy, "/"), 200);
    assert_eq!(proxy.admin_get("/ready").status, 200);
}

#[test]
fn the_last_word_holds_without_the_control_plane() {
    let (control, application) = (ControlPlane::start(), Upstream::start("cart"));
    control.inbound(WORKLOAD, "{}");
    let proxy = sidecar(&control, &application, "");
    eventually(TIMEOUT, "it is known", || known(&proxy));
    drop(control);
    eventually(TIMEOUT, "it is noticed", || {
        proxy.metric("maglor_xds_connected", &[]) == 0.0
    });
    assert_eq!(get(&proxy, "/"), 200);
    assert_eq!(proxy.admin_get("/ready").status, 200);
}

/// Returns a connection in plain text on which a request was answered, with the status; `None` if it is
/// refused.
fn plain(server: &Proxy) -> Option<(RawHttp1, u16)> {
    let socket = std::net::TcpStream::connect(server.listener("inbound")).unwrap();
    let mut plain = RawHttp1::try_over(socket)?;
    plain
        .connection()
        .send("GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .ok()?;
    let response = plain.try_response("GET").ok()?;
    Some((plain, response.status))
}

/// A port may have a stricter or a more permissive mode than the others.
#[test]
fn a_port_has_a_mode_of_its_own() {
    let root = Root::new();
    let (control, application) = (ControlPlane::start(), Upstream::start("cart"));
    control.inbound(WORKLOAD, "{tls: strict}");
    let server = sidecar(&control, &application, &root.member("cart").yaml());
    eventually(TIMEOUT, "it is known", || known(&server));
    let port = server.listener("inbound").port();
    let plain = || Some(plain(&server)?.1);
    assert_eq!(plain(), None);
    let with = |tls: &str, own: &str| {
        let ports = format!("{{{port}: {{protocol: http, tls: {own}}}, 1: tcp}}");
        control.inbound(WORKLOAD, &format!("{{tls: {tls}, ports: {ports}}}"));
    };
    with("strict", "permissive");
    eventually(TIMEOUT, "plain text is let in", || plain() == Some(200));
    with("permissive", "strict");
    eventually(TIMEOUT, "it is not", || plain().is_none());
    control.inbound(WORKLOAD, "{tls: permissive}");
    eventually(TIMEOUT, "it is again", || plain() == Some(200));
}

/// Strict, permissive and back, while requests run; plain-text connections are neither accepted nor kept in
/// strict mode.
#[test]
fn the_mode_of_tls_changes_without_a_loss() {
    let root = Root::new();
    let (control, application) = (ControlPlane::start(), Upstream::start("cart"));
    let server = sidecar(&control, &application, &root.member("cart").yaml());
    let client = start(&format!(
        "{}
listeners:
- name: web
  address: 127.0.0.1:0
  http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: cart}}]}}]}}
clusters:
- {{name: cart, tls: mesh, endpoints: ['{}']}}
",
        root.member("web").yaml(),
        server.listener("inbound")
    ));
    let plain = || plain(&server);
    assert!(plain().is_none(), "strict until something else is said");
    control.inbound(WORKLOAD, "{tls: strict}");
    eventually(TIMEOUT, "it is known", || known(&server));
    let load = Load::start(
        client.listener("web"),
        4,
        "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    );
    load.wait_for(50);
    for _ in 0..3 {
        control.inbound(WORKLOAD, "{tls: permissive}");
        eventually(TIMEOUT, "plain text is let in", || {
            plain().is_some_and(|(_, status)| status == 200)
        });
        let (mut kept, _) = plain().unwrap();
        load.wait_for(50);
        control.inbound(WORKLOAD, "{tls: strict}");
        eventually(TIMEOUT, "plain text is not let in", || plain().is_none());
        // It was open before, and is closed.
        kept.assert_closed();
        load.wait_for(50);
    }
    load.stop();
}

#[test]
fn a_port_that_is_taken_is_refused_and_served_once_it_is_free() {
    let control = ControlPlane::start();
    let folder = tempfile::tempdir().unwrap();
    let proxy = start(&format!(
        "admin: {{address: '127.0.0.1:0'}}
control_plane: {{cluster: control, node: {{id: {WORKLOAD}}}, gateway: {WORKLOAD}, cache_dir: {}}}
clusters:
- {{name: control, endpoints: ['{}']}}
",
        folder.path().display(),
        control.address
    ));
    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let address = taken.local_addr().unwrap();
    control.inbound(
        WORKLOAD,
        &format!("{{forwards: ['{}=http/web.shop:80']}}", address.port()),
    );
    eventually(TIMEOUT, "it is refused", || {
        let reason = control.refusal();
        reason.is_some_and(|reason| reason.contains("cannot bind"))
    });
    assert!(!known(&proxy));
    drop(taken);
    eventually(TIMEOUT, "it is accepted", || control.refusal().is_none());
    assert!(known(&proxy));
    let status = RawHttp1::connect(
        (
            "127.0.0.1".parse::<std::net::IpAddr>().unwrap(),
            address.port(),
        )
            .into(),
    )
    .get("/")
    .status;
    assert_ne!(status, 200, "no listener serves what is behind it");
}

#[test]
fn spans_of_the_application_go_to_the_collector_of_the_mesh() {
    let (control, application) = (ControlPlane::start(), Upstream::start("cart"));
    let collector = Collector::start(Transport::Grpc);
    let tracing = |name: &str| {
        let address = collector.address();
        format!(
            "{{tracing: {{collector: '{address}', service_name: {name}, sampling: {{percent: 100}}}}}}"
        )
    };
    control.inbound(WORKLOAD, &tracing("cart"));
    let proxy = sidecar(&control, &application, "");
    eventually(TIMEOUT, "it is known", || known(&proxy));
    assert_eq!(get(&proxy, "/"), 200);
    let spans = collector.wait_for(2);
    for (key, expected) in [
        ("service.name", "cart"),
        ("k8s.namespace.name", "shop"),
        ("k8s.pod.name", "cart-1"),
        ("service.instance.id", WORKLOAD),
    ] {
        assert_eq!(spans[0].resource(key), expected, "{key}");
    }
    assert_eq!(spans[0].get("maglor.direction"), "inbound");
    // A change is in force without a restart.
    control.inbound(WORKLOAD, &tracing("basket"));
    eventually(TIMEOUT, "the new name", || {
        proxy.admin_get("/config").text().contains("basket")
    });
    assert_eq!(get(&proxy, "/"), 200);
    assert_eq!(collector.wait_for(4)[3].resource("service.name"), "basket");
    control.inbound(WORKLOAD, "{}");
    eventually(TIMEOUT, "tracing is off", || {
        !proxy.admin_get("/config").text().contains("tracing")
    });
    assert_eq!(get(&proxy, "/"), 200);
    assert_eq!(application.last().header("traceparent"), None);
}
