//! The paper's Fig. 7: applications of four services, hub-and-spoke and chain, over the number of
//! replicas of each.
//!
//! The paper chose the throughput so that random balancing needs about 240 ms regardless of the
//! number of replicas; random queues at a fixed load do that by themselves. With four services of
//! 20 ms in a row that is ρ = 2/3: 4 · 20 / (1 − ρ) = 240 ms.

use std::time::Duration;

use super::sweep::{Chart, MEAN, Sweep, line, lines};
use super::{Effort, Study};
use crate::des::{Graph, Proxies, Scenario};

pub(super) fn studies(effort: Effort) -> Vec<Study> {
    [
        (
            "7-hub",
            "Fig. 7c: hub-and-spoke",
            Graph::Hub { services: 4 },
        ),
        ("7-chain", "Fig. 7d: chain", Graph::Chain { services: 4 }),
    ]
    .map(|(id, title, graph)| study(id, title, graph, effort))
    .into()
}

fn study(id: &str, title: &str, graph: Graph, effort: Effort) -> Study {
    let base = Scenario {
        graph,
        balancers: 1,
        rho: 2.0 / 3.0,
        ..Scenario::default()
    };
    let mut all = lines(&["random", "lor(choices=2)"], &base);
    let proxied = Scenario {
        proxies: Some(Proxies {
            instances: 1,
            penalty: Duration::from_millis(1),
        }),
        ..base.clone()
    };
    let (name, proxied) = line("lor(choices=2)", &proxied);
    all.push((format!("{name} + Proxy-Service"), proxied));
    all.extend(lines(&["bounce(tries=3)", "ledger(group=40)"], &base));
    let sweep = Sweep {
        name: "Fig. 7",
        lines: all,
        values: &[1.0, 2.0, 5.0, 10.0, 15.0, 20.0],
        set: |scenario, x| scenario.servers = x as u32,
        x_label: "replicas R of each service",
        x_log: false,
    };
    let chart = Chart {
        id: id.to_owned(),
        title: format!("{title}, four services, ρ = 2/3"),
        y_label: MEAN,
        y_log: false,
        value: |outcome| outcome.mean_ms,
    };
    Study::new(effort, sweep, vec![chart])
}
