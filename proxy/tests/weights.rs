//! Shares by weight through real proxies, under each policy that promises them: with idle servers, with ties,
//! and with all servers busy; and the slow start of a new server.

use std::time::{Duration, Instant};

use maglor_testkit::{Answer, seed};

use crate::support::replicas::{Plan, Replicas};

const POLICIES: [&str; 7] = [
    "lor(choices=2)",
    "lor(choices=all)",
    "round-robin",
    "a-lsq(choices=2,overhead=10)",
    "bounce(tries=3)",
    "probe(choices=2)",
    "ledger(group=40)",
];

fn plan(policy: &str, weights: &[u32], servers: usize, service: Duration) -> Plan {
    Plan {
        servers,
        balancers: 1,
        policy: policy.to_owned(),
        service,
        weights: weights.to_vec(),
        everywhere: String::new(),
        cluster: ", outlier_ejection: {enabled: false}".to_owned(),
        seed: seed(),
    }
}

fn counts(replicas: &Replicas) -> Vec<f64> {
    let applications = replicas.applications.iter();
    applications.map(|one| one.requests() as f64).collect()
}

/// Returns the shares of servers at this average number of requests in progress, if no server were busy.
fn shares(replicas: &Replicas, erlang: f64, time: Duration) -> Vec<f64> {
    let rate = erlang / replicas.plan.service.as_secs_f64();
    let before = counts(replicas);
    let outcome = replicas.load(rate, time, replicas.plan.seed);
    assert_eq!(outcome.errors, 0);
    let counts = counts(replicas);
    let new: Vec<f64> = counts
        .iter()
        .zip(before)
        .map(|(now, then)| now - then)
        .collect();
    let sum: f64 = new.iter().sum();
    new.iter().map(|one| one / sum).collect()
}

/// Asserts shares within 10 % of the weights and four standard deviations of as many draws.
fn judge(what: &str, shares: &[f64], weights: &[u32], requests: f64) {
    let sum: u32 = weights.iter().sum();
    for (share, weight) in shares.iter().zip(weights) {
        let wanted = f64::from(*weight) / f64::from(sum);
        let noise = 4.0 * (wanted * (1.0 - wanted) / requests).sqrt();
        assert!(
            (share - wanted).abs() < 0.1 * wanted + noise,
            "{what}: {shares:?} for {weights:?}"
        );
    }
}

/// Makes servers handle any number of requests at a time, so that the load determines the number in progress.
fn unlimited(replicas: &Replicas) {
    let service = replicas.plan.service;
    for application in &replicas.applications {
        application.set_answer(move |_| Some(Answer::text("well").after(service)));
    }
}

fn by_weight(cases: &[(&[u32], &[f64])], time: Duration) {
    for policy in POLICIES {
        for (weights, erlangs) in cases {
            let service = Duration::from_millis(20);
            let replicas = Replicas::start(plan(policy, weights, weights.len(), service));
            unlimited(&replicas);
            // Open channels, and bring ledgers up to date.
            replicas.load(50.0, Duration::from_secs(1), 1);
            for erlang in *erlangs {
                let shares = shares(&replicas, *erlang, time);
                let requests = erlang / service.as_secs_f64() * time.as_secs_f64();
                let round = |share: &f64| format!("{share:.3}");
                let shown: Vec<_> = shares.iter().map(round).collect();
                println!(
                    "| {policy} | {weights:?} | {erlang} | {} |",
                    shown.join(" ")
                );
                judge(&format!("{policy} at {erlang}"), &shares, weights, requests);
            }
        }
    }
}

#[test]
fn shares_follow_the_weights() {
    by_weight(&[(&[3, 2, 1], &[1.0])], Duration::from_secs(3));
}

#[test]
#[ignore = "takes ten minutes"]
fn shares_follow_the_weights_at_every_load() {
    println!("| policy | weights | requests in progress | shares |\n|---|---|---|---|");
    let loads: &[f64] = &[0.1, 1.0, 3.0, 8.0];
    let cases: [(&[u32], &[f64]); 3] = [(&[99, 1], loads), (&[10, 1], loads), (&[3, 2, 1], loads)];
    by_weight(&cases, Duration::from_secs(15));
}

