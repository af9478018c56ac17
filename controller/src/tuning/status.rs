//! The status of a `TuningPolicy`: observations, recommendations and changes, with which a new leader continues.

use std::collections::BTreeMap;
use std::time::Duration;

use maglor_balance::Time;
use maglor_service_graph::advise::{Advice, Advised, Health, TrafficAdvice, Trial};
use maglor_service_graph::tune::{Of, Params, Part, Record, Round, Stage};

use super::inputs::{Inputs, Subject};
use super::traffic::{Policies, advised as traffic_advised};
use crate::crd::{
    Condition, ServiceTuning, TunedValue, TuningChange, TuningMeasure, TuningMode,
    TuningPolicyStatus,
};
use crate::wall_clock;

/// Maximum number of services in a status, which take about 300 kB.
const MOST_SERVICES: usize = 100;
/// Maximum length of a reason in bytes.
const LONGEST: usize = 256;

/// Counters since the policy was created.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Done {
    /// Number of changes that were made.
    pub changes: u32,
    /// Number of these changes that were rolled back.
    pub taken_back: u32,
}

/// The inputs of a status.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    /// The current time.
    pub now: Time,
    /// The inputs of the round.
    pub inputs: &'a Inputs,
    /// The recommendations, by name.
    pub advice: &'a BTreeMap<String, Advice>,
    /// The existing `TrafficPolicy`s.
    pub policies: &'a Policies,
    /// The results of the round.
    pub round: &'a Round,
    /// The records of changes.
    pub records: &'a BTreeMap<Of, Record>,
    /// The mode of the policy.
    pub mode: TuningMode,
    /// The counters.
    pub done: Done,
}

/// Returns the name of a part.
#[must_use]
pub fn part_word(part: Part) -> &'static str {
    match part {
        Part::Replicas => "Replicas",
        Part::Requests => "Requests",
        Part::Traffic => "Traffic",
    }
}

fn stage_word(stage: Stage) -> &'static str {
    match stage {
        Stage::Changing => "Changing",
        Stage::Judged => "Judged",
        Stage::Kept => "Kept",
        Stage::TakenBack => "TakenBack",
    }
}

const STAGES: [Stage; 4] = [
    Stage::Changing,
    Stage::Judged,
    Stage::Kept,
    Stage::TakenBack,
];

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn measure(health: &Health) -> TuningMeasure {
    TuningMeasure {
        calls: rounded(health.calls),
        failures: rounded(health.failures),
        response_milliseconds: rounded(health.latency_ms),
    }
}

fn read_measure(measure: &TuningMeasure) -> Health {
    Health {
        calls: measure.calls,
        failures: measure.failures,
        latency_ms: measure.response_milliseconds,
        p95_ms: 0.0,
    }
}

fn shortened(text: &str) -> String {
    let end = (0..=LONGEST.min(text.len())).rev();
    let end = end.into_iter().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].to_owned()
}

/// Restores the records of changes and the counters from a status.
#[must_use]
pub fn records(status: &TuningPolicyStatus, params: &Params) -> (BTreeMap<Of, Record>, Done) {
    let mut records = BTreeMap::new();
    for service in &status.services {
        for change in &service.changes {
            let part = Part::ALL
                .into_iter()
                .find(|part| part_word(*part) == change.part);
            let stage = STAGES
                .into_iter()
                .find(|one| stage_word(*one) == change.stage);
            let (Some(part), Some(stage)) = (part, stage) else {
                continue;
            };
            let since = wall_clock::read(change.since.as_ref()).unwrap_or(Time::ZERO);
            let before = change.before.as_ref().map(read_measure).unwrap_or_default();
            let until = wall_clock::read(change.rests_until.as_ref()).unwrap_or(Time::ZERO);
            let running = (stage == Stage::Judged).then_some((since, before));
            let trial = Trial::restored(params.trial, running, change.failures, until);
            let mut record = Record::new(stage, since, before, change.reason.clone(), trial);
            record.after = change.after.as_ref().map(read_measure);
            record.unavailable = change.unavailable;
            records.insert((service.name.clone(), part), record);
        }
    }
    let done = Done {
        changes: status.changes_done,
        taken_back: status.taken_back,
    };
    (records, done)
}

