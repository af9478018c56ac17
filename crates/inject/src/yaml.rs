//! Reads YAML as Kubernetes does, and writes it so that Kubernetes reads the same.
//!
//! `kubectl` and the API server read YAML 1.1 by go-yaml: `0644` is 420, `yes` and `off` are true
//! and false. Libraries for YAML 1.2 read these as texts, and omit the quotes of `"yes"` when they
//! write. Either way the meaning of a manifest would change.
//!
//! - `flow`: brackets that are indented as libyaml accepts them; `scalar`: the type of a word
//!   without quotes; `read`: texts to documents; `write`: values to text.

mod flow;
mod read;
mod scalar;
mod write;

pub use read::{Document, ReadError, documents, items, split, without_nulls};
pub use write::to_string;
