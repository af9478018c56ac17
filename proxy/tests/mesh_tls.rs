//! Mutual TLS between workloads of the mesh: admission, what the application learns about the client, and
//! that neither a new certificate nor a new root costs a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use maglor_identity::{Authority, LeafRequest};
use maglor_testkit::{Load, Proxy, RawHttp1, RawServer, TIMEOUT, Upstream, eventually};
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};

use crate::support::h2::{self, Client};
use crate::support::mesh::{Member, Pair, Root, both, careless, id};
use crate::support::{self, Web};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Starts a member's proxy in front of its application.
fn inbound(member: &Member, upstream: &Upstream, tls: &str) -> Proxy {
    Web::to([upstream.address()])
        .top(&member.yaml())
        .listener(&format!("tls: {tls}"))
        .start()
}

/// Connects with HTTP/1.1 over TLS.
fn client(proxy: &Proxy, config: &Arc<ClientConfig>) -> RawHttp1 {
    RawHttp1::connect_tls(proxy.listener("web"), "a.test", Arc::clone(config))
}

/// Returns whether a request is answered.
fn is_answered(mut client: RawHttp1) -> bool {
    let sent = client.connection().send(GET);
    sent.is_ok() && client.connection().read_head().is_ok()
}

fn refused(proxy: &Proxy, reason: &str) -> f64 {
    let reason = format!("reason=\"{reason}\"");
    proxy.metric("maglor_mesh_refused_total", &[&reason])
}

fn handshakes(proxy: &Proxy, kind: &str) -> f64 {
    let kind = format!("kind=\"{kind}\"");
    proxy.metric("maglor_mesh_handshakes_total", &[&kind])
}

#[test]
fn unauthenticated_clients_are_refused_and_counted_by_reason() {
    let (root, foreign) = (Root::new(), Root::new());
    let upstream = Upstream::start("a");
    let proxy = inbound(&root.member("cart"), &upstream, "mesh");
    let web = id("web");
    let both_versions = &[&TLS12, &TLS13][..];
    let cases: [(&str, Option<Pair>, &[_]); 8] = [
        ("no-certificate", None, both_versions),
        ("expired", Some(root.sign_expired(&web)), both_versions),
        ("unknown-root", Some(foreign.sign(&[&web])), both_versions),
        ("bad-san", Some(root.sign(&[])), both_versions),
        ("bad-san", Some(root.sign(&[&web, &id("b")])), both_versions),
        (
            "bad-san",
            Some(root.sign(&["spiffe://mesh.test"])),
            both_versions,
        ),
        (
            "wrong-identity",
            Some(root.sign(&["spiffe://other.test/ns/shop/sa/web"])),
            both_versions,
        ),
        ("tls-version", Some(root.sign(&[&web])), &[&TLS12]),
    ];
    for (reason, shown, versions) in cases {
        let before = refused(&proxy, reason);
        let config = careless(shown.as_ref(), versions);
        assert!(!is_answered(client(&proxy, &config)), "{reason}");
        eventually(TIMEOUT, reason, || refused(&proxy, reason) == before + 1.0);
    }
    let mut plain = RawHttp1::connect(proxy.listener("web"));
    plain.send(GET);
    let _ = plain.connection().read_to_end();
    eventually(TIMEOUT, "plain text", || {
        refused(&proxy, "plaintext") == 1.0
    });
    assert_eq!(upstream.requests(), 0);
    let all = proxy.metric("maglor_mesh_refused_total", &[]);
    assert_eq!((all, refused(&proxy, "other")), (9.0, 0.0));
    assert_eq!(handshakes(&proxy, ""), 0.0);
    assert!(
        proxy
            .stderr()
            .contains("connection rejected: client is not a member of the mesh")
    );

    let good = careless(Some(&root.sign(&[&web])), both_versions);
    assert!(is_answered(client(&proxy, &good)));
    assert_eq!(handshakes(&proxy, "full"), 1.0);
}

