//! The hostile suite against the proxy alone: each case of the tables of `maglor_testkit::hostile` has its
//! expected outcome. `cargo xtask hostile` runs the same cases also with other proxies; see docs/hostile.md.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use maglor_testkit::hostile::{self, Case, Http1, Impostor, Port, Recorder, Response, Signer, Tls};
use maglor_testkit::{Authority, Proxy, RawHttp1, TIMEOUT, Upstream};
use tempfile::TempDir;

use crate::support;
use crate::support::mesh::{Pair, Root, id};
use crate::support::{Web, get, start};

/// Runs cases, and reports all that fail.
#[track_caller]
fn all(cases: &[Case], mut run: impl FnMut(&Case) -> Result<(), String>) {
    let failed: Vec<_> = cases.iter().filter_map(|case| run(case).err()).collect();
    let count = failed.len();
    assert!(failed.is_empty(), "{count} cases:\n{}", failed.join("\n"));
}

#[test]
fn requests_in_http1() {
    let cases = hostile::http1_requests();
    assert!(cases.len() > 250, "{}", cases.len());
    let origin = Recorder::start();
    let proxy = Web::to([origin.address()]).start();
    all(&cases, |case| {
        let address = proxy.listener("web");
        let seen = Http1::run(case, address, &origin, hostile::patience(case));
        hostile::check_http1(case, &seen)
    });
}

#[test]
fn responses_in_http1() {
    let cases = hostile::http1_responses();
    assert!(cases.len() > 150, "{}", cases.len());
    let origin = Recorder::start();
    let proxy = Web::to([origin.address()]).start();
    all(&cases, |case| {
        let seen = Response::run(case, proxy.listener("web"), &origin, TIMEOUT);
        hostile::check_response(case, &seen)
    });
}

#[test]
fn frames_of_http2() {
    let cases = hostile::http2();
    assert!(cases.len() > 150, "{}", cases.len());
    let origin = Recorder::start();
    let proxy = Web::to([origin.address()]).start();
    all(&cases, |case| {
        let seen = hostile::run_http2(case, proxy.listener("web"), &origin, TIMEOUT);
        hostile::check_http2(case, &seen)
    });
}

#[test]
fn frames_of_the_mesh_transport() {
    let cases = hostile::transport();
    assert!(cases.len() > 120, "{}", cases.len());
    let (root, origin) = (Root::new(), Recorder::start());
    let proxy = Web::to([origin.address()])
        .top(&root.member("server").yaml())
        .listener("tls: mesh")
        .start();
    let config = root.member("client").client("maglor/1");
    all(&cases, |case| {
        let address = proxy.listener("web");
        let client = RawHttp1::connect_tls(address, "a.test", config.clone());
        let seen = hostile::run_transport(case, client.into_connection(), &origin, TIMEOUT);
        hostile::check_transport(case, &seen)
    });
}

/// The same bytes to a listener that terminates TLS, and to one that parses the ClientHello itself to choose a
/// filter chain.
#[test]
fn bytes_of_tls() {
    let cases = hostile::tls();
    assert!(cases.len() > 200, "{}", cases.len());
    let (authority, upstream) = (Authority::new(), Upstream::start("a"));
    let identity = authority.issue(&["a.example"]);
    let (cert, key) = (identity.cert_file.display(), identity.key_file.display());
    let tls = format!("tls: {{certificate: '{cert}', private_key: '{key}'}}");
    let proxy = start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\nlisteners:\n- name: plain\n  address: 127.0.0.1:0\n  {tls}\n  http: {{routes: main}}\n\
         - name: detecting\n  address: 127.0.0.1:0\n  filter_chains:\n  - match: {{server_names: [a.example]}}\n    {tls}\n    \
         http: {{routes: main}}\n  - {tls}\n    http: {{routes: main}}\n\
         route_tables:\n- {{name: main, virtual_hosts: [{{domains: ['*'], routes: [{{cluster: a}}]}}]}}\n\
         clusters:\n- {{name: a, endpoints: ['{}']}}\n",
        upstream.address()
    ));
    for listener in ["plain", "detecting"] {
        all(&cases, |case| {
            let patience = match case.expected == "waits" {
                true => Duration::from_millis(200),
                false => TIMEOUT,
            };
            let seen = Tls::run(case, proxy.listener(listener), patience);
            hostile::check_tls(case, &seen).map_err(|error| format!("{listener}: {error}"))
        });
    }
    assert_eq!(get_over_tls(&proxy, &authority), 200);
}

