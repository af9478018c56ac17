//! The memory budget under attack. Measures for each attack and each budget the maximum of resident memory,
//! the service for a well-behaved client meanwhile, and the resident memory 10 s after the attack.
//!
//! The bounds are those of the release build: `MAGLOR_PROXY=FILE` measures that binary. Debug builds run a
//! few of the attacks with the smallest budget. `MAGLOR_ATTACKS=a,b` and `MAGLOR_BUDGETS=16,0` choose others
//! (0 = no budget).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "the other tests use the rest of it")]
mod support;

mod attacks;
mod clients;

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use attacks::{ATTACKS, Attack, Target};
use maglor_testkit::{Proxy, ProxyBuilder, RawHttp1, Upstream, eventually};
use support::mesh::Root;

const MIB: u64 = 1 << 20;
/// Maximum resident memory beyond the budget.
const BEYOND: u64 = 8 * MIB;
/// Minimum duration of an attack, and the maximum while it still takes more memory.
const HELD: Duration = Duration::from_secs(4);
const LONGEST: Duration = Duration::from_secs(20);
/// Time without growth after which memory counts as steady.
const STEADY: Duration = Duration::from_secs(2);
/// Time after an attack in which memory has to be released.
const AFTER: Duration = Duration::from_secs(10);
/// Maximum memory that may remain, beyond that before the attack.
const REMAINS: u64 = 4 * MIB;
/// Maximum time of a request of the well-behaved client. A new connection waits in the backlog behind those of the
/// attack, for as long as the machine needs for these: seconds in a debug build beside other tests.
const PATIENT: Duration = Duration::from_secs(30);
/// Pause between two requests of the well-behaved client.
const PAUSE: Duration = Duration::from_millis(5);

/// Returns the binary, and whether the bounds apply to it.
fn binary() -> (PathBuf, bool) {
    match std::env::var_os("MAGLOR_PROXY") {
        Some(binary) => (binary.into(), true),
        None => (
            env!("CARGO_BIN_EXE_maglor-proxy").into(),
            !cfg!(debug_assertions),
        ),
    }
}

/// A proxy, its servers, and the identity of the attacker. The proxy notices a disconnected client only when
/// it reads from it, so that requests to a server without answers end by their route's timeout, which is
/// shorter than [`AFTER`].
struct Setup {
    proxy: Proxy,
    root: Root,
    _attacked: Upstream,
    _victims: Upstream,
}

fn setup(budget: u64) -> Setup {
    let (attacked, victims) = (Upstream::start("attacked"), Upstream::start("victim"));
    let root = Root::new();
    let routes = |extra: &str| {
        format!(
            "http: {{{extra}virtual_hosts: [{{domains: [victim], routes: [{{cluster: victims}}]}}, \
             {{domains: [queue], routes: [{{cluster: narrow, timeout: 8s}}]}}, \
             {{domains: ['*'], routes: [{{match: {{path: /hang}}, cluster: attacked, timeout: 8s}}, \
             {{cluster: attacked, timeout: 60s}}]}}]}}"
        )
    };
    let (http, a, v) = (routes(""), attacked.address(), victims.address());
    let config = format!(
        "admin: {{address: '127.0.0.1:0'}}\n{budget}{identity}\nlisteners:\n\
         - {{name: web, address: '127.0.0.1:0', {http}}}\n\
         - {{name: mesh, address: '127.0.0.1:0', tls: mesh, {http}}}\n\
         clusters:\n- {{name: victims, endpoints: ['{v}']}}\n- {{name: attacked, endpoints: ['{a}']}}\n\
         - {{name: narrow, endpoints: ['{a}'], limits: {{max_connections: 1, max_pending_requests: 100000}}}}\n",
        budget = match budget {
            0 => String::new(),
            mib => format!("memory_budget: {mib}MiB\n"),
        },
        identity = root.member("server").yaml(),
    );
    let proxy = ProxyBuilder::new(binary().0).config(config).start();
    Setup {
        proxy,
        root,
        _attacked: attacked,
        _victims: victims,
    }
}

/// Returns a field of `/proc/PID/status` in bytes.
fn memory(proxy: &Proxy, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap() * 1024
}

/// Results of a well-behaved client.
#[derive(Debug, Default)]
struct Met {
    times: Vec<Duration>,
    failed: usize,
}

