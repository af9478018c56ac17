//! Adjusts the settings of services to what is observed of them: `TuningPolicy` (docs/generated.md).
//!
//! [`maglor_service_graph::advise`] computes recommendations, and [`maglor_service_graph::tune`] decides what is
//! changed or rolled back. This module assembles their inputs ([`inputs`]), detects other managers of a Deployment
//! ([`owners`]), and writes changes: to Deployments ([`workload`], [`containers`]), and as `TrafficPolicy`s
//! ([`traffic`]).
//!
//! Each change is recorded in the changed object, together with the previous value ([`workload::Ticket`], and the
//! annotation [`FORMER`]), so that a new leader can roll it back after a crash, and so that changes by others are
//! distinguished from ours. Settings of users always take precedence: a generated `TrafficPolicy` has a lower level
//! than all user-written ones (`index/effective.rs`).

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
/// Annotation of a Deployment with the written and the previous values.
pub const TUNED: &str = maglor_inject::keys::TUNED;
/// Annotation of a generated `TrafficPolicy`: its `spec` before the last change.
pub const FORMER: &str = maglor_inject::keys::FORMER;
/// The field manager of changes: different from that of statuses, so that the origin of a value is visible.
pub const FIELD_MANAGER: &str = "maglor-tuning";

/// Returns a string of a resource.
fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}
