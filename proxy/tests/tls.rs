//! TLS on both sides: termination, passthrough by name, origination with verification.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use maglor_testkit::{
    Authority, Identity, Proxy, RawHttp1, RawServer, TIMEOUT, Upstream, eventually,
};

use crate::support;
use crate::support::h2::{self, Client};
use crate::support::{Web, get, start, wait_quiet};

fn termination(identity: &Identity, more: &str) -> String {
    let (cert, key) = (identity.cert_file.display(), identity.key_file.display());
    format!("tls: {{certificate: '{cert}', private_key: '{key}'{more}}}")
}

fn origination(ca: &Path, more: &str) -> String {
    format!("tls: {{ca: '{}'{more}}}", ca.display())
}

/// Connects with HTTP/1.1 over TLS.
fn secure(proxy: &Proxy, authority: &Authority, name: &str) -> RawHttp1 {
    let config = authority.client_config(None, &["http/1.1"]);
    RawHttp1::connect_tls(proxy.listener("web"), name, config)
}

#[test]
fn tls_is_terminated_with_either_version_of_http() {
    let authority = Authority::new();
    let identity = authority.issue(&["a.example", "127.0.0.1"]);
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .listener(&termination(&identity, ""))
        .start();
    let mut client = secure(&proxy, &authority, "a.example");
    for _ in 0..3 {
        assert_eq!(client.get("/bytes/100000").body.len(), 100_000);
    }
    assert_eq!(upstream.last().header("x-forwarded-proto"), Some("https"));
    // Parked, then used again.
    client.assert_silent(Duration::from_millis(800));
    assert_eq!(client.get("/").text(), "a");

    let config = authority.client_config(None, &["h2", "http/1.1"]);
    let mut client = Client::connect_tls(proxy.listener("web"), "a.example", config);
    assert_eq!(client.ask(h2::get("/bytes/100000")).body.len(), 100_000);
    // Without ALPN the protocol is detected.
    let config = authority.client_config(None, &[]);
    let mut client = RawHttp1::connect_tls(proxy.listener("web"), "a.example", config);
    assert_eq!(client.get("/").text(), "a");
    // An upload of several records of maximum size.
    let body = vec![b'x'; 300_000];
    client.send(format!(
        "POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
        body.len()
    ));
    client.send(&body);
    assert_eq!(client.response().json()["bytes"], 300_000);
}

