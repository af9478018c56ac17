//! An emulated application: many servers in one process that take time but no processor.
//!
//! The services, their costs and their calls are read from a file of µBench (Detti, Funari and
//! Petrucci, "µBench: An Open-Source Factory of Benchmark Microservice Applications", 2023):
//! [`WorkModel`]. The addresses of their instances, and the proxies of their calls, are in a second
//! file: [`Deployment`].
//!
//! An instance is a FIFO queue with c workers whose clock is virtual ([`Queue`]): the end of a
//! request's work is known when it arrives, so a late timer makes one response late and no queue
//! longer. When its work has ended, a request makes the calls of the model, groups concurrently and
//! the services of a group one after another, without holding a worker; then it is answered.
//!
//! ```text
//! server ──► instance ──► queue, fault ──► clock ──► caller ──► the next service, by its proxy
//!            control: counts of every instance, faults on demand
//! ```
//!
//! A response contains in `x-exact-us` the time taken by queues alone, so that the overhead of
//! proxies and sockets is known for each request.
//!
//! HTTP/1.1 and HTTP/2 with prior knowledge are served on the same port. Unlike the rest of this
//! crate, nothing here panics on invalid input.

mod caller;
mod control;
mod cpu_quota;
mod deployment;
mod distribution;
mod error;
mod fault;
mod instance;
mod queue;
mod run;
mod server;
mod workmodel;

pub use caller::{Answered, CallError, Caller};
pub use cpu_quota::CpuQuota;
pub use deployment::{Deployment, Placed};
pub use distribution::{Shape, Work};
pub use error::AppError;
pub use fault::Fault;
pub use instance::Counts;
pub use queue::Queue;
pub use run::{Options, run};
pub use workmodel::{Group, Service, WorkModel, WorkModelError};
