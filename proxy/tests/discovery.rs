//! Hosts that the proxy learns of from its control plane when they are called.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use maglor_testkit::{Proxy, RawHttp1, TIMEOUT, Upstream, eventually};
use maglor_xds::Kind;
use support::control_plane::{ControlPlane, cluster_of};
use support::{outstanding, start};

const CART: &str = "cart.shop.svc.cluster.local:80";

/// A proxy that asks for every host but `own.example`.
fn proxy(control: SocketAddr, discovery: &str) -> Proxy {
    start(&format!(
        "admin: {{address: '127.0.0.1:0'}}
control_plane: {{cluster: control, node: {{id: proxy-1.shop, cluster: test}}}}
listeners:
- name: out
  address: 127.0.0.1:0
  http:
    discovery: {{namespace: shop, {discovery}}}
    virtual_hosts: [{{domains: [own.example], routes: [{{direct_response: {{status: 200, body: own}}}}]}}]
clusters:
- {{name: control, endpoints: ['{control}']}}
"
    ))
}

fn get(proxy: &Proxy, host: &str) -> (u16, String) {
    let mut client = RawHttp1::connect(proxy.listener("out"));
    client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n"));
    let response = client.response();
    (response.status, response.text().to_owned())
}

fn ok(text: &str) -> (u16, String) {
    (200, text.to_owned())
}

#[test]
fn a_chain_for_one_service_asks_for_it_whatever_host_is_called() {
    let (control, upstream) = (ControlPlane::start(), Upstream::start("cart"));
    control.serve(CART, "cart", &[upstream.address()]);
    let proxy = proxy(control.address, "host: 'cart:80'");
    for host in ["cart", "shop.example:8080", "10.0.0.1"] {
        assert_eq!(get(&proxy, host), ok("cart"), "{host}");
    }
}

#[test]
fn a_host_is_found_when_it_is_called_by_each_of_its_names() {
    let (control, upstream) = (ControlPlane::start(), Upstream::start("cart"));
    control.serve(CART, "cart", &[upstream.address()]);
    let proxy = proxy(control.address, "timeout: 5s");
    for host in [
        "cart",
        "cart.shop",
        "cart.shop.svc",
        "Cart.Shop.svc.cluster.local:80",
    ] {
        assert_eq!(get(&proxy, host), ok("cart"), "{host}");
    }
    assert_eq!(get(&proxy, "own.example"), ok("own"));
    assert_eq!(get(&proxy, "nobody").0, 404);
    assert_eq!(
        get(&proxy, "cart:81").0,
        404,
        "another port is another service"
    );
    let sessions = control.server.sessions();
    assert_eq!(&*sessions[0].node, "proxy-1.shop");
    assert_eq!(proxy.metric("maglor_xds_connected", &[]), 1.0);
    assert_eq!(proxy.metric("maglor_xds_targets", &[]), 3.0);
}

#[test]
fn changes_reach_a_proxy_that_uses_what_has_changed() {
    let control = ControlPlane::start();
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    control.serve(CART, "cart", &[a.address()]);
    let proxy = proxy(control.address, "timeout: 5s");
    assert_eq!(get(&proxy, "cart"), ok("a"));
    control.assign("cart", &[b.address()]);
    eventually(TIMEOUT, "endpoints", || get(&proxy, "cart") == ok("b"));
    control.route(CART, "{direct_response: {status: 200, body: routed}}");
    eventually(TIMEOUT, "routes", || get(&proxy, "cart") == ok("routed"));
    control.remove(Kind::Listener, CART);
    eventually(TIMEOUT, "it has gone", || get(&proxy, "cart").0 == 404);
    control.serve(CART, "cart", &[a.address()]);
    eventually(TIMEOUT, "it is back", || get(&proxy, "cart") == ok("a"));
    control.remove(Kind::Cluster, "cart");
    eventually(TIMEOUT, "no cluster", || get(&proxy, "cart").0 == 503);
}

#[test]
fn endpoints_that_stay_keep_their_connections() {
    let control = ControlPlane::start();
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    control.serve(CART, "cart", &[a.address()]);
    let proxy = proxy(control.address, "timeout: 5s");
    assert_eq!(get(&proxy, "cart"), ok("a"));
    control.assign("cart", &[a.address(), b.address()]);
    eventually(TIMEOUT, "both are used", || get(&proxy, "cart") == ok("b"));
    control.assign("cart", &[a.address()]);
    eventually(TIMEOUT, "one has gone", || {
        (0..20).all(|_| get(&proxy, "cart") == ok("a"))
    });
    assert_eq!(a.connections(), 1);
}

