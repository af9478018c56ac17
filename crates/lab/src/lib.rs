//! Queueing models and a discrete-event simulator that drives the proxy's own policies.

pub mod autoscale;
pub mod chart;
pub mod comparison;
pub mod des;
pub mod figures;
pub mod model;
