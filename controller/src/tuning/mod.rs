//! Services get what they need, by what is observed of them: `TuningPolicy` (docs/generated.md).
//!
//! [`maglor_service_graph::advise`] computes recommendations, and [`maglor_service_graph::tune`] decides what is
//! changed or rolled back. This module has their inputs ([`inputs`]), other managers of a Deployment ([`owners`]),
//! and what is written: to Deployments ([`workload`], [`containers`]), and as `TrafficPolicy`s ([`traffic`]).
//!
//! What is written is also written down where it is written, with what was there before ([`workload::Ticket`], and
//! the annotation [`FORMER`]), so that a new leader can roll it back after a crash, and so that changes by others are
//! distinguished from ours. Settings of users always take precedence: a generated `TrafficPolicy` is of a level below
//! all that they write (`index/effective.rs`).

mod api;
pub mod containers;
pub mod inputs;
pub mod owners;
pub(crate) mod run;
pub mod status;
pub mod traffic;
pub mod workload;

/// Label or annotation of Deployments and their pods; `disabled`: they are not changed.
pub const TUNING: &str = maglor_inject::keys::TUNING;
/// Annotation of a Deployment: what was written to it, and what was there before.
pub const TUNED: &str = maglor_inject::keys::TUNED;
/// Annotation of a generated `TrafficPolicy`: its `spec` before the last change.
pub const FORMER: &str = maglor_inject::keys::FORMER;
/// Who writes: not who writes statuses, so that it can be seen whose a value is.
pub const FIELD_MANAGER: &str = "maglor-tuning";

/// A word of a resource.
fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}
