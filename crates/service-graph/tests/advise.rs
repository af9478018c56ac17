//! Algorithm 2 over time, with random applications: values keep still under noise, follow what really
//! changes, never multiply load, and what makes a service worse is rolled back. `SEED` replays a run.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use std::collections::HashMap;
use std::time::Duration;

use maglor_balance::{Rng, Time};
use maglor_service_graph::advise::{
    Advice, Advisor, EdgeUse, Health, Params, Room, ServiceUse, Snapshot, Trial, TrialParams,
    Verdict,
};
use support::{between, seed};

const PERIOD: Duration = Duration::from_secs(15);

fn at(round: u64) -> Time {
    Time::ZERO + PERIOD * u32::try_from(round).unwrap()
}

fn service(name: &str, replicas: u32, used: f64) -> ServiceUse {
    ServiceUse {
        name: name.to_owned(),
        replicas,
        cpu_millis: 500,
        memory_mib: 256,
        cpu_limit_millis: Some(1000),
        memory_limit_mib: Some(256),
        cpu_used_millis: Some(used),
        memory_used_mib: Some(80.0),
        ..ServiceUse::default()
    }
}

fn edge(from: &str, to: &str, rps: f64, latency_ms: f64, failures: f64) -> EdgeUse {
    EdgeUse {
        from: from.to_owned(),
        to: to.to_owned(),
        rps,
        latency_ms,
        failures,
        ..EdgeUse::default()
    }
}

/// A random application: a tree of calls and some more, with cycles; some services fail.
fn application(rng: &mut Rng, services: u32) -> Snapshot {
    let name = |index: u32| format!("s{index}");
    let mut snapshot = Snapshot::default();
    for index in 0..services {
        let used = 20.0 + 500.0 * rng.unit();
        let mut service = service(&name(index), between(rng, 1, 4), used);
        service.memory_used_mib = Some(20.0 + 200.0 * rng.unit());
        snapshot.services.push(service);
    }
    let mut pairs = std::collections::HashSet::new();
    for index in 1..services + services / 2 {
        let (from, to) = match index < services {
            true => (rng.below(index), index),
            false => (rng.below(services), rng.below(services)),
        };
        if !pairs.insert((from, to)) {
            continue;
        }
        let rps = 1.0 + 200.0 * rng.unit();
        let failures = match rng.below(3) {
            0 => rps * 0.3 * rng.unit(),
            _ => 0.0,
        };
        let mut edge = edge(
            &name(from),
            &name(to),
            rps,
            1.0 + 60.0 * rng.unit(),
            failures,
        );
        edge.p99_ms = (rng.below(2) == 0).then_some(edge.latency_ms * 6.0);
        edge.deadline_ms = (rng.below(6) == 0).then_some(300.0 + 1000.0 * rng.unit());
        snapshot.edges.push(edge);
    }
    snapshot
}

/// Everything that is measured, off by up to `share`.
fn noisy(rng: &mut Rng, snapshot: &Snapshot, share: f64) -> Snapshot {
    let mut noise = |value: f64| value * (1.0 - share + 2.0 * share * rng.unit());
    let mut snapshot = snapshot.clone();
    for service in &mut snapshot.services {
        service.cpu_used_millis = service.cpu_used_millis.map(&mut noise);
        service.memory_used_mib = service.memory_used_mib.map(&mut noise);
    }
    for edge in &mut snapshot.edges {
        edge.failures = noise(edge.failures);
        edge.rps = noise(edge.rps).max(edge.failures);
        edge.latency_ms = noise(edge.latency_ms);
        edge.p99_ms = edge.p99_ms.map(&mut noise);
    }
    snapshot
}

/// The values without their reasons.
fn values(advice: &[Advice]) -> Vec<String> {
    let value = |advice: &Advice| {
        let Advice { service, .. } = advice;
        let cpu = advice.cpu_millis.as_ref().map(|a| a.value);
        let memory = advice.memory_mib.as_ref().map(|a| a.value);
        let limit = advice.memory_limit_mib.as_ref().map(|a| a.value);
        let replicas = advice.replicas.as_ref().map(|a| a.value);
        let traffic = advice.traffic.as_ref().map(|t| {
            (
                (t.max_requests.value, t.max_pending_requests.value),
                (t.max_connections.value, t.max_idle_connections.value),
                (t.timeout.value, t.queue_timeout.value),
                (
                    t.retry.as_ref().map(|retry| retry.value),
                    t.breaker.as_ref().map(|breaker| breaker.value),
                ),
            )
        });
        format!("{service}: {cpu:?} {memory:?} {limit:?} {replicas:?} {traffic:?}")
    };
    advice.iter().map(value).collect()
}

