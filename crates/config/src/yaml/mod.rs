//! Reading YAML so that every value knows where it stands.
//!
//! [`tree`] builds a bounded tree of nodes with positions from `saphyr-parser`'s events, [`scalar`]
//! gives plain scalars their type (YAML 1.2, core schema) and [`de`] hands the tree to serde and
//! collects *all* type errors instead of stopping at the first. What this module accepts it reads
//! as `serde_yaml` does; `tests/oracle.rs` compares the two.
//!
//! Bounded on purpose, because a proxy may be given a file by a stranger: size of the text, nodes
//! after expansion of aliases, nesting.

pub(crate) mod de;
mod error;
mod scalar;
mod tree;

pub(crate) use error::{DecodeError, short};
pub(crate) use tree::{Fault, Id, Kind, Place, Tree, join};
