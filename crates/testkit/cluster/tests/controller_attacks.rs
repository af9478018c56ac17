//! The controller in a cluster without NetworkPolicies, while a pod attacks each of its ports, and all at once: pods
//! are admitted, changes reach proxies, the Lease is kept, and memory stays below the container's limit.
//!
//! A measurement of five minutes, that prints a table: `cargo test -p maglor-testkit --test measured
//! controller_attacks:: -- --ignored --nocapture`. `cargo xtask e2e` has the controller's own test of attacks. It needs
//! root, and reports when it skips.

mod attackers;
mod measured;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use maglor_testkit::cluster::{Forward, Kubectl};
use rustls::ClientConfig;
use serde_json::Value;

use crate::support::installed::{Installed, until};
use crate::support::{attacker, shop};
use attackers::{Attack, Way};
use measured::Memory;

const SHOP: &str = include_str!("proxy_service/shop.yaml");
const SERVICE: &str = include_str!("proxy_service/deployment.yaml");
/// Services, their addresses, ports that are not redirected.
const SERVICES: [(&str, &str, &str); 2] = [
    ("users", "10.96.0.99", "9080"),
    ("details", "10.96.0.101", ""),
];
/// One replica: it has to write and to answer, and nothing else can in its place.
const VALUES: [&str; 4] = [
    "replicas=1",
    "minAvailable=0",
    "networkPolicy.enabled=false",
    "externalMetrics=true",
];
/// Proxies, health and metrics, webhook, external metrics.
const PORTS: [u16; 4] = [15_010, 15_011, 15_012, 15_013];
/// Limits of the p99 of admissions and of the slowest push on an idle machine, with a release build. Here builds are
/// not optimised, and everything shares two processors.
const AIMS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));
const LIMITS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5));

const HEAD: &str = "\
| attacked | rounds of attack | admission p50 | p99 | push p50 | slowest | most memory | aims |
| --- | --- | --- | --- | --- | --- | --- | --- |";
/// Minimum per port, otherwise there was no attack: a source gets 100 connections a second, and a thousand at once.
const ROUNDS: u64 = 500;

/// The controller, and its checked properties.
struct Attacked<'a> {
    installed: &'a Installed,
    ip: IpAddr,
    admin: Forward,
    memory: Memory,
    /// Of its container, in bytes.
    limit: u64,
    tls: Arc<ClientConfig>,
}

#[test]
#[ignore = "a measurement of five minutes; see above"]
fn the_controller_works_while_a_pod_attacks_its_ports() {
    let Some(installed) = Installed::start("attacked", &VALUES) else {
        return;
    };
    let kubectl = installed.kubectl();
    deploy(kubectl);
    let users = shop::address(kubectl, "users");
    // So that the caller's proxy uses the Service, and receives its changes.
    until("requests pass", || {
        shop::call(&installed, users) == Some(200)
    });
    let attacked = Attacked::of(&installed);
    let mut table = vec![HEAD.to_owned()];
    let before = measured::lease(kubectl);
    table.push(attacked.measure("nothing", &[]));
    for port in PORTS {
        table.push(attacked.measure(&port.to_string(), &[port]));
    }
    table.push(attacked.measure("all", &PORTS));
    println!("{}", table.join("\n"));
    let after = measured::lease(kubectl);
    assert_eq!(before[..2], after[..2], "the Lease is kept");
    assert_ne!(before[2], after[2], "the Lease is renewed");
    let pod = controller(kubectl);
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    installed.stop();
}

fn deploy(kubectl: &Kubectl) {
    attacker::start(kubectl);
    kubectl.apply(SHOP).unwrap();
    for (name, address, skipped) in SERVICES {
        let service = SERVICE.replace("NAME", name).replace("ADDRESS", address);
        let service = service.replace("REPLICAS", "1").replace("SKIPPED", skipped);
        kubectl.apply(&service).unwrap();
    }
    for (name, ..) in SERVICES {
        shop::rolled_out(kubectl, name);
    }
    attacker::ready(kubectl);
}

fn controller(kubectl: &Kubectl) -> Value {
    let selector = "app.kubernetes.io/name=maglor-controller";
    let pods = kubectl
        .json(&["get", "pods", "-n", "maglor", "-l", selector])
        .unwrap();
    pods["items"][0].clone()
}

impl<'a> Attacked<'a> {
    fn of(installed: &'a Installed) -> Self {
        let kubectl = installed.kubectl();
        let pod = controller(kubectl);
        let name = pod["metadata"]["name"].as_str().unwrap();
        let memory = pod["spec"]["containers"][0]["resources"]["limits"]["memory"].as_str();
        let mebibytes = memory
            .and_then(|text| text.strip_suffix("Mi"))
            .expect("a limit in Mi");
        Self {
            installed,
            ip: pod["status"]["podIP"].as_str().unwrap().parse().unwrap(),
            admin: kubectl.forward("maglor", name, 15_011).unwrap(),
            memory: Memory::of(&installed.cluster, "maglor", name),
            limit: mebibytes.parse::<u64>().unwrap() << 20,
            tls: tls(kubectl),
        }
    }

    /// A row of the table, and that it is within limits.
    fn measure(&self, what: &str, ports: &[u16]) -> String {
        let kubectl = self.installed.kubectl();
        self.memory.begin();
        let attack = |port: &u16| {
            let way = match port {
                15_011 => Way::Metrics,
                15_012 => Way::Requests(Arc::clone(&self.tls)),
                _ => Way::Hellos(Arc::clone(&self.tls)),
            };
            Attack::start(
                &self.installed.cluster,
                SocketAddr::new(self.ip, *port),
                &way,
            )
        };
        let attacks: Vec<_> = ports.iter().map(attack).collect();
        let renewed = measured::lease(kubectl)[2].clone();
        let admissions = measured::admissions(kubectl);
        let pushes = measured::pushes(kubectl, &self.admin);
        until("the Lease is renewed", || {
            measured::lease(kubectl)[2] != renewed
        });
        let rounds: Vec<_> = attacks.iter().map(Attack::rounds).collect();
        drop(attacks);
        let memory = self.memory.most();
        let (p99, slowest) = (admissions.percentile(99), pushes.percentile(100));
        let met = p99 <= AIMS.0 && slowest <= AIMS.1;
        let row = format!(
            "| {what} | {} | {:.0?} | {p99:.0?} | {:.0?} | {slowest:.0?} | {} of {} MiB | {} |",
            rounds.iter().sum::<u64>(),
            admissions.percentile(50),
            pushes.percentile(50),
            memory >> 20,
            self.limit >> 20,
            if met { "met" } else { "not met" },
        );
        println!("{row}");
        assert!(
            rounds.iter().all(|rounds| *rounds > ROUNDS),
            "{what}: {rounds:?}"
        );
        assert!(p99 < LIMITS.0, "{what}: {p99:?}");
        assert!(slowest < LIMITS.1, "{what}: {slowest:?}");
        assert!(memory < self.limit, "{what}: {memory}");
        row
    }
}

/// A client that trusts the webhook, and has no identity.
fn tls(kubectl: &Kubectl) -> Arc<ClientConfig> {
    let get = ["get", "secret", "maglor-webhook", "-n", "maglor", "-o"];
    let template = r#"go-template={{index .data "ca.crt" | base64decode}}"#;
    let root = kubectl.run(&[&get[..], &[template]].concat()).unwrap();
    maglor_testkit::certs::trusting(root.as_bytes())
}
