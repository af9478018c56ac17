//! Suggestions for unknown fields, values of a wrong type, and terms of other proxies.
//!
//! Nothing here affects whether a configuration is valid. Suggestions are looked up after an error was found, from the
//! text around it.

pub(crate) mod choices;
pub(crate) mod fields;
pub(crate) mod foreign;
pub(crate) mod foreign_terms;
pub(crate) mod shapes;
mod values;

use self::fields::{Context, for_field};
use crate::yaml::{Cause, DecodeError, Found, Id, Tree};

/// Returns the help for an error, derived from the text around it; `None` if there is nothing to add to the help of the
/// error itself.
pub(crate) fn refine(tree: &Tree, error: &DecodeError) -> Option<String> {
    let node = error.node()?;
    match error.cause() {
        Cause::Field(known) => {
            let (entries, value) = tree.pair_of(node)?;
            let scalar = |id: Id| tree.text(id);
            let context = Context {
                value: scalar(value),
                siblings: entries
                    .iter()
                    .filter(|(key, _)| *key != node)
                    .filter_map(|(key, value)| Some((scalar(*key)?, scalar(*value)?)))
                    .collect(),
            };
            for_field(tree.text(node)?, known, &context)
        }
        Cause::Type(expected) => {
            let found = Found::of(tree, node);
            values::for_value(&error.path(), expected, &found)
        }
        Cause::Other => tree.text(node).and_then(shapes::template),
    }
}