/// Applies recommendations, so that the next snapshots reflect them.
fn follow(snapshot: &mut Snapshot, advice: &[Advice]) {
    for (service, advice) in snapshot.services.iter_mut().zip(sorted(advice)) {
        let Some(replicas) = advice.replicas.as_ref() else {
            continue;
        };
        let all = service.cpu_used_millis.unwrap() * f64::from(service.replicas);
        service.replicas = replicas.value;
        service.cpu_used_millis = Some(all / f64::from(replicas.value));
    }
}

/// Advice comes by name, applications by index.
fn sorted(advice: &[Advice]) -> Vec<&Advice> {
    let mut sorted: Vec<&Advice> = advice.iter().collect();
    sorted.sort_by_key(|advice| advice.service[1..].parse::<u32>().unwrap());
    sorted
}

#[test]
fn noise_changes_nothing() {
    let base = seed(11);
    for case in 0..6 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let mut app = application(&mut rng, 4 + 4 * case as u32);
        // Replicas follow recommendations; their number results from the load, not from chance.
        for service in &mut app.services {
            let all = service.cpu_used_millis.unwrap() * f64::from(service.replicas);
            (service.replicas, service.cpu_used_millis) = (1, Some(all));
        }
        let mut advisor = Advisor::new(Params::default());
        // Two hours to reach the recommended replicas, two to learn, and one of observation.
        for round in 0..480 {
            advisor.observe(at(round), &noisy(&mut rng, &app, 0.2));
            follow(&mut app, &advisor.advise());
        }
        let mut advisor = Advisor::new(Params::default());
        for round in 480..960 {
            advisor.observe(at(round), &noisy(&mut rng, &app, 0.2));
        }
        let settled = values(&advisor.advise());
        for round in 960..1200 {
            advisor.observe(at(round), &noisy(&mut rng, &app, 0.2));
            let now = values(&advisor.advise());
            for (before, after) in settled.iter().zip(&now) {
                assert_eq!(before, after, "case {case}, round {round}");
            }
        }
    }
}

/// The usage of a service triples: the CPU request follows within two minutes. It falls again: within an hour.
#[test]
fn it_grows_at_once_and_shrinks_slowly() {
    let mut advisor = Advisor::new(Params::default());
    let mut used = |rounds: std::ops::Range<u64>, used: f64| {
        for round in rounds {
            let snapshot = Snapshot {
                services: vec![service("a", 1, used)],
                ..Snapshot::default()
            };
            advisor.observe(at(round), &snapshot);
        }
        advisor.advise()[0].cpu_millis.clone().unwrap()
    };
    let calm = used(0..100, 100.0);
    assert!((115..=120).contains(&calm.value), "{calm:?}");
    let busy = used(100..108, 300.0);
    assert!((345..=355).contains(&busy.value), "{busy:?}");
    assert!(busy.reason.contains("90 % of the time"), "{}", busy.reason);
    let soon = used(108..116, 100.0);
    assert_eq!(soon.value, busy.value);
    let late = used(116..356, 100.0);
    assert!((115..=120).contains(&late.value), "{late:?}");
}

