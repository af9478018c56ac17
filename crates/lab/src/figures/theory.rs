//! The paper's Figs. 3 and 4: the model compared with simulations.
//!
//! N = 40, Ts = 20 ms, ρ = 0.75, two choices, unless a figure varies them (§II.D).

use super::sweep::{Chart, MEAN, Sweep, line, set_balancers};
use super::{Effort, Study};
use crate::chart::{Point, Series};
use crate::des::{Arrivals, Scenario};
use crate::model::System;

const SERVICE_MS: f64 = 20.0;
const SERVERS: u32 = 40;
const LOAD: f64 = 0.75;
const LOR: &str = "lor(choices=2)";

const BALANCERS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 70.0, 100.0, 150.0, 200.0];
const LOADS: &[f64] = &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95];
const CHOICES: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0];

pub(super) fn studies(effort: Effort) -> Vec<Study> {
    vec![
        over_balancers(effort),
        over_load(effort),
        over_choices(effort),
        over_balancers_with_bursts(effort),
    ]
}

fn over_balancers(effort: Effort) -> Study {
    let sweep = Sweep {
        name: "Fig. 3a",
        lines: vec![named("simulation, lor(2)", LOR, &Scenario::default())],
        values: BALANCERS,
        set: set_balancers,
        x_label: "balancers M",
        x_log: true,
    };
    let title = "Fig. 3a: latency of lor(2) over balancers, N = 40, ρ = 0.75";
    Study::new(effort, sweep, vec![mean("3a", title)]).with_formulas(|| {
        let at = |m: f64| (m as u32, 2, LOAD);
        vec![
            papers("paper's model", BALANCERS, at),
            corrected("corrected model", BALANCERS, at),
            formula("random", BALANCERS, |m| ms(system(at(m)).random())),
        ]
    })
}

fn over_load(effort: Effort) -> Study {
    let lines = [1, 20].map(|balancers| {
        let base = Scenario {
            balancers,
            ..Scenario::default()
        };
        named(&format!("simulation, M = {balancers}"), LOR, &base)
    });
    let sweep = Sweep {
        name: "Fig. 3b",
        lines: lines.into(),
        values: LOADS,
        set: |scenario, x| scenario.rho = x,
        x_label: "load ρ",
        x_log: false,
    };
    let chart = Chart {
        y_log: true,
        ..mean("3b", "Fig. 3b: latency of lor(2) over load, N = 40")
    };
    Study::new(effort, sweep, vec![chart]).with_formulas(|| {
        let mut lines = Vec::new();
        for m in [1, 20] {
            let at = move |rho: f64| (m, 2, rho);
            lines.push(papers(&format!("paper's model, M = {m}"), LOADS, at));
            lines.push(corrected(&format!("corrected model, M = {m}"), LOADS, at));
        }
        let random = |rho| ms(system((1, 1, rho)).random());
        lines.push(formula("random", LOADS, random));
        lines
    })
}

fn over_choices(effort: Effort) -> Study {
    let lines = [1, 20, 100].map(|balancers| {
        let base = Scenario {
            balancers,
            ..Scenario::default()
        };
        named(&format!("simulation, M = {balancers}"), LOR, &base)
    });
    let sweep = Sweep {
        name: "Fig. 3c",
        lines: lines.into(),
        values: CHOICES,
        set: |scenario, x| {
            let policy = format!("lor(choices={x})");
            scenario.policy = policy.parse().expect("a number of choices");
        },
        x_label: "choices d",
        x_log: false,
    };
    let title = "Fig. 3c: latency over choices, N = 40, ρ = 0.75";
    Study::new(effort, sweep, vec![mean("3c", title)]).with_formulas(|| {
        let mut lines = Vec::new();
        for m in [1, 20, 100] {
            let at = move |d: f64| (m, d as u32, LOAD);
            lines.push(papers(&format!("paper's model, M = {m}"), CHOICES, at));
            lines.push(corrected(&format!("corrected model, M = {m}"), CHOICES, at));
        }
        lines
    })
}

/// Draws Fig. 4: the paper does not state whether each balancer's stream is bursty or that of all
/// of them together; both are drawn.
fn over_balancers_with_bursts(effort: Effort) -> Study {
    let bursty = |arrivals| Scenario {
        arrivals,
        ..Scenario::default()
    };
    let each = |cv| bursty(Arrivals::Lognormal { cv });
    let all = |cv| bursty(Arrivals::SharedLognormal { cv });
    let sweep = Sweep {
        name: "Fig. 4",
        lines: vec![
            named("lor(2), CV = 2", LOR, &each(2.0)),
            named("lor(2), CV = 3", LOR, &each(3.0)),
            named("random, CV = 3", "random", &each(3.0)),
            named("lor(2), CV = 2, one stream", LOR, &all(2.0)),
            named("lor(2), CV = 3, one stream", LOR, &all(3.0)),
            named("random, CV = 3, one stream", "random", &all(3.0)),
        ],
        values: BALANCERS,
        set: set_balancers,
        x_label: "balancers M",
        x_log: true,
    };
    let title = "Fig. 4: lognormal gaps between requests, N = 40, ρ = 0.75";
    Study::new(effort, sweep, vec![mean("4", title)])
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

fn named(name: &str, policy: &str, base: &Scenario) -> (String, Scenario) {
    (name.to_owned(), line(policy, base).1)
}

fn formula(name: &str, values: &[f64], value: impl Fn(f64) -> f64) -> Series {
    let points = values.iter().map(|x| Point::exact(*x, value(*x)));
    Series {
        points: points.collect(),
        ..Series::new(name)
    }
}

fn papers(name: &str, values: &[f64], at: impl Fn(f64) -> (u32, u32, f64)) -> Series {
    formula(name, values, |x| ms(system(at(x)).paper().latency))
}

fn corrected(name: &str, values: &[f64], at: impl Fn(f64) -> (u32, u32, f64)) -> Series {
    formula(name, values, |x| {
        let latency = system(at(x)).corrected_for(SERVERS);
        ms(latency.expect("the model has a solution at moderate loads"))
    })
}

fn system((balancers, choices, load): (u32, u32, f64)) -> System {
    System::new(balancers, choices, load).expect("figures ask for what is in range")
}

fn ms(latency: f64) -> f64 {
    latency * SERVICE_MS
}