fn get_over_tls(proxy: &Proxy, authority: &Authority) -> u16 {
    let config = authority.client_config(None, &["http/1.1"]);
    let address = proxy.listener("detecting");
    let mut client = RawHttp1::connect_tls(address, "a.example", config);
    client.get("/").status
}

/// Sent to the inbound side by a client, and to the outbound side by a server.
#[test]
fn certificates_of_peers() {
    let cases = hostile::certificates();
    assert!(cases.len() > 150, "{}", cases.len());
    let (root, foreign, folder) = (Signer::root(), Signer::root(), TempDir::new().unwrap());
    let (upstream, impostor) = (Upstream::start("a"), Impostor::start());
    let member = support::mesh::Member::in_folder(folder.path());
    let (certificate, key) = root.member(&id("server"));
    member.write(&Pair { certificate, key }, root.pem());
    let inbound = Web::to([upstream.address()])
        .top(&member.yaml())
        .listener("tls: mesh")
        .start();
    let outbound = Web::to([impostor.address()])
        .top(&member.yaml())
        .cluster("tls: mesh")
        .route("retry: {attempts: 0}")
        .start();
    all(&cases, |case| {
        let shown = root.make(case, &foreign);
        let side = |word: &str| {
            let (group, name) = case.name.split_once('/').unwrap();
            group.starts_with(word) || name.starts_with(word)
        };
        if !side("server ") {
            let served = hostile::is_served(&shown, inbound.listener("web"));
            hostile::check_certificate(case, served).map_err(|error| format!("client: {error}"))?;
        }
        if !side("client ") {
            impostor.show(&shown);
            let served = get(&outbound, "/case").status == 200;
            hostile::check_certificate(case, served).map_err(|error| format!("server: {error}"))?;
        }
        Ok(())
    });
}

/// Returns an address of this machine that is not loopback; packets to it do not leave the machine.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Selects a route; a UDP connect sends nothing.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[test]
fn requests_to_the_admin_port() {
    let cases = hostile::admin();
    assert!(cases.len() > 200, "{}", cases.len());
    let upstream = Upstream::start("a");
    let yaml = Web::to([upstream.address()]).yaml();
    let proxy = start(&yaml.replace(
        "admin: {address: \"127.0.0.1:0\"}",
        "admin: {address: \"0.0.0.0:0\"}",
    ));
    let port = proxy.admin().port();
    let network = own_address();
    if network.is_none() {
        eprintln!("this machine has loopback only: cases from the network are skipped");
    }
    let before = proxy.admin_get("/logging").text().to_owned();
    all(&cases, |case| {
        let ip = match case.name.starts_with("network ") {
            true => network,
            false => Some(Ipv4Addr::LOCALHOST.into()),
        };
        let Some(ip) = ip else { return Ok(()) };
        let client = RawHttp1::connect(SocketAddr::new(ip, port)).into_connection();
        hostile::check_port(case, &Port::run(case, client))?;
        let level = proxy.admin_get("/logging").text().to_owned();
        let changes = case.name.starts_with("loopback log level/") && case.expected.contains("200");
        match (level == before || changes, proxy.admin_get("/ready").status) {
            (true, 200) => Ok(()),
            (_, ready) => Err(format!("{}: ready {ready}, log level {level}", case.name)),
        }
    });
    assert_eq!(get(&proxy, "/").status, 200, "it does not drain");
}
