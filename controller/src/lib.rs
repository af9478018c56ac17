//! The control plane: from Kubernetes, or from a folder of the same resources, to proxies.
//!
//! ```text
//! source: folder, kubernetes ──events──► pipeline: index ──changes──► serve: proxies, by xDS
//!                     ▲                             └──statuses──► status, under the lease
//!                     └──────────────────────────────────────────────┘
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`args`], [`app`] | the program: arguments, start and end |
//! | [`crd`] | the mesh's own resources |
//! | [`source`] | where resources come from |
//! | [`index`], [`pipeline`] | from objects to resources for proxies; pure |
//! | [`analyze`] | what would become of resources that are still files |
//! | [`generated`] | what Algorithm 2 advises, as a resource |
//! | [`serve`] | which client gets which resources |
//! | `clients` | how much the clients of a port can use |
//! | `wire` | whether what is accepted can be encoded, and is read back as it was meant |
//! | [`identity`] | who is certified, and by which authority |
//! | [`events`] | events about rejections, at the objects concerned |
//! | [`status`], [`lease`], [`writes`] | what is written back, by which replica, and under which precondition |
//! | [`graph`] | who calls whom, from proxies' reports: the communication graph |
//! | [`webhook`] | what the API server asks before it stores something: sidecars, checks |
//! | `external_metrics` | what the API server asks of proxies' load, for their autoscalers |
//! | [`gateway`] | proxies that serve Gateways |
//! | [`placement`] | services where few of their calls leave a node: how pods move |
//! | [`tuning`] | what Algorithm 2 advises, carried out on what runs |
//! | [`proxy_service`] | proxies in front of Services: how they come and go |

mod admin;
pub mod analyze;
mod api_server;
pub mod app;
pub mod args;
mod clients;
pub mod crd;
mod epoch;
pub mod events;
mod external_metrics;
pub mod gateway;
pub mod generated;
pub mod graph;
mod https;
pub mod identity;
pub mod index;
pub mod lease;
pub mod lifecycle;
mod metrics;
mod names;
mod operate;
mod panics;
pub mod pipeline;
pub mod placement;
mod port;
mod proxy_pod;
pub mod proxy_service;
mod query;
pub mod revision;
pub mod scope;
pub mod serve;
mod shown;
pub mod source;
pub mod status;
pub mod tuning;
pub mod webhook;
mod wire;
pub mod writes;
