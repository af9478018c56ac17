//! The simulator against queues that have a formula. A random policy splits Poisson arrivals into
//! independent Poisson streams, so that each server is a textbook queue.

use maglor_lab::des::{Arrivals, Discipline, Graph, Proxies, Scenario, Service};
use std::time::Duration;

use crate::support::{assert_mean, paper, requests, run};

const TS: f64 = 20.0;

#[test]
fn mm1_has_its_mean_and_its_tail() {
    for rho in [0.3, 0.75, 0.9] {
        let scenario = Scenario {
            rho,
            requests: requests(if rho > 0.8 { 600_000 } else { 200_000 }),
            ..paper("random", 3)
        };
        let outcome = run(&scenario);
        let mean = TS / (1.0 - rho);
        assert_mean("M/M/1", &outcome, mean, 0.01);
        // The time in an M/M/1 system is exponential.
        let p99 = -mean * 0.01_f64.ln();
        assert!(
            outcome.p99_ms.agrees_with(p99, 0.02),
            "{:?}",
            outcome.p99_ms
        );
        let median = mean * 2.0_f64.ln();
        assert!(
            outcome.p50_ms.agrees_with(median, 0.02),
            "{:?}",
            outcome.p50_ms
        );
    }
}

#[test]
fn mg1_is_pollaczek_and_khinchine() {
    let rho = 0.6;
    for text in ["deterministic", "lognormal:1.5", "bimodal:0.1:8"] {
        let service: Service = text.parse().unwrap();
        let scenario = Scenario {
            rho,
            service,
            ..paper("random", 1)
        };
        let waiting = rho / (1.0 - rho) * (1.0 + service.squared_variation()) / 2.0;
        assert_mean(text, &run(&scenario), TS * (1.0 + waiting), 0.015);
    }
}

#[test]
fn processor_sharing_does_not_care_how_work_is_distributed() {
    for text in ["exp", "deterministic", "lognormal:2"] {
        let scenario = Scenario {
            rho: 0.6,
            service: text.parse().unwrap(),
            discipline: Discipline::ProcessorSharing,
            ..paper("random", 1)
        };
        assert_mean(text, &run(&scenario), TS / 0.4, 0.02);
    }
}

#[test]
fn many_servers_are_the_supermarket_model() {
    // Mitzenmacher's limit for one balancer: Σ ρ^((d^i − d)/(d − 1)), i from 1.
    for (d, rho) in [(2, 0.75), (3, 0.75), (2, 0.9)] {
        let base = f64::from(d);
        let exponent = |i: i32| (base.powi(i) - base) / (base - 1.0);
        let limit: f64 = (1..20).map(|i| f64::powf(rho, exponent(i))).sum();
        let scenario = Scenario {
            servers: 1000,
            rho,
            requests: requests(600_000),
            runs: 4,
            ..paper(&format!("lor(choices={d})"), 1)
        };
        assert_mean("supermarket", &run(&scenario), TS * limit, 0.015);
    }
}

#[test]
fn join_the_shortest_queue_lies_between_its_bounds() {
    // One queue for all servers (M/M/c) is the best that is possible, two choices are worse.
    let shortest = run(&paper("lor(choices=all)", 1)).mean_ms;
    let (servers, rho) = (40, 0.75);
    let offered = f64::from(servers) * rho;
    let mut blocked = 1.0;
    for c in 1..=servers {
        blocked = offered * blocked / (f64::from(c) + offered * blocked);
    }
    let waits = blocked / (1.0 - rho * (1.0 - blocked));
    let best = TS * (1.0 + waits / (f64::from(servers) * (1.0 - rho)));
    assert!(
        shortest.value + shortest.half_width > best,
        "{shortest:?} {best}"
    );
    assert!(shortest.value < 1.06 * best, "{shortest:?} {best}");
}

#[test]
fn d_m_1_has_its_root() {
    // Gaps are nearly constant: the G/M/1 queue with a single server has mean Ts/(1 − σ), where σ
    // solves σ = A*((1 − σ)/Ts); for constant gaps A*(s) = exp(−s·gap).
    let scenario = Scenario {
        servers: 1,
        arrivals: Arrivals::Lognormal { cv: 0.001 },
        requests: requests(400_000),
        ..paper("random", 1)
    };
    let mut sigma = 0.5_f64;
    for _ in 0..200 {
        sigma = (-(1.0 - sigma) / 0.75).exp();
    }
    assert_mean("D/M/1", &run(&scenario), TS / (1.0 - sigma), 0.01);
}

#[test]
fn a_tandem_of_random_queues_adds_up() {
    // Burke: what leaves an M/M/1 queue is Poisson again, so that a chain is a sum of M/M/1 queues;
    // a hub, whose calls come after one another, too.
    for graph in [Graph::Chain { services: 3 }, Graph::Hub { services: 3 }] {
        let scenario = Scenario {
            graph,
            rho: 0.5,
            servers: 20,
            ..paper("random", 1)
        };
        assert_mean("tandem", &run(&scenario), 3.0 * TS / 0.5, 0.015);
    }
}

#[test]
fn a_proxy_is_one_balancer_and_its_penalty() {
    let alone = run(&paper("lor(choices=2)", 1)).mean_ms;
    let proxied = Scenario {
        proxies: Some(Proxies {
            instances: 1,
            penalty: Duration::from_millis(2),
        }),
        ..paper("lor(choices=2)", 100)
    };
    assert_mean("proxy", &run(&proxied), alone.value + 2.0, 0.01);
}

#[test]
fn runs_that_are_too_short_for_their_load_say_so() {
    let load = |rho, requests, seed| Scenario {
        rho,
        requests,
        seed,
        ..paper("random", 1)
    };
    for seed in 1..=5 {
        // M/M/1 queues forget their beginning in 1/(1 − √ρ)² mean services: here 40 000, of which a
        // run has 2500.
        let short = run(&load(0.99, 100_000, seed));
        assert!(!short.mean_ms.agrees_with(2000.0, 0.0));
        assert!(!short.is_steady(), "{short:?}");
        for (rho, requests) in [(0.1, 1000), (0.5, 4000), (0.75, 40_000), (0.9, 200_000)] {
            let long = run(&load(rho, requests, seed));
            assert!(long.is_steady(), "{rho}: {long:?}");
        }
    }
}