/// Returns the status.
#[must_use]
pub fn status(input: &StatusInput<'_>, generation: Option<i64>) -> TuningPolicyStatus {
    let mut services: Vec<ServiceTuning> = input
        .inputs
        .subjects
        .iter()
        .map(|(name, subject)| service(input, name, subject))
        .collect();
    // Services with changes are listed first, because their records must be kept.
    services.sort_by_key(|one| (rank(&one.state), one.changes.is_empty(), one.name.clone()));
    let left_out = services.len().saturating_sub(MOST_SERVICES);
    services.truncate(MOST_SERVICES);
    let (requested, advised) = totals(input);
    let (settled, reason, message) = settled(input);
    TuningPolicyStatus {
        conditions: vec![
            Condition::new("Accepted", true, "Accepted", "accepted", generation),
            Condition::new("Settled", settled, reason, message, generation),
        ],
        requested,
        advised,
        changes_done: input.done.changes,
        taken_back: input.done.taken_back,
        services,
        services_left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
    }
}

fn rank(state: &str) -> u8 {
    match state {
        "Changing" => 0,
        "Judged" => 1,
        "TakenBack" => 2,
        "Wanted" => 3,
        _ => 4,
    }
}

fn settled(input: &StatusInput<'_>) -> (bool, &'static str, String) {
    let count = |stage: Stage| {
        input
            .records
            .values()
            .filter(|one| one.stage == stage)
            .count()
    };
    let (changing, judged) = (count(Stage::Changing), count(Stage::Judged));
    let wanted = input.round.waiting.len();
    let says =
        |one: &Advice| one.cpu_millis.is_some() || one.replicas.is_some() || one.traffic.is_some();
    if !input.advice.values().any(says) {
        let message = "there are no observations yet";
        return (true, "Observing", message.to_owned());
    }
    match (changing, judged, wanted) {
        (1.., ..) => (
            false,
            "Changing",
            format!("{changing} change(s) in progress"),
        ),
        (_, 1.., _) => (
            false,
            "Judging",
            format!("{judged} change(s) under evaluation"),
        ),
        (_, _, 1..) if input.mode == TuningMode::Apply => (
            false,
            "Waiting",
            format!("{wanted} service(s) waiting to be changed"),
        ),
        (_, _, 1..) => {
            let message = format!("{wanted} service(s) would be changed with `mode: Apply`");
            (false, "Recommended", message)
        }
        _ => (
            true,
            "Settled",
            "all settings are as recommended".to_owned(),
        ),
    }
}

/// Returns the target values of a service: the recommendations, or the current values if another manager sets them.
fn wanted(subject: &Subject, advice: Option<&Advice>) -> (u64, u64, u64) {
    let (present, held) = (subject.present, subject.hold.held);
    let replicas = advice.and_then(|one| one.replicas.as_ref());
    let cpu = advice.and_then(|one| one.cpu_millis.as_ref());
    let memory = advice.and_then(|one| one.memory_mib.as_ref());
    let or = |advised: Option<&Advised<u64>>, held: bool, present: u64| {
        advised.filter(|_| !held).map_or(present, |one| one.value)
    };
    let replicas = replicas.filter(|_| !held.replicas && present.replicas > 0);
    (
        u64::from(replicas.map_or(present.replicas, |one| one.value)),
        or(cpu, held.cpu, present.cpu_millis),
        or(memory, held.memory, present.memory_mib),
    )
}

fn totals(input: &StatusInput<'_>) -> (String, String) {
    let (mut now, mut then) = ((0, 0), (0, 0));
    let add = |sum: &mut (u64, u64), replicas: u64, cpu: u64, memory: u64| {
        sum.0 += replicas * cpu;
        sum.1 += replicas * memory;
    };
    for (name, subject) in &input.inputs.subjects {
        let present = subject.present;
        let replicas = u64::from(present.replicas);
        add(&mut now, replicas, present.cpu_millis, present.memory_mib);
        let (replicas, cpu, memory) = wanted(subject, input.advice.get(name));
        add(&mut then, replicas, cpu, memory);
    }
    let text = |(cpu, memory): (u64, u64)| format!("{cpu}m, {memory}Mi");
    (text(now), text(then))
}

