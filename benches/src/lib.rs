//! Whole-process comparison of Maglor with its peers, and micro benchmarks.
//!
//! The modules of the command `compare`, in the order of execution: [`options`] the command line →
//! `peer` finds, configures and starts a proxy → `scenario` the list of cells → `measure`
//! runs them in alternating rounds → `report` writes them. `redirection` is the network of comparisons with
//! linkerd2-proxy, [`linkerd`] the control plane that it needs. The same binary re-executes itself as
//! [`load`] generator, as [`origin`] server, which share the codecs in `http_codec`, and as the bare
//! [`forward`]er, the lower bound of all. `sys` is the only file with unsafe code.
//!
//! A second command, [`resilience`], measures the effect of failures, overload and restarts, a
//! third one, [`mesh`], repeats the experiments on whole applications behind many proxies,
//! [`distribution`] measures the controller, [`control_planes`] compares it with those of other meshes, [`place`]
//! measures the effect of the placement of replicas, and [`users`] compares meshes under an application of others.
//! [`hostile`] does not measure speed: it runs the hostile suite with the peers.

mod bar;
mod chart;
mod child;
pub mod compare;
pub mod control_planes;
mod cpu_quota;
pub mod distribution;
mod error;
pub mod forward;
pub mod hostile;
mod http;
mod http_codec;
mod kubernetes;
pub mod linkerd;
pub mod load;
mod measure;
pub mod mesh;
pub mod options;
pub mod origin;
mod peer;
pub mod place;
mod ports;
mod procfs;
mod redirection;
mod report;
pub mod resilience;
mod scenario;
mod stats;
mod sys;
pub mod users;

pub use error::{Error, Result};
