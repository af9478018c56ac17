//! Disturbances of a ledger: members that do not report, hosts that die or stall, a rollout during which
//! proxies have different member lists. It must never be worse than `lor`, and recover fully when the cause has
//! ended.
//!
//! `MAGLOR_MINUTES=1 cargo test -p maglor-proxy --test main disturbed:: -- --ignored --nocapture` measures it with 20
//! servers and 20 balancers, and prints a table; `MAGLOR_CAUSES=Rollout,Killed` measures only these.

use std::time::{Duration, Instant};

use maglor_balance::Rng;
use maglor_testkit::process::Signal;
use maglor_testkit::seed;

use crate::support;
use crate::support::replicas::{Outcome, Plan, Replicas};

const LEDGER: &str = "ledger(group=40)";
const LOR: &str = "lor(choices=2)";

/// Share of the servers' time that requests need.
const LOAD: f64 = 0.75;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cause {
    /// No disturbance.
    None,
    /// This many members do not report.
    Silent(usize),
    /// The host of the ledger, or any server of a service without one, dies and restarts.
    Killed,
    /// It stalls for 300 ms.
    Stalled,
    /// Members leave and return one after another; proxies are notified one after another.
    Rollout,
}

fn plan(policy: &str, servers: usize, balancers: usize, service: Duration, seed: u64) -> Plan {
    Plan {
        servers,
        balancers,
        policy: policy.to_owned(),
        service,
        weights: Vec::new(),
        cluster: String::new(),
        everywhere: String::new(),
        seed,
    }
}

