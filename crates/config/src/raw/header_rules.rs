//! Changes of the headers of requests and responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{OneOrMany, Pairs};

/// Header changes, applied in the order remove, set, add. Headers that frame a message
/// (`content-length`, `transfer-encoding`, `connection`, …) cannot be changed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderRules {
    /// Names of headers to remove.
    pub remove: Option<OneOrMany>,
    /// Headers to set, name → value; a value replaces all fields of that name.
    pub set: Option<Pairs<String>>,
    /// Headers to append, name → value or list of values.
    pub add: Option<Pairs<OneOrMany>>,
}
