//! The status of a `PlacementPolicy`: observations, plan and moves, with which a new leader continues.

use std::collections::BTreeMap;

use maglor_balance::Time;
use maglor_service_graph::relocate::{Measured, Reason, Record, Relocation, Round, Stage};

use super::inputs::Inputs;
use crate::crd::{
    Condition, PlacementMeasure, PlacementMode, PlacementPolicyStatus, ServicePlacement,
};
use crate::wall_clock;

/// The state of a service that cannot be moved.
pub(super) const FIXED: &str = "Fixed";
/// Maximum number of services in a status.
const MOST_SERVICES: usize = 500;

/// Counters since the policy was created.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Done {
    /// Number of pods that were moved.
    pub moves: u32,
    /// Number of moves that were abandoned.
    pub failed: u32,
    /// Number of services that were moved back.
    pub rolled_back: u32,
}

/// The inputs of a status.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    /// The inputs of the round.
    pub inputs: &'a Inputs,
    /// The results of the round.
    pub round: &'a Round,
    /// The state of the relocation.
    pub relocation: &'a Relocation,
    /// The mode of the policy.
    pub mode: PlacementMode,
    /// The counters.
    pub done: Done,
    /// Why services were moved back or were not moved, by name.
    pub why: &'a BTreeMap<String, String>,
}

fn stage(state: &str) -> Option<Stage> {
    match state {
        "Judged" => Some(Stage::Judged),
        "Kept" => Some(Stage::Kept),
        "Moving" => Some(Stage::Moving),
        "RolledBack" => Some(Stage::RolledBack),
        "Undoing" => Some(Stage::Undoing),
        _ => None,
    }
}

fn word(stage: Stage) -> &'static str {
    match stage {
        Stage::Judged => "Judged",
        Stage::Kept => "Kept",
        Stage::Moving => "Moving",
        Stage::RolledBack => "RolledBack",
        Stage::Undoing => "Undoing",
    }
}

