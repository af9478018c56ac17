//! Common functions of the tables: simulate scenarios, print rows as Markdown.

use std::process::exit;

use maglor_lab::des::{Outcome, Scenario, simulate_all, threads};

/// The system of all tables: 20 balancers, 40 servers, exponential service of 20 ms, seed 1.
pub(crate) fn base(policy: &str) -> Scenario {
    let policy = policy.parse().unwrap_or_else(|error| fail(&error));
    Scenario {
        balancers: 20,
        runs: 4,
        ..Scenario::of(policy)
    }
}

/// Simulates all, in their order.
pub(crate) fn simulate(scenarios: &[Scenario]) -> Vec<Outcome> {
    let threads = threads();
    simulate_all(scenarios, threads, &|_, _| {}).unwrap_or_else(|error| fail(&error))
}

fn fail(error: &dyn std::fmt::Display) -> ! {
    eprintln!("{error}");
    exit(1)
}

/// Prints the head of a table.
pub(crate) fn head(columns: &[String]) {
    row(columns);
    row(&vec!["---".to_owned(); columns.len()]);
}

/// Prints a row.
pub(crate) fn row(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}

/// The number of requests that arrive in this many seconds.
pub(crate) fn requests_in(seconds: f64, scenario: &Scenario) -> u64 {
    let capacity = f64::from(scenario.servers) / scenario.service_time.as_secs_f64();
    (seconds * scenario.rho * capacity) as u64
}