/// λ and CPU require replicas; they are added if they fit, and at most doubled at once;
/// when both fall they go.
#[test]
fn replicas_come_and_go() {
    let mut advisor = Advisor::new(Params::default());
    let mut app = Snapshot {
        services: vec![service("s0", 1, 10.0), service("s1", 1, 100.0)],
        edges: vec![edge("s0", "s1", 1.0, 5.0, 0.0)],
        room: Some(Room {
            cpu_millis: 100_000,
            memory_mib: 100_000,
        }),
        ..Snapshot::default()
    };
    let mut seen = Vec::new();
    for round in 0..1000 {
        let busy = (100..400).contains(&round);
        let all = if busy { 2600.0 } else { 100.0 };
        app.edges[0].rps = if busy { 100.0 } else { 1.0 };
        app.services[1].cpu_used_millis = Some(all / f64::from(app.services[1].replicas));
        advisor.observe(at(round), &app);
        let before = app.services[1].replicas;
        follow(&mut app, &advisor.advise());
        let after = app.services[1].replicas;
        assert!(after <= 2 * before, "{before} to {after}");
        if after != before {
            seen.push((round, after));
        }
    }
    // 2600m at 70 % of a core each are 4 replicas.
    let (last_up, most) = *seen
        .iter()
        .take_while(|(round, _)| *round < 400)
        .last()
        .unwrap();
    assert_eq!(most, 4, "{seen:?}");
    assert!(last_up < 110, "{seen:?}");
    assert_eq!(seen.last().unwrap().1, 1, "{seen:?}");
    assert!(
        seen.iter().all(|(round, _)| !(110..400).contains(round)),
        "{seen:?}"
    );
}

/// The load alone has no effect while a replica is idle, except with the paper's rule;
/// an autoscaler's service is not changed; without capacity no replica is added, and the reason states it.
#[test]
fn the_paper_s_rule_autoscalers_and_room() {
    let snapshot = |change: &dyn Fn(&mut Snapshot)| {
        let mut app = Snapshot {
            services: vec![service("s0", 1, 10.0), service("s1", 2, 100.0)],
            edges: vec![edge("s0", "s1", 10.0, 5.0, 0.0)],
            room: None,
            ..Snapshot::default()
        };
        change(&mut app);
        app
    };
    let advise = |params: Params, app: &Snapshot| {
        let mut advisor = Advisor::new(params);
        for round in 0..10 {
            advisor.observe(at(round), app);
        }
        advisor.advise().remove(1)
    };
    let mut literal = Params::default();
    literal.scaling.utilization = None;

    let idle = advise(Params::default(), &snapshot(&|_| {}));
    assert_eq!(idle.replicas.unwrap().value, 2);
    // 300 requests in 30 s at two replicas, more than 50 each: 300 / 50 = 6, at most four at once.
    let more = advise(literal.clone(), &snapshot(&|_| {}))
        .replicas
        .unwrap();
    assert_eq!(more.value, 4);
    assert!(
        more.reason.contains("in 30 s, more than 50 each"),
        "{}",
        more.reason
    );
    let owned = advise(
        literal.clone(),
        &snapshot(&|app| app.services[1].autoscaled = true),
    );
    assert_eq!((owned.replicas, owned.cpu_millis), (None, None));
    assert!(owned.memory_mib.is_some());
    let none = Room::default();
    let full = advise(literal, &snapshot(&|app| app.room = Some(none)))
        .replicas
        .unwrap();
    assert_eq!(full.value, 2);
    assert!(
        full.reason.contains("the nodes have room for 2"),
        "{}",
        full.reason
    );
}

/// TCP connections and streams have no timeouts and no limits; unmeasured calls set no bound; and a service that
/// has requests and TCP keeps its open connections.
#[test]
fn bytes_streams_and_unknown_times_are_left_alone() {
    let bytes = |from: &str, to: &str, open: f64| {
        let mut edge = edge(from, to, 0.0, 0.0, 0.0);
        edge.in_flight = open;
        edge
    };
    let app = Snapshot {
        services: (0..8)
            .map(|at| service(&format!("s{at}"), 2, 100.0))
            .collect(),
        edges: vec![
            // A database, and an unmeasured service that calls a slow one.
            bytes("s0", "s1", 500.0),
            edge("s0", "s2", 40.0, 0.0, 20.0),
            edge("s2", "s3", 40.0, 900.0, 0.0),
            // Requests of one, connections of another.
            edge("s0", "s4", 40.0, 5.0, 0.0),
            bytes("s5", "s4", 500.0),
            // Streams that end, streams that do not, and short calls.
            edge("s0", "s6", 1.0, 300_000.0, 0.0),
            EdgeUse {
                in_flight: 300.0,
                ..edge("s0", "s7", 40.0, 5.0, 0.0)
            },
        ],
        ..Snapshot::default()
    };
    let mut advisor = Advisor::new(Params::default());
    for round in 0..10 {
        advisor.observe(at(round), &app);
    }
    let advice = advisor.advise();
    let traffic = |at: usize| advice[at].traffic.as_ref();
    assert_eq!((traffic(1), traffic(2)), (None, None));
    assert_eq!((traffic(6), traffic(7)), (None, None), "streams");
    let slow = &traffic(3).unwrap().timeout;
    assert!(slow.value >= Duration::from_secs(13), "{slow:?}");
    // Half of them from each replica.
    let both = &traffic(4).unwrap().max_connections;
    assert_eq!(both.value, 750, "{}", both.reason);
    assert!(
        both.reason.contains("connections of bytes"),
        "{}",
        both.reason
    );
}

