//! A controller on a real API server, while one source attacks all of its ports: admission answers, and the Lease is
//! kept.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when it skips.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use maglor_testkit::cluster::Kubectl;
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::support::on_cluster::{OnCluster, admitted, tcp, tls};

const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
const QUESTIONS: usize = 200;
/// The aim on an idle machine is 200 ms.
const LIMIT: Duration = Duration::from_secs(2);

/// Attacks a port until `stop`: silent connections, and handshakes or requests without pause.
fn attack(port: u16, config: Option<&Arc<ClientConfig>>, stop: &Arc<AtomicBool>) {
    for _ in 0..4 {
        let (config, stop) = (config.cloned(), Arc::clone(stop));
        tokio::spawn(async move {
            let mut silent = std::collections::VecDeque::new();
            while !stop.load(Ordering::SeqCst) {
                silent.extend(tcp(ATTACKER, port).await.ok());
                if silent.len() > 100 {
                    silent.pop_front();
                }
                match &config {
                    Some(config) => drop(timeout(LIMIT, tls(ATTACKER, port, config)).await),
                    None => {
                        let Ok(mut socket) = tcp(ATTACKER, port).await else {
                            continue;
                        };
                        let _ = socket
                            .write_all(
                                b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
                            )
                            .await;
                        let _ = timeout(LIMIT, socket.read_to_end(&mut Vec::new())).await;
                    }
                }
            }
        });
    }
}

fn lease(kubectl: &Kubectl) -> serde_json::Value {
    let found = kubectl.json(&["get", "lease", "maglor-controller", "-n", "maglor"]);
    found.unwrap()["spec"].clone()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
async fn admission_answers_and_the_lease_is_kept_while_all_ports_are_attacked() {
    let Some(on_cluster) = OnCluster::start("attacks").await else {
        return;
    };
    let (kubectl, controller) = (on_cluster.kubectl(), &on_cluster.controller);
    let (webhook, config) = (on_cluster.webhook, Arc::clone(&on_cluster.config));
    let before = (lease(kubectl), controller.memory());
    let (_, discovery) = controller.listen.rsplit_once(':').unwrap();
    let stop = Arc::default();
    attack(webhook, Some(&config), &stop);
    attack(discovery.parse().unwrap(), Some(&config), &stop);
    attack(controller.admin_port(), None, &stop);
    let mut took = Vec::new();
    let begun = Instant::now();
    // Longer than a term.
    while took.len() < QUESTIONS || begun.elapsed() < Duration::from_secs(30) {
        let asked = Instant::now();
        assert!(
            timeout(5 * LIMIT, admitted(webhook, &config))
                .await
                .unwrap()
        );
        took.push(asked.elapsed());
    }
    let after = (lease(kubectl), controller.memory());
    stop.store(true, Ordering::SeqCst);
    took.sort_unstable();
    let p99 = took[took.len() * 99 / 100 - 1];
    println!(
        "{} admissions, p50 {:?}, p99 {p99:?}; {} MB, {} MB before",
        took.len(),
        took[took.len() / 2],
        after.1 >> 20,
        before.1 >> 20
    );
    assert!(p99 < LIMIT, "{p99:?}");
    assert_eq!(after.0["holderIdentity"], "one");
    assert_eq!(after.0["leaseTransitions"], before.0["leaseTransitions"]);
    assert_ne!(after.0["renewTime"], before.0["renewTime"]);
    let log = controller.log();
    assert_eq!(
        log.matches("this replica is the leader").count(),
        1,
        "the term never ended"
    );
    assert_eq!(log.matches("cannot renew the lease").count(), 0);
    on_cluster.stop();
}