fn service(input: &StatusInput<'_>, name: &str, subject: &Subject) -> ServiceTuning {
    let advice = input.advice.get(name);
    let own = Part::ALL.into_iter().filter_map(|part| {
        let record = input.records.get(&(name.to_owned(), part))?;
        Some((part, record))
    });
    let own: Vec<(Part, &Record)> = own.collect();
    let now = input.now;
    let is = |stage: Stage| own.iter().any(|(_, one)| one.stage == stage);
    let waiting = input.round.waiting.get(name);
    let rests = own.iter().any(|(_, one)| now < one.trial.until());
    let (state, reason) = match waiting {
        _ if is(Stage::Changing) => ("Changing", String::new()),
        _ if is(Stage::Judged) => ("Judged", String::new()),
        _ if rests => ("TakenBack", String::new()),
        Some((part, why)) => ("Wanted", format!("{}: {why}", part_word(*part))),
        None => ("Settled", String::new()),
    };
    let mut held = subject.hold.why.clone();
    let traffic = advice.and_then(|one| one.traffic.as_ref());
    if let (Some(service), Some(traffic)) = (&subject.service, traffic) {
        let advised = traffic_advised(&service.namespace, &service.name, traffic);
        held.extend(input.policies.said(&service.name, &advised));
    }
    let deployment = subject.workload.as_ref();
    ServiceTuning {
        name: name.to_owned(),
        deployment: deployment.map_or_else(String::new, |one| one.key.name.clone()),
        state: state.to_owned(),
        reason,
        held: held.iter().map(|why| shortened(why)).collect(),
        values: match input.mode {
            TuningMode::Observe => Vec::new(),
            _ => advice.map_or_else(Vec::new, |advice| values(subject, advice)),
        },
        changes: own
            .iter()
            .map(|(part, record)| change(*part, record, now))
            .collect(),
    }
}

fn change(part: Part, record: &Record, now: Time) -> TuningChange {
    TuningChange {
        part: part_word(part).to_owned(),
        stage: stage_word(record.stage).to_owned(),
        since: wall_clock::text(record.since),
        reason: shortened(&record.reason),
        before: Some(measure(&record.before)),
        after: record.after.as_ref().map(measure),
        rests_until: Some(record.trial.until())
            .filter(|at| *at > now)
            .and_then(wall_clock::text),
        failures: record.trial.failed(),
        unavailable: record.unavailable,
    }
}

/// Returns the name, current value, recommended value and reason of each container's requests, if a pod has several
/// containers.
fn container_values(subject: &Subject, advice: &Advice) -> Vec<(String, String, String, String)> {
    let containers = subject.workload.as_ref().map(|one| &*one.containers);
    let containers = containers.filter(|all| all.len() > 1).unwrap_or_default();
    let (_, cpu, memory) = wanted(subject, Some(advice));
    let shares = subject.shares(advice, (cpu, memory)).into_iter();
    let each = shares.filter_map(|share| {
        let one = containers.iter().find(|one| one.name == share.name)?;
        let text = |cpu: u64, memory: u64| format!("{cpu}m, {memory}Mi");
        let to = text(
            share.cpu_millis.unwrap_or(one.cpu_millis),
            share.memory_mib.unwrap_or(one.memory_mib),
        );
        let known = advice
            .containers
            .iter()
            .find(|known| known.name == one.name);
        let reasons = known.map(|known| [&known.cpu_millis, &known.memory_mib]);
        let reasons = reasons.into_iter().flatten().flatten();
        let reasons: Vec<&str> = reasons.map(|one| &*one.reason).collect();
        let reason = match reasons.is_empty() {
            true => "the part that it requests now".to_owned(),
            false => reasons.join("; "),
        };
        let from = text(one.cpu_millis, one.memory_mib);
        Some((format!("containers.{}", one.name), from, to, reason))
    });
    each.collect()
}

