//! Benefits and costs of collaboration: the paper's Fig. 9, and the effect of messages, their delay
//! and loss, and unequal servers on each policy.

use std::time::Duration;

use super::sweep::{Chart, MEAN, Sweep, line, lines, set_balancers};
use super::{Effort, Study};
use crate::des::{Proxies, Scenario};

const COLLABORATIVE: &[&str] = &[
    "a-lsq(choices=2,overhead=10)",
    "prequal",
    "probe(choices=2)",
    "bounce(tries=3)",
    "join-idle-queue(boards=4)",
    "ledger(group=40)",
];

/// Fig. 9: N = 40, ρ = 0.75, Ts = 20 ms; Proxy-Service with a penalty of 2 ms (§V).
pub(super) fn paper(effort: Effort) -> Study {
    let base = Scenario::default();
    let mut all = lines(&["lor(choices=2)"], &base);
    for overhead in [1, 5, 10] {
        all.push(line(
            &format!("a-lsq(choices=2,overhead={overhead})"),
            &base,
        ));
    }
    let proxied = Scenario {
        proxies: Some(Proxies {
            instances: 1,
            penalty: Duration::from_millis(2),
        }),
        ..base.clone()
    };
    let (name, proxied) = line("lor(choices=2)", &proxied);
    all.push((format!("{name} + Proxy-Service"), proxied));
    all.extend(lines(&["bounce(tries=3)", "ledger(group=40)"], &base));
    let sweep = Sweep {
        name: "Fig. 9",
        lines: all,
        values: &[1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0],
        set: set_balancers,
        x_label: "balancers M",
        x_log: true,
    };
    Study::new(
        effort,
        sweep,
        vec![mean(
            "9",
            "Fig. 9: what collaboration recovers, N = 40, ρ = 0.75",
        )],
    )
}

pub(super) fn studies(effort: Effort) -> Vec<Study> {
    vec![
        messages(effort),
        heterogeneity(effort),
        loss(effort),
        delay(effort),
        bursts(effort),
    ]
}

/// Returns a scenario with a hundred balancers, for which local counts contain almost no
/// information.
fn base() -> Scenario {
    Scenario {
        balancers: 100,
        ..Scenario::default()
    }
}

fn mean(id: &str, title: &str) -> Chart {
    Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        y_label: MEAN,
        y_log: false,
        value: |outcome| outcome.mean_ms,
    }
}

fn messages(effort: Effort) -> Study {
    let sweep = Sweep {
        name: "messages",
        lines: lines(COLLABORATIVE, &base()),
        values: &[0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95],
        set: |scenario, x| scenario.rho = x,
        x_label: "load ρ",
        x_log: false,
    };
    let chart = Chart {
        id: "messages-load".to_owned(),
        title: "What each policy sends: M = 100, N = 40".to_owned(),
        y_label: "messages a request",
        y_log: false,
        value: |outcome| outcome.messages_per_request,
    };
    Study::new(effort, sweep, vec![chart])
}

fn heterogeneity(effort: Effort) -> Study {
    let mut all = lines(&["lor(choices=2)"], &base());
    all.extend(lines(COLLABORATIVE, &base()));
    let central = Scenario {
        balancers: 1,
        ..base()
    };
    let (name, central) = line("lor(choices=all)", &central);
    all.push((format!("{name}, one balancer"), central));
    let sweep = Sweep {
        name: "heterogeneity",
        lines: all,
        values: &[1.0, 1.25, 1.5, 2.0, 3.0, 4.0],
        set: |scenario, x| scenario.speeds = vec![1.0, x],
        x_label: "speed of every second server",
        x_log: false,
    };
    let title = "Unequal servers: M = 100, N = 40, ρ = 0.75";
    let chart = Chart {
        y_log: true,
        ..mean("heterogeneity", title)
    };
    Study::new(effort, sweep, vec![chart])
}

fn loss(effort: Effort) -> Study {
    let sweep = Sweep {
        name: "loss",
        lines: lines(COLLABORATIVE, &base()),
        values: &[0.0, 0.01, 0.02, 0.05, 0.1, 0.2],
        set: |scenario, x| scenario.network.loss = x,
        x_label: "share of messages lost",
        x_log: false,
    };
    Study::new(
        effort,
        sweep,
        vec![mean("loss", "Lost messages: M = 100, N = 40, ρ = 0.75")],
    )
}

fn delay(effort: Effort) -> Study {
    let sweep = Sweep {
        name: "delay",
        lines: lines(COLLABORATIVE, &base()),
        values: &[0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0],
        set: |scenario, x| scenario.network.delay = Duration::from_secs_f64(x / 1000.0),
        x_label: "delay of a message, one way, ms",
        x_log: true,
    };
    let title = "Slow messages: M = 100, N = 40, ρ = 0.75, Ts = 20 ms";
    Study::new(effort, sweep, vec![mean("delay", title)])
}

fn bursts(effort: Effort) -> Study {
    let mut all = lines(&["lor(choices=2)"], &base());
    all.extend(lines(COLLABORATIVE, &base()));
    let sweep = Sweep {
        name: "heavy tails",
        lines: all,
        values: &[0.5, 1.0, 2.0, 3.0, 4.0],
        set: |scenario, x| scenario.service = crate::des::Service::Lognormal { cv: x },
        x_label: "coefficient of variation of service times (lognormal)",
        x_log: false,
    };
    Study::new(
        effort,
        sweep,
        vec![mean("service", "Heavy tails: M = 100, N = 40, ρ = 0.75")],
    )
}