/// A listener whose queue is full: what else is sent to it is answered by nothing, like what is sent to a pod that has
/// gone.
struct Silent {
    _socket: socket2::Socket,
    _queued: Vec<TcpStream>,
    address: SocketAddr,
}

impl Silent {
    fn start() -> Self {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        socket.bind(&any.into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let limit = Duration::from_millis(100);
        let queued = std::iter::from_fn(|| TcpStream::connect_timeout(&address, limit).ok());
        let queued = queued.take(10).collect();
        Self {
            _socket: socket,
            _queued: queued,
            address,
        }
    }
}

#[test]
fn an_endpoint_that_leaves_is_not_waited_for() {
    let control = ControlPlane::start();
    let (gone, well) = (Silent::start(), Upstream::start("b"));
    for settings in ["", ", protocol: http1", ", protocol: http2"] {
        let cluster = format!("{{name: cart, connect_timeout: 10m{settings}}}");
        control.serve_with(CART, &cluster, &[gone.address]);
        let proxy = proxy(control.address, "timeout: 5s");
        let asking = std::thread::scope(|scope| {
            let asking = scope.spawn(|| get(&proxy, "cart"));
            eventually(TIMEOUT, "it is being connected to", || {
                outstanding(&proxy) == 1.0
            });
            control.assign("cart", &[well.address()]);
            asking.join().unwrap()
        });
        assert_eq!(asking, ok("b"), "{settings}");
    }
}

#[test]
fn endpoints_that_are_names_are_looked_up() {
    let control = ControlPlane::start();
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let named = |upstream: &Upstream| format!("localhost:{}", upstream.address().port());
    control.serve(CART, "cart", &[a.address()]);
    let proxy = proxy(control.address, "timeout: 5s");
    assert_eq!(get(&proxy, "cart"), ok("a"));
    control.assign("cart", &[named(&b)]);
    eventually(TIMEOUT, "a name", || get(&proxy, "cart") == ok("b"));
    control.assign("cart", &[named(&a)]);
    eventually(TIMEOUT, "another name", || get(&proxy, "cart") == ok("a"));
    control.assign("cart", &[b.address()]);
    eventually(TIMEOUT, "an address again", || {
        get(&proxy, "cart") == ok("b")
    });
    // As an ExternalName is said: with the cluster itself.
    control.serve(CART, "elsewhere", &[] as &[SocketAddr]);
    control.put(cluster_of(&format!(
        "{{name: elsewhere, endpoints: ['{}']}}",
        named(&a)
    )));
    eventually(TIMEOUT, "a name of the cluster", || {
        get(&proxy, "cart") == ok("a")
    });
}

#[test]
fn what_is_wrong_is_refused_and_the_last_good_one_stays() {
    let (control, upstream) = (ControlPlane::start(), Upstream::start("cart"));
    control.serve(CART, "cart", &[upstream.address()]);
    let proxy = proxy(control.address, "timeout: 5s");
    assert_eq!(get(&proxy, "cart"), ok("cart"));
    control.put(cluster_of("{name: cart, max_concurrent_streams: 0}"));
    let nack = || {
        control
            .server
            .sessions()
            .first()
            .and_then(|s| s.nacks.first().cloned())
    };
    eventually(TIMEOUT, "it is refused", || nack().is_some());
    let reason = nack().unwrap().reason;
    assert!(
        reason.contains("cart") && reason.contains("max_concurrent_streams"),
        "{reason}"
    );
    assert_eq!(get(&proxy, "cart"), ok("cart"));
    let refused = || proxy.metric("maglor_xds_updates_total", &["result=\"refused\""]);
    assert_eq!(refused(), 1.0);
    // Mesh TLS without an identity cannot be spoken.
    control.put(cluster_of("{name: cart, tls: mesh}"));
    eventually(TIMEOUT, "it is refused, too", || refused() == 2.0);
    assert_eq!(get(&proxy, "cart"), ok("cart"));
    control.put(cluster_of("{name: cart, policy: random}"));
    eventually(TIMEOUT, "something better is taken", || nack().is_none());
}

#[test]
fn a_proxy_goes_on_without_its_control_plane_and_catches_up() {
    let control = ControlPlane::start();
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    control.serve(CART, "cart", &[a.address()]);
    let proxy = proxy(control.address, "timeout: 200ms");
    assert_eq!(get(&proxy, "cart"), ok("a"));
    let (address, server) = control.kill();
    eventually(TIMEOUT, "it is noticed", || {
        proxy.metric("maglor_xds_connected", &[]) == 0.0
    });
    assert_eq!(get(&proxy, "cart"), ok("a"));
    assert_eq!(get(&proxy, "unknown").0, 503, "nobody can say");
    let control = ControlPlane::at(address, server);
    control.assign("cart", &[b.address()]);
    eventually(TIMEOUT, "it catches up", || get(&proxy, "cart") == ok("b"));
    eventually(TIMEOUT, "the other host is asked for", || {
        get(&proxy, "unknown").0 == 404
    });
}

#[test]
fn a_host_that_is_not_called_any_more_is_forgotten() {
    let (control, upstream) = (ControlPlane::start(), Upstream::start("cart"));
    control.serve(CART, "cart", &[upstream.address()]);
    let proxy = proxy(control.address, "idle_timeout: 1s");
    assert_eq!(get(&proxy, "cart"), ok("cart"));
    let subscribed = || {
        let sessions = control.server.sessions();
        sessions
            .iter()
            .flat_map(|s| &s.subscribed)
            .map(|(_, count)| count)
            .sum::<usize>()
    };
    assert_eq!(subscribed(), 4);
    eventually(TIMEOUT, "it is forgotten", || subscribed() == 0);
    assert_eq!(proxy.metric("maglor_xds_targets", &[]), 0.0);
    assert_eq!(get(&proxy, "cart"), ok("cart"), "and found again");
}

#[test]
fn what_is_followed_is_bounded() {
    let (control, upstream) = (ControlPlane::start(), Upstream::start("cart"));
    control.serve(CART, "cart", &[upstream.address()]);
    let proxy = proxy(control.address, "timeout: 5s");
    assert_eq!(get(&proxy, "cart"), ok("cart"));
    let mut client = RawHttp1::connect(proxy.listener("out"));
    for i in 0..1100 {
        let response = client.request(format!("GET / HTTP/1.1\r\nhost: h{i}.example\r\n\r\n"));
        assert_eq!(response.status, 404);
    }
    assert_eq!(proxy.metric("maglor_xds_targets", &[]), 1024.0);
    assert_eq!(get(&proxy, "cart"), ok("cart"), "asked for again");
}

#[test]
fn a_new_file_leaves_what_was_discovered_as_it_is() {
    let (control, upstream) = (ControlPlane::start(), Upstream::start("cart"));
    control.serve(CART, "cart", &[upstream.address()]);
    let proxy = proxy(control.address, "timeout: 5s");
    assert_eq!(get(&proxy, "cart"), ok("cart"));
    let text = std::fs::read_to_string(proxy.config_file()).unwrap();
    proxy.replace_config(&text.replace("body: own", "body: changed"));
    eventually(TIMEOUT, "the file", || {
        get(&proxy, "own.example") == ok("changed")
    });
    assert_eq!(get(&proxy, "cart"), ok("cart"));
    assert_eq!(upstream.connections(), 1);
}

/// What a proxy needs grows with what its application calls, not with the mesh.
#[test]
fn memory_follows_what_is_called() {
    let (control, upstream) = (ControlPlane::start(), Upstream::start("x"));
    let service = |i: usize| format!("s{i}.shop.svc.cluster.local:80");
    for i in 0..1000 {
        // Ten addresses of one server.
        let all: Vec<_> = (0..10)
            .map(|k| {
                format!("127.0.0.{}:{}", k + 1, upstream.address().port())
                    .parse()
                    .unwrap()
            })
            .collect();
        control.serve(
            &service(i),
            &format!("s{i}"),
            &all[..if i < 200 { 10 } else { 1 }],
        );
    }
    let proxy = proxy(control.address, "timeout: 5s");
    let call = |range: std::ops::Range<usize>| {
        // Nobody listens at the other addresses: that there was an answer is enough.
        range.for_each(|i| assert_ne!(get(&proxy, &format!("s{i}")).0, 404));
        proxy.allocated_bytes()
    };
    let (few, many) = (call(0..5), call(5..200));
    println!("allocated with 5 of 1000 services: {few}, with 200 of 10 endpoints: {many} bytes");
    assert!(
        many < 45 << 20,
        "{many} bytes with 200 services of 10 endpoints"
    );
    assert_eq!(proxy.metric("maglor_xds_targets", &[]), 200.0);
}
