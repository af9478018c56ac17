//! What is simulated, and which of it makes sense.

mod check;
mod places;

use std::num::NonZeroU32;
use std::time::Duration;

use maglor_balance::{SlowStart, Spec, SpecError};

use super::arrivals::Arrivals;
use super::distribution::Service;
use super::graph::Graph;
use super::guards::{Faults, Guards};
use super::nodes::Nodes;
use super::server::Discipline;

/// Requests of a run: of fewer there is no mean to speak of.
pub const LEAST_REQUESTS: u64 = 100;

/// A system of balancers and servers, the load on it, and how long to look at it.
///
/// # Defaults
///
/// One balancer, 40 servers, `lor(choices=2)`, ρ = 0.75, exponential service of 20 ms, Poisson
/// arrivals, FIFO, equal speeds, 0.25 ms a message, nothing lost: the paper's §II.D. Ten runs of
/// 100 000 requests, seed 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// How balancers choose.
    pub policy: Spec,
    /// M: balancers in front of the first service, 1–100 000.
    pub balancers: u32,
    /// N: servers of each service, 1–100 000.
    pub servers: u32,
    /// ρ: load relative to the nominal capacity of all servers together, above 0 and below 1; requests in
    /// progress a server of speed 1 where they do not slow each other down
    /// ([`Discipline::Parallel`]), up to 1000.
    pub rho: f64,
    /// Ts: mean time that a server of speed 1 works on a request, 1 µs – 1 h.
    pub service_time: Duration,
    /// When requests come.
    pub arrivals: Arrivals,
    /// What they cost.
    pub service: Service,
    /// How servers divide their capacity.
    pub discipline: Discipline,
    /// Speeds of the servers, by turns; not empty, each above 0.
    pub speeds: Vec<f64>,
    /// Weights that balancers give the servers, by turns; not empty, each above 0.
    pub weights: Vec<u32>,
    /// Where servers and balancers are, if calls go local first; each node has weights of its own then.
    pub nodes: Option<Nodes>,
    /// The ramp of servers that return, if there is one.
    pub slow_start: Option<SlowStart>,
    /// How messages travel.
    pub network: Network,
    /// Which services there are.
    pub graph: Graph,
    /// Balancing by a few proxies between the callers and each service, if any.
    pub proxies: Option<Proxies>,
    /// Speeds that change with time, if any.
    pub antagonist: Option<Antagonist>,
    /// Things that happen at given times, in any order.
    pub disturbances: Vec<Disturbance>,
    /// Each balancer, and each ledger, learns of servers that leave and return at a moment of its own,
    /// this much later at most.
    pub view_lag: Duration,
    /// How many of each service's servers, its last ones, report to no ledger from the beginning and
    /// answer no audits; at most all of them.
    pub silent: u32,
    /// Servers that fail, if any.
    pub faults: Option<Faults>,
    /// What balancers do about failures.
    pub guards: Guards,
    /// Users' requests in each run, those of the warm-up included, at least [`LEAST_REQUESTS`].
    pub requests: u64,
    /// Independent runs, 2–1000. Intervals come from what differs between them.
    pub runs: u32,
    /// The length of an interval of [`Outcome::timeline_ms`](super::Outcome::timeline_ms); zero: none is
    /// made.
    pub timeline: Duration,
    /// Determines all chance.
    pub seed: u64,
}

/// How a policy's messages travel. Requests and responses take no time; see the parent module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// One way, 0–10 s.
    pub delay: Duration,
    /// The share of messages that is lost, from 0 to below 1. Requests are not: a connection repeats
    /// what it loses.
    pub loss: f64,
    /// Of those that are not lost so, the share of servers' reports that is: a network that loses one
    /// way.
    pub report_loss: f64,
}

/// The paper's Proxy-Service (§III): few balancers that all callers go through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proxies {
    /// m: how many of them, for each service; a request takes a random one. 1–100 000.
    pub instances: u32,
    /// What the way through one adds to a request; 2 ms in the paper's Fig. 9.
    pub penalty: Duration,
}

