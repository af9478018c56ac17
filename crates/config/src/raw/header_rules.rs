//! Changes of the headers of requests and responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OneOrMany, Pairs};

/// Header changes, applied in the order remove, set, add. Headers that frame a message
/// (`content-length`, `transfer-encoding`, `connection`, …) cannot be changed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderRules {
    /// Names to remove.
    pub remove: Option<OneOrMany>,
    /// Name → value; replaces all fields of that name.
    pub set: Option<Pairs<String>>,
    /// Name → value or list of values; appended.
    pub add: Option<Pairs<OneOrMany>>,
}
