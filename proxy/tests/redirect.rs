//! A pod whose connections `maglor-proxy init` redirects, and another host, with real rules, the kernel's
//! connection tracking, and a proxy running as a separate user. Needs root; the test creates its hosts as
//! network namespaces.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use maglor_testkit::{Proxy, ProxyBuilder, RawHttp1, TIMEOUT, Upstream, eventually};
use tempfile::TempDir;

use crate::support;
use crate::support::netns::Namespace;

const BINARY: &str = env!("CARGO_BIN_EXE_maglor-proxy");

const INIT: &str = "init --inbound-port 15006 --outbound-port 15001 --proxy-uid 2102 \
     --skip-inbound-ports 8081 --skip-outbound-ports 9001 --skip-subnets 10.78.0.0/24";

/// Ports of the application: protocol detected, skipped, on loopback only, server first.
const APPLICATION: u16 = 8080;
const SKIPPED: u16 = 8081;
const LOOPBACK: u16 = 8082;
const GREETER: u16 = 2525;
/// Ports of the other host.
const FAR: u16 = 9000;
const FAR_SKIPPED: u16 = 9001;
const REVIEWS: u16 = 9002;

const CONFIG: &str = "
admin: {address: '127.0.0.1:0'}
drain_timeout: 10s
listeners:
- name: inbound
  address: '[::]:15006'
  detection_timeout: 100ms
  inbound: {}
- name: outbound
  address: '[::]:15001'
  detection_timeout: 100ms
  outbound:
    services:
    - {name: reviews, addresses: ['10.96.0.5:80', '[fd96::5]:80'], cluster: reviews}
    - {name: itself, addresses: ['10.96.0.6:80'], cluster: itself}
clusters:
- {name: reviews, endpoints: ['10.77.0.1:9002']}
- {name: itself, endpoints: ['10.77.0.2:8080']}
";

/// The two hosts and everything that runs on them.
struct Fixture {
    pod: Namespace,
    far: Namespace,
    _upstreams: Vec<Upstream>,
    proxy: Option<Proxy>,
    _wrapper: TempDir,
}

impl Fixture {
    /// Returns `None` without root.
    fn new() -> Option<Self> {
        let (pod, far) = (Namespace::new()?, Namespace::new()?);
        pod.join(
            "10.77.0.2/24 10.78.0.2/24 fd77::2/64",
            &far,
            "10.77.0.1/24 10.78.0.1/24 fd77::1/64",
        );
        pod.ip("route add 10.96.0.0/16 via 10.77.0.1");
        pod.ip("-6 route add fd96::/16 via fd77::1");
        let on = |host: &Namespace, name: &str, address: &str| {
            let address = address.parse().unwrap();
            host.enter(|| Upstream::builder(name).address(address).start())
        };
        let upstreams = vec![
            on(&pod, "application", &format!("[::]:{APPLICATION}")),
            on(&pod, "skipped", &format!("[::]:{SKIPPED}")),
            on(&pod, "loopback", &format!("127.0.0.1:{LOOPBACK}")),
            on(&far, "far", &format!("[::]:{FAR}")),
            on(&far, "far-skipped", &format!("[::]:{FAR_SKIPPED}")),
            on(&far, "reviews", &format!("[::]:{REVIEWS}")),
        ];
        for host in [&pod, &far] {
            host.enter(|| greet(format!("[::]:{GREETER}").parse().unwrap()));
        }
        let wrapper = TempDir::new().unwrap();
        let proxy = pod.enter(|| start(&pod, &wrapper));
        Some(Self {
            pod,
            far,
            _upstreams: upstreams,
            proxy: Some(proxy),
            _wrapper: wrapper,
        })
    }

    fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().unwrap()
    }

    #[track_caller]
    fn init(&self, arguments: &str) -> Output {
        let output = self
            .pod
            .run(BINARY, &arguments.split_whitespace().collect::<Vec<_>>());
        assert!(output.status.success(), "{output:?}");
        output
    }

    /// Returns the number of requests that a listener has answered.
    fn answered(&self, listener: &str) -> f64 {
        let label = format!("listener=\"{listener}\"");
        self.pod
            .enter(|| self.proxy().metric("maglor_http_requests_total", &[&label]))
    }

    /// Waits for the count: a request is counted once its response has been sent.
    #[track_caller]
    fn assert_answered(&self, listener: &str, requests: f64) {
        eventually(TIMEOUT, "so many requests are counted", || {
            self.answered(listener) == requests
        });
    }

    fn detected(&self, listener: &str, protocol: &str) -> f64 {
        let labels = [
            format!("listener=\"{listener}\""),
            format!("protocol=\"{protocol}\""),
        ];
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let name = "maglor_downstream_protocol_detected_total";
        self.pod.enter(|| self.proxy().metric(name, &labels))
    }
}

