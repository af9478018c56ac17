//! Moving averages of the calls that proxies report.

use std::time::Duration;

use maglor_balance::Time;
use maglor_service_graph::{Averaging, Counters, LiveEdges};

use super::parts::Part;

/// The averages over a window.
pub(super) struct Averages {
    /// Calls between services.
    pub(super) edges: LiveEdges,
    /// Calls accepted by sidecars, including those of callers outside the mesh, as edges from a service to itself.
    pub(super) taken: LiveEdges,
    /// Calls to versions of services, by the versions' clusters; they are also in `edges`.
    pub(super) versions: LiveEdges,
}

/// The calls of a report: from, to, counts.
type Calls<'a> = Vec<(&'a str, &'a str, Counters)>;

/// The calls of a report, by what [`Averages`] distinguishes.
#[derive(Default)]
pub(super) struct Reported<'a> {
    pub(super) edges: Calls<'a>,
    pub(super) taken: Calls<'a>,
    pub(super) versions: Calls<'a>,
}

impl Averages {
    pub(super) fn new(window: Duration, averaging: Averaging) -> Self {
        let edges = LiveEdges::new(window, averaging);
        Self {
            taken: edges.clone(),
            versions: edges.clone(),
            edges,
        }
    }

    /// Processes a report of a proxy about an interval of this length.
    pub(super) fn take(
        &mut self,
        node: &str,
        (now, length): (Time, Duration),
        reported: &Reported<'_>,
    ) {
        let pairs = [
            (&mut self.edges, &reported.edges),
            (&mut self.taken, &reported.taken),
            (&mut self.versions, &reported.versions),
        ];
        for (edges, calls) in pairs {
            edges.interval(node, now, length, calls.iter().cloned());
        }
    }

    pub(super) fn set_window(&mut self, window: Duration) {
        for edges in [&mut self.edges, &mut self.taken, &mut self.versions] {
            edges.set_window(window);
        }
    }

    pub(super) fn expire(&mut self, now: Time) {
        for edges in [&mut self.edges, &mut self.taken, &mut self.versions] {
            edges.expire(now);
        }
    }

    /// Returns the averages of each proxy.
    pub(super) fn parts(&self, now: Time) -> impl Iterator<Item = Part> {
        let called = self.edges.parts(now).map(move |part| Part::new(&part, now));
        let taken = self.taken.parts(now).map(move |part| Part {
            taken: true,
            ..Part::new(&part, now)
        });
        let versions = self.versions.parts(now).map(move |part| Part {
            version: true,
            ..Part::new(&part, now)
        });
        called.chain(taken).chain(versions)
    }
}
