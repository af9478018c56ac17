//! Starts and maintains the proxies of Gateways (Gateway API v1). See docs/gateway.md.
//!
//! For each Gateway of one of the mesh's classes the operator ([`run`]) maintains a ServiceAccount, a Deployment of
//! `maglor-proxy gateway` and a Service ([`manifests`]). Nothing else is written by this module: proxies receive
//! their ports, certificates and routes by discovery, and the status is computed from the index
//! (`index/gateways.rs`).

mod left_over;
pub mod manifests;
pub mod run;

/// The field manager of applied objects.
pub const FIELD_MANAGER: &str = "maglor-gateway";
/// The annotation of a Gateway with the type of its Service: `ClusterIP`, `LoadBalancer`, `NodePort`.
pub const SERVICE_TYPE: &str = maglor_manifests::inject::keys::SERVICE_TYPE;
