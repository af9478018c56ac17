//! Authorization between real proxies: by request and by connection, enforced and audited.

use maglor_testkit::{Proxy, RawHttp1, RawResponse, TIMEOUT, Upstream, eventually};

use crate::support;
use crate::support::h2::{self, Client};
use crate::support::mesh::{Member, Root, id};
use crate::support::{Web, reload};

/// Starts a member's proxy with these rules, for members and for plain text.
fn inbound(member: &Member, upstream: &Upstream, rules: &str) -> Web {
    Web::to([upstream.address()])
        .top(&member.yaml())
        .listener("tls: {mesh: permissive}")
        .listener(&format!("authorization: {{{rules}}}"))
}

fn get(proxy: &Proxy, member: &Member, path: &str) -> RawResponse {
    let config = member.client("http/1.1");
    RawHttp1::connect_tls(proxy.listener("web"), "a", config).get(path)
}

fn decided(proxy: &Proxy, decision: &str, rule: &str) -> f64 {
    let (decision, rule) = (
        format!("decision=\"{decision}\""),
        format!("rule=\"{rule}\""),
    );
    proxy.metric("maglor_authorization_total", &[&decision, &rule])
}

#[test]
fn requests_are_decided_by_identity_method_and_path() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let (web, other) = (root.member("web"), root.member("other"));
    let rules = format!(
        "rules: [{{name: web, from: [{{identities: '{}'}}], to: [{{methods: GET, paths: [/bytes/*, /]}}]}}, \
         {{name: probes, to: [{{paths: /healthz}}]}}, {{name: admin, action: deny, to: [{{paths: /bytes/13}}]}}]",
        id("web")
    );
    let proxy = inbound(&root.member("cart"), &upstream, &rules).start();
    assert_eq!(get(&proxy, &web, "/").status, 200);
    assert_eq!(get(&proxy, &web, "/bytes/10").body.len(), 10);
    // Authorization uses the path by which the request is routed.
    for path in ["/bytes/13", "/bytes/x/../13", "/bytes/%313"] {
        let denied = get(&proxy, &web, path);
        assert_eq!(
            (denied.status, denied.header("x-maglor-denied")),
            (403, Some("admin"))
        );
        assert_eq!(denied.header("x-maglor-reason"), Some("RBAC"));
    }
    let denied = get(&proxy, &other, "/");
    assert_eq!(
        (denied.status, denied.header("x-maglor-denied")),
        (403, Some("-"))
    );
    // Plain text: no reason is sent.
    let mut plain = RawHttp1::connect(proxy.listener("web"));
    let denied = plain.get("/");
    assert_eq!(
        (denied.status, denied.header("x-maglor-denied")),
        (403, None)
    );
    assert_eq!(plain.get("/healthz").status, 200, "the connection goes on");
    assert_eq!(upstream.requests(), 3);
    let counts = [
        ("allow", "web"),
        ("allow", "probes"),
        ("deny", "admin"),
        ("deny", "-"),
    ];
    let counts = counts.map(|(decision, rule)| decided(&proxy, decision, rule));
    assert_eq!(counts, [2.0, 1.0, 3.0, 2.0]);
}

#[test]
fn grpc_clients_get_a_grpc_status() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let proxy = inbound(&root.member("cart"), &upstream, "default: deny").start();
    let config = root.member("web").client("h2");
    let mut client = Client::connect_tls(proxy.listener("web"), "a", config);
    let mut call = h2::request("POST", "/shop.Cart/Add", h2::empty());
    let grpc = "application/grpc".parse().unwrap();
    call.headers_mut().insert("content-type", grpc);
    let answer = client.ask(call);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("grpc-status"), Some("7"));
    assert_eq!(answer.header("x-maglor-denied"), Some("-"));
    assert_eq!(upstream.requests(), 0);
}