/// More than 50 requests in 30 s are 51, not 50, nor something near it, however many replicas take them.
#[test]
fn fifty_requests_are_not_more_than_fifty() {
    let mut literal = Params::default();
    literal.scaling.utilization = None;
    for replicas in 1..=4 {
        for (each, more) in [(49.0, 0), (49.9, 0), (50.0, 0), (51.0, 1), (60.0, 1)] {
            let rps = each / 30.0 * f64::from(replicas);
            let app = Snapshot {
                services: vec![service("s0", 1, 10.0), service("s1", replicas, 100.0)],
                edges: vec![edge("s0", "s1", rps, 5.0, 0.0)],
                ..Snapshot::default()
            };
            let mut advisor = Advisor::new(literal.clone());
            for round in 0..10 {
                advisor.observe(at(round), &app);
            }
            let advised = advisor.advise().remove(1).replicas.unwrap();
            assert_eq!(advised.value, replicas + more, "{each}: {}", advised.reason);
        }
    }
}

/// If a service at the bottom is slow, it gets a replica, and not all services on the path to it.
#[test]
fn who_waits_for_another_gets_no_replica() {
    let app = Snapshot {
        services: ["s0", "s1", "s2"]
            .map(|name| service(name, 2, 600.0))
            .into(),
        edges: vec![
            edge("s0", "s1", 100.0, 700.0, 0.0),
            edge("s1", "s2", 100.0, 690.0, 0.0),
        ],
        ..Snapshot::default()
    };
    let mut advisor = Advisor::new(Params::default());
    for round in 0..100 {
        advisor.observe(at(round), &app);
    }
    let advised: Vec<_> = advisor
        .advise()
        .into_iter()
        .map(|advice| advice.replicas.unwrap())
        .collect();
    assert_eq!([advised[1].value, advised[2].value], [2, 3]);
    let reason = &advised[2].reason;
    assert!(reason.contains("take 690 ms themselves"), "{reason}");
}

/// Retries do not multiply on any call path, with any failures and in any graph; no call may
/// take longer than the longest of its callers can wait; and a limit is never below what there is.
#[test]
fn chains_are_safe() {
    let base = seed(12);
    let mut retried = 0;
    for case in 0..200 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let services = between(&mut rng, 2, 14);
        let app = application(&mut rng, services);
        let mut advisor = Advisor::new(Params::default());
        for round in 0..5 {
            advisor.observe(at(round), &app);
        }
        let advice = advisor.advise();
        let traffic: HashMap<&str, _> = advice
            .iter()
            .filter_map(|advice| Some((advice.service.as_str(), advice.traffic.as_ref()?)))
            .collect();
        retried += traffic.values().filter(|t| t.retry.is_some()).count();
        for start in &app.services {
            let mut path = Vec::new();
            one_try(&app, &traffic, &start.name, &mut path, case);
        }
        for (name, advice) in &traffic {
            check_one(&app, &traffic, name, advice);
        }
    }
    assert!(retried > 100, "{retried} services get retries");
}

type Advised<'a> = HashMap<&'a str, &'a maglor_service_graph::advise::TrafficAdvice>;

