//! CPU and memory requests of services under a `TuningPolicy`, compared with a HorizontalPodAutoscaler, at the same
//! load: the paper's comparison (papers/000, 4.3) on a cluster.
//!
//! Services of a µBench model, each of which begins with one replica that requests a core and 128 MiB, are put under
//! the same requests twice: while autoscalers of Kubernetes' own controller manager have them, and then while a
//! `TuningPolicy` has them. Each begins with quiet minutes, and then the load rises and falls as over a day, with a
//! burst.
//!
//! Replicas are emulated queues that need no processor, so two cores suffice. Their CPU usage is the work that
//! came to them, a "core" being a replica that works all the time, and is reported in metrics-server's place
//! (`saving/meter.rs`). Memory is modelled; it is only reported.
//!
//! An experiment of twenty minutes for a machine that does nothing else, with optimised programs:
//! `MAGLOR_PROGRAMS=DIR cargo test -p maglor-testkit --test measured saving:: -- --ignored --nocapture`, with
//! `SERVICES=12`, `RATE=150` (requests a second at noon), `SECONDS=360` of the load and `SEED=1`. It needs root, and
//! reports when it skips.

mod meter;
mod model;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::Kubectl;
use serde_json::Value;

use crate::arrivals::Arrivals;
use crate::support::installed::{Installed, until};
use meter::{Meter, Requested};
use model::{DOORS, Model, USERS, name};

const METRICS: &str = include_str!("tuning/metrics.yaml");

/// Load reports take effect immediately, with averages over ten seconds.
const VALUES: [&str; 2] = [
    "tuning.enabled=true",
    "extraArgs={--load-interval=1s,--graph-window=10s}",
];

/// Two cores each: what replicas request has room on them.
const NODES: u8 = 3;
/// The load at night, relative to noon.
const NIGHT: f64 = 0.25;
/// Before the load is measured, at night's rate: what replicas use becomes known.
const QUIET: Duration = Duration::from_secs(180);
/// Between two steps of the rate.
const STEP: Duration = Duration::from_secs(5);
/// Once, for a tenth of the time, there are this many times the requests.
const BURST: f64 = 1.5;

/// Minutes represent hours: it evaluates every five seconds, with shorter pauses between changes. What autoscalers do
/// after five minutes, it does after five minutes. How callers treat services is the same both ways. Response times
/// of a busy machine are no reason for replicas, of which there would be more then than autoscalers make.
const POLICY: &str = "{apiVersion: maglor.dev/v1alpha1, kind: TuningPolicy, metadata: {name: saving, namespace: saving}, \
    spec: {mode: Apply, parts: [Replicas, Requests], roundSeconds: 5, observeSeconds: 45, cooldownSeconds: 30, \
    readySeconds: 60, changesPerRound: 10, thresholds: {latencyMilliseconds: 5000}, \
    scaling: {slowStartSeconds: 5}, guard: {seconds: 10}}}";

/// A number from the environment.
fn number(name: &str, default: f64) -> f64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// The results of the load.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    requested: Requested,
    requests: usize,
    mean_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    failed: usize,
}

