//! Policies over M = 1 … 1000 balancers, N = 40 and 200 servers, three loads: mean, 99th percentile
//! and messages, of the same simulations.

use super::sweep::{Chart, MEAN, Sweep, lines, set_balancers};
use super::{Effort, Study};
use crate::des::Scenario;

const POLICIES: &[&str] = &[
    "random",
    "lor(choices=2)",
    "a-lsq(choices=2,overhead=10)",
    "prequal",
    "bounce(tries=3)",
    "join-idle-queue(boards=4)",
    "ledger(group=40)",
];

const BALANCERS: &[f64] = &[1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0];

const SERVERS: [u32; 2] = [40, 200];

/// In per cent, for names of files.
const LOADS: [u32; 3] = [50, 75, 90];

pub(super) fn studies(effort: Effort) -> Vec<Study> {
    let each = SERVERS.iter().flat_map(|n| LOADS.map(|load| (*n, load)));
    each.map(|(servers, load)| study(servers, load, effort))
        .collect()
}

fn study(servers: u32, load: u32, effort: Effort) -> Study {
    let base = Scenario {
        servers,
        rho: f64::from(load) / 100.0,
        ..Scenario::default()
    };
    let sweep = Sweep {
        name: "policies over balancers",
        lines: lines(POLICIES, &base),
        values: BALANCERS,
        set: set_balancers,
        x_label: "balancers M",
        x_log: true,
    };
    let place = format!("N = {servers}, ρ = {}, Ts = 20 ms", base.rho);
    let chart = |what: &str, title: &str, y_label, y_log, value| Chart {
        id: format!("{what}-n{servers}-rho{load}"),
        title: format!("{title}: {place}"),
        y_label,
        y_log,
        value,
    };
    let charts = vec![
        chart("mean", "Mean latency", MEAN, false, |o| o.mean_ms),
        chart(
            "p99",
            "99th percentile",
            "99th percentile of latency, ms",
            false,
            |o| o.p99_ms,
        ),
        chart("messages", "Messages", "messages a request", false, |o| {
            o.messages_per_request
        }),
    ];
    Study::new(effort, sweep, charts)
}
