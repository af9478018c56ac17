//! Measures what a change of one endpoint costs a proxy that has discovered 1000 services with 10 endpoints each.
//! Times are printed and not compared: `cargo test -p maglor-proxy --test main large_discovery:: -- --ignored
//! --nocapture`, with `MAGLOR_PROXY` for another binary.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use maglor_testkit::{Proxy, ProxyBuilder, RawHttp1, TIMEOUT, eventually};

use crate::support::control_plane::ControlPlane;

const SERVICES: u16 = 1000;
const CHANGES: u16 = 100;

fn service(n: u16) -> String {
    format!("s{n}.shop.svc.cluster.local:80")
}

/// Addresses at which nothing listens.
fn endpoints(n: u16, version: u16) -> Vec<SocketAddr> {
    let [high, low] = n.to_be_bytes();
    let address = |last: u8| SocketAddr::from(([127, 1 + high, low, last], 9));
    let mut all: Vec<_> = (1..=10).map(address).collect();
    all[9].set_port(10 + version);
    all
}

/// Returns the processor time of the proxy's control thread and of its workers.
fn processor_time(proxy: &Proxy) -> (Duration, Duration) {
    let (mut control, mut workers) = (Duration::ZERO, Duration::ZERO);
    for task in fs::read_dir(format!("/proc/{}/task", proxy.pid())).unwrap() {
        let path = task.unwrap().path();
        let name = fs::read_to_string(path.join("comm")).unwrap();
        let stat = fs::read_to_string(path.join("schedstat")).unwrap();
        let nanos = stat.split(' ').next().unwrap().parse().unwrap();
        match name.starts_with("worker") {
            true => workers += Duration::from_nanos(nanos),
            false => control += Duration::from_nanos(nanos),
        }
    }
    (control, workers)
}

/// Returns the processor time while `act` is called every 20 ms.
fn meanwhile(proxy: &Proxy, mut act: impl FnMut(u16)) -> (Duration, Duration) {
    let before = processor_time(proxy);
    for n in 0..CHANGES {
        act(n);
        thread::sleep(Duration::from_millis(20));
    }
    let after = processor_time(proxy);
    (after.0 - before.0, after.1 - before.1)
}

#[test]
#[ignore = "a measurement"]
fn a_change_of_one_endpoint() {
    let control = ControlPlane::start();
    for n in 0..SERVICES {
        control.serve(&service(n), &format!("s{n}"), &endpoints(n, 0));
    }
    let own = env!("CARGO_BIN_EXE_maglor-proxy").into();
    let binary = std::env::var_os("MAGLOR_PROXY").unwrap_or(own);
    let proxy = ProxyBuilder::new(binary)
        .config(format!(
            "admin: {{address: '127.0.0.1:0'}}
control_plane: {{cluster: control, node: {{id: proxy-1.shop, cluster: test}}}}
listeners:
- name: out
  address: 127.0.0.1:0
  http: {{discovery: {{namespace: shop, timeout: 5s}}, virtual_hosts: []}}
clusters:
- {{name: control, endpoints: ['{}']}}
",
            control.address
        ))
        .start();
    for n in 0..SERVICES {
        let mut client = RawHttp1::connect(proxy.listener("out"));
        client.send(format!("GET / HTTP/1.1\r\nhost: s{n}\r\n\r\n"));
        // No endpoint can be reached.
        assert_eq!(client.response().status, 503);
    }
    proxy.expect_metric("maglor_xds_targets", &[], f64::from(SERVICES));
    thread::sleep(Duration::from_secs(2));

    let idle = meanwhile(&proxy, |_| ());
    let changed = meanwhile(&proxy, |n| {
        control.assign(&format!("s{n}"), &endpoints(n, n + 1));
    });
    let last = format!("127.1.{}.10:{}", CHANGES - 1, 10 + CHANGES);
    eventually(TIMEOUT, "the last change is applied", || {
        proxy.admin_get("/clusters").text().contains(&last)
    });
    let each = |total: Duration, idle: Duration| {
        total.saturating_sub(idle).as_secs_f64() * 1e6 / f64::from(CHANGES)
    };
    println!(
        "{SERVICES} services, 10 endpoints each; for a change of one endpoint: control thread {:.0} µs, workers {:.0} µs",
        each(changed.0, idle.0),
        each(changed.1, idle.1)
    );
}
