//! Hosts that the proxy discovers from its control plane when they are requested.

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use maglor_config::{raw, resource};
use maglor_testkit::{Proxy, RawHttp1, TIMEOUT, Upstream, eventually};
use maglor_xds::grpc_server::{Node, Peer, Policy, Server, Status};
use maglor_xds::server::Scope;
use maglor_xds::{Kind, encode};

use crate::support::control_plane::{ControlPlane, cluster_of, everybody};
use crate::support::{outstanding, start};

const CART: &str = "cart.shop.svc.cluster.local:80";

/// Starts a proxy that discovers every host but `own.example`.
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
    assert_eq!(get(&proxy, "absent").0, 404);
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
fn short_names_are_of_the_configured_domain() {
    let (control, upstream) = (ControlPlane::start(), Upstream::start("cart"));
    control.serve("cart.shop.svc.mesh.test:80", "cart", &[upstream.address()]);
    for (discovery, status) in [("domain: mesh.test", 200), ("domain: cluster.local", 404)] {
        let proxy = proxy(control.address, discovery);
        for host in ["cart", "cart.shop", "cart.shop.svc"] {
            assert_eq!(get(&proxy, host).0, status, "{discovery}: {host}");
        }
    }
}

/// With `host`, a chain requests one table, of which it uses the virtual host of that name, or that of each
/// request.
#[test]
fn a_chain_for_one_service_may_go_by_the_virtual_hosts_of_its_table() {
    let control = ControlPlane::start();
    control.serve(CART, "cart", &[] as &[SocketAddr]);
    let answer = |domain: &str| {
        let respond = format!("direct_response: {{status: 200, body: {domain}}}");
        format!("{{domains: [{domain}], routes: [{{{respond}}}]}}")
    };
    let hosts = ["cart.shop.svc.cluster.local", "a.example", "b.example"].map(answer);
    let table = format!("{{name: {CART:?}, virtual_hosts: [{}]}}", hosts.join(", "));
    let table: raw::RouteTable = resource::read(&table, "test").unwrap();
    control.put(encode::routes(&table).unwrap());
    let one = proxy(control.address, "host: 'cart:80'");
    for host in ["a.example", "b.example", "c.example"] {
        assert_eq!(get(&one, host), ok("cart.shop.svc.cluster.local"), "{host}");
    }
    let all = proxy(control.address, "host: 'cart:80', by_virtual_host: true");
    assert_eq!(get(&all, "a.example"), ok("a.example"));
    assert_eq!(get(&all, "b.example"), ok("b.example"));
    assert_eq!(get(&all, "c.example").0, 404);
}

/// Records the group of which each client declares itself a member.
struct Groups(mpsc::Sender<String>);

impl Policy for Groups {
    fn authorize(&self, peer: &Peer, node: &Node) -> Result<Scope, Status> {
        let _ = self.0.send(node.cluster.clone());
        everybody().authorize(peer, node)
    }
}

#[test]
fn a_proxy_says_which_group_it_belongs_to() {
    let (sender, groups) = mpsc::channel();
    let server = Server::new(Arc::new(Groups(sender)));
    let control = ControlPlane::at("127.0.0.1:0".parse().unwrap(), server);
    for (node, expected) in [("id: a.shop, cluster: edge", "edge"), ("id: b.shop", "")] {
        let proxy = start(&format!(
            "control_plane: {{cluster: control, node: {{{node}}}}}\nlisteners:\n\
             - {{name: out, address: '127.0.0.1:0', http: {{discovery: {{namespace: shop}}, virtual_hosts: []}}}}\n\
             clusters:\n- {{name: control, endpoints: ['{}']}}\n",
            control.address
        ));
        // It connects when there is something to request.
        assert_eq!(get(&proxy, "cart").0, 404);
        let group = groups.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(group, expected, "{node}");
    }
}

/// A proxy that starts while its control plane is unavailable uses the state that an earlier one has stored.
#[test]
fn what_was_discovered_is_kept_in_a_folder_where_there_is_one() {
    let (control, upstream) = (ControlPlane::start(), Upstream::start("cart"));
    control.serve(CART, "cart", &[upstream.address()]);
    let folder = tempfile::tempdir().unwrap();
    let cache = format!(", cache_dir: '{}'", folder.path().display());
    let yaml = |cache: &str| {
        format!(
            "admin: {{address: '127.0.0.1:0'}}\ncontrol_plane: {{cluster: control, node: {{id: web.shop}}{cache}}}\n\
             listeners:\n- name: out\n  address: 127.0.0.1:0\n  \
             http: {{discovery: {{namespace: shop, timeout: 200ms}}, virtual_hosts: []}}\n\
             clusters:\n- {{name: control, endpoints: ['{}']}}\n",
            control.address
        )
    };
    let (with, without) = (yaml(&cache), yaml(""));
    for text in [&with, &without] {
        let proxy = start(text);
        eventually(TIMEOUT, "it is found", || get(&proxy, "cart") == ok("cart"));
        // Among the stored resources, endpoints alone have an address. The file is written once a second.
        let resources = folder.path().join("resources");
        eventually(TIMEOUT, "it is kept", || {
            let kept = std::fs::read(&resources).unwrap_or_default();
            kept.windows(9).any(|part| part == b"127.0.0.1")
        });
        assert!(proxy.terminate().success());
    }
    drop(control);
    let (with, without) = (start(&with), start(&without));
    // At first it waits for the control plane.
    eventually(TIMEOUT, "what was kept is used", || {
        get(&with, "cart") == ok("cart")
    });
    assert_eq!(get(&without, "cart").0, 503);
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

/// A listener whose queue is full: further connection attempts get no response, as at a pod that is gone.
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
    // As for an ExternalName: with the cluster itself.
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
    // Mesh TLS is impossible without an identity.
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
    let proxy = proxy(control.address, "timeout: 1s");
    assert_eq!(get(&proxy, "cart"), ok("a"));
    let (address, server) = control.kill();
    eventually(TIMEOUT, "it is noticed", || {
        proxy.metric("maglor_xds_connected", &[]) == 0.0
    });
    assert_eq!(get(&proxy, "cart"), ok("a"));
    assert_eq!(get(&proxy, "unknown").0, 503, "no control plane");
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

/// A proxy's memory grows with the services that its application calls, not with the mesh.
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
        // There is no listener at the other addresses; any response is enough.
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
