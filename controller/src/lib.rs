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
//! | [`dashboard`] | the data of the web page, and its sockets |
//! | [`webhook`] | admission webhooks: sidecar injection and validation |
//! | `external_metrics` | the external metrics API: proxies' load, for their autoscalers |
//! | [`gateway`] | proxies that serve Gateways |
//! | `reconcile` | the common part of the operators below: watches, caches, and a queue of units of work |
//! | [`placement`] | moving pods so that few calls leave a node |
//! | [`tuning`] | applying recommendations of Algorithm 2 to running services |
//! | [`proxy_service`] | starting and removing proxies in front of Services |

mod admin;
pub mod analyze;
#[cfg(test)]
#[path = "../tests/support/api_port.rs"]
mod api_port;
mod api_server;
pub mod app;
pub mod args;
mod clients;
pub mod conditional_writes;
pub mod crd;
pub mod dashboard;
mod discovery_pages;
mod encoding_check;
pub mod events;
mod external_metrics;
#[cfg(test)]
#[allow(dead_code, reason = "each test uses a part of it")]
#[path = "../tests/support/fake_api.rs"]
mod fake_api;
pub mod gateway;
pub mod graph;
mod https;
pub mod identity;
pub mod index;
pub mod lease;
pub mod lifecycle;
mod metrics;
mod missing_kind;
mod names;
mod panics;
pub mod pipeline;
pub mod placement;
mod proxy_pod;
mod proxy_port;
pub mod proxy_service;
mod query;
pub mod recommended_policy;
mod reconcile;
pub mod resource_server;
pub mod revision;
pub mod scope;
pub mod source;
pub mod status_writer;
pub mod tuning;
mod wall_clock;
pub mod webhook;
