//! The plan of the demo: replicas, stages and faults.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::fault::{At, Fault, Kind};
use super::prompt;
use super::services::{RATINGS, REVIEWS, Replica, Replicas, SERVICES};

/// The title of the stage in which intrusion attempts are made.
pub(super) const INTRUSIONS: &str = "intrusion attempts";

/// An event of the plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Event {
    Fault(Fault),
    /// Intrusion attempts are made.
    Intrude,
    /// From now on requests are counted under another title.
    Stage(String),
}

#[derive(Debug)]
pub(super) struct Plan {
    /// By index in [`SERVICES`].
    replicas: [u8; SERVICES.len()],
    /// Duration of the load.
    pub(super) length: Duration,
    /// The events, by the time since the first request. The first is the first stage.
    pub(super) events: Vec<(Duration, Event)>,
}

/// A fault of a replica that does not exist.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum PlanError {
    #[error("--fault {0}: {service} has {1} replicas", service = SERVICES[.0.fault.replica.service].name)]
    NoSuchReplica(At, u8),
    #[error("--fault {0}: the demo ends after {1:?}")]
    TooLate(At, Duration),
}

impl Plan {
    /// Creates four stages of equal length, or, if faults are given, a stage after each.
    pub(super) fn new(
        length: Duration,
        changed: &[Replicas],
        faults: &[At],
    ) -> Result<Self, PlanError> {
        let mut replicas = SERVICES.map(|service| service.replicas);
        for change in changed {
            replicas[change.service] = change.count;
        }
        let mut plan = Self {
            replicas,
            length,
            events: vec![(Duration::ZERO, Event::Stage("healthy".into()))],
        };
        if faults.is_empty() {
            plan.stages();
        } else {
            plan.faults(faults)?;
        }
        Ok(plan)
    }

    fn stages(&mut self) {
        let poor = Replica::new(REVIEWS, self.replicas[REVIEWS].min(2));
        let dead = Replica::new(RATINGS, 1);
        let eighth = self.length / 8;
        let fault = |replica, kind| Event::Fault(Fault { replica, kind });
        let title = |title: String| Event::Stage(title);
        let later = [
            (2, title(format!("{poor} slow and failing"))),
            (2, fault(poor, Kind::Slow)),
            (2, fault(poor, Kind::Errors)),
            (4, fault(poor, Kind::Heal)),
            (4, title(format!("{dead} killed, then restarted"))),
            (4, fault(dead, Kind::Kill)),
            (5, fault(dead, Kind::Heal)),
            (6, title(INTRUSIONS.into())),
            (6, Event::Intrude),
        ];
        let timed = later.map(|(eighths, event)| (eighth * eighths, event));
        self.events.extend(timed);
    }

    fn faults(&mut self, faults: &[At]) -> Result<(), PlanError> {
        let mut faults = faults.to_vec();
        faults.sort_by_key(|at| at.after);
        for at in faults {
            let count = self.replicas[at.fault.replica.service];
            if at.fault.replica.number.get() > count {
                return Err(PlanError::NoSuchReplica(at, count));
            }
            if at.after >= self.length {
                return Err(PlanError::TooLate(at, self.length));
            }
            let title = Event::Stage(at.fault.to_string());
            self.events.push((at.after, title));
            self.events.push((at.after, Event::Fault(at.fault)));
        }
        self.events.push((self.length, Event::Intrude));
        Ok(())
    }

    /// Returns all replicas, service by service.
    pub(super) fn replicas(&self) -> impl Iterator<Item = Replica> {
        let services = self.replicas.iter().enumerate();
        services.flat_map(|(service, &count)| {
            (1..=count).map(move |number| Replica::new(service, number))
        })
    }

    pub(super) fn has(&self, replica: Replica) -> bool {
        replica.number.get() <= self.replicas[replica.service]
    }

    /// Returns the introduction before the statistics.
    pub(super) fn introduction(
        &self,
        rate: f64,
        ingress: &dyn fmt::Display,
        page: Option<SocketAddr>,
    ) -> String {
        let counts: Vec<_> = SERVICES
            .iter()
            .zip(self.replicas)
            .map(|(service, count)| format!("{} × {count}", service.name))
            .collect();
        let page = match page {
            Some(page) => format!("Watch it at http://{page}/ (for ten minutes: --for 600). "),
            None => "There is no page: maglor-controller is neither in the directory of this program nor in PATH. ".to_owned(),
        };
        format!(
            "productpage → details, productpage → reviews → ratings: {}.\n\
             Each replica has its own maglor-proxy; they connect only over mutual TLS.\n\
             The ingress is at http://{ingress}. Load: {rate:.0} requests/s at random moments for {:.0} s. \
             {page}{}.\n\n",
            counts.join(", "),
            self.length.as_secs_f64(),
            match prompt::is_interactive() {
                true => "Type `help` for commands, Ctrl-C to stop",
                false => "Ctrl-C or `kill` stops it",
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_four_stages_in_order() {
        let plan = Plan::new(Duration::from_secs(20), &[], &[]).unwrap();
        let stages = plan.events.iter().filter_map(|(after, event)| match event {
            Event::Stage(title) => Some((after.as_secs(), title.as_str())),
            _ => None,
        });
        let wanted = [
            (0, "healthy"),
            (5, "reviews-2 slow and failing"),
            (10, "ratings-1 killed, then restarted"),
            (15, "intrusion attempts"),
        ];
        assert_eq!(Vec::from_iter(stages), wanted);
        assert!(plan.events.is_sorted_by_key(|(after, _)| *after));
        assert_eq!(plan.replicas().count(), 9);
    }

    #[test]
    fn given_faults_replace_the_stages() {
        let at = |text: &str| text.parse::<At>().unwrap();
        let faults = [at("ratings-1:heal@8"), at("ratings-1:kill@3")];
        let plan = Plan::new(Duration::from_secs(10), &[], &faults).unwrap();
        let titles = plan.events.iter().filter_map(|(_, event)| match event {
            Event::Stage(title) => Some(title.as_str()),
            _ => None,
        });
        let wanted = ["healthy", "kill ratings-1", "heal ratings-1"];
        assert_eq!(Vec::from_iter(titles), wanted);
        let error = |text| Plan::new(Duration::from_secs(10), &[], &[at(text)]).unwrap_err();
        assert_eq!(
            error("reviews-4:slow@1").to_string(),
            "--fault reviews-4:slow@1: reviews has 3 replicas"
        );
        assert!(
            error("reviews-1:slow@10")
                .to_string()
                .contains("ends after")
        );
    }
}