/// Walks all ways of calls without a service twice.
fn one_try<'a>(
    app: &'a Snapshot,
    traffic: &Advised<'_>,
    at: &'a str,
    path: &mut Vec<&'a str>,
    case: u64,
) {
    path.push(at);
    let attempted = |name: &&&str| traffic.get(**name).is_some_and(|t| t.retry.is_some());
    let times = path.iter().skip(1).filter(attempted).count();
    assert!(times <= 1, "case {case}: {path:?}");
    if path.len() < 7 {
        for edge in app.edges.iter().filter(|edge| edge.from == at) {
            if !path.contains(&edge.to.as_str()) {
                one_try(app, traffic, &edge.to, path, case);
            }
        }
    }
    path.pop();
}

fn check_one(
    app: &Snapshot,
    traffic: &Advised<'_>,
    name: &str,
    advice: &maglor_service_graph::advise::TrafficAdvice,
) {
    let into: Vec<&EdgeUse> = app.edges.iter().filter(|edge| edge.to == name).collect();
    let waits = |edge: &&EdgeUse| match edge.deadline_ms {
        Some(deadline) => Duration::from_millis(deadline as u64 + 1),
        None => traffic
            .get(edge.from.as_str())
            .map_or(Duration::MAX, |t| t.timeout.value),
    };
    let longest = into.iter().map(waits).max().unwrap();
    assert!(
        advice.timeout.value <= longest,
        "{name}: {:?}",
        advice.timeout
    );
    for edge in into {
        let callers = app.services.iter().find(|s| s.name == edge.from).unwrap();
        let requests = edge.rps / f64::from(callers.replicas) * edge.latency_ms / 1e3;
        assert!(f64::from(advice.max_requests.value) >= requests);
        assert!(advice.max_connections.value >= advice.max_requests.value);
    }
    if let Some(retry) = &advice.retry {
        let all = retry.value.per_try_timeout * (retry.value.attempts + 1);
        assert!(
            all <= advice.timeout.value,
            "{name}: {retry:?} in {:?}",
            advice.timeout
        );
        assert!((1..=3).contains(&retry.value.attempts));
        assert!(retry.value.budget_percent <= 25.0);
    }
}

/// Failures of a called service are not attributed to its caller.
#[test]
fn a_service_that_fails_on_its_own_is_retried() {
    let app = Snapshot {
        services: ["s0", "s1", "s2"]
            .map(|name| service(name, 1, 50.0))
            .to_vec(),
        edges: vec![
            edge("s0", "s1", 100.0, 20.0, 5.0),
            edge("s1", "s2", 100.0, 10.0, 5.0),
        ],
        room: None,
        ..Snapshot::default()
    };
    let mut advisor = Advisor::new(Params::default());
    for round in 0..10 {
        advisor.observe(at(round), &app);
    }
    let advice = advisor.advise();
    let traffic = |at: usize| advice[at].traffic.as_ref().unwrap();
    assert!(advice[0].traffic.is_none());
    assert!(traffic(1).retry.is_none() && traffic(1).breaker.is_none());
    let retry = traffic(2).retry.as_ref().unwrap();
    // 0.05² is still above a thousandth, 0.05³ is not.
    assert_eq!(retry.value.attempts, 2);
    assert!(
        retry
            .reason
            .contains("5 % of its calls fail on their own, above 1 %"),
        "{}",
        retry.reason
    );
    assert!(traffic(2).breaker.is_some());
}

/// A queue that grows does not earn itself a larger limit.
#[test]
fn slow_calls_are_counted_at_the_threshold() {
    let limit = |latency_ms: f64| {
        let app = Snapshot {
            services: vec![service("s0", 1, 50.0), service("s1", 1, 50.0)],
            edges: vec![edge("s0", "s1", 200.0, latency_ms, 0.0)],
            room: None,
            ..Snapshot::default()
        };
        let mut advisor = Advisor::new(Params::default());
        for round in 0..10 {
            advisor.observe(at(round), &app);
        }
        advisor.advise()[1].traffic.clone().unwrap().max_requests
    };
    assert!((60..=62).contains(&limit(100.0).value));
    assert_eq!(limit(5000.0).value, limit(500.0).value);
    assert!(
        limit(5000.0).reason.contains("the threshold"),
        "{}",
        limit(5000.0).reason
    );
}

