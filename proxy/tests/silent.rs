//! A server that reports to no ledger, though its inbound proxy admits requests and reports its load: because
//! of an identity other than the host's, a network that loses one direction, or a version in between. It
//! keeps its share of the requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use maglor_testkit::{Answer, Proxy, TIMEOUT, Upstream, eventually};

use crate::support::{Web, connect, reload};

const SERVERS: usize = 4;

/// As many concurrent requests as servers: a busy server can and should be avoided.
const CLIENTS: usize = 4;

#[test]
fn a_server_that_does_not_report_keeps_its_share() {
    let applications: Vec<Upstream> = (0..SERVERS)
        .map(|at| {
            let upstream = Upstream::start(&format!("server-{at}"));
            upstream
                .set_answer(move |_| Some(Answer::text("well").after(Duration::from_millis(10))));
            upstream
        })
        .collect();
    let inbound: Vec<Proxy> = applications
        .iter()
        .map(|one| Web::to([one.address()]).http("load_reports: {}").start())
        .collect();
    let addresses: Vec<SocketAddr> = inbound.iter().map(|one| one.listener("web")).collect();
    let all = addresses.iter().map(SocketAddr::to_string);
    let all = all.collect::<Vec<_>>().join("\", \"");
    // The first one is not configured with the others.
    for at in 1..SERVERS {
        let yaml = Web::to([applications[at].address()])
            .http(&format!(
                "load_reports: {{cluster: all, endpoint: \"{}\"}}",
                addresses[at]
            ))
            .yaml();
        let members =
            format!("- {{name: all, endpoints: [\"{all}\"], policy: ledger(group=40)}}\n");
        reload(&inbound[at], &format!("{yaml}{members}"));
    }
    let outbound = Web::to(addresses)
        .cluster("policy: ledger(group=40)")
        .start();
    let counts = || -> Vec<u64> { applications.iter().map(Upstream::requests).collect() };
    let stop = AtomicBool::new(false);
    let (before, after) = std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = connect(&outbound);
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    assert_eq!(client.get("/").status, 200);
                }
            });
        }
        let after = |requests: u64| {
            eventually(TIMEOUT, "requests are answered", || {
                counts().iter().sum::<u64>() >= requests
            });
            counts()
        };
        let (before, after) = (after(300), after(900));
        stop.store(true, Ordering::SeqCst);
        (before, after)
    });
    let requests: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    let share = requests[0] as f64 / requests.iter().sum::<u64>() as f64;
    assert!((0.12..0.4).contains(&share), "{requests:?}");
}
