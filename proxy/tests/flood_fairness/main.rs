//! Latency of a well-behaved client while others flood the proxy: its p99 compared with the undisturbed one, for each
//! flood.
//!
//! `MAGLOR_PROXY=FILE` measures that binary, with all floods and a table; `MAGLOR_FLOODS=a,b` chooses some,
//! `MAGLOR_CONNECTIONS=16` sets the number of connections of a flood, and `MAGLOR_RUNS=3` the number of runs of
//! which the median is taken. Times are meaningless on a busy machine and for an unoptimised build: without the
//! variable only the order of events is checked, which no other process changes.
//!
//! A request on a new connection is measured from the moment when it is connected: the handshake is done by the
//! kernel, in the name of whichever program runs, and a flood of the same kernel's connections delays it by a
//! tick (4 ms) without the proxy's part. It fails if it takes longer than [`CONNECT`], as it does when the
//! proxy lets the listener's queue fill up.
//!
//! The proxy has the first processor to itself, and everything else the others: resources that a flood takes
//! from the measured client, or from its server, are not the proxy's fault. So the flood, and the server that
//! it uses, run only when no other thread is ready, the client and its server as soon as they wake
//! (`chrt --fifo`), and the flood's threads spin while the undisturbed time is measured.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "the other tests use the rest of it")]
mod support;

#[path = "../memory_attacks/clients.rs"]
mod clients;
mod floods;
mod order;

use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use floods::{FLOODS, Flood, NOTHING, Running, Target};
use maglor_testkit::{Proxy, ProxyBuilder, Upstream};
use rustix::thread::{CpuSet, sched_setaffinity};
use support::mesh::Root;

/// How long a flood is measured.
const MEASURED: Duration = Duration::from_secs(2);
/// Time until a flood has its full strength.
const BEGINNING: Duration = Duration::from_millis(300);
/// Pause between two requests of the well-behaved client.
const PAUSE: Duration = Duration::from_millis(2);
/// Maximum time to connect.
const CONNECT: Duration = Duration::from_millis(100);
/// Maximum ratio of a request's time to the undisturbed one.
const MOST: f64 = 3.0;

/// Number of processors before the first selection.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));

/// A proxy, its servers, and the identity of the flood's clients.
struct Setup {
    proxy: Proxy,
    root: Root,
    _flooded: Upstream,
    _victims: Upstream,
}

/// Restricts the calling thread, and those that it starts from now on, to some processors; a machine with one
/// processor uses it for everything.
fn use_processors(which: impl Fn(usize) -> bool) {
    let all = *PROCESSORS;
    if all == 1 {
        return;
    }
    let mut chosen = CpuSet::new();
    let wanted = (0..all).filter(|processor| which(*processor));
    wanted.for_each(|processor| chosen.set(processor));
    sched_setaffinity(None, &chosen).unwrap();
}

fn setup(builder: ProxyBuilder) -> Setup {
    use_processors(|processor| processor > 0);
    let flooded = scheduled(floods::run_last, || Upstream::start("flooded"));
    let victims = scheduled(floods::run_first, || Upstream::start("victim"));
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
    use_processors(|processor| processor == 0);
    let proxy = builder.config(config).start();
    use_processors(|processor| processor > 0);
    Setup {
        proxy,
        root,
        _flooded: flooded,
        _victims: victims,
    }
}

