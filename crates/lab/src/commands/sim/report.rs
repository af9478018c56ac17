//! The results of simulations as JSON, CSV and tables.

use maglor_lab::des::{Outcome, Scenario};
use serde_json::{Value, json};

use crate::commands::format::{self, Format};

/// The columns of CSV: the fields of JSON that have one value.
const CSV: [&str; 33] = [
    "policy",
    "balancers",
    "servers",
    "rho",
    "service_ms",
    "arrivals",
    "service",
    "discipline",
    "graph",
    "delay_ms",
    "loss",
    "report_loss",
    "silent",
    "proxies",
    "seed",
    "runs",
    "requests",
    "discarded",
    "failed",
    "mean_ms",
    "ci95_ms",
    "good_mean_ms",
    "p50_ms",
    "p50_ci95_ms",
    "p99_ms",
    "p99_ci95_ms",
    "messages_per_request",
    "fallback_share",
    "retries_per_request",
    "ejections",
    "busy_while_idle",
    "drift",
    "steady",
];

/// The parameters of a table that are shown even if all simulations have the same.
const MAIN: [&str; 4] = ["policy", "balancers", "servers", "rho"];

/// The parameters of a table that are shown only if they differ.
const OTHER: [&str; 7] = [
    "service_ms",
    "delay_ms",
    "loss",
    "report_loss",
    "silent",
    "proxies",
    "seed",
];

/// The results in a table.
const RESULTS: [&str; 6] = [
    "mean_ms",
    "ci95_ms",
    "p50_ms",
    "p99_ms",
    "messages_per_request",
    "steady",
];

/// Prints the results in a format.
pub(super) fn text(scenarios: &[Scenario], outcomes: &[Outcome], format: Format) -> String {
    let both = scenarios.iter().zip(outcomes);
    let results: Vec<Value> = both.map(|(one, outcome)| report(one, outcome)).collect();
    match format {
        Format::Csv => format::csv(&CSV, &cells(&results, &CSV)),
        Format::Json => format::json(results),
        Format::Table => {
            let differs = |column: &&&str| {
                results
                    .iter()
                    .any(|one| one[**column] != results[0][**column])
            };
            let other = OTHER.iter().filter(differs);
            let columns: Vec<_> = MAIN.iter().chain(other).chain(&RESULTS).copied().collect();
            format::table(&columns, &cells(&results, &columns))
        }
    }
}

/// Returns the values of columns as text; absent ones are empty.
fn cells(results: &[Value], columns: &[&str]) -> Vec<Vec<String>> {
    let cell = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let row = |result: &Value| {
        columns
            .iter()
            .map(|column| cell(&result[*column]))
            .collect()
    };
    results.iter().map(row).collect()
}

/// Rounds a share, since further digits are noise.
fn six_digits(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

/// Returns for the attempts from each node the shares of the nodes' servers.
fn node_shares(outcome: &Outcome) -> Vec<Vec<f64>> {
    let row = |counts: &Vec<u64>| {
        let all = counts.iter().sum::<u64>().max(1) as f64;
        let share = |count: &u64| six_digits(*count as f64 / all);
        counts.iter().map(share).collect()
    };
    outcome.attempts_by_node.iter().map(row).collect()
}

fn report(scenario: &Scenario, outcome: &Outcome) -> Value {
    let round = |value: f64| (value * 1e4).round() / 1e4;
    json!({
        "policy": scenario.policy.to_string(),
        "balancers": scenario.balancers,
        "servers": scenario.servers,
        "rho": scenario.rho,
        "service_ms": scenario.service_time.as_secs_f64() * 1000.0,
        "arrivals": scenario.arrivals.to_string(),
        "service": scenario.service.to_string(),
        "discipline": scenario.discipline.to_string(),
        "graph": scenario.graph.to_string(),
        "speeds": scenario.speeds,
        "weights": scenario.weights,
        "node_callers": scenario.nodes.as_ref().map(|nodes| &nodes.callers),
        "delay_ms": scenario.network.delay.as_secs_f64() * 1000.0,
        "loss": scenario.network.loss,
        "report_loss": scenario.network.report_loss,
        "silent": scenario.silent,
        "proxies": scenario.proxies.map(|proxies| proxies.instances),
        "seed": scenario.seed,
        "runs": scenario.runs,
        "requests": outcome.requests,
        "discarded": outcome.discarded,
        "failed": outcome.failed,
        "mean_ms": round(outcome.mean_ms.value),
        "ci95_ms": round(outcome.mean_ms.half_width),
        "good_mean_ms": round(outcome.good_mean_ms.value),
        "p50_ms": round(outcome.p50_ms.value),
        "p50_ci95_ms": round(outcome.p50_ms.half_width),
        "p99_ms": round(outcome.p99_ms.value),
        "p99_ci95_ms": round(outcome.p99_ms.half_width),
        "messages_per_request": round(outcome.messages_per_request.value),
        "fallback_share": round(outcome.fallback_share.value),
        "retries_per_request": round(outcome.retries_per_request.value),
        "ejections": outcome.ejections,
        "busy_while_idle": round(outcome.busy_while_idle.value),
        "drift": round(outcome.drift.value),
        "steady": outcome.is_steady(),
        "shares": outcome.shares.iter().map(|share| six_digits(*share)).collect::<Vec<_>>(),
        "node_shares": node_shares(outcome),
        "timeline_ms": outcome.timeline_ms.iter().map(|mean| round(*mean)).collect::<Vec<_>>(),
    })
}
