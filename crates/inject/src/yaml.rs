//! YAML as Kubernetes reads it, and written so that Kubernetes reads the same.
//!
//! `kubectl` and the API server read YAML 1.1 by go-yaml: `0644` is 420, `yes` and `off` are true and false. Libraries for
//! YAML 1.2 take these for texts when they read, and leave out the quotes of `"yes"` when they write. Either way a
//! manifest would come out as another one.
//!
//! - `flow`: brackets that are indented as libyaml takes them; `scalar`: what a word without quotes is; `read`: texts to documents; `write`: values to text.

mod flow;
mod read;
mod scalar;
mod write;

pub use read::{Document, ReadError, documents, items, split, without_nulls};
pub use write::to_string;
