//! A real Kubernetes cluster of several nodes on one Linux machine: etcd, API server, controllers,
//! scheduler, and on every node containerd, kubelet and kube-proxy. For development only;
//! docs/cluster.md describes its use.
//!
//! Only Go modules and the system's packages are downloaded, and nothing is left behind: each
//! machine is a set of namespaces that the kernel removes with everything in it.
//!
//! ```no_run
//! use maglor_testkit::cluster::{Cluster, Options};
//!
//! let cluster = Cluster::start(Options::default())?;
//! println!("{}", cluster.kubectl().run(&["get", "nodes"])?);
//! cluster.stop()?;
//! # Ok::<(), maglor_testkit::cluster::ClusterError>(())
//! ```
//!
//! # Layout
//!
//! - [`Options`]: the options of a cluster; [`Cluster`]: the start of all parts in order, and their
//!   end.
//! - `machine`, `process`, `cgroup`: namespaces owned by a value; programs in them; the control
//!   groups that must be removed separately.
//! - `addresses`, `network`, `delay`, `relay`: addresses, and the connections between machines.
//! - `control`, `node`, `credentials`: the programs of Kubernetes, their configuration and
//!   permissions.
//! - `programs`: builds of third-party programs; [`static_program`]: ours; [`Image`]: their images
//!   for nodes.
//! - [`state`], [`command`]: a cluster that outlives the command that starts it.
//! - `fault`: fault injection; [`Forward`]: a port of a pod; `pod`: its network.
//! - [`scale`]: objects that only exist in the API; `conformance`: the Gateway API's suite.

#![deny(clippy::unwrap_used, clippy::panic, reason = "a program, too")]

mod addresses;
mod binaries;
mod cgroup;
pub mod command;
mod conformance;
mod control;
mod credentials;
mod delay;
mod error;
mod fault;
mod forward;
mod image;
mod kubectl;
mod lifecycle;
mod machine;
mod network;
mod node;
mod options;
mod pod;
mod process;
mod programs;
mod relay;
pub mod scale;
pub mod state;
mod wait;

pub use binaries::static_program;
pub use conformance::definitions as gateway_definitions;
pub use delay::TUN as DELAY_DEVICE;
pub use error::ClusterError;
pub use forward::Forward;
pub use image::Image;
pub use kubectl::Kubectl;
pub use lifecycle::Cluster;
pub use machine::Machine;
pub use options::Options;
pub use programs::{helm, jaeger, prometheus, streams};
