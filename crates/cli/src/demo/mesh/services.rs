//! The services of the application, their calls, and the names of their replicas.

use std::fmt;
use std::num::NonZeroU8;
use std::str::FromStr;
use std::time::Duration;

/// A service of the application.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) name: &'static str,
    /// The services called for each request, concurrently; indices in [`SERVICES`].
    pub(super) calls: &'static [usize],
    /// The mean time that a replica needs for a request, one at a time.
    pub(super) work: Duration,
    /// The number of replicas, unless another one is requested.
    pub(super) replicas: u8,
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
    /// The index in [`SERVICES`].
    pub(super) service: usize,
    pub(super) count: u8,
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
}