/// Starts the proxy in the pod, as user 2102.
fn start(pod: &Namespace, wrapper: &TempDir) -> Proxy {
    let script = wrapper.path().join("proxy");
    // Its files belong to root, so it reads them by a capability instead of as root.
    let text = format!(
        "#!/bin/sh\nexec ip netns exec {} setpriv --reuid 2102 --regid 2102 --clear-groups \
         --inh-caps=+dac_override --ambient-caps=+dac_override --pdeathsig KILL {BINARY} \"$@\"\n",
        pod.name()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    ProxyBuilder::new(script).config(CONFIG).start()
}

/// Starts a server that sends first, and then echoes. It runs as long as the test.
fn greet(address: SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                client.write_all(b"220 ready\r\n")?;
                let mut piece = [0; 100];
                loop {
                    match client.read(&mut piece)? {
                        0 => return std::io::Result::Ok(()),
                        n => client.write_all(&piece[..n])?,
                    }
                }
            });
        }
    });
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns the responding server, and whether its request passed through a proxy.
#[track_caller]
fn ask(mut client: RawHttp1, host: &str) -> (String, bool) {
    let response = client.request(format!("GET /echo HTTP/1.1\r\nhost: {host}\r\n\r\n"));
    assert_eq!(response.status, 200, "{host}");
    let name = response.header("x-upstream").unwrap().to_owned();
    let proxied = response.json()["headers"]
        .to_string()
        .contains("x-request-id");
    (name, proxied)
}

#[track_caller]
fn call(host: &Namespace, to: &str, port: u16) -> (String, bool) {
    let address = SocketAddr::new(ip(to), port);
    host.enter(|| ask(RawHttp1::connect(address), "a"))
}

fn through(name: &str) -> (String, bool) {
    (name.to_owned(), true)
}

fn directly(name: &str) -> (String, bool) {
    (name.to_owned(), false)
}

/// The kernel's connection tracking is the only source of destinations.
#[test]
fn destinations_are_unknown_where_the_kernel_is_not_asked() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.init(INIT);
    let address = SocketAddr::new(ip("10.77.0.1"), FAR);
    let status = || {
        fixture
            .pod
            .enter(|| RawHttp1::connect(address).get("/").status)
    };
    assert_eq!(status(), 200);
    let unasked = "  original_destination: false\n  outbound:\n";
    let config = CONFIG.replace("  outbound:\n", unasked);
    fixture
        .pod
        .enter(|| support::reload(fixture.proxy(), &config));
    assert_eq!(status(), 503);
}

#[test]
fn connections_of_the_application_go_through_the_outbound_listener() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.init(INIT);
    let pod = &fixture.pod;
    for far in ["10.77.0.1", "fd77::1"] {
        assert_eq!(call(pod, far, FAR), through("far"));
    }
    // By the address of the service, or by the requested name.
    for service in ["10.96.0.5", "fd96::5"] {
        assert_eq!(call(pod, service, 80), through("reviews"));
    }
    let address = SocketAddr::new(ip("10.77.0.1"), FAR);
    let named = pod.enter(|| ask(RawHttp1::connect(address), "reviews"));
    assert_eq!(named, through("reviews"));
    fixture.assert_answered("outbound", 5.0);
    // Not redirected.
    assert_eq!(call(pod, "10.77.0.1", FAR_SKIPPED), directly("far-skipped"));
    assert_eq!(call(pod, "10.78.0.1", FAR), directly("far"));
    for loopback in ["127.0.0.1", "::1"] {
        assert_eq!(call(pod, loopback, APPLICATION), directly("application"));
    }
    assert_eq!(call(pod, "10.77.0.2", APPLICATION), directly("application"));
    fixture.assert_answered("outbound", 5.0);
    fixture.assert_answered("inbound", 0.0);
}