impl Met {
    fn percentile(&mut self, percent: usize) -> Duration {
        self.times.sort();
        let last = self.times.len().saturating_sub(1);
        self.times
            .get(last * percent / 100)
            .copied()
            .unwrap_or_default()
    }
}

/// Connects as a well-behaved client.
fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENT))?;
    Ok(stream)
}

/// A client that sends requests in a loop, on one connection while that is open, until it is stopped.
struct Victim {
    stop: Arc<AtomicBool>,
    met: Arc<Mutex<Met>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Victim {
    fn start(proxy: &Proxy) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let met = Arc::<Mutex<Met>>::default();
        let address = proxy.listener("web");
        let (stopped, reported) = (Arc::clone(&stop), Arc::clone(&met));
        let thread = thread::spawn(move || {
            let mut client = None;
            let mut number = 0_u32;
            while !stopped.load(Ordering::Relaxed) {
                number += 1;
                if number.is_multiple_of(10) {
                    client = None;
                }
                let started = Instant::now();
                let mut asked = client.take().or_else(|| connect(address).ok());
                let answered = asked.as_mut().is_some_and(clients::ask);
                let mut met = reported.lock().unwrap();
                met.times.push(started.elapsed());
                met.failed += usize::from(!answered);
                drop(met);
                client = asked.filter(|_| answered);
                thread::sleep(PAUSE);
            }
        });
        Self {
            stop,
            met,
            thread: Some(thread),
        }
    }

    /// Returns the results since the last call.
    fn take(&self) -> Met {
        std::mem::take(&mut self.met.lock().unwrap())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Measurements of an attack.
struct Measured {
    idle: u64,
    /// Maximum of resident memory.
    peak: u64,
    /// Maximum of private resident memory.
    own: u64,
    after: u64,
    /// Growth of resident memory after the attack, without pages of files, whose residency is the system's
    /// choice.
    remains: u64,
    undisturbed: Duration,
    p99: Duration,
    asked: usize,
    failed: usize,
}

/// Sets the flag on drop, also after a failure, since a thread waits for it.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn measure(attack: &Attack, budget: u64) -> Measured {
    let setup = setup(budget);
    let proxy = &setup.proxy;
    assert_eq!(
        RawHttp1::connect(proxy.listener("web")).get("/").status,
        200
    );
    let victim = Victim::start(proxy);
    thread::sleep(Duration::from_secs(1));
    let undisturbed = victim.take().percentile(99);
    let idle = memory(proxy, "VmRSS:");
    let own_idle = memory(proxy, "RssAnon:");
    let target = Target {
        web: proxy.listener("web"),
        mesh: proxy.listener("mesh"),
        admin: proxy.admin(),
        member: setup.root.member("client").client("maglor/1"),
    };
    let over = AtomicBool::new(false);
    let (mut met, own) = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(memory(proxy, "RssAnon:"));
                thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let stop = Stop(&over);
        let held = (attack.start)(&target);
        wait_steady(proxy);
        let met = victim.take();
        drop(held);
        drop(stop);
        (met, watcher.join().unwrap())
    });
    let peak = memory(proxy, "VmHWM:");
    let ended = Instant::now();
    drop(victim);
    thread::sleep(AFTER.saturating_sub(ended.elapsed()));
    let after = memory(proxy, "VmRSS:");
    let remains = memory(proxy, "RssAnon:").saturating_sub(own_idle);
    if let Ok(file) = std::env::var("MAGLOR_ATTACK_LOG") {
        std::fs::write(file, proxy.stderr()).unwrap();
    }
    Measured {
        idle,
        peak,
        own,
        after,
        remains,
        undisturbed,
        p99: met.percentile(99),
        asked: met.times.len(),
        failed: met.failed,
    }
}

