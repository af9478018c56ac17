//! Proxy-Services: dedicated proxies in front of a Service (papers/001, III), inserted and removed without losing a
//! request. See docs/proxy-service.md.
//!
//! All decisions are pure: the observed state of a Service ([`Observed`]) determines the next [`Step`] ([`next`]),
//! after which the operator observes again. No state is kept between steps, so a crash after any step is harmless.
//! The Service's own selector is recorded in the Service itself, next to the selector that replaces it, and in the
//! target Service (`NAME-target`), which selects the Service's own endpoints.
//!
//! ```text
//! inserted:   NAME-target Service, policy, account ─► proxies ready ─► selector of NAME: the proxies
//! removed: selector of NAME: its own ─► no requests to proxies ─► proxies ─► account, policy, NAME-target
//! ```
//!
//! A `ProxyService` without a `targetRef` applies to many Services, each of which is handled as if it had its own
//! `ProxyService`; the states of all of them are computed from a few lists (`scope.rs`, `survey.rs`).
//!
//! A group of Services shares proxies, in which each Service has separate ports. There are three differences: the
//! owner of the proxies (`front.rs`), the Service's target ports, which change with its selector (`ports.rs`), and
//! the removal of a Service while others stay (`leaving.rs`).
//!
//! The created objects belong to the Service (`ownerReferences`), not to the `ProxyService`: deleting the latter in
//! the foreground would remove the proxies first, while they still receive requests.

mod advisor;
mod api;
mod auto;
mod autoscaler;
mod claim;
mod container;
mod fields;
mod front;
mod group;
mod kind;
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
mod watched;

pub use crate::index::target_name;
pub use auto::Advice;
pub use claim::Claim;
pub use front::{Front, SHARED_LABELS, Selector};
pub use group::{Group, contradicts};
pub use observed::{Observed, Rollout};
pub use progress::{Progress, conditions, proxies};
pub use refusal::{Refusal, refusal_of};
pub use scope::{Land, OPT_OUT, holding};
pub use selector::{Selected, selected};
pub use steps::{Next, Step, next};

pub use crate::proxy_pod::Settings;

use crate::index::facts::service::PROXIED;

/// The label of all objects created for a Service; its value is the Service's name.
pub const LABEL: &str = PROXIED;
/// The annotation of a Service whose requests go through proxies. It contains the Service's own selector as JSON.
pub const RECORD: &str = maglor_manifests::inject::keys::PROXIED_SELECTOR;
/// The annotation of a Service with shared proxies. It contains the Service's own target ports as JSON.
pub const PORTS_RECORD: &str = maglor_manifests::inject::keys::PROXIED_PORTS;
/// The finalizer of a `ProxyService`, which must not be deleted before its Service is restored.
pub const FINALIZER: &str = "maglor.dev/proxy-service";
/// The field manager of applied objects.
pub const FIELD_MANAGER: &str = "maglor-proxy-service";