/// Each file of the identity is the configured one.
#[test]
fn a_proxy_is_who_its_files_say_and_trusts_the_roots_of_its_bundle() {
    let (root, foreign) = (Root::new(), Root::new());
    let upstream = Upstream::start("a");
    let (own, other) = (root.member("cart").yaml(), root.member("payment").yaml());
    let theirs = foreign.member("cart").yaml();
    let field = |yaml: &str, name: &str| {
        let (_, rest) = yaml.split_once(&format!("{name}: ")).unwrap();
        rest.split([',', '}']).next().unwrap().to_owned()
    };
    let start = |pair: &str, bundle: &str| {
        let identity = format!(
            "identity: {{certificate: {}, private_key: {}, trust_bundle: {}}}",
            field(pair, "certificate"),
            field(pair, "private_key"),
            field(bundle, "trust_bundle")
        );
        let web = Web::to([upstream.address()]).top(&identity);
        web.listener("tls: mesh").start()
    };
    let web = root.member("web");
    for (pair, account) in [(&own, "cart"), (&other, "payment")] {
        let proxy = start(pair, &own);
        assert!(is_answered(client(&proxy, &web.client("http/1.1"))));
        let shown = format!("By={};URI={}", id(account), id("web"));
        let last = upstream.last();
        assert_eq!(last.header("x-forwarded-client-cert"), Some(&*shown));
    }
    // The same certificate with the roots of the other mesh: clients of its own mesh are rejected, those of
    // the other one are not.
    let proxy = start(&own, &theirs);
    let trusting = |pair: &Pair| careless(Some(pair), &[&TLS13]);
    let shown = |by: &Root| trusting(&by.sign(&[&id("web")]));
    assert!(!is_answered(client(&proxy, &shown(&root))));
    assert!(is_answered(client(&proxy, &shown(&foreign))));
    // A key that does not belong to the certificate.
    let mixed = format!(
        "identity: {{certificate: {}, private_key: {}, trust_bundle: {}}}",
        field(&own, "certificate"),
        field(&other, "private_key"),
        field(&own, "trust_bundle")
    );
    let web = Web::to([upstream.address()])
        .top(&mixed)
        .listener("tls: mesh");
    assert!(support::builder().config(web.yaml()).try_start().is_err());
}

#[test]
fn permissive_accepts_plain_text_but_no_unknown_certificate() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let proxy = inbound(&root.member("cart"), &upstream, "{mesh: permissive}");
    let forged = format!(
        "GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-client-cert: URI={}\r\n\r\n",
        id("admin")
    );
    let mut plain = RawHttp1::connect(proxy.listener("web"));
    assert_eq!(plain.request(&forged).text(), "a");
    assert_eq!(upstream.last().header("x-forwarded-client-cert"), None);
    assert_eq!(upstream.last().header("x-forwarded-proto"), Some("http"));
    let mut plain = Client::connect(proxy.listener("web"));
    assert_eq!(plain.ask(h2::get("/")).text(), "a");

    let member = root.member("web").client("http/1.1");
    assert_eq!(client(&proxy, &member).request(&forged).text(), "a");
    let shown = format!("By={};URI={}", id("cart"), id("web"));
    assert_eq!(
        upstream.last().header("x-forwarded-client-cert"),
        Some(&*shown)
    );
    assert_eq!(upstream.last().header("x-forwarded-proto"), Some("https"));

    assert!(!is_answered(client(&proxy, &careless(None, &[&TLS13]))));
    eventually(TIMEOUT, "TLS has to be mutual", || {
        refused(&proxy, "no-certificate") == 1.0
    });
}

#[test]
fn forwarding_of_client_identities_is_configured() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let member = root.member("cart");
    let asked = |mode: &str| {
        let proxy = Web::to([upstream.address()])
            .top(&member.yaml())
            .listener("tls: {mesh: permissive}")
            .http(&format!("x_forwarded_client_cert: {mode}"))
            .start();
        let request = "GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-client-cert: URI=x\r\n\
                       X-Forwarded-Client-Cert: URI=y\r\nX_Forwarded_Client-Cert: URI=z\r\n\r\n";
        let heard = || {
            let last = upstream.last();
            assert_eq!(last.header("x_forwarded_client-cert"), None);
            last.header("x-forwarded-client-cert").map(str::to_owned)
        };
        RawHttp1::connect(proxy.listener("web")).request(request);
        let plain = heard();
        client(&proxy, &root.member("web").client("http/1.1")).request(request);
        (plain, heard())
    };
    let own = format!("By={};URI={}", id("cart"), id("web"));
    assert_eq!(asked("append"), (None, Some(format!("URI=x,URI=y,{own}"))));
    assert_eq!(asked("replace"), (None, Some(own)));
    assert_eq!(asked("remove"), (None, None));
}

