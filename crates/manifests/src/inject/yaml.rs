//! Reads YAML as Kubernetes does, and writes it so that Kubernetes reads the same values.
//!
//! `kubectl` and the API server read YAML 1.1 with go-yaml: `0644` is 420, `yes` is true, and `off` is false. Libraries
//! for YAML 1.2 read these words as strings, and omit the quotes of `"yes"` when they write. Both would change the
//! meaning of a manifest.
//!
//! - `flow`: brackets with indentation that libyaml accepts; `scalar`: the type of an unquoted word; `read`: from text
//!   to documents; `write`: from values to text.

mod flow;
mod read;
mod scalar;
mod write;

pub use read::{Document, ReadError, documents, items, split, without_nulls};
pub use write::to_string;
