//! Load balancing decisions of the data plane: which endpoint gets a request. Pure: no I/O, no
//! clock, no global randomness, so that the simulator runs exactly the code of the proxy.
//!
//! Four ideas:
//!
//! * A [`View`] is an immutable set of the endpoints that may be picked now, with their shares: membership, health,
//!   priority level, locality weights, panic, slow start. It is rebuilt off the hot path when one of them changes.
//! * A [`Policy`] picks one endpoint of a view. It is built from a [`PolicySpec`] (`lor(choices=2)`), with its tables,
//!   for one view; [`Balancer`] keeps the two together.
//! * [`EndpointStats`] is the feedback: an [`Outstanding`] guard counts a request from the pick to the end of the
//!   response body. It is shared and outlives views.
//!
//! * [`queue_protocol`] defines the messages of balancers, servers and ledgers, for policies that use the true queues:
//!   a [`Decision`](queue_protocol::Decision) proceeds from [`Step`](queue_protocol::Step) to step.
//!
//! Protection against cascading failures (retries and their budget, outlier ejection, breakers,
//! limits) is in [`guard`].
//!
//! Time and randomness are arguments: [`Time`] and [`Rng`].
//!
//! ```
//! use maglor_balance::{Balancer, Endpoint, PickCtx, Rng, PolicySpec, Time, ViewParams};
//!
//! let spec: PolicySpec = "lor(choices=2)".parse()?;
//! let endpoints = vec![Endpoint::new("10.0.0.1:8080"), Endpoint::new("10.0.0.2:8080")];
//! let now = Time::ZERO;
//! let balancer = Balancer::build(&spec, endpoints, &ViewParams::default(), now)?;
//!
//! let mut rng = Rng::seed(1);
//! if let Some(index) = balancer.pick(&PickCtx::new(now), &mut rng) {
//!     let endpoint = balancer.view().endpoint(index).expect("picked from this view");
//!     let outstanding = endpoint.stats.begin(now);
//!     // … send the request, stream the response …
//!     outstanding.finish(now);
//! }
//! # Ok::<(), maglor_balance::SpecError>(())
//! ```

mod balancer;
mod endpoint;
mod ewma;
pub mod guard;
mod hash;
mod index;
mod pick_context;
mod policy;
mod prime;
pub mod queue_protocol;
mod rng;
mod sync;
mod time;
mod usual_duration;
mod view;
mod weighted_load;

pub use balancer::Balancer;
pub use endpoint::{Endpoint, EndpointStats, Outstanding};
pub use hash::{combine, hash_bytes};
pub use policy::fallback::{Fallback, FallbackPlan};
pub use policy::maglev::MaglevParams;
pub use policy::peak_ewma::PeakEwmaParams;
pub use policy::ring_hash::RingHashParams;
pub use policy::spec::{
    Form, Parameter, Parameters, PolicySpec, SpecError, UnevenShares, WrittenParameters, named,
};
pub use policy::subset::SubsetParams;
pub use policy::{BuildPolicy, Choices, Excluded, Index, PickCtx, Policy, SharedTables};
pub use rng::Rng;
pub use time::Time;
pub use usual_duration::Usual;
pub use view::{Locality, LocalityWeights, SlowStart, View, ViewParams};