#[test]
fn who_does_not_speak_tls_is_refused() {
    let authority = Authority::new();
    let identity = authority.issue(&["a.example"]);
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .listener(&termination(&identity, ""))
        .listener("handshake_timeout: 300ms")
        .start();
    let started = Instant::now();
    let mut plain = RawHttp1::connect(proxy.listener("web"));
    plain.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    // Perhaps an alert.
    let _ = plain.connection().read_to_end();
    let mut silent = RawHttp1::connect(proxy.listener("web"));
    silent.assert_closed();
    let mut slow = RawHttp1::connect(proxy.listener("web"));
    slow.send(b"\x16\x03\x01");
    let _ = slow.connection().read_to_end();
    // The default is ten seconds.
    assert!(started.elapsed() < Duration::from_secs(8));
    // A client of another authority does not trust the certificate.
    let mut other = secure(&proxy, &Authority::new(), "a.example");
    assert!(
        other
            .connection()
            .send("GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .is_err()
    );
    drop(other);
    wait_quiet(&proxy);
    assert_eq!(upstream.requests(), 0);
    let refused = |reason| proxy.metric("maglor_downstream_connections_refused_total", &[reason]);
    assert_eq!((refused("timeout"), refused("tls")), (2.0, 2.0));
}

#[test]
fn a_client_certificate_may_be_demanded() {
    let (authority, others) = (Authority::new(), Authority::new());
    let identity = authority.issue(&["a.example"]);
    let upstream = Upstream::start("a");
    let ca = format!(", client_ca: '{}'", authority.file().display());
    let ask = |proxy: &Proxy, client: Option<&Identity>| {
        let config = authority.client_config(client, &["http/1.1"]);
        let mut client = RawHttp1::connect_tls(proxy.listener("web"), "a.example", config);
        let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        client.connection().send(request).ok()?;
        client.connection().read_head().ok()
    };
    let good = authority.issue(&["client"]);
    let bad = others.issue(&["client"]);
    let proxy = Web::to([upstream.address()])
        .listener(&termination(&identity, &ca))
        .start();
    assert!(ask(&proxy, Some(&good)).is_some());
    assert!(ask(&proxy, Some(&bad)).is_none());
    assert!(ask(&proxy, None).is_none());
    assert_eq!(upstream.requests(), 1);

    let optional = format!("{ca}, require_client_certificate: false");
    let proxy = Web::to([upstream.address()])
        .listener(&termination(&identity, &optional))
        .start();
    assert!(ask(&proxy, Some(&good)).is_some());
    assert!(ask(&proxy, None).is_some());
    assert!(ask(&proxy, Some(&bad)).is_none());
}

#[test]
fn the_certificate_is_that_of_the_name() {
    let (first, second) = (Authority::new(), Authority::new());
    let (a, b) = (
        first.issue(&["a.example"]),
        second.issue(&["*.b.example", "b.example"]),
    );
    let pair = |identity: &Identity| {
        let (cert, key) = (identity.cert_file.display(), identity.key_file.display());
        format!("{{certificate: '{cert}', private_key: '{key}'}}")
    };
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .listener(&format!(
            "tls: {{certificates: [{}, {}]}}",
            pair(&a),
            pair(&b)
        ))
        .start();
    // A client that trusts one authority shows which certificate was selected.
    assert_eq!(secure(&proxy, &first, "a.example").get("/").status, 200);
    assert_eq!(secure(&proxy, &second, "b.example").get("/").status, 200);
    assert_eq!(secure(&proxy, &second, "x.b.example").get("/").status, 200);
    assert!(
        secure(&proxy, &second, "a.example")
            .connection()
            .send("x")
            .is_err()
    );
    assert!(
        secure(&proxy, &first, "c.example")
            .connection()
            .send("x")
            .is_err()
    );
}

#[test]
fn one_listener_passes_some_names_through_and_terminates_others() {
    let (own, theirs) = (Authority::new(), Authority::new());
    let vault = theirs.issue(&["vault.example"]);
    let behind = Upstream::builder("vault")
        .tls(theirs.server_config(&vault, &["http/1.1"], false))
        .start();
    let web = Upstream::start("web");
    let identity = own.issue(&["web.example", "other.example"]);
    let tls = termination(&identity, "");
    let proxy = start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\nlisteners:\n- name: web\n  address: 127.0.0.1:0\n  filter_chains:\n\
         \x20 - match: {{server_names: [vault.example, '*.vault.example']}}\n    tcp: {{cluster: vault}}\n\
         \x20 - match: {{server_names: [web.example]}}\n    {tls}\n    http: {{routes: main}}\n\
         \x20 - match: {{server_names: [h2.example], application_protocols: [h2]}}\n    tcp: {{cluster: vault}}\n\
         route_tables:\n- {{name: main, virtual_hosts: [{{domains: ['*'], routes: [{{cluster: web}}]}}]}}\n\
         clusters:\n- {{name: vault, endpoints: ['{}']}}\n- {{name: web, endpoints: ['{}']}}\n",
        behind.address(),
        web.address()
    ));
    let mut client = secure(&proxy, &theirs, "vault.example");
    assert_eq!(client.get("/bytes/1000000").body.len(), 1_000_000);
    assert_eq!(client.get("/").text(), "vault");
    assert_eq!(secure(&proxy, &own, "web.example").get("/").text(), "web");
    // Its certificate is not for this name, but it is the one presented.
    assert!(
        secure(&proxy, &own, "x.vault.example")
            .connection()
            .send("x")
            .is_err()
    );
    // No chain: closed without a handshake.
    for name in ["other.example", "h2.example"] {
        assert!(secure(&proxy, &own, name).connection().send("x").is_err());
    }
    let refused = "maglor_downstream_connections_refused_total";
    eventually(TIMEOUT, "refused connections are counted", || {
        proxy.metric(refused, &["no_filter_chain"]) == 2.0
    });
    drop(client);
    wait_quiet(&proxy);
}

#[test]
fn endpoints_must_prove_their_name() {
    let authority = Authority::new();
    let other = Authority::new();
    let identity = authority.issue(&["a.example", "127.0.0.1"]);
    let server = authority.server_config(&identity, &["http/1.1"], false);
    let upstream = Upstream::builder("a").tls(server).start();
    let status = |tls: &str| {
        let proxy = Web::to([upstream.address()]).cluster(tls).start();
        let response = get(&proxy, "/bytes/100000");
        let failures = proxy.metric("maglor_upstream_connect_failures_total", &[]);
        assert_eq!(failures > 0.0, response.status == 503);
        response.status
    };
    let (good, wrong) = (authority.file(), other.file());
    assert_eq!(status(&origination(&good, "")), 200, "by its address");
    assert_eq!(status(&origination(&good, ", server_name: a.example")), 200);
    assert_eq!(status(&origination(&good, ", server_name: b.example")), 503);
    assert_eq!(status(&origination(&wrong, "")), 503);
    assert_eq!(status("tls: {insecure_skip_verify: true}"), 200);
    assert_eq!(
        status("tls: {server_name: a.example}"),
        503,
        "the system's roots"
    );

    // Plain text where TLS is expected.
    let plain = Upstream::start("plain");
    let proxy = Web::to([plain.address()])
        .cluster(&origination(&good, ""))
        .start();
    assert_eq!(get(&proxy, "/").status, 503);
    // A handshake that never ends.
    let silent = RawServer::start(|connection, _| connection.read_to_end().map(drop));
    let proxy = Web::to([silent.address()])
        .cluster(&origination(&good, ""))
        .cluster("connect_timeout: 300ms")
        .start();
    assert_eq!(get(&proxy, "/").status, 503);
}