#[test]
#[ignore = "an experiment of twenty minutes, and builds Kubernetes the first time"]
fn a_tuning_policy_requests_less_than_autoscalers_at_equal_p95() {
    let seed = number("SEED", 1.0) as u64;
    println!("repeat with SEED={seed}");
    let model = Model::random(number("SERVICES", 12.0) as usize, seed);
    let rate = number("RATE", 150.0);
    let time = Duration::from_secs_f64(number("SECONDS", 360.0));
    let (calls, busy) = model.calls();
    println!(
        "{} services, {calls:.1} calls per request, {:.0} replicas busy at noon",
        model.len(),
        busy * rate
    );
    let Some(installed) = Installed::start_on("saving", NODES, &VALUES) else {
        return;
    };
    let kubectl = installed.kubectl();
    kubectl.apply(METRICS).unwrap();
    // It looks for metrics when it begins, and then not for long without any.
    for verb in ["restart", "status"] {
        let rollout = [
            "rollout",
            verb,
            "deployment/maglor-controller",
            "-n",
            "maglor",
        ];
        kubectl.run(&rollout).unwrap();
    }
    let autoscaled = {
        begin(kubectl, &model);
        kubectl.apply(&model.autoscalers()).unwrap();
        measured(&installed, &model, "autoscalers", rate, time, seed)
    };
    let gone = ["delete", "namespace", "saving", "--timeout=120s"];
    kubectl.run(&gone).unwrap();
    let tuned = {
        begin(kubectl, &model);
        kubectl.apply(POLICY).unwrap();
        measured(&installed, &model, "TuningPolicy", rate, time, seed)
    };
    let status = kubectl
        .json(&["get", "tuningpolicy", "saving", "-n", "saving"])
        .unwrap();
    let status = &status["status"];
    println!(
        "changed {}, taken back {}",
        status["changesDone"], status["takenBack"]
    );
    installed.stop();

    println!(
        "| who | CPU | used | memory MiB | replicas | requests | mean ms | p95 ms | p99 ms | failed |"
    );
    println!("| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |");
    for (who, one) in [("HPA 70 %", &autoscaled), ("TuningPolicy", &tuned)] {
        let Requested {
            cpu_millis,
            memory_mib,
            replicas,
            used_millis,
        } = one.requested;
        println!(
            "| {who} | {cpu_millis:.0}m | {used_millis:.0}m | {memory_mib:.0} | {replicas:.1} | {} | {:.1} | {:.1} | {:.1} | {} |",
            one.requests, one.mean_ms, one.p95_ms, one.p99_ms, one.failed
        );
    }
    let saved = |of: fn(&Requested) -> f64| 1.0 - of(&tuned.requested) / of(&autoscaled.requested);
    let (cpu, memory) = (saved(|one| one.cpu_millis), saved(|one| one.memory_mib));
    println!(
        "saved: {:.1} % of CPU, {:.1} % of memory",
        cpu * 100.0,
        memory * 100.0
    );
    assert_eq!((autoscaled.failed, tuned.failed), (0, 0));
    assert!(cpu > 0.0 && memory > 0.0, "{autoscaled:?} {tuned:?}");
}

/// All services, each with one replica.
fn begin(kubectl: &Kubectl, model: &Model) {
    kubectl.apply(&model.manifests()).unwrap();
    for service in (0..model.len()).map(name).chain([USERS.into()]) {
        let deployment = format!("deployment/{service}");
        let wait = [
            "rollout",
            "status",
            &deployment,
            "-n",
            "saving",
            "--timeout=120s",
        ];
        kubectl.run(&wait).unwrap();
    }
}

/// Requests a second at a part of the day, 0–1, relative to noon's.
fn curve(part: f64) -> f64 {
    let wave = 0.5 - 0.5 * (2.0 * std::f64::consts::PI * part).cos();
    let burst = if (0.7..0.8).contains(&part) {
        BURST
    } else {
        1.0
    };
    (NIGHT + (1.0 - NIGHT) * wave) * burst
}

fn measured(
    installed: &Installed,
    model: &Model,
    who: &str,
    noon: f64,
    time: Duration,
    seed: u64,
) -> Outcome {
    let doors = doors(installed.kubectl());
    let meter = Meter::start(&installed.cluster, model, seed);
    let night = (noon * NIGHT) as u32;
    let arrivals = Arrivals::start(&installed.cluster, &doors, night, seed);
    arrivals.during(&format!("{who}, quiet"), QUIET);
    let from = Instant::now();
    while from.elapsed() < time {
        let part = from.elapsed().as_secs_f64() / time.as_secs_f64();
        let rate = noon * curve(part);
        arrivals.at_rate(rate as u32);
        let Requested {
            cpu_millis,
            memory_mib,
            replicas,
            used_millis,
        } = meter.now();
        arrivals.during(
            &format!(
                "{who} at {rate:.0}/s: {cpu_millis:.0}m requested, {used_millis:.0}m used, \
                 {memory_mib:.0} MiB, {replicas} replicas"
            ),
            STEP,
        );
    }
    let to = Instant::now();
    let latencies = arrivals.latencies(from, to);
    let requested = meter.mean(from, to);
    let (_, failed) = arrivals.stop();
    meter.stop();
    println!("{who}: {failed:#?}");
    let quantile = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    Outcome {
        requested,
        requests: latencies.len(),
        mean_ms: latencies.iter().sum::<f64>() / latencies.len() as f64,
        p95_ms: quantile(0.95),
        p99_ms: quantile(0.99),
        failed: failed.len(),
    }
}

/// The ingress.
fn doors(kubectl: &Kubectl) -> Vec<Ipv4Addr> {
    let mut doors = Vec::new();
    until("all doors are there", || {
        let selector = format!("--selector=app={USERS}");
        let pods = kubectl
            .json(&["get", "pods", "-n", "saving", &selector])
            .unwrap();
        let address = |pod: &Value| pod["status"]["podIP"].as_str()?.parse().ok();
        doors = pods["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(address)
            .collect();
        doors.len() == DOORS as usize
    });
    doors
}
