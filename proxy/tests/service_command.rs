//! `maglor-proxy service`: one port for one service, with any protocol. TCP connections pass unchanged, with
//! the clients' own mutual TLS inside, so that the servers' proxies authenticate the clients; WebSockets pass
//! where HTTP does.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use maglor_testkit::process::Signal;
use maglor_testkit::{Proxy, RawHttp1, RawServer, TIMEOUT, Upstream, eventually};

use crate::support;
use crate::support::control_plane::{ControlPlane, cluster_of};
use crate::support::mesh::{Member, Root, id};

const DATABASE: &str = "db-target.shop.svc.cluster.local:5432";
const WEB: &str = "web-target.shop.svc.cluster.local:80";

/// Starts a proxy in front of a service, with an identity if there is one.
fn service(control: &ControlPlane, forward: &str, member: Option<&Member>) -> Proxy {
    let flags = member.map(|member| member.flags().to_vec());
    let domain = member.map(|_| ["--trust-domain", "mesh.test"]);
    support::builder()
        .args(["service", "--plain-text", "--bind", "127.0.0.1"])
        .args(["--admin-port", "0", "--drain-timeout", "5s"])
        .args(["--control-plane", &control.address.to_string()])
        .args(["--pod-namespace", "shop", "--pod-name", "db-1"])
        .args(["--forward", &format!("0={forward}")])
        .args(domain.into_iter().flatten())
        .args(flags.into_iter().flatten())
        .start()
}

fn ready(proxy: &Proxy) {
    eventually(TIMEOUT, "the service is known", || {
        proxy.admin_get("/ready").status == 200
    });
}

/// Starts a server that sends its name first, and then echoes.
fn greeter(name: &'static str) -> RawServer {
    RawServer::start(move |connection, _| {
        connection.send(format!("220 {name}\r\n"))?;
        loop {
            let line = connection.read_until(b"\n")?;
            connection.send(line)?;
        }
    })
}

fn greeting(client: &mut RawHttp1) -> String {
    let line = client.connection().read_until(b"\n").unwrap();
    String::from_utf8(line).unwrap()
}

fn connect(proxy: &Proxy) -> RawHttp1 {
    RawHttp1::connect(proxy.listener("0"))
}

#[test]
fn connections_of_bytes_are_balanced() {
    let (control, one, two) = (ControlPlane::start(), greeter("one"), greeter("two"));
    let proxy = service(&control, &format!("tcp/{DATABASE}"), None);
    assert_eq!(proxy.admin_get("/ready").status, 503, "nothing is known");
    control.serve_bytes(DATABASE, "db", &[one.address(), two.address()]);
    control.put(cluster_of("{name: db, policy: lor(choices=all)}"));
    ready(&proxy);
    let mut clients: Vec<RawHttp1> = Vec::new();
    let mut heard = Vec::new();
    let began = Instant::now();
    for _ in 0..6 {
        let mut client = connect(&proxy);
        heard.push(greeting(&mut client));
        clients.push(client);
    }
    // Equally many to each while all are open; no connection waits for a client that waits for its server.
    let of_one = heard.iter().filter(|line| line.contains("one")).count();
    assert_eq!(of_one, 3, "{heard:?}");
    assert!(began.elapsed() < Duration::from_secs(1));
    // Bytes that look like HTTP are not parsed, either.
    let request = "GET / HTTP/1.1\r\n";
    clients[0].send(request);
    clients[0].connection().expect(request).unwrap();
    // Connections survive a change of their service's endpoints, and the start of the proxy's drain.
    control.assign("db", &[two.address()]);
    eventually(TIMEOUT, "new ones go to the other", || {
        greeting(&mut connect(&proxy)).contains("two")
    });
    proxy.signal(Signal::Terminate);
    for client in &mut clients {
        client.send("still there\n");
        client.connection().expect("still there\n").unwrap();
    }
}

/// Starts the database's own proxy: mutual TLS only, for one account only.
fn database(root: &Root, application: SocketAddr) -> Proxy {
    support::start(&format!(
        "admin: {{address: '127.0.0.1:0'}}
{}
listeners:
- name: in
  address: 127.0.0.1:0
  tls: {{mesh: strict, delegates: ['{}']}}
  authorization: {{rules: [{{name: web, from: [{{identities: '{}'}}]}}]}}
  inbound: {{application: '{application}', protocol: tcp}}
",
        root.member("db").yaml(),
        id("front"),
        id("web"),
    ))
}

#[test]
fn clients_prove_to_the_servers_themselves_who_they_are() {
    let (root, control, server) = (Root::new(), ControlPlane::start(), greeter("db"));
    let database = database(&root, server.address());
    let front = root.member("front");
    let proxy = service(&control, &format!("tcp/{DATABASE}"), Some(&front));
    control.serve_bytes(DATABASE, "db", &[database.listener("in")]);
    ready(&proxy);
    let as_member = |account: &str| {
        let config = root.member(account).client("");
        RawHttp1::connect_tls(proxy.listener("0"), "a", config)
    };
    let mut web = as_member("web");
    assert_eq!(greeting(&mut web), "220 db\r\n");
    web.send("SELECT 1\n");
    web.connection().expect("SELECT 1\n").unwrap();
    // Rejected: another member, the proxies themselves, and an unauthenticated client.
    for account in ["other", "front"] {
        let answer = as_member(account).connection().read_until(b"\n");
        assert!(answer.is_err(), "{account}: {answer:?}");
    }
    let mut plain = connect(&proxy);
    plain.send("SELECT 1\n");
    assert!(plain.connection().read_until(b"\n").is_err());
    let denied = ["listener=\"in\"", "reason=\"denied\""];
    let denied = database.metric("maglor_downstream_connections_refused_total", &denied);
    assert_eq!(denied, 2.0);
}

#[test]
fn a_websocket_passes() {
    let (control, upstream) = (ControlPlane::start(), Upstream::start("web"));
    let proxy = service(&control, &format!("http/{WEB}"), None);
    control.serve(WEB, "web", &[upstream.address()]);
    ready(&proxy);
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").text(), "web");
    client.send(
        "GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    assert_eq!(client.response().status, 101);
    // "Hi", masked as required from a client (RFC 6455, 5.3), and back without mask.
    client.send([0x82, 0x82, 1, 2, 3, 4, b'H' ^ 1, b'i' ^ 2]);
    let message = client.connection().read_exact(4).unwrap();
    assert_eq!(message, [0x82, 2, b'H', b'i']);
    // A drain does not end it like a request.
    proxy.signal(Signal::Terminate);
    client.send([0x82, 0x82, 1, 2, 3, 4, b'H' ^ 1, b'i' ^ 2]);
    assert_eq!(client.connection().read_exact(4).unwrap(), message);
}