/// Starts a member's outbound proxy with one other proxy as its endpoint.
fn outbound(member: &Member, to: &Proxy, cluster: &str) -> Web {
    Web::to([to.listener("web")])
        .top(&member.yaml())
        .cluster(cluster)
}

#[test]
fn proxies_meet_and_know_each_other() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let inbound = Web::to([upstream.address()])
        .top(&root.member("cart").yaml())
        .top("access_log: {path: /dev/stderr}")
        .listener("tls: mesh")
        .start();
    let web = root.member("web");
    for protocol in ["http1", "http2", "auto"] {
        let expected = format!("tls: {{mesh: {{identities: ['{}']}}}}", id("cart"));
        let proxy = outbound(&web, &inbound, &format!("{expected}, protocol: {protocol}"));
        let proxy = proxy.start();
        let forged = "GET /bytes/100000 HTTP/1.1\r\nhost: a\r\nx-forwarded-client-cert: x\r\n\r\n";
        let mut application = support::connect(&proxy);
        assert_eq!(application.request(forged).body.len(), 100_000);
        let shown = format!("By={};URI={}", id("cart"), id("web"));
        assert_eq!(
            upstream.last().header("x-forwarded-client-cert"),
            Some(&*shown)
        );
    }
    inbound.wait_for_log(&format!("\"peer\":\"{}\"", id("web")));

    let other = format!("tls: {{mesh: {{identities: ['{}']}}}}", id("payment"));
    let proxy = outbound(&web, &inbound, &other).start();
    assert_eq!(support::get(&proxy, "/").status, 503);
    let name = "maglor_upstream_mesh_refused_total";
    let wrong = proxy.metric(name, &["reason=\"wrong-identity\""]);
    assert!(wrong >= 1.0 && wrong == proxy.metric(name, &[]));
    // Plain text where a member is expected.
    let proxy = Web::to([upstream.address()])
        .top(&web.yaml())
        .cluster("tls: mesh")
        .start();
    assert_eq!(support::get(&proxy, "/").status, 503);
    assert!(proxy.metric(name, &["reason=\"plaintext\""]) >= 1.0);
}

#[test]
fn bytes_are_carried_between_members_as_well() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let tcp = |member: &Member, listener: &str, cluster: &str, to: SocketAddr| {
        support::start(&format!(
            "admin: {{address: '127.0.0.1:0'}}\n{}\nlisteners:\n- {{name: web, address: '127.0.0.1:0'{listener}, \
             tcp: {{cluster: a}}}}\nclusters:\n- {{name: a, endpoints: ['{to}']{cluster}}}\n",
            member.yaml()
        ))
    };
    let inbound = tcp(&root.member("cart"), ", tls: mesh", "", upstream.address());
    let outbound = tcp(
        &root.member("web"),
        "",
        ", tls: mesh",
        inbound.listener("web"),
    );
    assert_eq!(support::get(&outbound, "/bytes/100000").body.len(), 100_000);
    let plain = RawHttp1::connect(inbound.listener("web"));
    assert!(!is_answered(plain));
    eventually(TIMEOUT, "plain text is refused", || {
        refused(&inbound, "plaintext") == 1.0
    });
}