/// Applies the disturbance until `end`.
fn disturb(replicas: &Replicas, cause: Cause, end: Instant, rng: &mut Rng) {
    let servers = replicas.plan.servers;
    let all: Vec<usize> = (0..servers).collect();
    let victim = |rng: &mut Rng| {
        replicas
            .host()
            .unwrap_or(rng.below(servers as u32) as usize)
    };
    let mut step = 0;
    while Instant::now() < end {
        match cause {
            Cause::None => std::thread::sleep(end.saturating_duration_since(Instant::now())),
            Cause::Silent(count) => {
                (0..count)
                    .filter(|_| step == 0)
                    .for_each(|at| replicas.silence(at));
                std::thread::sleep(end.saturating_duration_since(Instant::now()));
            }
            Cause::Killed => {
                let at = victim(rng);
                replicas.kill(at);
                std::thread::sleep(Duration::from_millis(500));
                replicas.restart(at, &all);
                std::thread::sleep(Duration::from_secs(3));
            }
            Cause::Stalled => {
                let at = victim(rng);
                replicas.with_inbound(at, |proxy| proxy.signal(Signal::Stop));
                std::thread::sleep(Duration::from_millis(300));
                replicas.with_inbound(at, |proxy| proxy.signal(Signal::Continue));
                std::thread::sleep(Duration::from_secs(2));
            }
            Cause::Rollout => {
                // Remove the member that has been in for longest, and add it again.
                let at = (step / 2) % servers;
                let members: Vec<usize> = all
                    .iter()
                    .copied()
                    .filter(|one| step % 2 == 1 || *one != at)
                    .collect();
                roll(replicas, &members, rng);
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        step += 1;
    }
    if let Cause::Silent(_) | Cause::Rollout = cause {
        roll(replicas, &all, rng);
    }
}

/// Updates the members in all proxies, in any order.
fn roll(replicas: &Replicas, members: &[usize], rng: &mut Rng) {
    let balancers = rng.below(members.len() as u32) as usize;
    for (turn, at) in members.iter().enumerate() {
        if turn == balancers {
            replicas.balance_over(members);
        }
        replicas.know(*at, members);
    }
}

/// Measures requests while a cause lasts, and from `calm` after its end on.
fn run(
    replicas: &Replicas,
    cause: Cause,
    (time, calm): (Duration, Duration),
    rng: &mut Rng,
) -> [Outcome; 2] {
    let plan = &replicas.plan;
    let rate = LOAD * plan.servers as f64 / plan.service.as_secs_f64();
    let (seed, mut own) = (rng.next_u64(), Rng::seed(rng.next_u64()));
    let disturbed = std::thread::scope(|scope| {
        let end = Instant::now() + time;
        let disturbing = scope.spawn(move || disturb(replicas, cause, end, &mut own));
        let outcome = replicas.load(rate, time, seed);
        disturbing.join().unwrap();
        outcome
    });
    if cause == Cause::None {
        return [disturbed; 2];
    }
    replicas.load(rate, calm, rng.next_u64());
    [disturbed, replicas.load(rate, time, rng.next_u64())]
}

/// Returns the share of requests that found their server idle.
fn idle(replicas: &Replicas) -> f64 {
    let of = |server: &str| -> f64 {
        let label = format!("server=\"{server}\"");
        let count = |proxy: &maglor_testkit::Proxy| {
            proxy.metric("maglor_exchange_arrivals_total", &[label.as_str()])
        };
        (0..replicas.plan.servers)
            .filter_map(|at| replicas.with_inbound(at, count))
            .sum()
    };
    let (idle, busy) = (of("idle"), of("busy"));
    idle / (idle + busy)
}

/// With half of the members silent, a ledger is still the better choice: more requests find an idle server.
#[test]
fn a_ledger_with_silent_members_is_no_worse_than_lor() {
    let mut rng = Rng::seed(seed());
    let share = |policy: &str, rng: &mut Rng| {
        let service = Duration::from_millis(20);
        let replicas = Replicas::start(plan(policy, 6, 6, service, rng.next_u64()));
        if policy == LEDGER {
            (0..3).for_each(|at| replicas.silence(at));
        }
        let outcome = replicas.load(
            0.5 * 6.0 / service.as_secs_f64(),
            Duration::from_secs(4),
            rng.next_u64(),
        );
        assert_eq!(outcome.errors, 0, "{policy}");
        idle(&replicas)
    };
    let (ledger, lor) = (share(LEDGER, &mut rng), share(LOR, &mut rng));
    println!("found an idle server: {ledger:.2} by ledger, {lor:.2} by lor");
    assert!(ledger > lor - 0.05, "{ledger} {lor}");
}

#[test]
#[ignore = "takes a quarter of an hour; MAGLOR_MINUTES sets how long each case runs"]
fn twenty_balancers_under_each_cause() {
    let number = seed();
    let minutes = std::env::var("MAGLOR_MINUTES")
        .ok()
        .and_then(|text| text.parse().ok());
    let time = Duration::from_secs_f64(60.0 * minutes.unwrap_or(1.0));
    let service = Duration::from_millis(200);
    let ms = |outcome: &Outcome| outcome.mean.as_secs_f64() * 1e3;
    println!(
        "| cause | policy | mean, ms | errors | mean after, ms | requests |\n|---|---|---|---|---|---|"
    );
    let is_chosen = |cause: &Cause| support::is_chosen("MAGLOR_CAUSES", &format!("{cause:?}"));
    let all = [
        Cause::None,
        Cause::Silent(1),
        Cause::Silent(10),
        Cause::Silent(19),
        Cause::Killed,
        Cause::Stalled,
        Cause::Rollout,
    ];
    for cause in all.into_iter().filter(is_chosen) {
        for policy in [LOR, LEDGER] {
            let mut rng = Rng::seed(number);
            let replicas = Replicas::start(plan(policy, 20, 20, service, number));
            let rate = LOAD * 20.0 / service.as_secs_f64();
            replicas.load(rate, Duration::from_secs(5), rng.next_u64());
            // No server reports under `lor`.
            let cause = match (cause, policy) {
                (Cause::Silent(_), LOR) => Cause::None,
                _ => cause,
            };
            let [during, after] = run(&replicas, cause, (time, Duration::from_secs(5)), &mut rng);
            println!(
                "| {cause:?} | {policy} | {:.0} | {} | {:.0} | {} |",
                ms(&during),
                during.errors,
                ms(&after),
                during.requests + after.requests
            );
        }
    }
}
