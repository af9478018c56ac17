//! Reads YAML with the position of every value.
//!
//! [`read`] builds a bounded [`tree`] of nodes with positions from `saphyr-parser`'s events, [`scalar`]
//! assigns a type to plain scalars (YAML 1.2, core schema) and [`de`] hands the tree to serde and
//! collects *all* type errors instead of stopping at the first. What this module accepts it reads
//! as `serde_yaml` does; the tests compare the two.
//!
//! Why not `serde_yaml` itself, which writes YAML for us: it stops at the first error, its values
//! have no positions, and it loads a whole document before any bound could apply.
//!
//! Bounded on purpose, because a file may be untrusted: size of the text, nodes after expansion of
//! aliases, nesting.

mod brackets;
mod build;
pub(crate) mod de;
mod error;
mod excerpt;
mod explain;
mod explanation;
mod read;
mod scalar;
mod tree;

pub(crate) use explain::foreign;

pub(crate) use error::{Cause, DecodeError};
pub(crate) use excerpt::short;
pub(crate) use read::MAX_BYTES;
pub(crate) use tree::{Fault, Found, Id, Kind, Place, Tree, join};
