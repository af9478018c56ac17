//! Conditions on requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{NotationError, OneOrMany, Short, Shorthand};

/// Conditions on a request; all must match.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RouteMatch {
    /// Path without query; a string is a prefix. Default: any path.
    pub path: Option<Short<PathMatch>>,
    /// HTTP method, or a list of them. Default: any method.
    pub methods: Option<OneOrMany>,
    /// Conditions on headers; all must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
    /// Conditions on query parameters; all must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<QueryMatch>,
    /// Whether to match only gRPC requests (`content-type: application/grpc…`).
    #[schemars(extend("default" = false))]
    pub grpc: Option<bool>,
}

/// A condition on the path; exactly one of the fields.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PathMatch {
    /// The whole path equals this.
    pub exact: Option<String>,
    /// The path starts with these whole segments: `/api` matches `/api` and `/api/x`, not `/apix`; `/api/` matches only
    /// `/api/x`.
    pub prefix: Option<String>,
    /// The whole path matches this regular expression (linear time; no look-around).
    pub regex: Option<String>,
}

impl Shorthand for PathMatch {
    const TEXT: &'static str = "a path prefix such as `/api`";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        Ok(Self {
            prefix: Some(text.to_owned()),
            ..Self::default()
        })
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self {
                exact: None,
                prefix: Some(prefix),
                regex: None,
            } => Some(prefix),
            _ => None,
        }
    }
}

/// A condition on a header; exactly one of `exact`, `prefix`, `suffix`, `contains`, `regex`, `present`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub struct HeaderMatch {
    /// Name of the header; several fields of this name are compared as one value, joined by `,`.
    pub name: Option<String>,
    /// The value equals this.
    pub exact: Option<String>,
    /// The value starts with this.
    pub prefix: Option<String>,
    /// The value ends with this.
    pub suffix: Option<String>,
    /// The value contains this.
    pub contains: Option<String>,
    /// The whole value matches this regular expression.
    pub regex: Option<String>,
    /// Whether the header must be present (`true`) or absent (`false`).
    pub present: Option<bool>,
    /// Whether to invert the condition. An absent header satisfies an inverted condition.
    #[schemars(extend("default" = false))]
    pub invert: Option<bool>,
}

/// A condition on a query parameter; exactly one of `exact`, `prefix`, `suffix`, `contains`, `regex`, `present`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub struct QueryMatch {
    /// Name of the parameter, percent-decoded and case-sensitive; only its first value is compared.
    pub name: Option<String>,
    /// The value equals this.
    pub exact: Option<String>,
    /// The value starts with this.
    pub prefix: Option<String>,
    /// The value ends with this.
    pub suffix: Option<String>,
    /// The value contains this.
    pub contains: Option<String>,
    /// The whole value matches this regular expression.
    pub regex: Option<String>,
    /// Whether the parameter must be present (`true`) or absent (`false`).
    pub present: Option<bool>,
    /// Whether to invert the condition.
    #[schemars(extend("default" = false))]
    pub invert: Option<bool>,
}

/// Common fields of conditions on headers and query parameters.
#[derive(Clone, Copy, Debug)]
pub struct StringMatch<'a> {
    /// The value equals this.
    pub exact: Option<&'a str>,
    /// The value starts with this.
    pub prefix: Option<&'a str>,
    /// The value ends with this.
    pub suffix: Option<&'a str>,
    /// The value contains this.
    pub contains: Option<&'a str>,
    /// The whole value matches this regular expression.
    pub regex: Option<&'a str>,
    /// Whether the value must be present (`true`) or absent (`false`).
    pub present: Option<bool>,
    /// Whether to invert the condition.
    pub invert: bool,
}

macro_rules! string_match {
    ($type:ty) => {
        impl $type {
            /// Returns the condition on the value.
            #[must_use]
            pub fn value(&self) -> StringMatch<'_> {
                StringMatch {
                    exact: self.exact.as_deref(),
                    prefix: self.prefix.as_deref(),
                    suffix: self.suffix.as_deref(),
                    contains: self.contains.as_deref(),
                    regex: self.regex.as_deref(),
                    present: self.present,
                    invert: self.invert.unwrap_or(false),
                }
            }
        }
    };
}

string_match!(HeaderMatch);
string_match!(QueryMatch);