/// Runs `work` in a thread of its own, scheduled by `schedule`, as are the threads that it starts.
fn scheduled<T: Send>(schedule: fn(), work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        schedule();
        work()
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

fn target(setup: &Setup) -> Arc<Target> {
    Arc::new(Target {
        web: setup.proxy.listener("web"),
        mesh: setup.proxy.listener("mesh"),
        member: setup.root.member("client").client("maglor/1"),
    })
}

/// Latencies of the well-behaved client, sorted, and the number of failures.
struct Met(Vec<Duration>, usize);

impl Met {
    fn percentile(&self, percent: usize) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0
            .get(last * percent / 100)
            .map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

/// Sends requests one after another, each on the connection of the one before; every tenth on a new one.
fn ask(setup: &Setup, time: Duration) -> Met {
    let (address, until) = (setup.proxy.listener("web"), Instant::now() + time);
    let (mut times, mut failed, mut client) = (Vec::new(), 0, None);
    while Instant::now() < until {
        if times.len().is_multiple_of(10) {
            client = None;
        }
        let begun = Instant::now();
        let mut asked = client
            .take()
            .or_else(|| clients::connect(address, None).ok());
        let in_time = begun.elapsed() <= CONNECT;
        let started = Instant::now();
        let answered = asked.as_mut().is_some_and(clients::ask);
        times.push(started.elapsed());
        failed += usize::from(!answered || !in_time);
        client = asked.filter(|_| answered);
        thread::sleep(PAUSE);
    }
    times.sort();
    Met(times, failed)
}

/// Returns the CPU time of the proxy so far, in clock ticks.
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

/// One undisturbed time and one with a flood.
struct Run {
    before: Met,
    during: Met,
    /// CPU use of the proxy, in percent.
    busy: f64,
    /// Number of connections that the flood has begun.
    begun: u64,
}

fn run(setup: &Setup, flood: &Flood, connections: usize, target: &Arc<Target>) -> Run {
    let nothing = Running::start(&NOTHING, connections, target);
    let ask = |time| scheduled(floods::run_first, || ask(setup, time));
    ask(BEGINNING);
    let before = ask(MEASURED);
    nothing.stop();
    let running = Running::start(flood, connections, target);
    ask(BEGINNING);
    let used = ticks(setup);
    let during = ask(MEASURED);
    // There are a hundred ticks in a second.
    let busy = (ticks(setup) - used) as f64 / MEASURED.as_secs_f64();
    let begun = running.stop();
    Run {
        before,
        during,
        busy,
        begun,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints one row of the table, of medians; returns whether the limit is met.
fn measure(flood: &Flood, connections: usize, runs: usize) -> bool {
    let binary = std::env::var_os("MAGLOR_PROXY").unwrap();
    let setup = setup(ProxyBuilder::new(binary));
    let target = target(&setup);
    let runs: Vec<_> = (0..runs)
        .map(|_| run(&setup, flood, connections, &target))
        .collect();
    let of = |value: &dyn Fn(&Run) -> f64| median(runs.iter().map(value).collect());
    let ratio = of(&|run| run.during.percentile(99) / run.before.percentile(99));
    let failed: usize = runs.iter().map(|run| run.during.1).sum();
    let asked: usize = runs.iter().map(|run| run.during.0.len()).sum();
    println!(
        "| {} | {connections} | {:.2} | {:.2} | {:.2} | {:.2} | {ratio:.1} | {failed} of {asked} | {:.0} | {:.0} |",
        flood.name,
        of(&|run| run.before.percentile(50)),
        of(&|run| run.before.percentile(99)),
        of(&|run| run.during.percentile(50)),
        of(&|run| run.during.percentile(99)),
        of(&|run| run.busy),
        of(&|run| run.begun as f64),
    );
    ratio <= MOST && failed == 0
}

#[test]
fn a_victims_p99_is_at_most_three_times_the_undisturbed_one() {
    if std::env::var_os("MAGLOR_PROXY").is_none() {
        eprintln!("not measured: MAGLOR_PROXY names no binary");
        return;
    }
    clients::raise_file_limit();
    let connections = std::env::var("MAGLOR_CONNECTIONS").map_or(16, |text| text.parse().unwrap());
    let runs = std::env::var("MAGLOR_RUNS").map_or(3, |text| text.parse().unwrap());
    println!(
        "| flood | connections | p50 before (ms) | p99 before | p50 | p99 | p99 ratio | failed | CPU (%) | connections begun |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    let chosen = FLOODS
        .iter()
        .filter(|flood| support::is_chosen("MAGLOR_FLOODS", flood.name));
    let beyond: Vec<_> = chosen
        .filter(|flood| !measure(flood, connections, runs))
        .map(|flood| flood.name)
        .collect();
    assert!(beyond.is_empty(), "beyond {MOST}: {beyond:?}");
}
