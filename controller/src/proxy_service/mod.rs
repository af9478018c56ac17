//! Proxy-Services: proxies of its own in front of a Service (papers/001, III), inserted and taken away
//! without losing a request. docs/proxy-service.md says what it is for.
//!
//! Everything that decides is pure: what has been [`Observed`] of a Service leads to the one next
//! [`Step`] ([`next`]); the operator observes again after it. Nothing is remembered between two steps,
//! so a crash after any of them changes nothing. What a Service's own selector was stands in the
//! Service itself, next to the selector in whose place it is, and in the Service of its endpoints.
//!
//! ```text
//! inserted:   NAME-target Service, policy, account ─► proxies ready ─► selector of NAME: the proxies
//! taken away: selector of NAME: its own ─► no requests to proxies ─► proxies ─► account, policy, NAME-target
//! ```
//!
//! One without a `targetRef` holds for many Services, each of which is inserted and taken away as if it had one of
//! its own; the status of all of them follows from a few lists (`scope.rs`, `survey.rs`).
//!
//! A group of Services shares proxies, each Service on ports of its own: what differs is which proxies are meant
//! (`front.rs`), that a Service's target ports change with its selector (`ports.rs`), and that one leaves while
//! others stay (`leaving.rs`).
//!
//! What is made belongs to the Service (`ownerReferences`), not to the `ProxyService`: a deletion of that
//! one in the foreground would remove the proxies first, while requests still go to them.

mod advisor;
mod api;
mod auto;
mod autoscaler;
mod container;
mod front;
mod leaving;
mod listening;
pub(crate) mod manifests;
mod observed;
mod ports;
mod progress;
mod refusal;
pub mod run;
mod scope;
mod selector;
mod shared;
mod sharing;
mod sidecars;
mod steps;
mod survey;
mod waiting;

pub use crate::index::target_name;
pub use auto::Advice;
pub use front::{Front, SHARED_LABELS};
pub use observed::{Claim, Observed, Rollout};
pub use progress::{Progress, conditions, proxies};
pub use refusal::{Refusal, refusal_of};
pub use scope::{Land, OPT_OUT, holding};
pub use selector::{Selected, Selector, selected};
pub use shared::{Group, contradicts};
pub use steps::{Next, Step, next};

pub use crate::proxy_pod::Settings;

use crate::index::facts::service::PROXIED;

/// The label of all that is made for a Service; its value is the Service's name.
pub const LABEL: &str = PROXIED;
/// The annotation of a Service whose requests go through proxies: its own selector, as JSON.
pub const RECORD: &str = maglor_inject::keys::PROXIED_SELECTOR;
/// Beside it, where the proxies are shared: the Service's own target ports, as JSON.
pub const PORTS_RECORD: &str = maglor_inject::keys::PROXIED_PORTS;
/// A `ProxyService` with it is not gone before its Service is as it was.
pub const FINALIZER: &str = "maglor.dev/proxy-service";
/// Owner of the fields that are applied.
pub const FIELD_MANAGER: &str = "maglor-proxy-service";
