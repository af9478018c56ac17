//! A server that answers every request at once with an error looks idle and fast. It must not attract
//! requests: not under policies that go by a balancer's own counts, nor under those that go by true queues.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use maglor_testkit::{Answer, Proxy, TIMEOUT, Upstream, eventually};
use support::{Web, connect, reload};

/// Servers; the first one fails. Fair is a quarter of the requests.
const SERVERS: usize = 4;

/// Requests at a time: more than there are servers that work, so that none of these is ever idle.
const CLIENTS: usize = 8;

const SERVICE: Duration = Duration::from_millis(20);

fn applications(status: u16) -> Vec<Upstream> {
    let application = |at: usize| {
        let upstream = Upstream::start(&format!("server-{at}"));
        upstream.set_answer(move |_| {
            Some(match at {
                0 => Answer::status(status),
                _ => Answer::text("well").after(SERVICE),
            })
        });
        upstream
    };
    (0..SERVERS).map(application).collect()
}

/// The share of the first of the requests that come once the others have answered some.
fn share_of_first(proxy: &Proxy, applications: &[Upstream]) -> f64 {
    let stop = AtomicBool::new(false);
    let counts = || -> Vec<u64> { applications.iter().map(Upstream::requests).collect() };
    let good = |counts: &[u64]| counts[1..].iter().sum::<u64>();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = connect(proxy);
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    client.get("/");
                }
            });
        }
        let enough = |more: u64, since: u64| {
            eventually(TIMEOUT, "good servers have requests", || {
                good(&counts()) >= since + more
            });
            counts()
        };
        let before = enough(50, 0);
        let after = enough(300, good(&before));
        stop.store(true, Ordering::SeqCst);
        let first = after[0] - before[0];
        let all = first + good(&after) - good(&before);
        first as f64 / all as f64
    })
}

#[test]
fn errors_attract_nothing_by_counts_of_one_balancer() {
    for status in [404, 500] {
        for policy in ["lor(choices=all)", "peak-ewma(choices=8)", "lor(choices=2)"] {
            let applications = applications(status);
            let proxy = Web::to(applications.iter().map(Upstream::address))
                .cluster(&format!(
                    "policy: '{policy}', outlier_ejection: {{enabled: false}}"
                ))
                .start();
            let share = share_of_first(&proxy, &applications);
            assert!(share <= 2.0 / SERVERS as f64, "{policy}, {status}: {share}");
        }
    }
}

#[test]
fn errors_attract_nothing_by_true_queues() {
    for (policy, status) in [
        ("bounce(tries=3)", 404),
        ("probe(choices=3)", 404),
        ("ledger(group=40)", 404),
        ("ledger(group=40)", 500),
    ] {
        let applications = applications(status);
        let inbound: Vec<Proxy> = applications
            .iter()
            .map(|one| Web::to([one.address()]).http("load_reports: {}").start())
            .collect();
        let addresses: Vec<SocketAddr> = inbound.iter().map(|one| one.listener("web")).collect();
        let all = addresses.iter().map(SocketAddr::to_string);
        let all = all.collect::<Vec<_>>().join("\", \"");
        for ((proxy, own), application) in inbound.iter().zip(&addresses).zip(&applications) {
            let yaml = Web::to([application.address()])
                .http(&format!(
                    "load_reports: {{cluster: all, endpoint: \"{own}\"}}"
                ))
                .yaml();
            reload(
                proxy,
                &format!("{yaml}- {{name: all, endpoints: [\"{all}\"], policy: '{policy}'}}\n"),
            );
        }
        let outbound = Web::to(addresses)
            .cluster(&format!(
                "policy: '{policy}', outlier_ejection: {{enabled: false}}"
            ))
            .start();
        let share = share_of_first(&outbound, &applications);
        assert!(share <= 2.0 / SERVERS as f64, "{policy}, {status}: {share}");
    }
}