/// Waits until the attack takes no more memory.
fn wait_steady(proxy: &Proxy) {
    let begun = Instant::now();
    let (mut most, mut since) = (0, begun);
    while begun.elapsed() < LONGEST && (begun.elapsed() < HELD || since.elapsed() < STEADY) {
        let now = memory(proxy, "VmHWM:");
        if now > most + MIB / 4 {
            (most, since) = (now, Instant::now());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn report(attack: &Attack, budget: u64, measured: &Measured) {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "| {} | {} | {:.0} | {:.0} | {:.1} | {:.1} | {} of {} | {:.0} | {:.0} |",
        attack.name,
        if budget == 0 {
            "none".to_owned()
        } else {
            format!("{budget} MiB")
        },
        mb(measured.peak),
        mb(measured.own),
        ms(measured.undisturbed),
        ms(measured.p99),
        measured.failed,
        measured.asked,
        mb(measured.idle),
        mb(measured.after),
    );
}

/// Returns the violated bounds: resident memory, service, release.
fn faults(budget: u64, measured: &Measured, optimised: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let limit = budget * MIB;
    let most = if optimised {
        measured.peak
    } else {
        measured.own
    };
    if budget > 0 && most > limit + BEYOND {
        faults.push(format!("{most} bytes were resident"));
    }
    if measured.failed * 100 > measured.asked.max(50) {
        faults.push(format!("{} requests of the victim failed", measured.failed));
    }
    if measured.remains > REMAINS {
        faults.push(format!(
            "{} bytes stay resident afterwards",
            measured.remains
        ));
    }
    faults
}

fn run(attacks: &[&str], budgets: &[u64]) {
    clients::raise_file_limit();
    let (_, optimised) = binary();
    println!(
        "| attack | budget | peak RSS (MB) | of it not of files | p99 before (ms) | p99 (ms) | failed | idle (MB) | 10 s later (MB) |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut faulty = Vec::new();
    for attack in ATTACKS.iter().filter(|a| attacks.contains(&a.name)) {
        for budget in budgets {
            let measured = measure(attack, *budget);
            report(attack, *budget, &measured);
            for fault in faults(*budget, &measured, optimised) {
                faulty.push(format!("{}, {budget} MiB: {fault}", attack.name));
            }
        }
    }
    assert!(faulty.is_empty(), "{faulty:#?}");
}

#[test]
fn the_budget_holds_under_attack() {
    let (_, optimised) = binary();
    let list = |name: &str| std::env::var(name).ok();
    let names = list("MAGLOR_ATTACKS").unwrap_or_else(|| match optimised {
        true => ATTACKS.map(|attack| attack.name).join(","),
        false => "h2-slow-5,h1-uploads,h2-heads".to_owned(),
    });
    let budgets = list("MAGLOR_BUDGETS").unwrap_or_else(|| match optimised {
        true => "16,32,64".to_owned(),
        false => "16".to_owned(),
    });
    let names: Vec<_> = names.split(',').collect();
    let budgets: Vec<_> = budgets.split(',').map(|mib| mib.parse().unwrap()).collect();
    run(&names, &budgets);
}

/// A body is kept for retries. Each of its bytes comes alone: as a segment of a known length, or as a chunk.
#[test]
fn a_kept_body_that_comes_byte_by_byte_takes_about_its_size() {
    const BYTES: usize = 10_000;
    const MOST: u64 = 4 * MIB;
    let setup = setup(0);
    for (framing, byte) in [
        ("content-length: 1000000", "a"),
        ("transfer-encoding: chunked", "1\r\na\r\n"),
    ] {
        let mut client = clients::connect(setup.proxy.listener("web"), None).unwrap();
        let head = format!("PUT /hang HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        let before = memory(&setup.proxy, "RssAnon:");
        for _ in 0..BYTES {
            client.write_all(byte.as_bytes()).unwrap();
            // Long enough for a read of its own.
            thread::sleep(Duration::from_micros(50));
        }
        let grown = memory(&setup.proxy, "RssAnon:").saturating_sub(before);
        assert!(grown < MOST, "{framing}: {grown} bytes");
    }
}

/// A proxy that has answered once answers again after any attack.
#[test]
fn after_an_attack_everything_is_served() {
    clients::raise_file_limit();
    let setup = setup(16);
    let target = Target {
        web: setup.proxy.listener("web"),
        mesh: setup.proxy.listener("mesh"),
        admin: setup.proxy.admin(),
        member: setup.root.member("client").client("maglor/1"),
    };
    let attack = ATTACKS.iter().find(|attack| attack.name == "h2-slow-5");
    drop((attack.unwrap().start)(&target));
    eventually(Duration::from_secs(30), "requests are answered", || {
        let mut client = RawHttp1::connect(target.web);
        client.send("GET /bytes/1000000 HTTP/1.1\r\nhost: victim\r\n\r\n");
        client
            .try_response("GET")
            .is_ok_and(|it| it.body.len() == 1_000_000)
    });
}
