//! The plan of the demo: the application, replicas, stages and faults.

use std::fmt;
use std::num::NonZeroU8;
use std::str::FromStr;
use std::time::Duration;

use super::fault::{At, Fault, Kind};

/// A service of the application.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) name: &'static str,
    /// The services called for each request, concurrently; indices in [`SERVICES`].
    pub(super) calls: &'static [usize],
    /// The mean time that a replica needs for a request, one at a time.
    pub(super) work: Duration,
    replicas: u8,
}

const fn service(
    name: &'static str,
    calls: &'static [usize],
    work_ms: u64,
    replicas: u8,
) -> Service {
    Service {
        name,
        calls,
        work: Duration::from_millis(work_ms),
        replicas,
    }
}

/// Bookinfo, the example application of Istio. Called services come after their callers.
pub(super) const SERVICES: [Service; 4] = [
    service("productpage", &[DETAILS, REVIEWS], 3, 2),
    service("details", &[], 4, 2),
    service("reviews", &[RATINGS], 8, 3),
    service("ratings", &[], 5, 2),
];
pub(super) const PRODUCTPAGE: usize = 0;
pub(super) const DETAILS: usize = 1;
pub(super) const REVIEWS: usize = 2;
pub(super) const RATINGS: usize = 3;

/// The caller of the first service: a separate proxy, whose clients are outside the mesh.
pub(super) const INGRESS: &str = "ingress";

/// A pair of services: caller and called service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Edge {
    pub(super) from: &'static str,
    /// The index in [`SERVICES`].
    pub(super) to: usize,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.from, SERVICES[self.to].name)
    }
}

/// Returns all edges, from the ingress down.
pub(super) fn edges() -> Vec<Edge> {
    let first = Edge {
        from: INGRESS,
        to: PRODUCTPAGE,
    };
    let calls = SERVICES.iter().flat_map(|service| {
        let edge = |&to| Edge {
            from: service.name,
            to,
        };
        service.calls.iter().map(edge)
    });
    std::iter::once(first).chain(calls).collect()
}

/// Returns the callers of a service, including the ingress.
pub(super) fn callers(service: usize) -> impl Iterator<Item = &'static str> {
    let edges = edges().into_iter();
    edges
        .filter(move |edge| edge.to == service)
        .map(|edge| edge.from)
}

/// Returns the index of a service.
fn position(name: &str) -> Option<usize> {
    SERVICES.iter().position(|service| service.name == name)
}

fn names() -> String {
    SERVICES.map(|service| service.name).join(", ")
}

/// The reason why a text is no replica, or no number of replicas.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum NameError {
    #[error("`{0}` is not a number of replicas from 1 to {MOST_REPLICAS}")]
    Count(String),
    #[error("`{0}` is not SERVICE=N, such as reviews=3")]
    Form(String),
    #[error("`{0}` is not a replica, such as reviews-2")]
    Replica(String),
    #[error("there is no service `{0}`, only {names}", names = names())]
    Service(String),
}

/// The maximum number of replicas of a service; their addresses are counted in one byte.
pub(super) const MOST_REPLICAS: u8 = 16;

/// One replica of a service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Replica {
    /// The index in [`SERVICES`].
    pub(super) service: usize,
    /// The number, from 1.
    pub(super) number: NonZeroU8,
}

impl Replica {
    pub(super) fn new(service: usize, number: u8) -> Self {
        let number = NonZeroU8::new(number).unwrap_or(NonZeroU8::MIN);
        Self { service, number }
    }
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", SERVICES[self.service].name, self.number)
    }
}

impl FromStr for Replica {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = || NameError::Replica(text.into());
        let (name, number) = text.rsplit_once('-').ok_or_else(wrong)?;
        let number = number.parse().map_err(|_| wrong())?;
        let service = position(name).ok_or_else(|| NameError::Service(name.into()))?;
        Ok(Self { service, number })
    }
}

/// A number of replicas for a service, as typed: `reviews=3`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replicas {
    service: usize,
    count: u8,
}

impl FromStr for Replicas {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (name, count) = text
            .split_once('=')
            .ok_or_else(|| NameError::Form(text.into()))?;
        let service = position(name).ok_or_else(|| NameError::Service(name.into()))?;
        let count = count
            .parse()
            .ok()
            .filter(|count| (1..=MOST_REPLICAS).contains(count))
            .ok_or_else(|| NameError::Count(count.into()))?;
        Ok(Self { service, count })
    }
}

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
            (6, title("intrusion attempts".into())),
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
    pub(super) fn introduction(&self, rate: f64, ingress: &dyn fmt::Display) -> String {
        let counts: Vec<_> = SERVICES
            .iter()
            .zip(self.replicas)
            .map(|(service, count)| format!("{} × {count}", service.name))
            .collect();
        format!(
            "productpage → details, productpage → reviews → ratings: {}.\n\
             Each replica has its own maglor-proxy; they connect only over mutual TLS.\n\
             The ingress is at http://{ingress}. Load: {rate:.0} requests/s at random moments for {:.0} s. \
             Press Ctrl-C to stop.\n\n",
            counts.join(", "),
            self.length.as_secs_f64(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_application_is_bookinfo() {
        let edges: Vec<_> = edges().iter().map(ToString::to_string).collect();
        let wanted = [
            "ingress → productpage",
            "productpage → details",
            "productpage → reviews",
            "reviews → ratings",
        ];
        assert_eq!(edges, wanted);
        assert_eq!(Vec::from_iter(callers(RATINGS)), ["reviews"]);
        for (index, service) in SERVICES.iter().enumerate() {
            assert!(service.calls.iter().all(|&called| called > index));
        }
    }

    #[test]
    fn names_are_read_and_what_is_wrong_is_said() {
        let replica: Replica = "reviews-2".parse().unwrap();
        assert_eq!(replica, Replica::new(REVIEWS, 2));
        assert_eq!(replica.to_string(), "reviews-2");
        let error = |text: &str| text.parse::<Replica>().unwrap_err().to_string();
        assert!(error("review-2").contains("only productpage, details"));
        assert!(error("reviews").contains("such as reviews-2"));
        assert!(error("reviews-0").contains("such as reviews-2"));
        let error = |text: &str| text.parse::<Replicas>().unwrap_err();
        assert_eq!(error("reviews"), NameError::Form("reviews".into()));
        assert_eq!(error("reviews=17"), NameError::Count("17".into()));
        assert!("reviews=16".parse::<Replicas>().is_ok());
    }

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
