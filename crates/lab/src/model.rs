//! The queueing model of least outstanding requests at many balancers: the paper's, and ours.
//!
//! `M` balancers send Poisson streams to `N` servers. A balancer draws `d` servers with replacement
//! and takes the one with the fewest requests of its own outstanding. [`System`] holds the
//! validated parameters; a latency is in mean service times, so that multiplying by `Ts` results in
//! any unit (paper, below Eq. 8).
//!
//! * [`System::paper`]: Eq. 3–8 of the paper "Critical Limitations of the Least Outstanding Request
//!   Load Balancing policy". It approximates the other balancers' requests at a server by their
//!   mean, and overestimates (paper, note 6).
//! * [`System::corrected`]: ours. With many servers exact, because a server's queue has a product
//!   form; with a finite number of servers an estimate that is exact at the ends. Derivation:
//!   docs/model.md.
//! * [`System::random`]: the limit of both with more balancers (Theorem 1).
//! * [`classic`]: textbook queues, for verification.

pub mod classic;

mod equilibrium;
mod finite;
mod latency;
mod linear;
mod many_servers;
mod paper;
mod product_form;
mod system;

pub use paper::Paper;
pub use system::{Error, System};
