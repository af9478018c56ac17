//! Conditions on requests.

use http::{HeaderName, Method};
use regex::Regex;

/// Conditions on a request; all must hold.
#[derive(Clone, Debug, Default)]
pub struct RouteMatch {
    /// The condition on the path, without query.
    pub path: PathMatch,
    /// The methods; empty = any.
    pub methods: Vec<Method>,
    /// The conditions on headers; all must hold.
    pub headers: Vec<HeaderMatch>,
    /// The conditions on query parameters; all must hold.
    pub query: Vec<QueryMatch>,
    /// Whether only gRPC requests match (`content-type: application/grpc…`).
    pub grpc: bool,
}

/// A condition on the path.
#[derive(Clone, Debug)]
pub enum PathMatch {
    /// The whole path.
    Exact(String),
    /// Whole segments: `/api` matches `/api` and `/api/x`, not `/apix`; `/api/` only `/api/x`.
    Prefix(String),
    /// The whole path matches (anchored at both ends). Linear time.
    Regex(Regex),
}

impl Default for PathMatch {
    fn default() -> Self {
        Self::Prefix("/".into())
    }
}

/// A condition on a text.
#[derive(Clone, Debug)]
pub enum StringMatch {
    /// Contains this.
    Contains(String),
    /// Equals this.
    Exact(String),
    /// Starts with this.
    Prefix(String),
    /// Is present, with any value.
    Present,
    /// The whole text matches (anchored at both ends).
    Regex(Regex),
    /// Ends with this.
    Suffix(String),
}

/// A condition on a header; several fields of one name are compared joined by `,`.
#[derive(Clone, Debug)]
pub struct HeaderMatch {
    /// The name of the header.
    pub name: HeaderName,
    /// The condition on its value; an absent header matches only an inverted condition.
    pub value: StringMatch,
    /// Whether the condition must not hold.
    pub invert: bool,
}

/// A condition on a query parameter (its first value, percent-decoded).
#[derive(Clone, Debug)]
pub struct QueryMatch {
    /// The name of the parameter, decoded, case-sensitive.
    pub name: String,
    /// The condition on its value.
    pub value: StringMatch,
    /// Whether the condition must not hold.
    pub invert: bool,
}