#[test]
fn connections_of_others_go_through_the_inbound_listener() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.init(INIT);
    let far = &fixture.far;
    for pod in ["10.77.0.2", "fd77::2"] {
        assert_eq!(call(far, pod, APPLICATION), through("application"));
    }
    // The application need not be reachable from outside.
    assert_eq!(call(far, "10.77.0.2", LOOPBACK), through("loopback"));
    assert_eq!(call(far, "10.77.0.2", SKIPPED), directly("skipped"));
    assert_eq!(call(far, "10.78.0.2", APPLICATION), directly("application"));
    fixture.assert_answered("inbound", 3.0);
    // To the listener itself: no destination, and no loop.
    let direct = SocketAddr::new(ip("10.77.0.2"), 15006);
    let status = far.enter(|| RawHttp1::connect(direct).get("/").status);
    assert_eq!(status, 503);
    // No server: the client gets an answer immediately.
    let unused_address = SocketAddr::new(ip("10.77.0.2"), 7);
    let status = far.enter(|| RawHttp1::connect(unused_address).get("/").status);
    assert_eq!(status, 503);
}

#[test]
fn a_server_may_speak_first_both_ways() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.init(INIT);
    for (host, to, listener) in [
        (&fixture.pod, "10.77.0.1", "outbound"),
        (&fixture.far, "10.77.0.2", "inbound"),
        (&fixture.pod, "fd77::1", "outbound"),
        (&fixture.far, "fd77::2", "inbound"),
    ] {
        let before = fixture.detected(listener, "silent");
        host.enter(|| {
            let mut client = RawHttp1::connect(SocketAddr::new(ip(to), GREETER));
            client.connection().expect("220 ready\r\n").unwrap();
            client.send("HELO a\r\n");
            client.connection().expect("HELO a\r\n").unwrap();
        });
        assert_eq!(fixture.detected(listener, "silent"), before + 1.0);
    }
}

#[test]
fn a_service_that_calls_itself_goes_through_both() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.init(INIT);
    assert_eq!(call(&fixture.pod, "10.96.0.6", 80), through("application"));
    fixture.assert_answered("outbound", 1.0);
    fixture.assert_answered("inbound", 1.0);
}

#[test]
fn rules_are_renewed_without_a_loss_and_removed_without_a_trace() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    assert_eq!(
        call(&fixture.far, "10.77.0.2", APPLICATION),
        directly("application")
    );
    fixture.init(INIT);
    let mut kept = fixture.far.enter(|| {
        let mut client = RawHttp1::connect(SocketAddr::new(ip("10.77.0.2"), APPLICATION));
        assert_eq!(client.get("/").status, 200);
        client
    });
    fixture.init(INIT);
    assert_eq!(
        call(&fixture.far, "10.77.0.2", APPLICATION),
        through("application")
    );
    // Connections redirected by the earlier rules continue.
    assert_eq!(kept.get("/").status, 200);
    fixture.assert_answered("inbound", 3.0);
    fixture.init("init --remove");
    assert_eq!(
        call(&fixture.far, "10.77.0.2", APPLICATION),
        directly("application")
    );
    assert_eq!(call(&fixture.pod, "10.77.0.1", FAR), directly("far"));
    fixture.assert_answered("inbound", 3.0);
    let rules = fixture.pod.run("nft", &["list", "ruleset"]);
    assert_eq!(String::from_utf8_lossy(&rules.stdout), "");
}

#[test]
fn a_proxy_that_is_not_exempt_does_not_call_itself_for_ever() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.init("init --outbound-port 15001 --proxy-uid 4242");
    let address = SocketAddr::new(ip("10.77.0.1"), FAR);
    let status = fixture
        .pod
        .enter(|| RawHttp1::connect(address).get("/").status);
    assert_eq!(status, 502);
    fixture.pod.enter(|| {
        // TCP tunnels end soon, too.
        let mut client = RawHttp1::connect(SocketAddr::new(ip("10.77.0.1"), GREETER));
        client.assert_closed();
        let metric = |name, label| fixture.proxy().metric(name, &[label]);
        let name = "maglor_downstream_connections_refused_total";
        assert!(metric(name, "reason=\"loop\"") >= 2.0);
        let name = "maglor_downstream_connections_total";
        assert!(metric(name, "listener=\"outbound\"") < 12.0);
        fixture.proxy().wait_for_log("maglor-proxy init");
    });
}
