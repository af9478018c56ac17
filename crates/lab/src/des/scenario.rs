//! The description of a simulation, and its validation.

mod check;
mod places;

use std::num::NonZeroU32;
use std::time::Duration;

use maglor_balance::{SlowStart, SpecError};

use super::arrivals::Arrivals;
use super::distribution::Service;
use super::graph::Graph;
use super::guards::{Faults, Guards};
use super::nodes::Nodes;
use super::server::Discipline;
use crate::comparison::Compared;

/// The minimum number of requests of a run, needed for a meaningful mean.
pub const LEAST_REQUESTS: u64 = 100;

/// A system of balancers and servers, its load, and the length of its simulation.
///
/// # Defaults
///
/// One balancer, 40 servers, `lor(choices=2)`, ρ = 0.75, exponential service of 20 ms, Poisson
/// arrivals, FIFO, equal speeds, 0.25 ms a message, nothing lost: the paper's §II.D. Ten runs of
/// 100 000 requests, seed 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The balancing policy.
    pub policy: Compared,
    /// M: the number of balancers in front of the first service, 1–100 000.
    pub balancers: u32,
    /// N: the number of servers of each service, 1–100 000.
    pub servers: u32,
    /// ρ: the load relative to the nominal capacity of all servers together, above 0 and below 1;
    /// with [`Discipline::Parallel`], where requests do not slow each other down, the requests in
    /// progress at a server of speed 1, up to 1000.
    pub rho: f64,
    /// Ts: the mean time that a server of speed 1 needs for a request, 1 µs – 1 h.
    pub service_time: Duration,
    /// The arrival process.
    pub arrivals: Arrivals,
    /// The distribution of their work.
    pub service: Service,
    /// How servers divide their capacity.
    pub discipline: Discipline,
    /// The speeds of the servers, repeated cyclically; not empty, each above 0.
    pub speeds: Vec<f64>,
    /// The weights of the servers in the balancers, repeated cyclically; not empty, each above 0.
    pub weights: Vec<u32>,
    /// The nodes of servers and balancers, with local-first routing; each node has weights of its
    /// own then.
    pub nodes: Option<Nodes>,
    /// The slow start of servers that return, if any.
    pub slow_start: Option<SlowStart>,
    /// The delay and loss of messages.
    pub network: Network,
    /// The call graph of services.
    pub graph: Graph,
    /// The Proxy-Service between the callers and each service, if any.
    pub proxies: Option<Proxies>,
    /// The antagonist that changes speeds over time, if any.
    pub antagonist: Option<Antagonist>,
    /// Changes at given times, in any order.
    pub disturbances: Vec<Disturbance>,
    /// The maximum delay after which each balancer, and each ledger, is informed that a server has
    /// left or returned, each at its own moment.
    pub view_lag: Duration,
    /// The number of each service's servers, its last ones, that report to no ledger from the
    /// beginning and do not respond to audits; at most all of them.
    pub silent: u32,
    /// Failing servers, if any.
    pub faults: Option<Faults>,
    /// The balancers' guards against failures.
    pub guards: Guards,
    /// The number of users' requests in each run, including the warm-up, at least
    /// [`LEAST_REQUESTS`].
    pub requests: u64,
    /// The number of independent runs, 2–1000. Confidence intervals are computed over them.
    pub runs: u32,
    /// The length of an interval of [`Outcome::timeline_ms`](super::Outcome::timeline_ms); zero: no
    /// timeline.
    pub timeline: Duration,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// The delay and loss of a policy's messages. Requests and responses take no time; see the parent
/// module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// The delay one way, 0–10 s.
    pub delay: Duration,
    /// The share of lost messages, from 0 to below 1. Requests are not lost: TCP retransmits.
    pub loss: f64,
    /// The additional share of servers' reports that is lost: a network that loses messages in one
    /// direction.
    pub report_loss: f64,
}

/// The paper's Proxy-Service (§III): a few balancers that all callers go through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proxies {
    /// m: the number of instances for each service; a request takes a random one. 1–100 000.
    pub instances: u32,
    /// The latency that an instance adds to a request; 2 ms in the paper's Fig. 9.
    pub penalty: Duration,
}

/// Another load on the machines: at any time, one server in `one_in` has only `factor` of its
/// speed; after `lasts` it moves to the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Antagonist {
    /// One server of this number is affected; 1 or more.
    pub one_in: u32,
    /// The fraction of an affected server's speed that remains; above 0, at most 1.
    pub factor: f64,
    /// The time at each server; at least 1 ms.
    pub lasts: Duration,
}

/// A change at a given time, in every run and every service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    /// The time since the beginning of the run.
    pub at: Duration,
    /// The change.
    pub change: Change,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// This server leaves: balancers send it no new requests, it finishes those it has.
    Leave(u32),
    /// The ledger or board of this group stops responding; its server continues.
    LedgerDies(u32),
    /// The ledger or board of this group restarts with empty state.
    LedgerRestarts(u32),
    /// The ledger or board of this group processes the messages queued since it stalled, in their
    /// order.
    LedgerResumes(u32),
    /// The ledger or board of this group does nothing until it resumes; messages are queued.
    LedgerStalls(u32),
    /// This server reports to ledgers and responds to audits from now on.
    Reporting(u32),
    /// This server comes back.
    Return(u32),
    /// This server reports to no ledger any more and does not respond to audits; it continues to
    /// serve.
    Silent(u32),
}

/// The reason why a scenario is invalid. One line each.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// A disturbance refers to something that does not exist.
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
        "rho = {0}: the load must be above 0 and below 1, otherwise queues grow without bound or stay empty; \
         with the discipline `parallel`, 1000 at most"
    )]
    Rho(f64),
    /// A number is out of range.
    #[error("{what} = {value} is out of range; valid: {valid}")]
    Range {
        /// The number.
        what: &'static str,
        /// The given value.
        value: String,
        /// The valid range.
        valid: &'static str,
    },
    /// An option has no effect.
    #[error("{what}: {why}")]
    Useless {
        /// The option.
        what: &'static str,
        /// The reason why it has no effect.
        why: &'static str,
    },
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            policy: Compared::default(),
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
    /// Returns the default scenario with another policy.
    #[must_use]
    pub fn of(policy: Compared) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Returns whether responses are evaluated by guards.
    pub(super) fn is_guarded(&self) -> bool {
        self.faults.is_some() || self.guards.are_on()
    }

    /// Returns the speed of a server without antagonist.
    pub(super) fn speed(&self, server: u32) -> f64 {
        self.speeds[server as usize % self.speeds.len()]
    }

    /// Returns the weight of a server in the balancers.
    pub(super) fn weight(&self, server: u32) -> NonZeroU32 {
        let weight = self.weights[server as usize % self.weights.len()];
        NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN)
    }

    /// Returns the users' requests per nanosecond.
    pub(super) fn rate(&self) -> f64 {
        let capacity: f64 = (0..self.servers).map(|server| self.speed(server)).sum();
        self.rho * capacity / self.service_time.as_nanos() as f64
    }
}

#[cfg(test)]
mod tests;
