//! Kubernetes manifests, converted without a cluster.
//!
//! - [`inject`]: adds a sidecar to a pod; the webhook and `maglor inject` call it. It also has what this needs of a
//!   manifest: YAML as Kubernetes reads it, and all labels and annotations of the mesh.
//! - [`istio`]: translates Istio's resources into the proxy's configuration, and back.
//!
//! Everything is a pure function of its arguments.

pub mod inject;
pub mod istio;
