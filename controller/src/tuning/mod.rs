//! Adjusts the settings of services to observations: `TuningPolicy` (docs/generated.md).
//!
//! [`maglor_service_graph::advise`] computes recommendations, and [`maglor_service_graph::tune`] determines what is
//! changed or rolled back. This module assembles their inputs ([`inputs`]), detects other managers of a Deployment
//! ([`owners`]), and writes changes: to Deployments ([`workload`], [`containers`]), and as `TrafficPolicy`s
//! ([`traffic`]).
//!
//! Each change is recorded in the changed object, together with the previous value ([`workload::Ticket`], and the
//! annotation [`FORMER`]), so that a new leader can roll it back after a crash, and so that changes of other writers
//! can be distinguished from those of this controller. Settings of users always take precedence: a generated
//! `TrafficPolicy` has a lower level than all policies written by users (`index/effective.rs`).

mod api;
pub mod containers;
pub mod inputs;
pub mod owners;
pub(crate) mod run;
pub mod status;
pub mod traffic;
pub mod workload;

/// Label or annotation of Deployments and their pods; with the value `disabled` they are not changed.
pub const TUNING: &str = maglor_manifests::inject::keys::TUNING;
/// Annotation of a Deployment that contains the written and the previous values.
pub const TUNED: &str = maglor_manifests::inject::keys::TUNED;
/// Annotation of a generated `TrafficPolicy` that contains its `spec` before the last change.
pub const FORMER: &str = maglor_manifests::inject::keys::FORMER;
/// The field manager of changes. It differs from that of statuses, so that the origin of a value is visible.
pub const FIELD_MANAGER: &str = "maglor-tuning";

/// Returns a JSON value as a string; empty if it is not a string.
fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}
