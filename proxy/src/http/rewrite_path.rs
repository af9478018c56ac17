//! Normalization and rewriting of a request's path, and the locations of redirects.
//!
//! Paths are normalized before they are routed (RFC 3986 §6.2.2): a rule for `/admin` cannot be evaded by
//! `/x/../admin` or `/%61dmin`, and the endpoint gets the path to which the rule was applied.

use std::borrow::Cow;

use maglor_config::listener::PathNormalization;
use maglor_config::route::{Forward, PathRewrite, Redirect, RedirectPath};

use super::client::Client;
use crate::protocol::error::ProxyError;
use crate::protocol::http1::HeadError;
use crate::protocol::message::Request;
use crate::protocol::proxy_protocol::Addresses;
use crate::routing::route::Route;

/// Applies a route's path rewrite.
pub(crate) fn path(
    request: &mut Request,
    forward: &Forward,
    route: &Route,
) -> Result<(), ProxyError> {
    let Some(rewrite) = &forward.path_rewrite else {
        return Ok(());
    };
    let old = path_of(request);
    let new = match rewrite {
        PathRewrite::Full(path) => path.clone(),
        PathRewrite::Prefix(prefix) => replace_prefix(&old, route.matched_prefix(), prefix),
        PathRewrite::Regex(regex, with) => regex.replace_all(&old, with.as_str()).into_owned(),
    };
    // A substitution may produce an invalid path from the client's input.
    if !new.starts_with('/')
        || !new
            .bytes()
            .all(|b| b > b' ' && !matches!(b, 0x7f | b'?' | b'#'))
    {
        return Err(bad_target());
    }
    let target = with_query(new.into_bytes(), request.query());
    request.set_path_and_query(&target);
    Ok(())
}

/// Returns the path to be rewritten; it is empty if the target is the server as a whole (RFC 9112 §3.2.4).
fn path_of(request: &Request) -> Cow<'_, str> {
    match request.path() {
        b"*" => Cow::Borrowed(""),
        path => String::from_utf8_lossy(path),
    }
}

fn bad_target() -> ProxyError {
    ProxyError::DownstreamHead(HeadError::Target)
}

/// Joins a path and a query into a target.
fn with_query(path: Vec<u8>, query: Option<&[u8]>) -> Vec<u8> {
    let mut target = path;
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}

/// Replaces the matched prefix so that exactly one slash separates the parts.
fn replace_prefix(path: &str, prefix: &str, with: &str) -> String {
    let rest = path.strip_prefix(prefix).unwrap_or(path);
    let with = with.strip_suffix('/').unwrap_or(with);
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    if rest.is_empty() && !with.is_empty() && !path.ends_with('/') {
        return with.to_owned();
    }
    format!("{with}/{rest}")
}

/// Returns the `location` of a redirect.
pub(crate) fn location(
    redirect: &Redirect,
    route: &Route,
    request: &Request,
    (client, ends): (&Client, Option<Addresses>),
) -> Vec<u8> {
    let scheme = redirect.scheme.as_deref().unwrap_or(client.scheme());
    // A request without a host uses the destination address.
    let authority = match request.host().filter(|host| !host.is_empty()) {
        Some(host) => String::from_utf8_lossy(host),
        None => ends.map_or(Cow::Borrowed("localhost"), |ends| {
            Cow::Owned(ends.destination.to_string())
        }),
    };
    let (own_host, own_port) = split_port(&authority);
    let host = redirect.host.as_deref().unwrap_or(own_host);
    // A port in the request belongs to the original scheme; a new scheme implies its default port.
    let kept = own_port.filter(|_| redirect.scheme.is_none());
    let port = redirect
        .port
        .map(|port| port.to_string())
        .or(kept.map(str::to_owned));
    let default = if scheme == "https" { "443" } else { "80" };
    let port = port
        .filter(|port| port != default)
        .map(|port| format!(":{port}"));
    let old = path_of(request);
    let path = match &redirect.path {
        Some(RedirectPath::Full(path)) => path.clone(),
        Some(RedirectPath::Prefix(prefix)) => replace_prefix(&old, route.matched_prefix(), prefix),
        None => old.into_owned(),
    };
    let query = request.query().filter(|_| !redirect.strip_query);
    let path = format!("{scheme}://{host}{}{path}", port.unwrap_or_default());
    with_query(path.into_bytes(), query)
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !port.is_empty() => {
            (host, Some(port))
        }
        _ => (authority, None),
    }
}

/// Normalizes a request's path as configured for the listener.
pub(super) fn normalize(request: &mut Request, mode: PathNormalization) {
    if !mode.may_change(request.path()) {
        return;
    }
    let new = mode.normalized(request.path());
    if new == request.path() {
        return;
    }
    let target = with_query(new, request.query());
    request.set_path_and_query(&target);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_replaced_with_one_slash_between() {
        assert_eq!(replace_prefix("/api/x", "/api", "/v2"), "/v2/x");
        assert_eq!(replace_prefix("/api/x", "/api/", "/v2/"), "/v2/x");
        assert_eq!(replace_prefix("/api/x", "/api", "/"), "/x");
        assert_eq!(replace_prefix("/api", "/api", "/"), "/");
        assert_eq!(replace_prefix("/api", "/api", "/v2"), "/v2");
        assert_eq!(replace_prefix("/api/", "/api", "/v2"), "/v2/");
        assert_eq!(replace_prefix("/x/y", "/", "/v2"), "/v2/x/y");
    }

    #[test]
    fn ports_are_split_off() {
        assert_eq!(split_port("a:80"), ("a", Some("80")));
        assert_eq!(split_port("[::1]"), ("[::1]", None));
        assert_eq!(split_port("[::1]:8080"), ("[::1]", Some("8080")));
    }
}
