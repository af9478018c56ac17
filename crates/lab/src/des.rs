//! Discrete-event simulation of balancers and servers, driving the proxy's own policies.
//!
//! M balancers, each with a [`Balancer`](maglor_balance::Balancer) of its own, send requests to N
//! servers; a balancer has the same information as the proxy's statistics. Time is virtual: whole
//! nanoseconds, the unit of [`maglor_balance::Time`].
//!
//! * [`Scenario`] describes a simulation; [`Scenario::simulate`] and [`simulate_all`] run it.
//! * `cluster` holds the state and the loop; `cluster/place.rs` assigns requests to servers.
//! * [`Outcome`] holds the results, with confidence intervals over independent runs.
//!
//! Conventions, the same for every policy: a request and its response travel in no time, the
//! messages of a policy take [`Network::delay`] each way, and a rejected request has lost a round
//! trip. So a policy pays for its messages, and one without messages is the model of the paper.
//!
//! Invariant: a run depends only on the scenario, its seed and the run's number. Requests arrive at
//! the same moments with the same work under every policy, because each kind of randomness has a
//! generator of its own.

mod arrivals;
mod cluster;
mod distribution;
mod graph;
mod guards;
mod jobs;
mod nodes;
mod notation;
mod outcome;
mod post;
mod recorder;
mod run;
mod scenario;
mod server;
mod tournament;

pub use arrivals::Arrivals;
pub use distribution::Service;
pub use graph::Graph;
pub use guards::{Faults, Guards};
pub use nodes::Nodes;
pub use outcome::{Estimate, Outcome};
pub(crate) use recorder::Histogram;
pub use run::{simulate_all, threads};
pub use scenario::{
    Antagonist, Change, Disturbance, LEAST_REQUESTS, Network, Proxies, Scenario, ScenarioError,
};
pub use server::Discipline;
