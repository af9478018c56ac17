//! A proxy in front of a service, between real proxies: the rules of the servers apply to its clients, it alone
//! is trusted to identify them, and clients without a certificate are rejected where one is required.

use std::net::SocketAddr;

use maglor_testkit::{Proxy, RawHttp1, RawResponse, Upstream};

use crate::support;
use crate::support::h2::{self, Client};
use crate::support::mesh::{Member, Root, id};

const HEAD: &str = "admin: {address: '127.0.0.1:0'}";

/// Starts the servers' own proxy.
fn server(root: &Root, tls: &str, rules: &str, upstream: &Upstream) -> Proxy {
    support::start(&format!(
        "{HEAD}
{}
listeners:
- name: web
  address: 127.0.0.1:0
  tls: {{mesh: {tls}, delegates: ['{}']}}
  authorization: {{{rules}}}
  http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: application}}]}}]}}
clusters:
- {{name: application, endpoints: ['{}']}}
",
        root.member("cart").yaml(),
        id("front"),
        upstream.address()
    ))
}

/// Starts the proxy in front.
fn front(root: &Root, member: &str, server: SocketAddr) -> Proxy {
    support::start(&format!(
        "{HEAD}
{}
listeners:
- name: web
  address: 127.0.0.1:0
  tls: {{mesh: permissive}}
  http:
    x_maglor_client: true
    virtual_hosts: [{{domains: ['*'], routes: [{{cluster: cart}}]}}]
clusters:
- {{name: cart, endpoints: ['{server}'], tls: {{mesh: {{identities: ['{}']}}}}}}
",
        root.member(member).yaml(),
        id("cart")
    ))
}

fn get(proxy: &Proxy, member: &Member, said: &str) -> RawResponse {
    let config = member.client("http/1.1");
    let mut client = RawHttp1::connect_tls(proxy.listener("web"), "a", config);
    client.request(format!("GET / HTTP/1.1\r\nhost: a\r\n{said}\r\n"))
}

fn only(member: &str) -> String {
    let member = id(member);
    format!("rules: [{{name: web, from: [{{identities: '{member}'}}]}}]")
}

#[test]
fn rules_hold_for_the_clients_of_a_proxy_in_front() {
    let (root, upstream) = (Root::new(), Upstream::start("a"));
    let cart = server(&root, "strict", &only("web"), &upstream);
    let front = front(&root, "front", cart.listener("web"));
    let (web, other) = (root.member("web"), root.member("other"));
    assert_eq!(get(&front, &web, "").status, 200);
    let seen = upstream.last();
    assert_eq!(seen.header("x-maglor-client"), None);
    let shown = format!("By={};URI={}", id("cart"), id("web"));
    assert_eq!(seen.header("x-forwarded-client-cert"), Some(&*shown));
    assert_eq!(get(&front, &other, "").status, 403);
    // A client cannot assert an identity, at either proxy.
    let forged = format!("x-maglor-client: 10.0.0.1;{}\r\n", id("web"));
    for proxy in [&front, &cart] {
        assert_eq!(get(proxy, &other, &forged).status, 403);
    }
    let hop = format!("{forged}connection: x-maglor-client\r\n");
    assert_eq!(get(&front, &other, &hop).status, 403);
    // The proxy itself is not in the rules.
    assert_eq!(get(&cart, &root.member("front"), "").status, 403);
    for wrong in ["x-maglor-client: web\r\n", &format!("{forged}{forged}")] {
        let denied = get(&cart, &root.member("front"), wrong);
        assert_eq!(denied.header("x-maglor-denied"), Some("x-maglor-client"));
    }
    // The same over HTTP/2.
    for (member, status) in [(&web, 200), (&other, 403)] {
        let config = member.client("h2");
        let mut client = Client::connect_tls(front.listener("web"), "a", config);
        assert_eq!(client.ask(h2::get("/")).status, status);
    }
    assert_eq!(upstream.requests(), 2);
}

#[test]
fn who_is_not_a_delegate_is_itself() {
    let (root, upstream) = (Root::new(), Upstream::start("a"));
    let cart = server(&root, "strict", &only("web"), &upstream);
    let other = front(&root, "other", cart.listener("web"));
    assert_eq!(get(&other, &root.member("web"), "").status, 403);
    assert_eq!(upstream.requests(), 0);
}

#[test]
fn plain_text_passes_only_where_it_is_taken() {
    let (root, upstream) = (Root::new(), Upstream::start("a"));
    for (tls, status) in [("permissive", 200), ("strict", 403)] {
        let cart = server(&root, tls, "default: allow", &upstream);
        let front = front(&root, "front", cart.listener("web"));
        let mut plain = RawHttp1::connect(front.listener("web"));
        assert_eq!(plain.get("/").status, status, "{tls}");
    }
    assert_eq!(upstream.last().header("x-forwarded-client-cert"), None);
    // Rules on addresses apply to the client's address, not to the proxy's.
    let denied = "rules: [{action: deny, from: [{networks: 127.0.0.1}]}]";
    let cart = server(&root, "permissive", denied, &upstream);
    let config = root.member("front").client("http/1.1");
    let mut speaks = RawHttp1::connect_tls(cart.listener("web"), "a", config);
    for (client, status) in [("10.0.0.1", 200), ("127.0.0.1", 403)] {
        let said = format!("GET / HTTP/1.1\r\nhost: a\r\nx-maglor-client: {client}\r\n\r\n");
        assert_eq!(speaks.request(&said).status, status, "{client}");
    }
}

/// The client of TCP connections is unknown.
#[test]
fn bytes_pass_only_where_there_are_no_rules() {
    let (root, upstream) = (Root::new(), Upstream::start("a"));
    for (rules, passes) in [("", true), ("authorization: {default: allow},", false)] {
        let proxy = support::start(&format!(
            "{HEAD}\n{}\nlisteners:\n- {{name: web, address: '127.0.0.1:0', {rules} \
             tls: {{mesh: strict, delegates: ['{}']}}, tcp: {{cluster: a}}}}\n\
             clusters:\n- {{name: a, endpoints: ['{}']}}\n",
            root.member("cart").yaml(),
            id("front"),
            upstream.address()
        ));
        let config = root.member("front").client("http/1.1");
        let mut client = RawHttp1::connect_tls(proxy.listener("web"), "a", config);
        let sent = client
            .connection()
            .send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let answered = sent.is_ok() && client.connection().read_head().is_ok();
        assert_eq!(answered, passes, "{rules}");
    }
}
