//! Two pods whose connections are redirected to `maglor-proxy sidecar`: by the address of a service, with
//! mutual TLS between them, configured by the control plane. Needs root; the test creates its hosts as
//! network namespaces.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use maglor_testkit::{Proxy, ProxyBuilder, RawHttp1, TIMEOUT, Upstream, eventually};
use maglor_xds::{Listener, encode};
use tempfile::TempDir;

use crate::support;
use crate::support::control_plane::{ControlPlane, cluster_of};
use crate::support::mesh::{Root, id};
use crate::support::netns::Namespace;

const BINARY: &str = env!("CARGO_BIN_EXE_maglor-proxy");
const WEB: &str = "10.77.0.2";
const CART: &str = "10.77.0.1";
/// Ports of the application.
const HTTP: u16 = 8080;
const GREETER: u16 = 2525;

/// The pods, and everything that runs in them.
struct Fixture {
    web: Namespace,
    cart: Namespace,
    control: ControlPlane,
    application: Upstream,
    proxies: Vec<Proxy>,
    _wrappers: TempDir,
}

impl Fixture {
    /// Returns `None` without root.
    fn new() -> Option<Self> {
        let (web, cart) = (Namespace::new()?, Namespace::new()?);
        web.join(&format!("{WEB}/24"), &cart, &format!("{CART}/24"));
        web.ip(&format!("route add 10.96.0.0/16 via {CART}"));
        let address = |port| format!("0.0.0.0:{port}").parse::<SocketAddr>().unwrap();
        let application = cart.enter(|| Upstream::builder("cart").address(address(HTTP)).start());
        cart.enter(|| greet(address(GREETER)));
        let control = cart.enter(|| {
            let server = maglor_xds::grpc_server::Server::new(support::control_plane::everybody());
            ControlPlane::at(address(15010), server)
        });
        let (root, wrappers) = (Root::new(), TempDir::new().unwrap());
        let mut proxies = Vec::new();
        for (pod, name) in [(&cart, "cart"), (&web, "web")] {
            let init = "init --inbound-port 15006 --outbound-port 15001 --proxy-uid 2102 \
                        --skip-inbound-ports 15010,15020";
            let output = pod.run(BINARY, &init.split_whitespace().collect::<Vec<_>>());
            assert!(output.status.success(), "{output:?}");
            let member = root.member(name).flags();
            proxies.push(pod.enter(|| sidecar(pod, &wrappers, name, &member)));
        }
        Some(Self {
            web,
            cart,
            control,
            application,
            proxies,
            _wrappers: wrappers,
        })
    }

    /// Publishes the configuration of both pods.
    fn describe(&self, mtls: &str) {
        self.control.inbound("shop/web-1", "{}");
        self.control.inbound(
            "shop/cart-1",
            &format!("{{tls: {mtls}, ports: {{{HTTP}: http, {GREETER}: tcp}}}}"),
        );
        let tls = format!("tls: {{mesh: {{identities: ['{}']}}}}", id("cart"));
        let name = "cart.shop.svc.cluster.local:80";
        let at = |port| vec![SocketAddr::new(CART.parse().unwrap(), port)];
        self.control
            .serve_with(name, &format!("{{name: cart, {tls}}}"), &at(HTTP));
        let http = Listener::Http {
            routes: name.to_owned(),
            bytes: None,
        };
        self.control
            .put(encode::listener("10.96.0.10:80", &http).unwrap());
        self.control
            .serve_bytes("10.96.0.20:25", "mail", &at(GREETER));
        self.control
            .put(cluster_of(&format!("{{name: mail, {tls}}}")));
        let ready =
            |pod: &Namespace, proxy: &Proxy| pod.enter(|| proxy.admin_get("/ready").status == 200);
        for (pod, proxy) in [&self.cart, &self.web].into_iter().zip(&self.proxies) {
            eventually(TIMEOUT, "it is ready", || ready(pod, proxy));
        }
    }

    fn members(&self) -> f64 {
        self.cart
            .enter(|| self.proxies[0].metric("maglor_mesh_handshakes_total", &[]))
    }
}

/// Starts the sidecar of a pod, as user 2102.
fn sidecar(pod: &Namespace, wrappers: &TempDir, name: &str, member: &[String]) -> Proxy {
    let script = wrappers.path().join(name);
    // Its files belong to root, so it reads them by a capability instead of as root.
    let text = format!(
        "#!/bin/sh\nexec ip netns exec {} setpriv --reuid 2102 --regid 2102 --clear-groups \
         --inh-caps=+dac_override --ambient-caps=+dac_override --pdeathsig KILL {BINARY} \"$@\"\n",
        pod.name()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    ProxyBuilder::new(script)
        .args(["sidecar", "--plain-text", "--trust-domain", "mesh.test"])
        .args(["--control-plane", &format!("{CART}:15010")])
        .args([
            "--pod-namespace",
            "shop",
            "--pod-name",
            &format!("{name}-1"),
        ])
        .args(["--pod-ips", if name == "web" { WEB } else { CART }])
        .args(member)
        .start()
}

/// Starts a server that sends first. It runs as long as the test.
fn greet(address: SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                std::io::Write::write_all(&mut client, b"220 ready\r\n")?;
                std::io::copy(&mut client, &mut std::io::sink())
            });
        }
    });
}

fn get(address: &str, host: &str) -> u16 {
    let mut client = RawHttp1::connect(address.parse().unwrap());
    client
        .request(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n"))
        .status
}

#[test]
fn pods_speak_to_services_by_mutual_tls() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.describe("strict");
    fixture.web.enter(|| {
        for host in ["cart", "10.96.0.10", "whatever.example"] {
            assert_eq!(get("10.96.0.10:80", host), 200, "{host}");
        }
        // There is no delay for a protocol in which the server sends first.
        let began = Instant::now();
        let mut client = RawHttp1::connect("10.96.0.20:25".parse().unwrap());
        client.connection().expect("220 ready\r\n").unwrap();
        assert!(
            began.elapsed() < Duration::from_millis(900),
            "{:?}",
            began.elapsed()
        );
    });
    assert_eq!(fixture.application.requests(), 3);
    assert!(fixture.members() >= 2.0);
    // The pod's own address is no service: the connection is passed unchanged, and is not admitted.
    let direct = format!("{CART}:{HTTP}");
    assert!(fixture.web.enter(|| get(&direct, "a")) >= 500);
    assert_eq!(fixture.application.requests(), 3);
    fixture.describe("permissive");
    eventually(TIMEOUT, "plain text is let in", || {
        fixture.web.enter(|| get(&direct, "a")) == 200
    });
}