/// Returns whether new pods of a service get a preference for its wanted nodes.
#[must_use]
pub fn is_wanted(service: &ServicePlacement) -> bool {
    stage(&service.state).is_some() && !service.wanted.is_empty()
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn measure(measured: Measured) -> PlacementMeasure {
    PlacementMeasure {
        calls_per_second: rounded(measured.rps),
        response_milliseconds: rounded(measured.latency_ms),
        failure_percent: rounded(measured.failures * 100.0),
        cross_node_percent: rounded(measured.remote * 100.0),
    }
}

fn read_measure(measure: &PlacementMeasure) -> Measured {
    Measured {
        rps: measure.calls_per_second,
        latency_ms: measure.response_milliseconds,
        failures: measure.failure_percent / 100.0,
        remote: measure.cross_node_percent / 100.0,
    }
}

/// Restores the records of services, the time and the counters from a status.
#[must_use]
pub fn records(status: &PlacementPolicyStatus) -> (BTreeMap<String, Record>, Option<Time>, Done) {
    let record = |service: &ServicePlacement| {
        Some(Record {
            stage: stage(&service.state)?,
            wanted: service.wanted.clone(),
            former: (!service.former.is_empty()).then(|| service.former.clone()),
            before: service.before.as_ref().map(read_measure),
            after: service.after.as_ref().map(read_measure),
            rests_until: wall_clock::read(service.rests_until.as_ref()).unwrap_or(Time::ZERO),
            failures: service.failures,
        })
    };
    let services = status.services.iter();
    let records = services.filter_map(|one| Some((one.name.clone(), record(one)?)));
    let done = Done {
        moves: status.moves_done,
        failed: status.moves_failed,
        rolled_back: status.rolled_back,
    };
    (
        records.collect(),
        wall_clock::read(status.judged_since.as_ref()),
        done,
    )
}

/// Returns the status.
#[must_use]
pub fn status(input: &StatusInput<'_>, generation: Option<i64>) -> PlacementPolicyStatus {
    let Round { reason, plan, .. } = input.round;
    let mut services: Vec<ServicePlacement> = input
        .inputs
        .selected
        .keys()
        .filter_map(|index| service(input, *index))
        .collect();
    // Moving services are listed first.
    services.sort_by_key(|one| (rank(&one.state), one.name.clone()));
    let left_out = services.len().saturating_sub(MOST_SERVICES);
    services.truncate(MOST_SERVICES);
    let condition = |kind: &str, holds, word: &str, why: String| {
        Condition::new(kind, holds, word, why, generation)
    };
    let cut = plan.as_ref().map_or(input.round.cut, |plan| plan.cut);
    let moves = plan.as_ref().map_or(0, |plan| plan.moves);
    PlacementPolicyStatus {
        conditions: vec![
            condition("Accepted", true, "Accepted", in_force(input.inputs)),
            condition(
                "Settled",
                reason.is_settled(),
                reason.word(),
                reason.to_string(),
            ),
        ],
        calls_per_second: rounded(input.round.calls),
        cross_node_calls_per_second: rounded(input.round.cut),
        predicted_cross_node_calls_per_second: rounded(cut),
        planned_moves: u32::try_from(moves).unwrap_or(u32::MAX),
        moves_done: input.done.moves,
        moves_failed: input.done.failed,
        rolled_back: input.done.rolled_back,
        judged_since: input.relocation.judged_since().and_then(wall_clock::text),
        services,
        services_left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
    }
}

/// Returns the message of the condition: the policy is in force, with some exceptions.
fn in_force(inputs: &Inputs) -> String {
    let gone: Vec<&str> = inputs.gone.iter().map(String::as_str).collect();
    match gone.is_empty() {
        true => "accepted".to_owned(),
        false => format!(
            "accepted; spec.delays: there is no node {}",
            gone.join(", ")
        ),
    }
}

fn rank(state: &str) -> u8 {
    match state {
        "Moving" | "Undoing" => 0,
        "Judged" => 1,
        "Planned" => 2,
        "RolledBack" => 3,
        "Kept" => 4,
        "Free" => 5,
        _ => 6,
    }
}

fn service(input: &StatusInput<'_>, index: usize) -> Option<ServicePlacement> {
    let inputs = input.inputs;
    let selected = inputs.selected.get(&index)?;
    let name = &inputs.graph.services().get(index)?.name;
    let mut service = ServicePlacement {
        name: name.clone(),
        state: "Free".to_owned(),
        reason: input.why.get(name).cloned().unwrap_or_default(),
        deployments: selected.deployments.iter().cloned().collect(),
        nodes: inputs.present.by_node(index, &inputs.nodes),
        ..ServicePlacement::default()
    };
    if let Some(record) = input.relocation.records().get(name) {
        service.state = word(record.stage).to_owned();
        service.wanted.clone_from(&record.wanted);
        service.former = record.former.clone().unwrap_or_default();
        service.before = record.before.map(measure);
        service.after = record.after.map(measure);
        service.rests_until = Some(record.rests_until)
            .filter(|at| *at > wall_clock::now())
            .and_then(wall_clock::text);
        service.failures = record.failures;
    } else if let Some(fixed) = &selected.fixed {
        (service.state, service.reason) = (FIXED.to_owned(), fixed.clone());
    }
    let planned = input
        .round
        .plan
        .as_ref()
        .filter(|_| input.mode != PlacementMode::Observe);
    let planned = planned.map(|plan| plan.placement.by_node(index, &inputs.nodes));
    let worth = matches!(input.round.reason, Reason::Advised | Reason::Waiting { .. });
    if let Some(planned) = planned.filter(|planned| worth && *planned != service.nodes)
        && !matches!(&*service.state, "Moving" | "Undoing" | "Judged")
    {
        (service.state, service.wanted) = ("Planned".to_owned(), planned);
    }
    Some(service)
}

/// Returns the reasons in a status why services are not moved yet or were moved back, by name.
#[must_use]
pub fn reasons(status: &PlacementPolicyStatus) -> BTreeMap<String, String> {
    let said = status.services.iter();
    let said = said.filter(|one| one.state != FIXED && !one.reason.is_empty());
    said.map(|one| (one.name.clone(), one.reason.clone()))
        .collect()
}

/// Returns the status of the last round, updated with the results of moves since then.
#[must_use]
pub fn refreshed(
    before: &PlacementPolicyStatus,
    done: Done,
    why: &BTreeMap<String, String>,
) -> PlacementPolicyStatus {
    let mut services = before.services.clone();
    for service in services.iter_mut().filter(|one| one.state != FIXED) {
        service.reason = why.get(&service.name).cloned().unwrap_or_default();
    }
    PlacementPolicyStatus {
        moves_done: done.moves,
        moves_failed: done.failed,
        rolled_back: done.rolled_back,
        services,
        ..before.clone()
    }
}

/// Returns the status of a policy that is not in force.
#[must_use]
pub fn refused(
    before: &PlacementPolicyStatus,
    reason: &str,
    message: &str,
    generation: Option<i64>,
) -> PlacementPolicyStatus {
    let condition = |kind: &str| Condition::new(kind, false, reason, message, generation);
    PlacementPolicyStatus {
        conditions: vec![condition("Accepted"), condition("Settled")],
        ..before.clone()
    }
}
