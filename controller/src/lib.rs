//! The control plane: translates resources from Kubernetes, or from a directory, into the configuration of proxies.
//!
//! ```text
//! source: folder, kubernetes ──events──► pipeline: index ──changes──► resource_server: proxies, by xDS
//!                     ▲                             └──statuses──► status_writer, while the lease is held
//!                     └──────────────────────────────────────────────┘
//! ```
//!
//! | module | responsibility |
//! | --- | --- |
//! | [`args`], [`app`] | the program: arguments, start and shutdown |
//! | [`crd`] | the mesh's own resources |
//! | [`source`] | reading resources from a directory or from Kubernetes |
//! | [`index`], [`pipeline`] | translation of objects into resources for proxies; pure |
//! | [`analyze`] | checks of manifests before they are applied |
//! | [`recommended_policy`] | recommendations of Algorithm 2 as a resource |
//! | [`resource_server`] | discovery: which client gets which resources |
//! | `clients` | connection limits of a port |
//! | `encoding_check` | checks that an accepted resource survives encoding and decoding |
//! | [`identity`] | certificates: authentication, authorities and rotation |
//! | [`events`] | events about rejections, attached to the affected objects |
//! | [`status_writer`], [`lease`], [`conditional_writes`] | writes to the API server |
//! | [`graph`] | the communication graph, from proxies' reports |
//! | [`dashboard`] | the web page of a mesh: its data, its sockets, the page and its API |
//! | [`webhook`] | admission webhooks: sidecar injection and validation |
//! | `external_metrics` | the external metrics API: proxies' load, for their autoscalers |
//! | [`gateway`] | proxies that serve Gateways |
//! | `reconcile` | the common part of the operators below: watches, caches, and a queue of units of work |
//! | [`placement`] | moving pods so that few calls leave a node |
//! | [`tuning`] | applying recommendations of Algorithm 2 to running services |
//! | [`proxy_service`] | starting and removing proxies in front of Services |
//!
//! Without the feature `kubernetes`, which is on by default, there are only the modules that a controller of a folder
//! needs, and neither kube nor k8s-openapi is compiled; `cargo xtask demo` builds it so. `cfg(feature)` is only at
//! declarations of whole modules and what is imported from them, and at the derive of kube in [`crd`].
#![cfg_attr(
    not(feature = "kubernetes"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        rustdoc::broken_intra_doc_links,
        reason = "parts that only the modules for Kubernetes use"
    )
)]

mod admin;
#[cfg(feature = "kubernetes")]
pub mod analyze;
#[cfg(test)]
#[cfg(feature = "kubernetes")]
#[path = "../tests/support/api_port.rs"]
mod api_port;
#[cfg(feature = "kubernetes")]
mod api_server;
pub mod app;
pub mod args;
mod clients;
#[cfg(feature = "kubernetes")]
pub mod conditional_writes;
pub mod crd;
pub mod dashboard;
mod discovery_pages;
mod encoding_check;
#[cfg(feature = "kubernetes")]
pub mod events;
#[cfg(feature = "kubernetes")]
mod external_metrics;
#[cfg(test)]
#[cfg(feature = "kubernetes")]
#[allow(dead_code, reason = "each test uses a part of it")]
#[path = "../tests/support/fake_api.rs"]
mod fake_api;
#[cfg(feature = "kubernetes")]
pub mod gateway;
pub mod graph;
mod https;
pub mod identity;
pub mod index;
#[cfg(feature = "kubernetes")]
pub mod lease;
#[cfg(feature = "kubernetes")]
pub mod lifecycle;
mod metrics;
#[cfg(feature = "kubernetes")]
mod missing_kind;
mod names;
mod panics;
pub mod pipeline;
#[cfg(feature = "kubernetes")]
pub mod placement;
#[cfg(feature = "kubernetes")]
mod proxy_pod;
mod proxy_port;
#[cfg(feature = "kubernetes")]
pub mod proxy_service;
mod query;
#[cfg(feature = "kubernetes")]
pub mod recommended_policy;
#[cfg(feature = "kubernetes")]
mod reconcile;
pub mod resource_server;
pub mod revision;
pub mod scope;
pub mod source;
#[cfg(feature = "kubernetes")]
pub mod status_writer;
#[cfg(feature = "kubernetes")]
pub mod tuning;
#[cfg(feature = "kubernetes")]
mod wall_clock;
#[cfg(feature = "kubernetes")]
pub mod webhook;
