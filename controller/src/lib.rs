//! The control plane: from Kubernetes, or from a folder of the same resources, to proxies.

pub mod args;
pub mod crd;
pub mod index;
