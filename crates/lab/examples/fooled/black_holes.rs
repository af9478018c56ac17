//! Servers that answer every request with an error: the share of the requests that each of them gets, relative to
//! its fair share, with and without ejection.

use maglor_balance::guard::outlier::OutlierParams;
use maglor_lab::des::{Faults, Outcome, Scenario};

use crate::table::{base, head, requests_in, row, simulate};

/// All policies.
const POLICIES: [&str; 15] = [
    "random",
    "round-robin",
    "lor(choices=2)",
    "lor(choices=all)",
    "subset(size=10)",
    "peak-ewma",
    "maglev",
    "ring-hash",
    "a-lsq",
    "bounce(tries=3)",
    "probe(choices=2)",
    "ledger(group=40)",
    "ledger(group=40,fallback=lor)",
    "join-idle-queue",
    "prequal",
];

const LOADS: [f64; 4] = [0.3, 0.5, 0.75, 0.9];

/// Faulty servers, status, and the work of an error relative to a successful response (20 ms).
const FAULTS: [(u32, u16, f64); 8] = [
    (1, 500, 0.01),
    (1, 404, 0.01),
    (1, 500, 1.0),
    (1, 404, 1.0),
    (4, 500, 0.01),
    (4, 404, 0.01),
    (4, 500, 1.0),
    (4, 404, 1.0),
];

pub(crate) fn print() {
    print_with(false);
}

pub(crate) fn print_ejected() {
    print_with(true);
}

fn print_with(ejection: bool) {
    let (title, what) = if ejection {
        (
            "with ejection",
            "share of all requests, in percent (of all faulty servers together)",
        )
    } else {
        (
            "without ejection",
            "the worst faulty server's share over its fair one, 2.5 %",
        )
    };
    println!("## Black holes, {title}: {what}\n");
    tables(ejection, |outcome, servers| {
        cell(outcome, servers, ejection)
    });
}

/// The good servers' least and greatest shares of all requests to them in any run, with ejection.
pub(crate) fn print_good() {
    println!(
        "## Black holes, with ejection: least and greatest share of a good server, in percent\n"
    );
    tables(true, good);
}

/// A table for each fault, with a row for each policy and a column for each load.
fn tables(ejection: bool, cell: impl Fn(&Outcome, u32) -> String) {
    for (servers, status, work) in FAULTS {
        let ms = 20.0 * work;
        println!("### {servers} of 40, status {status}, after {ms} ms\n");
        let loads = LOADS.iter().map(|rho| format!("ρ = {rho}"));
        head(
            &std::iter::once("policy".to_owned())
                .chain(loads)
                .collect::<Vec<_>>(),
        );
        for policy in POLICIES {
            let scenarios: Vec<Scenario> = LOADS
                .iter()
                .map(|rho| scenario(policy, *rho, (servers, status, work), ejection))
                .collect();
            let cells = simulate(&scenarios);
            let cells = cells.iter().map(|outcome| cell(outcome, servers));
            row(&std::iter::once(format!("`{policy}`"))
                .chain(cells)
                .collect::<Vec<_>>());
        }
        println!();
    }
}

fn good(outcome: &Outcome, faulty: u32) -> String {
    let runs = outcome.shares_by_run.iter();
    let good = || runs.clone().flat_map(|run| &run[faulty as usize..]);
    let least = good().copied().fold(f64::INFINITY, f64::min);
    let most = good().copied().fold(0.0, f64::max);
    format!("{:.2}–{:.2}", 100.0 * least, 100.0 * most)
}

fn scenario(policy: &str, rho: f64, faults: (u32, u16, f64), ejection: bool) -> Scenario {
    let (servers, status, work) = faults;
    let mut scenario = Scenario {
        rho,
        runs: 2,
        faults: Some(Faults {
            servers,
            share: 1.0,
            work,
            status,
        }),
        ..base(policy)
    };
    scenario.guards.ejection = ejection.then(OutlierParams::default);
    // Shares are of the second half.
    scenario.requests = requests_in(if ejection { 100.0 } else { 40.0 }, &scenario);
    scenario
}

/// The share of the faulty server with most requests.
fn cell(outcome: &Outcome, servers: u32, ejection: bool) -> String {
    let shares = &outcome.shares[..servers as usize];
    let most = shares.iter().copied().fold(0.0, f64::max);
    if ejection {
        let all: f64 = shares.iter().sum();
        format!("{:.2}", 100.0 * all)
    } else {
        format!("{:.2}", most * f64::from(40))
    }
}
