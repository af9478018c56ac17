//! Memory of a sidecar: it depends on what its application calls, not on the size of the mesh.
//!
//! The bound is that of the release build. `MAGLOR_PROXY=FILE` measures that binary in place of the one built
//! with this test, and applies the bound to it. `MAGLOR_REQUESTS=N` sends only N requests to each service,
//! without a bound: for programs that instrument the binary and slow it down.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use maglor_testkit::{Load, Proxy, ProxyBuilder, RawHttp1, TIMEOUT, Upstream, eventually};
use maglor_xds::Kind;

use crate::support::control_plane::ControlPlane;
use crate::support::mesh::Root;
use crate::support::start;

/// Maximum resident memory of a sidecar that calls five services, in bytes.
const BOUND: u64 = 8 << 20;
const SERVICES: usize = 1000;
const ENDPOINTS: u16 = 10;
const CALLED: usize = 5;

/// Returns the binary, and whether the bound applies to it.
fn binary() -> (PathBuf, bool) {
    let (binary, release) = match std::env::var_os("MAGLOR_PROXY") {
        Some(binary) => (binary.into(), true),
        None => (
            env!("CARGO_BIN_EXE_maglor-proxy").into(),
            !cfg!(debug_assertions),
        ),
    };
    (binary, release && requests().is_none())
}

/// Returns the number of requests to each service, if it is set.
fn requests() -> Option<u64> {
    let said = std::env::var("MAGLOR_REQUESTS").ok()?;
    Some(said.parse().unwrap())
}

/// Returns the result of `act`, and the maximum of resident memory while it runs.
fn most<T>(proxy: &Proxy, act: impl FnOnce() -> T) -> (T, u64) {
    let (running, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            let mut most = proxy.resident_bytes();
            while over.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
                most = most.max(proxy.resident_bytes());
            }
            most
        });
        let yielded = act();
        drop(running);
        (yielded, watcher.join().unwrap())
    })
}

/// Calls the service until it has answered this many requests.
fn call(outbound: SocketAddr, service: usize, requests: u64) {
    let request = format!("GET http://s{service}/ HTTP/1.1\r\nhost: s{service}\r\n\r\n");
    assert_eq!(RawHttp1::connect(outbound).request(&request).status, 200);
    let load = Load::start(outbound, 2, &request);
    // Each part has a separate time limit: machines may be busy.
    (1..=10).for_each(|part| load.wait_for(requests * part / 10));
    load.stop();
}

/// Returns the endpoints of a service: one server with several addresses.
fn endpoints(server: SocketAddr) -> Vec<SocketAddr> {
    let address =
        |i: u16| SocketAddr::from(([127, 0, 1, u8::try_from(i + 1).unwrap()], server.port()));
    (0..ENDPOINTS).map(address).collect()
}

#[test]
fn a_sidecar_takes_what_its_application_calls() {
    let (binary, bound) = binary();
    let (root, control, application) = (Root::new(), ControlPlane::start(), Upstream::start("x"));
    let server = start(&format!(
        "{}
listeners:
- {{name: in, address: '0.0.0.0:0', tls: mesh, inbound: {{application: '{}', protocol: http}}}}
",
        root.member("x").yaml(),
        application.address()
    ));
    let service = |i: usize| format!("s{i}.shop.svc.cluster.local:80");
    let all = endpoints(server.listener("in"));
    for i in 0..SERVICES {
        control.serve_with(&service(i), &format!("{{name: s{i}, tls: mesh}}"), &all);
    }
    control.inbound("shop/web-1", "{tls: strict, ports: {8080: http}}");
    let web = root.member("web");
    let sidecar = ProxyBuilder::new(binary)
        .args(["sidecar", "--plain-text", "--bind", "127.0.0.1"])
        .args(["--trust-domain", "mesh.test"])
        .args([
            "--inbound-port",
            "0",
            "--outbound-port",
            "0",
            "--admin-port",
            "0",
        ])
        .args(["--control-plane", &control.address.to_string()])
        .args(["--pod-namespace", "shop", "--pod-name", "web-1"])
        .args(web.flags())
        .start();
    eventually(TIMEOUT, "it is ready", || {
        sidecar.admin_get("/ready").status == 200
    });
    // Long enough to include periodic work, and the delayed release of memory.
    let after = || thread::sleep(Duration::from_secs(if bound { 25 } else { 1 }));
    let ((), idle) = most(&sidecar, after);
    let allocated = sidecar.allocated_bytes();
    let outbound = sidecar.listener("outbound");
    let all = requests().unwrap_or(if bound { 20_000 } else { 500 });
    let ((), calling) = most(&sidecar, || {
        (0..CALLED).for_each(|service| call(outbound, service, all));
    });
    let ((), used) = most(&sidecar, after);
    println!(
        "resident, at most: {idle} bytes idle, {calling} while it calls {CALLED} of {SERVICES} services of {ENDPOINTS} \
         endpoints, {used} then; of these allocated: {allocated} and {}; open files: {}",
        sidecar.allocated_bytes(),
        sidecar.open_files()
    );
    let sessions = control.server.sessions();
    let subscribed = &sessions[0].subscribed;
    let count = |wanted: Kind| {
        let of = subscribed.iter().find(|(kind, _)| *kind == wanted);
        of.map_or(0, |(_, count)| *count)
    };
    let followed = [Kind::Listener, Kind::Routes, Kind::Cluster, Kind::Endpoints].map(count);
    assert_eq!(followed, [CALLED; 4], "nothing else reaches it");
    assert_eq!(count(Kind::Inbound), 1);
    match bound {
        true => assert!(idle.max(calling).max(used) <= BOUND),
        false => println!("the bound is not applied to a debug build; see MAGLOR_PROXY"),
    }
}