/// Every value has its reason, a message of one line.
#[test]
fn every_value_has_a_reason() {
    let mut rng = Rng::seed(seed(13));
    let app = application(&mut rng, 20);
    let mut advisor = Advisor::new(Params::default());
    for round in 0..5 {
        advisor.observe(at(round), &app);
    }
    let text = format!("{:?}", advisor.advise());
    let reasons: Vec<&str> = text.split("reason: \"").skip(1).collect();
    assert!(reasons.len() > 200, "{}", reasons.len());
    for reason in reasons {
        let reason = reason.split('"').next().unwrap();
        assert!(
            reason.len() > 15 && reason.chars().any(|c| c.is_ascii_digit() || c == 'w'),
            "{reason}"
        );
        assert!(
            !reason.contains('\n') && !reason.contains("NaN"),
            "{reason}"
        );
    }
}

fn health(rng: &mut Rng, share: f64, failures: f64, latency_ms: f64) -> Health {
    let mut noise = |value: f64| value * (1.0 - share + 2.0 * share * rng.unit());
    let calls = noise(1000.0);
    Health {
        calls,
        failures: calls * noise(failures),
        latency_ms: noise(latency_ms),
        p95_ms: noise(4.0 * latency_ms),
    }
}

/// A change that degrades a service is rolled back at the second observation after it has settled, and is not
/// retried during the penalty; noise causes no rollback.
#[test]
fn what_got_worse_is_taken_back() {
    let base = seed(14);
    let mut taken = 0;
    for case in 0..300 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let (failures, latency) = (0.05 * rng.unit(), 10.0 + 100.0 * rng.unit());
        let worse = rng.below(3);
        let (then_failures, then_latency) = match worse {
            0 => (failures, latency),
            1 => (failures + 0.2, latency),
            _ => (failures, latency * 3.0),
        };
        let mut trial = Trial::new(TrialParams::default());
        assert!(trial.begin(at(0), health(&mut rng, 0.1, failures, latency)));
        let mut back = None;
        for round in 1..100 {
            let after = health(&mut rng, 0.1, then_failures, then_latency);
            if let Verdict::RollBack { reason } = trial.look(at(round), &after) {
                assert!(reason.contains("before"), "{reason}");
                back = Some(round);
                break;
            }
        }
        match (worse, back) {
            (0, None) => assert!(trial.is_open(at(100))),
            // A minute to settle is four rounds; then two looks.
            (1 | 2, Some(5)) => {
                taken += 1;
                assert!(!trial.is_open(at(5 + 119)));
                assert!(trial.is_open(at(5 + 121)));
                assert!(!trial.begin(at(60), Health::default()));
            }
            other => panic!("case {case}: {other:?}"),
        }
    }
    assert!(taken > 150, "{taken}");
}

/// Each time that it is rolled back again it is not changed for twice as long.
#[test]
fn penalties_double() {
    let mut trial = Trial::new(TrialParams::default());
    let good = Health {
        calls: 1000.0,
        failures: 0.0,
        latency_ms: 10.0,
        p95_ms: 0.0,
    };
    let bad = Health {
        latency_ms: 100.0,
        ..good
    };
    let mut now = Time::ZERO;
    for doubling in 0..4 {
        assert!(trial.begin(now, good));
        assert!(!trial.begin(now, good), "one at a time");
        let mut verdict = Verdict::Wait;
        while verdict == Verdict::Wait {
            now = now + PERIOD;
            verdict = trial.look(now, &bad);
        }
        assert!(matches!(verdict, Verdict::RollBack { .. }));
        let penalty = Duration::from_secs(30 * 60) * (1 << doubling);
        assert!(!trial.is_open(now + (penalty - PERIOD)));
        now = now + penalty;
        assert!(trial.is_open(now));
    }
}

/// Each service and each call is checked a few times a snapshot, and not each for each.
#[test]
fn large_applications_are_observed() {
    const SERVICES: u32 = 10_000;
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut rng = Rng::seed(seed(8));
        let snapshot = application(&mut rng, SERVICES);
        let mut advisor = Advisor::new(Params::default());
        for round in 0..20 {
            advisor.observe(at(round), &snapshot);
        }
        done.send(()).unwrap();
    });
    let limit = Duration::from_secs(10);
    assert_eq!(ended.recv_timeout(limit), Ok(()), "it takes too long");
}
