//! A pod, its namespace and what is wanted of sidecars: whether the pod gets one, and the pod with it.
//!
//! There are no requests to a cluster. The webhook (`maglor-controller`) and `maglor inject` call the same
//! [`inject`]; what the one admits the other prints. docs/injection.md says what comes out and why.
//!
//! ```
//! use maglor_inject::{Namespace, Outcome, Settings, inject};
//! use serde_json::json;
//!
//! let shop = Namespace { enabled: Some(true), ..Namespace::default() };
//! let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web"}]}});
//! let Ok(Outcome::Injected(injected)) = inject(&pod, &shop, &Settings::default()) else {
//!     panic!("nothing is against it");
//! };
//! assert_eq!(injected.pod["spec"]["initContainers"][1]["name"], "maglor-proxy");
//! ```
//!
//! - [`Settings`]: what holds for all; `annotations`: what a namespace or a pod says otherwise.
//! - `decision`: why a pod gets no sidecar, or is refused; `pod`: how it gets one; `container`: what is added;
//!   `repair`: what other webhooks have changed since.
//! - [`keys`]: all labels and annotations of the mesh; including the detection of misspelt and misplaced ones.
//! - `probe`: the kubelet's questions, which have no mutual TLS.
//! - [`patch`]: the difference, for the API server; [`review`]: its questions; [`manifest`]: files with pods in them,
//!   in YAML as Kubernetes reads it ([`yaml`]).

mod annotations;
mod container;
mod decision;
pub mod keys;
pub mod manifest;
mod patch;
mod pod;
mod probe;
mod quantity;
mod repair;
pub mod review;
mod settings;
pub mod yaml;

pub use annotations::{Namespace, ports};
pub use container::{credentials, mounts, security_context, volumes};
pub use decision::{Refusal, Skip};
pub use patch::patch;
pub use pod::{Injected, Outcome, inject};
pub use quantity::quantity;
pub use settings::{ADMIN_PORT, Form, PROXY_UID, PullPolicy, Redirect, Settings, SettingsError};

/// Annotation of pods that have a sidecar: `true`, or `outbound` where nothing is redirected.
pub const INJECTED: &str = "maglor.dev/injected";
/// Of a pod: the revision of the control plane that injected its sidecar; without it, the default one did.
pub const INJECTED_BY: &str = "maglor.dev/injected-by";
/// Label of namespaces, label or annotation of pods: `enabled` or `disabled`.
pub const INJECT: &str = "maglor.dev/inject";
/// The annotation of pods with the ports that others reach without the sidecar. An injected pod has it also where its
/// namespace or the settings of all said so: who calls has to know.
pub const SKIP_INBOUND_PORTS: &str = "maglor.dev/skip-inbound-ports";
/// The sidecar's container.
pub const PROXY: &str = "maglor-proxy";
/// The container that redirects before anything else runs.
pub const INIT: &str = "maglor-init";