#[test]
fn rules_can_be_audited_before_they_are_in_force() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let cart = root.member("cart");
    let rules = "rules: [{name: others, from: [{namespaces: other}]}, {name: seen, action: audit}]";
    let audited = inbound(&cart, &upstream, &format!("audit: true, {rules}"));
    let proxy = audited.start();
    let web = root.member("web");
    // One connection for all requests: its rules change in the meantime.
    let config = web.client("http/1.1");
    let mut client = RawHttp1::connect_tls(proxy.listener("web"), "a", config);
    assert_eq!(client.get("/").status, 200);
    assert_eq!(decided(&proxy, "would-deny", "-"), 1.0);
    assert_eq!(decided(&proxy, "audit", "seen"), 1.0);
    proxy.wait_for_log("audited by authorization");
    reload(&proxy, &inbound(&cart, &upstream, rules).yaml());
    assert_eq!(client.get("/").status, 403);
    assert_eq!(decided(&proxy, "deny", "-"), 1.0);
    reload(&proxy, &inbound(&cart, &upstream, "rules: [{}]").yaml());
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn connections_of_bytes_are_decided_as_wholes() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let config = |rules: &str| {
        format!(
            "admin: {{address: '127.0.0.1:0'}}\n{}\nlisteners:\n- {{name: web, address: '127.0.0.1:0', \
             tls: mesh, authorization: {{{rules}}}, tcp: {{cluster: a}}}}\n\
             clusters:\n- {{name: a, endpoints: ['{}']}}\n",
            root.member("cart").yaml(),
            upstream.address()
        )
    };
    let rules = format!(
        "rules: [{{name: web, from: [{{identities: '{}'}}]}}]",
        id("web")
    );
    let proxy = support::start(&config(&rules));
    assert_eq!(get(&proxy, &root.member("web"), "/").text(), "a");
    let other = root.member("other").client("http/1.1");
    let mut denied = RawHttp1::connect_tls(proxy.listener("web"), "a", other);
    let sent = denied
        .connection()
        .send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(sent.is_err() || denied.connection().read_head().is_err());
    let refused = "maglor_downstream_connections_refused_total";
    eventually(TIMEOUT, "it is counted", || {
        proxy.metric(refused, &["denied"]) == 1.0
    });
    let counts = [
        decided(&proxy, "allow", "web"),
        decided(&proxy, "deny", "-"),
    ];
    assert_eq!(counts, [1.0, 1.0]);
    assert_eq!(upstream.requests(), 1);
}

/// Returns the configuration of a TCP listener with authorization, whose rules and TLS mode change.
fn bytes(member: &Member, upstream: &Upstream, settings: &str) -> String {
    format!(
        "admin: {{address: '127.0.0.1:0'}}\n{}\nlisteners:\n- {{name: web, address: '127.0.0.1:0', \
         {settings}, tcp: {{cluster: a}}}}\nclusters:\n- {{name: a, endpoints: ['{}']}}\n",
        member.yaml(),
        upstream.address()
    )
}

#[test]
fn connections_of_bytes_end_when_they_would_not_be_let_in_any_more() {
    let root = Root::new();
    let (upstream, cart) = (Upstream::start("a"), root.member("cart"));
    let open = "tls: {mesh: permissive}";
    let proxy = support::start(&bytes(&cart, &upstream, open));
    let mut plain = RawHttp1::connect(proxy.listener("web"));
    let config = root.member("web").client("http/1.1");
    let mut member = RawHttp1::connect_tls(proxy.listener("web"), "a", config);
    assert_eq!((plain.get("/").status, member.get("/").status), (200, 200));
    let ended = |reason: &str| {
        let reason = format!("reason=\"{reason}\"");
        proxy.metric("maglor_downstream_connections_ended_total", &[&reason])
    };
    // A change that is reverted within the grace period has no effect.
    let strict = "tls: {mesh: strict}";
    reload(&proxy, &bytes(&cart, &upstream, strict));
    assert_eq!(plain.get("/").status, 200, "there is time to finish");
    reload(&proxy, &bytes(&cart, &upstream, open));
    reload(&proxy, &bytes(&cart, &upstream, strict));
    eventually(TIMEOUT, "plain text is ended", || ended("plaintext") == 1.0);
    assert!(plain.connection().read_head().is_err());
    assert_eq!(member.get("/").status, 200);
    let rules = "rules: [{name: others, from: [{namespaces: other}]}]";
    let denied = format!("{strict}, authorization: {{{rules}}}");
    reload(&proxy, &bytes(&cart, &upstream, &denied));
    eventually(TIMEOUT, "the member is ended", || ended("denied") == 1.0);
    assert!(member.connection().read_head().is_err());
    proxy.wait_for_log("the changed authorization rules deny the connection");
}