#[test]
fn a_sidecar_takes_members_plain_text_and_servers_that_speak_first() {
    let root = Root::new();
    let cart = root.member("cart");
    let sidecar = |application: SocketAddr, mode: &str| {
        support::start(&format!(
            "admin: {{address: '127.0.0.1:0'}}\n{}\nlisteners:\n- name: web\n  address: 127.0.0.1:0\n  \
             original_destination: false\n  detection_timeout: 200ms\n  tls: {{mesh: {mode}}}\n  \
             inbound: {{application: '{application}'}}\n",
            cart.yaml()
        ))
    };
    let upstream = Upstream::start("a");
    let proxy = sidecar(upstream.address(), "permissive");
    let member = root.member("web").client("http/1.1");
    assert_eq!(client(&proxy, &member).get("/").text(), "a");
    let shown = format!("By={};URI={}", id("cart"), id("web"));
    let heard = |upstream: &Upstream| {
        let last = upstream.last();
        last.header("x-forwarded-client-cert").map(str::to_owned)
    };
    assert_eq!(heard(&upstream), Some(shown));
    assert_eq!(support::get(&proxy, "/").text(), "a");
    assert_eq!(heard(&upstream), None);

    let first = RawServer::start(|connection, _| {
        connection.send("220 hello\r\n")?;
        connection.read_to_end().map(drop)
    });
    let proxy = sidecar(first.address(), "permissive");
    let mut silent = RawHttp1::connect(proxy.listener("web"));
    let greeting = silent.connection().read_until(b"\n").unwrap();
    assert_eq!(greeting, b"220 hello\r\n");
    // With ALPN it would have offered HTTP.
    let mut member = client(&proxy, &root.member("web").client(""));
    member.connection().send([0, 1, 2, 3]).unwrap();
    assert_eq!(member.connection().read_until(b"\n").unwrap(), greeting);

    let outbound = support::start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\n{}\nlisteners:\n- {{name: web, address: '127.0.0.1:0', tcp: {{cluster: a}}}}\n\
         clusters:\n- {{name: a, tls: mesh, endpoints: ['{}']}}\n",
        root.member("web").yaml(),
        proxy.listener("web")
    ));
    let mut application = RawHttp1::connect(outbound.listener("web"));
    assert_eq!(
        application.connection().read_until(b"\n").unwrap(),
        greeting
    );

    let proxy = sidecar(first.address(), "strict");
    let mut plain = RawHttp1::connect(proxy.listener("web"));
    plain.send("HELO a\r\n");
    // An alert, and no bytes of the application.
    let rest = plain.connection().read_to_end().unwrap_or_default();
    assert!(!rest.starts_with(b"220"));
    eventually(TIMEOUT, "plain text", || {
        refused(&proxy, "plaintext") == 1.0
    });
}

#[test]
fn sessions_are_resumed_but_not_across_a_removed_root() {
    let (root, next) = (Root::new(), Root::new());
    let upstream = Upstream::start("a");
    let cart = root.member("cart");
    cart.write(&next.sign(&[&id("cart")]), &both(&root.pem, &next.pem));
    let proxy = inbound(&cart, &upstream, "mesh");
    let web = root.member("web");
    web.write_bundle(&both(&root.pem, &next.pem));
    let web = web.client("http/1.1");
    for _ in 0..4 {
        assert_eq!(client(&proxy, &web).get("/").text(), "a");
    }
    assert_eq!(
        (handshakes(&proxy, "full"), handshakes(&proxy, "resumed")),
        (1.0, 3.0)
    );
    let applied = || proxy.metric("maglor_identity_reloads_total", &["applied"]);
    let before = applied();
    cart.write_bundle(&next.pem);
    eventually(TIMEOUT, "the bundle is read", || applied() > before);
    assert!(!is_answered(client(&proxy, &web)));
    eventually(TIMEOUT, "the session is not resumed", || {
        refused(&proxy, "unknown-root") == 1.0
    });
    assert_eq!(handshakes(&proxy, "resumed"), 3.0);
}

#[test]
fn a_broken_file_leaves_the_last_good_identity_in_force() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let cart = root.member("cart");
    let proxy = inbound(&cart, &upstream, "mesh");
    let web = root.member("web").client("http/1.1");
    let expiry = proxy.metric("maglor_identity_expiry_seconds", &[]);
    assert!(expiry > 1.7e9);
    let pair = root.sign(&[&id("cart-2")]);
    let half = Pair {
        certificate: pair.certificate[..200].to_owned(),
        ..pair.clone()
    };
    cart.write(&half, &root.pem);
    let refusals = || proxy.metric("maglor_identity_reloads_total", &["refused"]);
    eventually(TIMEOUT, "it is refused", || refusals() >= 1.0);
    proxy.wait_for_log("certificate.pem: not PEM");
    client(&proxy, &web).get("/");
    let by = |account| format!("By={};URI={}", id(account), id("web"));
    assert_eq!(
        upstream.last().header("x-forwarded-client-cert"),
        Some(&*by("cart"))
    );
    cart.write(&pair, &root.pem);
    eventually(TIMEOUT, "the whole one is taken", || {
        client(&proxy, &web).get("/");
        upstream.last().header("x-forwarded-client-cert") == Some(&*by("cart-2"))
    });
    // At the start there is no last valid one.
    cart.write(&half, &root.pem);
    let config = Web::to([upstream.address()])
        .top(&cart.yaml())
        .listener("tls: mesh");
    let error = support::builder()
        .config(config.yaml())
        .try_start()
        .unwrap_err();
    assert!(
        error.to_string().contains("certificate.pem: not PEM"),
        "{error}"
    );
}