#[test]
fn endpoints_may_ask_who_the_proxy_is_and_choose_the_version() {
    let authority = Authority::new();
    let identity = authority.issue(&["a.example", "127.0.0.1"]);
    let own = authority.issue(&["proxy.example"]);
    let mutual = format!(
        ", certificate: '{}', private_key: '{}'",
        own.cert_file.display(),
        own.key_file.display()
    );
    for (protocol, alpn, version) in [
        ("auto", &["h2", "http/1.1"][..], "HTTP/2.0"),
        ("auto", &["http/1.1"], "HTTP/1.1"),
        ("auto", &[], "HTTP/1.1"),
        ("http2", &["h2"], "HTTP/2.0"),
        ("http1", &["h2", "http/1.1"], "HTTP/1.1"),
    ] {
        let server = authority.server_config(&identity, alpn, true);
        let upstream = Upstream::builder("a").tls(server).start();
        let web = Web::to([upstream.address()]).cluster(&format!("protocol: {protocol}"));
        let proxy = web
            .clone()
            .cluster(&origination(&authority.file(), &mutual))
            .start();
        let mut client = support::connect(&proxy);
        for _ in 0..3 {
            assert_eq!(
                client.get("/bytes/100000").body.len(),
                100_000,
                "{protocol} {alpn:?}"
            );
        }
        assert_eq!(
            format!("{:?}", upstream.last().version),
            version,
            "{protocol} {alpn:?}"
        );
        assert_eq!(upstream.connections(), 1, "{protocol} {alpn:?}");
        let proxy = web.cluster(&origination(&authority.file(), "")).start();
        assert!(
            matches!(get(&proxy, "/").status, 502 | 503),
            "without a certificate"
        );
    }
}

#[test]
fn a_new_certificate_is_shown_without_a_restart() {
    let (old, new) = (Authority::new(), Authority::new());
    let identity = old.issue(&["a.example"]);
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .listener(&termination(&identity, ""))
        .start();
    let address = proxy.listener("web");
    let mut before = secure(&proxy, &old, "a.example");
    assert_eq!(before.get("/").status, 200);
    // First the certificate, which does not fit the old key, then the key.
    let next = new.issue(&["a.example"]);
    fs::copy(&next.cert_file, &identity.cert_file).unwrap();
    eventually(TIMEOUT, "the half-way state is refused", || {
        support::refused(&proxy) > 0
    });
    assert_eq!(secure(&proxy, &old, "a.example").get("/").status, 200);
    fs::copy(&next.key_file, &identity.key_file).unwrap();
    let trusts = |authority: &Authority| {
        let config = authority.client_config(None, &["http/1.1"]);
        let mut client = RawHttp1::connect_tls(address, "a.example", config);
        client
            .connection()
            .send("GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .is_ok()
    };
    eventually(TIMEOUT, "the new certificate is shown", || trusts(&new));
    assert!(!trusts(&old));
    assert_eq!(before.get("/").status, 200, "who is connected stays");
}

/// When the file is valid again, it equals the one in force, but the certificate does not.
#[test]
fn a_certificate_that_changes_while_the_configuration_is_bad_is_not_forgotten() {
    let (old, new) = (Authority::new(), Authority::new());
    let identity = old.issue(&["a.example"]);
    let upstream = Upstream::start("a");
    let web = Web::to([upstream.address()]).listener(&termination(&identity, ""));
    let proxy = web.start();
    proxy.replace_config("not: [yaml");
    eventually(TIMEOUT, "the configuration is refused", || {
        support::refused(&proxy) == 1
    });
    let next = new.issue(&["a.example"]);
    fs::copy(&next.cert_file, &identity.cert_file).unwrap();
    fs::copy(&next.key_file, &identity.key_file).unwrap();
    eventually(TIMEOUT, "the new certificate is noticed", || {
        support::refused(&proxy) >= 2
    });
    proxy.replace_config(&web.yaml());
    eventually(TIMEOUT, "the new certificate is shown", || {
        let config = new.client_config(None, &["http/1.1"]);
        let mut client = RawHttp1::connect_tls(proxy.listener("web"), "a.example", config);
        client
            .connection()
            .send("GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .is_ok()
    });
}

#[test]
fn new_roots_are_taken_for_endpoints_without_a_restart() {
    let (old, new) = (Authority::new(), Authority::new());
    let server = |authority: &Authority, address: SocketAddr| {
        let identity = authority.issue(&["a.example"]);
        let config = authority.server_config(&identity, &["http/1.1"], false);
        Upstream::builder("a").tls(config).address(address).start()
    };
    let upstream = server(&old, "127.0.0.1:0".parse().unwrap());
    let address = upstream.address();
    let roots = origination(&old.file(), ", server_name: a.example");
    let proxy = Web::to([address]).cluster(&roots).start();
    assert_eq!(get(&proxy, "/").status, 200);
    upstream.kill();
    let _upstream = server(&new, address);
    assert_eq!(get(&proxy, "/").status, 503);
    fs::write(old.file(), new.pem()).unwrap();
    eventually(TIMEOUT, "the new roots are used", || {
        get(&proxy, "/").status == 200
    });
}
