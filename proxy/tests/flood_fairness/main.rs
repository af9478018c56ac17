//! What a well-behaved client meets while others flood the proxy: its p99 beside the undisturbed one, for each flood.
//!
//! `MAGLOR_PROXY=FILE` measures that binary, with all floods and a table; `MAGLOR_FLOODS=a,b` chooses some, and
//! `MAGLOR_CONNECTIONS=16` how many connections a flood has. Times say nothing on a busy machine and of an unoptimised
//! build: without the variable only the order of events is looked at, which no other process changes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../memory_attacks/clients.rs"]
mod clients;
mod floods;
mod order;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use floods::{FLOODS, Flood, Running, Target};
use maglor_testkit::{Proxy, ProxyBuilder, Upstream};
use support::mesh::Root;

/// How long a flood is measured.
const MEASURED: Duration = Duration::from_secs(3);
/// Until it has its full strength.
const BEGINNING: Duration = Duration::from_millis(300);
/// Pause between two requests of the well-behaved client.
const PAUSE: Duration = Duration::from_millis(2);
/// How much longer a request may take than undisturbed.
const MOST: f64 = 3.0;

/// A proxy, its servers, and the identity of the flood's clients.
struct Setup {
    proxy: Proxy,
    root: Root,
    _flooded: Upstream,
    _victims: Upstream,
}

fn setup(builder: ProxyBuilder) -> Setup {
    let (flooded, victims) = (Upstream::start("flooded"), Upstream::start("victim"));
    let root = Root::new();
    let http = "http: {virtual_hosts: [{domains: [victim], routes: [{cluster: victims}]}, {domains: [a], routes: [{cluster: flooded}]}]}";
    let config = format!(
        "admin: {{address: '127.0.0.1:0'}}\n{identity}\nlisteners:\n\
         - {{name: web, address: '127.0.0.1:0', {http}}}\n\
         - {{name: mesh, address: '127.0.0.1:0', tls: mesh, {http}}}\n\
         clusters:\n- {{name: victims, endpoints: ['{v}']}}\n- {{name: flooded, endpoints: ['{a}']}}\n",
        identity = root.member("server").yaml(),
        v = victims.address(),
        a = flooded.address(),
    );
    Setup {
        proxy: builder.config(config).start(),
        root,
        _flooded: flooded,
        _victims: victims,
    }
}

fn target(setup: &Setup) -> Arc<Target> {
    Arc::new(Target {
        web: setup.proxy.listener("web"),
        mesh: setup.proxy.listener("mesh"),
        member: setup.root.member("client").client("maglor/1"),
    })
}

/// What the well-behaved client has met, sorted.
struct Met(Vec<Duration>, usize);

impl Met {
    fn percentile(&self, percent: usize) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0
            .get(last * percent / 100)
            .map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

/// Requests one after the other, each on the connection of the one before; every tenth on a new one.
fn ask(setup: &Setup, time: Duration) -> Met {
    let (address, until) = (setup.proxy.listener("web"), Instant::now() + time);
    let (mut times, mut failed, mut client) = (Vec::new(), 0, None);
    while Instant::now() < until {
        if times.len().is_multiple_of(10) {
            client = None;
        }
        let started = Instant::now();
        let mut asked = client
            .take()
            .or_else(|| clients::connect(address, None).ok());
        let answered = asked.as_mut().is_some_and(clients::ask);
        times.push(started.elapsed());
        failed += usize::from(!answered);
        client = asked.filter(|_| answered);
        thread::sleep(PAUSE);
    }
    times.sort();
    Met(times, failed)
}

/// CPU of the proxy so far, in clock ticks.
fn ticks(setup: &Setup) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", setup.proxy.pid())).unwrap();
    let fields: Vec<_> = text
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// One row of the table; whether the bound holds.
fn measure(flood: &Flood, connections: usize) -> bool {
    let binary = std::env::var_os("MAGLOR_PROXY").unwrap();
    let setup = setup(ProxyBuilder::new(binary));
    let target = target(&setup);
    ask(&setup, BEGINNING);
    let before = ask(&setup, MEASURED);
    let running = Running::start(flood, connections, &target);
    ask(&setup, BEGINNING);
    let used = ticks(&setup);
    let during = ask(&setup, MEASURED);
    // Of a hundred a second.
    let busy = (ticks(&setup) - used) as f64 / MEASURED.as_secs_f64();
    let begun = running.stop();
    let ratio = during.percentile(99) / before.percentile(99);
    println!(
        "| {} | {connections} | {:.2} | {:.2} | {:.2} | {:.2} | {ratio:.1} | {} of {} | {busy:.0} | {begun} |",
        flood.name,
        before.percentile(50),
        before.percentile(99),
        during.percentile(50),
        during.percentile(99),
        during.1,
        during.0.len(),
    );
    ratio <= MOST && during.1 == 0
}

#[test]
fn a_victims_p99_is_at_most_three_times_the_undisturbed_one() {
    if std::env::var_os("MAGLOR_PROXY").is_none() {
        eprintln!("not measured: MAGLOR_PROXY names no binary");
        return;
    }
    clients::raise_file_limit();
    let names = std::env::var("MAGLOR_FLOODS").ok();
    let connections = std::env::var("MAGLOR_CONNECTIONS").map_or(16, |text| text.parse().unwrap());
    println!(
        "| flood | connections | p50 before (ms) | p99 before | p50 | p99 | p99 ratio | failed | CPU (%) | connections begun |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    let chosen = FLOODS.iter().filter(|flood| {
        let names = names.as_deref();
        names.is_none_or(|names| names.split(',').any(|name| name == flood.name))
    });
    let beyond: Vec<_> = chosen
        .filter(|flood| !measure(flood, connections))
        .map(|flood| flood.name)
        .collect();
    assert!(beyond.is_empty(), "beyond {MOST}: {beyond:?}");
}
