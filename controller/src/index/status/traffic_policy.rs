//! Computes the status of a `TrafficPolicy`: where it applies.

use super::accepted;
use crate::crd::{Condition, TrafficPolicySpec};
use crate::index::Index;
use crate::index::effective::{Level, winner};
use crate::index::facts::{Key, TrafficPolicy};

/// Returns the condition of a policy. It is accepted if it wins for at least one port; the message lists where
/// another policy wins.
pub(super) fn traffic_policy(index: &Index, key: &Key, policy: &TrafficPolicy) -> Condition {
    let problem = policy.spec.problem.as_deref();
    let accepted = || accepted(problem, (policy.in_force, ""), policy.generation);
    let (None, Some(spec)) = (problem, &policy.spec.value) else {
        return accepted();
    };
    let no = |reason: &str, message: String| {
        Condition::new("Accepted", false, reason, message, policy.generation)
    };
    if spec.target_refs.is_empty() {
        // The winner of a namespace does not depend on the Service.
        let any = Key::new(&key.namespace, "");
        return match winner(index, &any, 0, Level::Namespace) {
            Some((other, _)) if other != key => no(
                "Conflicted",
                format!("the older TrafficPolicy {other} applies to the namespace"),
            ),
            _ => accepted(),
        };
    }
    let (mut missing, mut lost, mut of_bytes) = (Vec::new(), Vec::new(), Vec::new());
    for (text, found) in targets(index, key, policy, spec) {
        match found {
            Target::Wins => {}
            Target::Missing => missing.push(text),
            Target::OfBytes => of_bytes.push(text),
            Target::Loses(other) => lost.push(format!("{text} (to the older {other})")),
        }
    }
    let mut problems = Vec::new();
    if !missing.is_empty() {
        problems.push(format!("there is no {}", missing.join(", ")));
    }
    if !lost.is_empty() {
        problems.push(format!("it does not apply to {}", lost.join(", ")));
    }
    if !of_bytes.is_empty() {
        problems.push(format!(
            "`route` applies only to requests that an HTTPRoute or GRPCRoute sends to {}, whose declared protocol is TCP or TLS",
            of_bytes.join(", ")
        ));
    }
    let message = problems.join("; ");
    if missing.len() + lost.len() == spec.target_refs.len() {
        let reason = match lost.is_empty() {
            true => "TargetNotFound",
            false => "Conflicted",
        };
        return no(reason, message);
    }
    let message = match message.is_empty() {
        true => "accepted".to_owned(),
        false => message,
    };
    Condition::new("Accepted", true, "Accepted", message, policy.generation)
}

enum Target<'a> {
    Loses(&'a Key),
    Missing,
    /// It carries TCP, to whose connections the policy's `route` does not apply.
    OfBytes,
    Wins,
}

fn targets<'a>(
    index: &'a Index,
    key: &Key,
    policy: &TrafficPolicy,
    spec: &TrafficPolicySpec,
) -> Vec<(String, Target<'a>)> {
    let mut found = Vec::new();
    for target in &spec.target_refs {
        let service = Key::new(&key.namespace, &target.name);
        let facts = index.services.get(&service);
        let (text, ports): (String, Vec<u16>) = match target.port {
            Some(port) => (
                format!("port {port} of Service {}", target.name),
                facts
                    .and_then(|facts| facts.port(port))
                    .map(|one| one.port)
                    .into_iter()
                    .collect(),
            ),
            None => (
                format!("Service {}", target.name),
                facts
                    .iter()
                    .flat_map(|facts| facts.ports.iter().map(|one| one.port))
                    .collect(),
            ),
        };
        let level = Level::of_target(policy, target.port);
        let other = ports
            .first()
            .and_then(|port| winner(index, &service, *port, level));
        let target = match (facts, target.port, other) {
            (None, _, _) => Target::Missing,
            (Some(_), Some(_), _) if ports.is_empty() => Target::Missing,
            (_, _, Some((other, _))) if other != key => Target::Loses(other),
            (Some(facts), _, _) if spec.route.is_some() && facts.carries_only_bytes(&ports) => {
                Target::OfBytes
            }
            _ => Target::Wins,
        };
        found.push((text, target));
    }
    found
}
