//! A server that answers every request at once with an error looks idle and fast. It must not attract requests:
//! neither under policies that use a balancer's own counts, nor under those that use true queues.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use maglor_testkit::{Answer, Proxy, TIMEOUT, Upstream, eventually};

use crate::support::{Web, connect, reload};

const SERVICE: Duration = Duration::from_millis(20);

/// A number of servers, of which the first ones fail.
#[derive(Clone, Copy, Debug)]
struct Case {
    servers: usize,
    failing: usize,
    status: u16,
    /// Time until an error is sent.
    after: Duration,
    /// Number of concurrent requests.
    clients: usize,
}

impl Case {
    /// One of four servers fails immediately. There are more concurrent requests than servers that work, so that
    /// none of these is ever idle. The fair share is a quarter of the requests.
    fn one_of_four(status: u16) -> Self {
        Self {
            servers: 4,
            failing: 1,
            status,
            after: Duration::ZERO,
            clients: 8,
        }
    }

    fn fair(&self) -> f64 {
        self.failing as f64 / self.servers as f64
    }

    fn applications(&self) -> Vec<Upstream> {
        let Self {
            failing,
            status,
            after,
            ..
        } = *self;
        let application = |at: usize| {
            let upstream = Upstream::start(&format!("server-{at}"));
            upstream.set_answer(move |_| {
                Some(if at < failing {
                    Answer::status(status).after(after)
                } else {
                    Answer::text("well").after(SERVICE)
                })
            });
            upstream
        };
        (0..self.servers).map(application).collect()
    }
}

/// Returns the failing servers' share of the requests that arrive once the others have answered some.
fn share(case: &Case, proxy: &Proxy, applications: &[Upstream]) -> f64 {
    let stop = AtomicBool::new(false);
    let counts = || -> Vec<u64> { applications.iter().map(Upstream::requests).collect() };
    let good = |counts: &[u64]| counts[case.failing..].iter().sum::<u64>();
    let bad = |counts: &[u64]| counts[..case.failing].iter().sum::<u64>();
    std::thread::scope(|scope| {
        for _ in 0..case.clients {
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
        let bad = bad(&after) - bad(&before);
        let all = bad + good(&after) - good(&before);
        bad as f64 / all as f64
    })
}

/// Returns the share under a policy based on the view of one balancer.
fn alone(case: &Case, policy: &str, cluster: &str) -> f64 {
    let applications = case.applications();
    let proxy = Web::to(applications.iter().map(Upstream::address))
        .cluster(&format!("policy: '{policy}', {cluster}"))
        .start();
    share(case, &proxy, &applications)
}

const NO_EJECTION: &str = "outlier_ejection: {enabled: false}";

const ALONE: [&str; 6] = [
    "lor(choices=all)",
    "lor(choices=2)",
    "peak-ewma(choices=8)",
    "random",
    "round-robin",
    "subset",
];

const TOGETHER: [&str; 4] = [
    "a-lsq",
    "bounce(tries=3)",
    "probe(choices=3)",
    "ledger(group=40)",
];

#[test]
fn errors_attract_nothing_by_counts_of_one_balancer() {
    for status in [404, 500] {
        for policy in &ALONE[..3] {
            let case = Case::one_of_four(status);
            let share = alone(&case, policy, NO_EJECTION);
            assert!(share <= 2.0 * case.fair(), "{policy}, {status}: {share}");
        }
    }
}

#[test]
fn errors_attract_nothing_by_true_queues() {
    for (at, policy) in TOGETHER.iter().enumerate() {
        for status in [404, 500] {
            // Inbound proxies treat all statuses alike.
            if policy.starts_with("ledger") || (at % 2 == 0) == (status == 404) {
                let case = Case::one_of_four(status);
                let share = together(&case, policy, NO_EJECTION);
                assert!(share <= 2.0 * case.fair(), "{policy}, {status}: {share}");
            }
        }
    }
}

#[test]
fn what_is_ejected_gets_next_to_nothing() {
    for policy in ["lor(choices=2)", "ledger(group=40)"] {
        let case = Case::one_of_four(500);
        let share = match policy.starts_with("ledger") {
            true => together(&case, policy, EJECTION),
            false => alone(&case, policy, EJECTION),
        };
        assert!(share <= 0.01, "{policy}: {share}");
    }
}

/// Longer than a test.
const EJECTION: &str = "outlier_ejection: {max_ejection_percent: 50, base_ejection_time: 120s}";

#[test]
#[ignore = "takes ten minutes"]
fn under_all_policies() {
    println!(
        "| policy | failing | status | after, ms | share / fair without ejection | share with |"
    );
    println!("|---|---|---|---|---|---|");
    for policy in ALONE.iter().chain(&TOGETHER) {
        for (failing, status, after) in [
            (1, 500, 0),
            (1, 404, 0),
            (1, 500, 20),
            (2, 500, 0),
            (2, 404, 20),
        ] {
            let case = Case {
                servers: 10,
                failing,
                status,
                after: Duration::from_millis(after),
                clients: 8,
            };
            let of = |cluster: &str| match TOGETHER.contains(policy) {
                true => together(&case, policy, cluster),
                false => alone(&case, policy, cluster),
            };
            let without = of(NO_EJECTION);
            let with = if status < 500 {
                "–".to_owned()
            } else {
                format!("{:.3}", of(EJECTION))
            };
            let ratio = without / case.fair();
            println!("| {policy} | {failing} of 10 | {status} | {after} | {ratio:.2} | {with} |");
            assert!(ratio <= 2.0, "{policy}: {without}");
        }
    }
}

/// Returns the share with inbound proxies that report their load to balancers or ledgers.
fn together(case: &Case, policy: &str, cluster: &str) -> f64 {
    let applications = case.applications();
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
        .cluster(&format!("policy: '{policy}', {cluster}"))
        .start();
    share(case, &outbound, &applications)
}