/// Something else that runs on the machines: at any time, one server in `one_in` has only
/// `factor` of its speed; after `lasts` it is the next one's turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Antagonist {
    /// 1 or more.
    pub one_in: u32,
    /// Above 0, at most 1.
    pub factor: f64,
    /// At least 1 ms.
    pub lasts: Duration,
}

/// A change at a time, in every run and every service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    /// Since the beginning of the run.
    pub at: Duration,
    /// What changes.
    pub change: Change,
}

/// What can change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// This server leaves: balancers send it nothing new, it ends what it has.
    Leave(u32),
    /// The ledger or board of this group stops answering; its server goes on.
    LedgerDies(u32),
    /// The ledger or board of this group starts again, knowing nothing.
    LedgerRestarts(u32),
    /// The ledger or board of this group takes up what has arrived since it stalled, in that order.
    LedgerResumes(u32),
    /// The ledger or board of this group does nothing until it resumes; what arrives waits.
    LedgerStalls(u32),
    /// This server reports to ledgers and answers audits from now on.
    Reporting(u32),
    /// This server comes back.
    Return(u32),
    /// This server reports to no ledger any more and answers no audits; it serves on.
    Silent(u32),
}

/// Why a scenario makes no sense. One line each.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// A disturbance of something that is not there.
    #[error("there is no {0}")]
    Absent(String),
    /// The graph has too few or too many services.
    #[error("graph {0}: a chain or hub has 2-64 services")]
    Graph(Graph),
    /// The policy's parameters are out of range.
    #[error(transparent)]
    Policy(#[from] SpecError),
    /// The system has no steady state.
    #[error(
        "rho = {0}: the load must be above 0 and below 1, else queues grow for ever or are empty; \
         with the discipline `parallel`, 1000 at most"
    )]
    Rho(f64),
    /// A number is out of range.
    #[error("{what} = {value} is out of range; valid: {valid}")]
    Range {
        /// Which number.
        what: &'static str,
        /// As given.
        value: String,
        /// What it may be.
        valid: &'static str,
    },
    /// Something that would change nothing.
    #[error("{what}: {why}")]
    Useless {
        /// What was asked for.
        what: &'static str,
        /// Why it would change nothing.
        why: &'static str,
    },
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            policy: Spec::default(),
            balancers: 1,
            servers: 40,
            rho: 0.75,
            service_time: Duration::from_millis(20),
            arrivals: Arrivals::Poisson,
            service: Service::Exponential,
            discipline: Discipline::Fifo,
            speeds: vec![1.0],
            weights: vec![1],
            nodes: None,
            slow_start: None,
            network: Network {
                delay: Duration::from_micros(250),
                loss: 0.0,
                report_loss: 0.0,
            },
            graph: Graph::Single,
            proxies: None,
            antagonist: None,
            disturbances: Vec::new(),
            view_lag: Duration::ZERO,
            silent: 0,
            faults: None,
            guards: Guards::default(),
            requests: 100_000,
            runs: 10,
            timeline: Duration::ZERO,
            seed: 1,
        }
    }
}

impl Scenario {
    /// The default scenario with another policy.
    #[must_use]
    pub fn of(policy: Spec) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Whether answers are judged.
    pub(super) fn is_guarded(&self) -> bool {
        self.faults.is_some() || self.guards.are_on()
    }

    /// The speed of a server without antagonist.
    pub(super) fn speed(&self, server: u32) -> f64 {
        self.speeds[server as usize % self.speeds.len()]
    }

    /// The weight that balancers give a server.
    pub(super) fn weight(&self, server: u32) -> NonZeroU32 {
        let weight = self.weights[server as usize % self.weights.len()];
        NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN)
    }

    /// Users' requests a nanosecond.
    pub(super) fn rate(&self) -> f64 {
        let capacity: f64 = (0..self.servers).map(|server| self.speed(server)).sum();
        self.rho * capacity / self.service_time.as_nanos() as f64
    }
}

#[cfg(test)]
mod tests;
