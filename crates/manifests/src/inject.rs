//! Sidecar injection as a pure function of a pod, its namespace and the sidecar settings.
//!
//! Nothing here accesses a cluster. The webhook (`maglor-controller`) and `maglor inject` call the
//! same [`inject`]: the webhook returns the result to the API server, the command prints it.
//! docs/injection.md describes the result and its reasons.
//!
//! ```
//! use maglor_manifests::inject::{Namespace, Outcome, Settings, inject};
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
//! - [`Settings`]: the defaults of all sidecars; `annotations`: the overrides of a namespace or a
//!   pod.
//! - `decide`: whether a pod gets a sidecar, and the injection; `outcome`: the result, or why there
//!   is none; `container`: the added containers and volumes; `repair`: adapts changes of other webhooks.
//! - [`keys`]: all labels and annotations of the mesh; including the detection of misspelt and
//!   misplaced ones.
//! - `probe`: the kubelet's probes, which have no mutual TLS.
//! - [`patch`]: the difference, for the API server; [`review`]: its admission reviews;
//!   [`manifest`]: files with pods, in YAML as Kubernetes reads it ([`yaml`]).

mod annotations;
mod container;
mod injection;
mod json_patch;
pub mod keys;
pub mod manifest;
mod outcome;
mod pod_spec;
mod probe;
mod quantity;
mod repair;
pub mod review;
mod settings;
mod skipped;
mod template;
pub mod yaml;

pub use annotations::Namespace;
pub use container::{credentials, mounts, security_context, volumes};
pub use injection::{inject, prometheus_annotations};
pub use json_patch::patch;
pub use outcome::{Injected, Outcome, Refusal, Skip};
pub use quantity::quantity;
pub use settings::{
    ADMIN_PORT, ADMIN_PORT_NAME, Form, PROXY_UID, PullPolicy, Redirect, Settings, SettingsError,
};
pub use skipped::ports;

/// The annotation of pods that have a sidecar: `true`, or `outbound` if connections are not redirected.
pub const INJECTED: &str = "maglor.dev/injected";
/// The annotation of pods with the revision of the control plane that injected their sidecar; absent = the default
/// revision.
pub const INJECTED_BY: &str = "maglor.dev/injected-by";
/// The label of namespaces, and label or annotation of pods: `enabled` or `disabled`.
pub const INJECT: &str = "maglor.dev/inject";
/// The annotation of pods with the ports that clients reach without the sidecar. If the ports are configured by the
/// namespace or globally, the annotation is also written to injected pods, because clients read it there.
pub const SKIP_INBOUND_PORTS: &str = "maglor.dev/skip-inbound-ports";
/// The name of the sidecar's container.
pub const PROXY: &str = "maglor-proxy";
/// The name of the init container that redirects connections before anything else runs.
pub const INIT: &str = "maglor-init";
