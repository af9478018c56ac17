//! Whole-process comparison of Maglor with its peers, and room for micro benches.
//!
//! One command, `compare`, in the order things happen:
//! [`options`] what was asked → [`peer`] find, configure and start a proxy → [`scenario`] the
//! list of cells → [`measure`] run them in alternating rounds → [`report`] write them down.
//! The same binary re-executes itself as [`load`] generator, as [`origin`] server, which
//! share the codecs in [`wire`], and as the bare [`forward`]er that all are held against. [`sys`] is the only file with unsafe code.
//!
//! Another command, [`resilience`], asks what failures, overload and restarts do, a third one,
//! [`mesh`], repeats the experiments on whole applications behind many proxies, [`distribution`]
//! measures the controller, and [`place`] what it is worth where replicas run. [`hostile`] compares no speed: it runs
//! the kept hostile suite beside the peers.

mod bar;
mod chart;
pub mod child;
pub mod compare;
pub mod distribution;
pub mod error;
pub mod forward;
pub mod histogram;
pub mod hostile;
pub mod load;
pub mod measure;
pub mod mesh;
pub mod options;
pub mod origin;
pub mod peer;
pub mod place;
pub mod ports;
pub mod procfs;
pub mod report;
pub mod resilience;
pub mod scenario;
pub mod stats;
pub mod sys;
pub mod wire;

pub use error::{Error, Result};
