//! Reads YAML with the position of every value.
//!
//! [`read`] builds a bounded [`tree`] of nodes with positions from `saphyr-parser`'s events, [`scalar`] assigns a type
//! to plain scalars (YAML 1.2, core schema), and [`de`] hands the tree to serde and collects *all* type errors instead
//! of stopping at the first. Texts that this module accepts are read as `serde_yaml` reads them; tests compare the two.
//!
//! `serde_yaml`, which writes our YAML, is not used for reading: it stops at the first error, its values have no
//! positions, and it loads a whole document before any bound could apply.
//!
//! Since a file may be untrusted, there are bounds on the size of the text, the number of nodes after expansion of
//! aliases, and the nesting.

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
