//! Services get what they need, by what is observed of them: `TuningPolicy` (docs/generated.md).
//!
//! What is advised is [`maglor_mcg::advise`]'s to say, and what of it is set now, or taken back,
//! [`maglor_mcg::tune`]'s. Here is what they see ([`inputs`]), who else decides about a Deployment ([`owners`]), and
//! what is written: to Deployments ([`workload`], [`containers`]), and as `TrafficPolicy`s ([`traffic`]).
//!
//! What is written is also written down where it is written, with what was there before ([`workload::Ticket`], and
//! the annotation [`FORMER`]), so that it can be taken back by whoever comes after a crash, and so that what somebody
//! else has changed since is told from what is ours. What people say of a Service holds in any case: a generated
//! `TrafficPolicy` is of a level below all that they write (`index/effective.rs`).

mod api;
pub mod containers;
pub mod inputs;
pub mod owners;
pub(crate) mod run;
pub mod status;
pub mod traffic;
pub mod workload;

/// Label or annotation of Deployments and their pods; `disabled`: they are left alone.
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