/// Issues certificate and key of a member.
fn issue(authority: &Authority, account: &str) -> Pair {
    let request = LeafRequest::new(id(account).parse().unwrap());
    let issued = authority.issue(&request, SystemTime::now()).unwrap();
    Pair {
        certificate: issued.certificate_pem,
        key: issued.private_key_pem.unwrap(),
    }
}

/// Rotates leaves and root under load. Connections are kept `short` by a setting of the server's `http` or of
/// the client's cluster, so that there are handshakes all the time. Returns the numbers of full handshakes
/// and of resumed sessions.
fn rotate_under_load(protocol: &str, short: (&str, &str)) -> (f64, f64) {
    let dir = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let old = Authority::create(&"mesh.test".parse().unwrap(), now).unwrap();
    let member = |account: &str| {
        let path = dir.path().join(account);
        std::fs::create_dir_all(&path).unwrap();
        let member = Member::in_folder(&path);
        member.write(&issue(&old, account), &old.certificate_pem());
        member
    };
    let (cart, web) = (member("cart"), member("web"));
    let upstream = Upstream::start("a");
    let inbound = Web::to([upstream.address()])
        .top(&cart.yaml())
        .listener("tls: mesh")
        .http(short.0)
        .start();
    let cluster = format!("tls: mesh, protocol: {protocol}, {}", short.1);
    let outbound = outbound(&web, &inbound, &cluster).start();
    let load = Load::start(outbound.listener("web"), 4, GET);
    load.wait_for(50);

    let change = |proxy: &Proxy, write: &dyn Fn()| {
        let applied = || proxy.metric("maglor_identity_reloads_total", &["applied"]);
        let before = applied();
        write();
        eventually(TIMEOUT, "it is in force", || applied() > before);
        load.wait_for(50);
    };
    let root = old.certificate_pem();
    change(&inbound, &|| cart.write(&issue(&old, "cart"), &root));
    change(&outbound, &|| web.write(&issue(&old, "web"), &root));

    // A new root: one proxy gets it before the other.
    let new = Authority::create(old.trust_domain(), now).unwrap();
    let crossed = new.crossed_by(&old, now).unwrap();
    let new = new.with_chain(crossed.as_bytes()).unwrap();
    let roots = both(&new.certificate_pem(), &root);
    change(&outbound, &|| web.write(&issue(&new, "web"), &roots));
    change(&inbound, &|| cart.write(&issue(&new, "cart"), &roots));
    let root = new.certificate_pem();
    change(&inbound, &|| cart.write_bundle(&root));
    change(&outbound, &|| web.write_bundle(&root));

    let answered = load.stop();
    let kinds = ["full", "resumed"].map(|kind| handshakes(&inbound, kind));
    println!("{protocol}: {answered} requests, full and resumed handshakes: {kinds:?}");
    assert_eq!(inbound.metric("maglor_mesh_refused_total", &[]), 0.0);
    let unproved = outbound.metric("maglor_upstream_mesh_refused_total", &[]);
    assert_eq!(unproved, 0.0);
    kinds.into()
}

#[test]
fn a_rotation_costs_no_request_over_http1() {
    let short = ("max_connection_age: 1h", "max_requests_per_connection: 3");
    let (full, resumed) = rotate_under_load("http1", short);
    assert!(
        full >= 5.0 && resumed > full,
        "{full} full, {resumed} resumed"
    );
}

#[test]
fn a_rotation_costs_no_request_over_http2() {
    let short = ("max_connection_age: 1s", "max_concurrent_streams: 2");
    let (full, resumed) = rotate_under_load("http2", short);
    assert!(full >= 3.0, "{full} full, {resumed} resumed");
}
