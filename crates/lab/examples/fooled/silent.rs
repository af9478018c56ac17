//! Servers that report to no ledger, partitions, rollouts, hosts that stall or crash: means compared with
//! `lor(choices=2)` in the same situation.

use std::time::Duration;

use maglor_balance::Rng;
use maglor_lab::des::{Change, Disturbance, Outcome, Scenario};

use crate::table::{base, head, requests_in, row, simulate};

const LEDGERS: [&str; 3] = [
    "ledger(group=40)",
    "ledger(group=20)",
    "ledger(group=40,fallback=lor)",
];

/// The evaluated seconds of a run.
const SECONDS: usize = 30;

const COUNTS: [u32; 8] = [1, 4, 10, 20, 30, 36, 39, 40];

pub(crate) fn print() {
    println!("## Silent members: mean in ms, and over that of `lor(choices=2)`\n");
    let counts = COUNTS.iter().map(|count| format!("{count} of 40"));
    let names = ["policy", "ρ", "0 of 40"].map(str::to_owned);
    head(&names.into_iter().chain(counts).collect::<Vec<_>>());
    for rho in [0.3, 0.75, 0.9] {
        for policy in LEDGERS {
            silent_row(policy, rho);
        }
    }
    println!(
        "\n## What passes: the worst second, beside `lor(choices=2)` in the same second, and the way back\n"
    );
    println!(
        "ρ = 0.75, 20 runs. The cause begins after 10 s and ends after 20 s. Back: seconds from its end until all \
         further ones are within 10 % of the ledger's usual mean.\n"
    );
    let names = [
        "cause",
        "policy",
        "worst second, ms",
        "over lor",
        "back after, s",
    ];
    head(&names.map(str::to_owned));
    for (name, disturbances) in causes() {
        for policy in LEDGERS {
            passing_row(name, policy, &disturbances);
        }
    }
    println!();
}

fn silent_row(policy: &str, rho: f64) {
    let scenario = |policy: &str, silent| {
        let scenario = Scenario {
            rho,
            silent,
            ..base(policy)
        };
        Scenario {
            requests: requests_in(60.0, &scenario),
            ..scenario
        }
    };
    let mut scenarios = vec![scenario("lor(choices=2)", 0), scenario(policy, 0)];
    scenarios.extend(COUNTS.iter().map(|count| scenario(policy, *count)));
    let outcomes = simulate(&scenarios);
    let lor = outcomes[0].mean_ms.value;
    let cell = |outcome: &Outcome| {
        let mean = outcome.mean_ms.value;
        format!("{mean:.1} ({:.2})", mean / lor)
    };
    let names = [format!("`{policy}`"), rho.to_string()];
    let cells = outcomes[1..].iter().map(cell);
    row(&names.into_iter().chain(cells).collect::<Vec<_>>());
}

fn change(ms: u64, change: Change) -> Disturbance {
    Disturbance {
        at: Duration::from_millis(ms),
        change,
    }
}

type Cause = (&'static str, Vec<Disturbance>);

fn causes() -> Vec<Cause> {
    let silent = |servers: std::ops::Range<u32>| -> Vec<Disturbance> {
        let both = |server| {
            [
                change(10_000, Change::Silent(server)),
                change(20_000, Change::Reporting(server)),
            ]
        };
        servers.flat_map(both).collect()
    };
    let rollout = (0..40)
        .flat_map(|step| {
            let end = 10_000 + 250 * (u64::from(step) + 1);
            [
                change(10_000, Change::Silent(step)),
                change(end, Change::Reporting(step)),
            ]
        })
        .collect();
    let stalls = (0..20)
        .flat_map(|stall| {
            let at = 10_000 + 500 * stall;
            [
                change(at, Change::LedgerStalls(0)),
                change(at + 5, Change::LedgerResumes(0)),
            ]
        })
        .collect();
    vec![
        (
            "all servers' reports lost (partition one way)",
            silent(0..40),
        ),
        ("half of the servers' reports lost", silent(0..20)),
        ("rollout in 40 steps", rollout),
        (
            "the first ledger's host killed",
            vec![
                change(10_000, Change::LedgerDies(0)),
                change(20_000, Change::LedgerRestarts(0)),
            ],
        ),
        ("a stall of 5 ms twice a second", stalls),
        (
            "a host killed at random each 0.5 s, back after 1 s",
            killed(),
        ),
    ]
}

/// Servers leave and return at random; each time the first ledger restarts without its state after 0.3 s.
fn killed() -> Vec<Disturbance> {
    let mut rng = Rng::seed(5);
    let mut changes = Vec::new();
    let mut absent: Vec<(u64, u32)> = Vec::new();
    for at in (10_000..19_000).step_by(500) {
        absent.retain(|(until, _)| *until > at);
        let mut server = rng.below(40);
        while absent.iter().any(|(_, other)| *other == server) {
            server = rng.below(40);
        }
        absent.push((at + 1000, server));
        changes.push(change(at, Change::Leave(server)));
        changes.push(change(at + 1000, Change::Return(server)));
        changes.push(change(at, Change::LedgerDies(0)));
        changes.push(change(at + 300, Change::LedgerRestarts(0)));
    }
    changes
}

fn passing_row(name: &str, policy: &str, disturbances: &[Disturbance]) {
    let scenario = |policy: &str, disturbances: &[Disturbance]| Scenario {
        disturbances: disturbances.to_vec(),
        view_lag: Duration::from_millis(200),
        timeline: Duration::from_secs(1),
        runs: 20,
        // 31 s, of which no run ends within the first 30.
        requests: 46_500,
        ..base(policy)
    };
    // Ledgers have no effect on balancers that use their own counts.
    let servers = |one: &&Disturbance| matches!(one.change, Change::Leave(_) | Change::Return(_));
    let of_servers: Vec<Disturbance> = disturbances.iter().filter(servers).copied().collect();
    let outcomes = simulate(&[
        scenario("lor(choices=2)", &of_servers),
        scenario(policy, disturbances),
        scenario(policy, &[]),
    ]);
    let [lor, means, usual] = [0, 1, 2].map(|at: usize| &outcomes[at].timeline_ms);
    let seconds = means.len().min(lor.len()).min(SECONDS);
    let worst = (1..seconds)
        .max_by(|a, b| means[*a].total_cmp(&means[*b]))
        .unwrap_or(0);
    let ratio = (1..seconds)
        .map(|at| means[at] / lor[at])
        .fold(0.0, f64::max);
    let usual = usual[1..SECONDS].iter().sum::<f64>() / (SECONDS - 1) as f64;
    let last = (20..seconds).rev().find(|at| means[*at] > 1.1 * usual);
    let back = last.map_or(0, |last| last + 1 - 20);
    row(&[
        name.to_owned(),
        format!("`{policy}`"),
        format!("{:.1}", means[worst]),
        format!("{ratio:.2}"),
        back.to_string(),
    ]);
}