fn values(subject: &Subject, advice: &Advice) -> Vec<TunedValue> {
    let (present, held) = (subject.present, subject.hold.held);
    let mut values = Vec::new();
    let mut add = |name: &str, present: String, value: String, reason: &str| {
        values.push(TunedValue {
            name: name.to_owned(),
            present,
            value,
            reason: shortened(reason),
        });
    };
    if let Some(one) = advice.replicas.as_ref().filter(|_| !held.replicas) {
        add(
            "replicas",
            present.replicas.to_string(),
            one.value.to_string(),
            &one.reason,
        );
    }
    if let Some(one) = advice.cpu_millis.as_ref().filter(|_| !held.cpu) {
        let (from, to) = (
            format!("{}m", present.cpu_millis),
            format!("{}m", one.value),
        );
        add("requests.cpu", from, to, &one.reason);
    }
    if let Some(one) = advice.memory_mib.as_ref().filter(|_| !held.memory) {
        let (from, to) = (
            format!("{}Mi", present.memory_mib),
            format!("{}Mi", one.value),
        );
        add("requests.memory", from, to, &one.reason);
    }
    for (name, present, value, reason) in container_values(subject, advice) {
        add(&name, present, value, &reason);
    }
    if let Some(traffic) = advice.traffic.as_ref().filter(|_| !held.traffic) {
        for (name, value, reason) in traffic_values(traffic) {
            add(name, String::new(), value, reason);
        }
    }
    for one in advice.split.iter().flat_map(|split| &split.versions) {
        let percent = |weight: u32| format!("{weight}%");
        let (from, to) = (percent(one.present), percent(one.weight.value));
        add(
            &format!("splits.{}", one.name),
            from,
            to,
            &one.weight.reason,
        );
    }
    values
}

/// Returns the recommended fields of a `TrafficPolicy`, each with its value and reason.
fn traffic_values(traffic: &TrafficAdvice) -> Vec<(&'static str, String, &str)> {
    let text = |one: &Advised<u32>| one.value.to_string();
    let time = |one: &Advised<Duration>| format!("{}ms", one.value.as_millis());
    let TrafficAdvice {
        max_requests,
        max_pending_requests: pending,
        queue_timeout: wait,
        max_connections,
        max_idle_connections: idle,
        timeout,
        slow_start,
        ..
    } = traffic;
    let mut all = vec![
        (
            "cluster.limits.max_requests",
            text(max_requests),
            &*max_requests.reason,
        ),
        (
            "cluster.limits.max_pending_requests",
            text(pending),
            &*pending.reason,
        ),
        (
            "cluster.limits.max_connections",
            text(max_connections),
            &*max_connections.reason,
        ),
        ("cluster.limits.queue_timeout", time(wait), &*wait.reason),
        ("cluster.max_idle_connections", text(idle), &*idle.reason),
        (
            "cluster.slow_start.window",
            time(slow_start),
            &*slow_start.reason,
        ),
        ("route.timeout", time(timeout), &*timeout.reason),
    ];
    if let Some(retry) = &traffic.retry {
        let value = format!(
            "{} of {} ms, {} % of the requests at most",
            retry.value.attempts,
            retry.value.per_try_timeout.as_millis(),
            retry.value.budget_percent
        );
        all.push(("route.retry", value, &retry.reason));
    }
    if let Some(breaker) = &traffic.breaker {
        let value = format!(
            "{} failures in a row, or {} %",
            breaker.value.consecutive_failures, breaker.value.failure_percent
        );
        all.push(("cluster.circuit_breaker", value, &breaker.reason));
    }
    all
}

/// Returns the status of a policy that is not in force.
#[must_use]
pub fn refused(
    before: &TuningPolicyStatus,
    reason: &str,
    message: &str,
    generation: Option<i64>,
) -> TuningPolicyStatus {
    let condition = |kind: &str| Condition::new(kind, false, reason, message, generation);
    TuningPolicyStatus {
        conditions: vec![condition("Accepted"), condition("Settled")],
        ..before.clone()
    }
}
