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
    /// The whole path equals this.
    Exact(String),
    /// The path starts with these whole segments: `/api` matches `/api` and `/api/x`, not `/apix`; `/api/` matches only
    /// `/api/x`.
    Prefix(String),
    /// The whole path matches this expression (anchored at both ends), in linear time.
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
    /// The text contains this.
    Contains(String),
    /// The text equals this.
    Exact(String),
    /// The text starts with this.
    Prefix(String),
    /// The text is present, with any value.
    Present,
    /// The whole text matches this expression (anchored at both ends).
    Regex(Regex),
    /// The text ends with this.
    Suffix(String),
}

/// A condition on a header; several fields of the same name are compared as one value, joined by `,`.
#[derive(Clone, Debug)]
pub struct HeaderMatch {
    /// The name of the header.
    pub name: HeaderName,
    /// The condition on the value of the header; an absent header matches only an inverted condition.
    pub value: StringMatch,
    /// Whether the condition is inverted.
    pub invert: bool,
}

/// A condition on a query parameter (its first value, percent-decoded).
#[derive(Clone, Debug)]
pub struct QueryMatch {
    /// The name of the parameter, percent-decoded and case-sensitive.
    pub name: String,
    /// The condition on the value of the parameter.
    pub value: StringMatch,
    /// Whether the condition is inverted.
    pub invert: bool,
}
