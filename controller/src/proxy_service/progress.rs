//! The progress of a `ProxyService`, and its status.

use std::time::Duration;

use maglor_service_graph::policy_choice::{Choice, View};

use super::observed::{Claim, Observed, Rollout};
use super::refusal::Refusal;
use crate::crd::{AutoStatus, Condition, ProxyServiceSpec};

/// The progress towards the wanted state.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// Callers' sidecars use the true queue lengths of the Service's endpoints, with this policy.
    Collaborating(Choice),
    /// Requests went through the proxies, but none of these are available any more, so requests go directly until
    /// some are.
    Failing(Rollout),
    /// Requests go through the proxies.
    Inserted(Rollout),
    /// The `ProxyService` is invalid; the previous state stays in force.
    Invalid(String),
    /// The decision rule does not recommend proxies, or it is only evaluated.
    NotAdvised,
    /// Proxies are not possible; existing ones are removed.
    Refused(Refusal),
    /// The API server rejects the next step, which will be retried.
    Rejected {
        /// The progress of the proxies.
        rollout: Rollout,
        /// The rejected step and the error.
        why: String,
    },
    /// Proxies are starting.
    Starting(Rollout),
    /// Proxies may not be started in this namespace; only the status is written.
    SwitchedOff,
    /// All created objects are removed.
    Withdrawn,
    /// Proxies are being removed.
    Withdrawing,
}

/// Returns the conditions of a `ProxyService`. Of several for one Service, only the one with `holds` is in force.
/// `waiting` is the reason why a proxy pod is not ready, if this will not resolve by itself.
#[must_use]
pub fn conditions(
    claim: &Claim,
    holder: Option<&Claim>,
    progress: &Progress,
    waiting: Option<&str>,
) -> Vec<Condition> {
    let generation = claim.generation;
    let condition = |kind: &str, holds, reason: &str, message: String| {
        Condition::new(kind, holds, reason, message, generation)
    };
    let not_ready = |reason: &str, message: String| {
        vec![
            condition("Accepted", false, reason, message.clone()),
            condition("Ready", false, reason, message),
        ]
    };
    if let Err(problem) = &claim.spec {
        return not_ready("Invalid", problem.clone());
    }
    if let Some(other) = holder.filter(|other| other.uid != claim.uid)
        && !claim.deleting
    {
        let message = format!(
            "the older ProxyService {} has the same target",
            other.key.name
        );
        return not_ready("Conflicted", message);
    }
    let ready = |holds, reason: &str, message: String| {
        let accepted = condition(
            "Accepted",
            true,
            "Accepted",
            "preconditions are met".to_owned(),
        );
        vec![accepted, condition("Ready", holds, reason, message)]
    };
    let directly = |why: &str| format!("{why}; requests go to the endpoints directly");
    match progress {
        Progress::Collaborating(choice) => {
            let message = format!("callers' sidecars use {}, without proxies", choice.policy());
            ready(true, "Collaborating", message)
        }
        Progress::Failing(rollout) => {
            let message = directly(&rollout.text(waiting));
            ready(false, "ProxiesUnavailable", message)
        }
        Progress::Inserted(rollout) => {
            let message = format!("requests go through the proxies; {}", rollout.text(waiting));
            ready(true, "Inserted", message)
        }
        Progress::Invalid(problem) => not_ready("Invalid", problem.clone()),
        Progress::NotAdvised => {
            let dry = claim.spec.as_ref().is_ok_and(ProxyServiceSpec::dry_run);
            let (reason, why) = match dry {
                true => ("DryRun", "dryRun: no changes are made"),
                false => ("NotAdvised", "proxies would not reduce latency"),
            };
            let message = directly(why);
            ready(false, reason, message)
        }
        Progress::Refused(refusal) => not_ready(refusal.reason(), refusal.to_string()),
        Progress::Rejected { why, .. } => {
            let message = format!("the API server rejected {why}; retrying");
            ready(false, "Rejected", message)
        }
        Progress::Starting(rollout) => {
            let message = directly(&rollout.text(waiting));
            ready(false, "Starting", message)
        }
        Progress::SwitchedOff => {
            let message = directly(
                "ProxyServices are disabled in this namespace: see proxyServices of the chart, --proxy-services and --proxy-services-in of the controller",
            );
            ready(false, "SwitchedOff", message)
        }
        Progress::Withdrawing | Progress::Withdrawn => {
            let message =
                "requests go to the endpoints directly; the proxies are shutting down".to_owned();
            ready(false, "Withdrawing", message)
        }
    }
}

/// Returns `status.proxies`: the numbers of available and wanted proxies.
#[must_use]
pub fn proxies(progress: &Progress) -> Option<String> {
    match progress {
        Progress::Failing(rollout)
        | Progress::Inserted(rollout)
        | Progress::Rejected { rollout, .. }
        | Progress::Starting(rollout) => Some(format!("{}/{}", rollout.available, rollout.wanted)),
        Progress::Collaborating(_)
        | Progress::Invalid(_)
        | Progress::NotAdvised
        | Progress::Refused(_)
        | Progress::SwitchedOff
        | Progress::Withdrawing
        | Progress::Withdrawn => None,
    }
}

/// Returns `status.auto` of a Service's own `ProxyService`.
pub(super) fn auto_status(claim: &Claim, seen: &Observed) -> Option<AutoStatus> {
    claim.spec.as_ref().ok().filter(|spec| spec.is_auto())?;
    Some(auto_status_of(&seen.advice?.view?))
}

/// Formats a recommendation and the observations on which it is based. Two digits are sufficient and cause fewer
/// writes.
pub(super) fn auto_status_of(view: &View) -> AutoStatus {
    let digits = |value: f64| format!("{value:.1e}").parse().unwrap_or(value);
    let milliseconds = |time: Duration| digits(time.as_secs_f64() * 1000.0);
    AutoStatus {
        recommended: view.best.name().to_owned(),
        predicted_milliseconds: milliseconds(view.predicted),
        measured_milliseconds: milliseconds(view.measured),
        local_milliseconds: milliseconds(view.local),
        proxied_milliseconds: milliseconds(view.proxied),
        utilization: digits(view.rho),
    }
}

impl Rollout {
    fn text(&self, waiting: Option<&str>) -> String {
        let (available, wanted) = (self.available, self.wanted);
        let why = waiting.map_or_else(String::new, |why| format!(" ({why})"));
        format!("{available} of {wanted} proxies are available{why}")
    }
}
