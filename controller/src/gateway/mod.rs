//! Gateways (Gateway API v1): the proxies that serve them. docs/gateway.md says what they do.
//!
//! For each Gateway of one of our classes the operator ([`run`]) keeps a ServiceAccount, a Deployment of
//! `maglor-proxy gateway` and a Service ([`manifests`]). Nothing else is written here: which ports there are, with
//! which certificates and routes, proxies receive by discovery, and the status follows from what the index knows
//! (`index/gateways.rs`).

mod left_over;
pub mod manifests;
pub mod run;

/// Owner of the fields that are applied.
pub const FIELD_MANAGER: &str = "maglor-gateway";
/// The annotation of a Gateway that says of which type its Service is: `ClusterIP`, `LoadBalancer`, `NodePort`.
pub const SERVICE_TYPE: &str = maglor_inject::keys::SERVICE_TYPE;
