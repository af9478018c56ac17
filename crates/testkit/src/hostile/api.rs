//! Requests of an API server, and of others in its place: reviews for the webhook, queries for
//! external metrics.
//!
//! The first word of a case's group is the path for bodies of the webhook (`validate`, `keys`,
//! `inject/namespace`, `inject/pod`); the case is the body. A case of a group that begins with
//! `request` is a whole request, except for its `content-length` if it has a body. The outcomes are
//! those of a port.

use super::Case;

/// Returns the request of a case for the webhook.
#[must_use]
pub fn review(case: &Case) -> Vec<u8> {
    let group = case.name.split([' ']).next().unwrap_or_default();
    if group == "request" {
        return case.bytes();
    }
    let body = case.bytes();
    let head = format!(
        "POST /{group} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

/// Returns the path and the body of a case for the webhook; `None` if it is a whole request.
#[must_use]
pub fn review_parts(case: &Case) -> Option<(String, Vec<u8>)> {
    let group = case.name.split([' ']).next().unwrap_or_default();
    (group != "request").then(|| (format!("/{group}"), case.bytes()))
}