/// The share of a server that joins two others, in the first half of its slow start. It rises linearly from
/// 0.1 to 1 of an equal share: 0.3 on average over that half.
#[test]
fn a_server_that_joins_ramps_up_at_any_load() {
    let cases = [
        ("lor(choices=2)", 6.0),
        ("bounce(tries=3)", 1.0),
        ("ledger(group=40)", 1.0),
        ("ledger(group=40)", 6.0),
    ];
    std::thread::scope(|scope| {
        for (policy, erlang) in cases {
            scope.spawn(move || ramp(policy, erlang, Joins::Member));
        }
    });
}

/// The new server is the ledger's host: its proxy has just started and sees all servers for the first time.
/// The others report their ages.
#[test]
fn a_ledgers_host_that_joins_ramps_up_at_any_load() {
    std::thread::scope(|scope| {
        for erlang in [1.0, 6.0] {
            scope.spawn(move || ramp("ledger(group=40)", erlang, Joins::Host));
        }
    });
}

/// Role of the new server for the ledger.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Joins {
    Host,
    Member,
}

fn ramp(policy: &str, erlang: f64, as_what: Joins) {
    let window = Duration::from_secs(8);
    let mut plan = plan(policy, &[], 3, Duration::from_millis(20));
    plan.everywhere = format!(", slow_start: {{window: {}s}}", window.as_secs());
    let replicas = Replicas::start(plan);
    unlimited(&replicas);
    replicas.load(50.0, Duration::from_secs(1), 1);
    // A ledger's host observes the join only if it has been running for longer itself.
    let is_host = |at: &usize| replicas.host() == Some(*at);
    let joins = match as_what {
        Joins::Host => (0..3).find(is_host),
        Joins::Member => (0..3).find(|at| !is_host(at)),
    };
    let joins = joins.unwrap();
    let others: Vec<usize> = (0..3).filter(|at| *at != joins).collect();
    replicas.balance_over(&others);
    others.iter().for_each(|at| replicas.know(*at, &others));
    if as_what == Joins::Host {
        replicas.kill(joins);
    }
    // The others have completed their slow start.
    replicas.load(50.0, window, 1);
    // The time of the join is in between.
    let earliest = Instant::now();
    if as_what == Joins::Host {
        replicas.restart(joins, &[0, 1, 2]);
    }
    replicas.balance_over(&[0, 1, 2]);
    let latest = Instant::now();
    (0..3).for_each(|at| replicas.know(at, &[0, 1, 2]));
    let begin = Instant::now();
    let shares = shares(&replicas, erlang, window / 2);
    let end = Instant::now();
    let wanted = |joined: Instant| {
        let age = |at: Instant| (at - joined).as_secs_f64() / window.as_secs_f64();
        mean_share(age(begin), age(end))
    };
    let (least, most) = (wanted(latest), wanted(earliest));
    let share = shares[joins];
    println!("{policy} at {erlang}, {as_what:?} joins: {share:.3} for {least:.3} to {most:.3}");
    let requests = erlang * 50.0 * window.as_secs_f64() / 2.0;
    let noise = 4.0 * (most * (1.0 - most) / requests).sqrt();
    let fits = 0.8 * least - noise..=1.2 * most + noise;
    assert!(
        fits.contains(&share),
        "{policy}: {shares:?} for {least} to {most}"
    );
}

/// Returns the mean share of a server next to two full ones, while its age rises from one part of the ramp to
/// another: w / (2 + w) for weight w.
fn mean_share(from: f64, to: f64) -> f64 {
    let steps = (0..100).map(|step| from + (to - from) * (f64::from(step) + 0.5) / 100.0);
    let weights = steps.map(|age| age.clamp(0.1, 1.0));
    weights.map(|weight| weight / (2.0 + weight)).sum::<f64>() / 100.0
}
