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
    if mode == PathNormalization::Off || !is_suspect(request.path(), mode) {
        return;
    }
    let new = normalized(request.path(), mode);
    if new == request.path() {
        return;
    }
    let target = with_query(new, request.query());
    request.set_path_and_query(&target);
}

/// Returns whether a path may need normalization. This is a single pass over the bytes, for the many paths that need
/// none.
fn is_suspect(path: &[u8], mode: PathNormalization) -> bool {
    let merge = mode >= PathNormalization::MergeSlashes;
    let mut before = 0;
    path.iter().any(|&byte| {
        let pair = before == b'/' && (byte == b'.' || (merge && byte == b'/'));
        before = byte;
        pair || matches!(byte, b'%' | b'\\')
    })
}

fn normalized(path: &[u8], mode: PathNormalization) -> Vec<u8> {
    let path = decoded(path, mode);
    let Some(rest) = path.strip_prefix(b"/") else {
        // `*` and similar targets are not paths.
        return path.into_owned();
    };
    let merge = mode >= PathNormalization::MergeSlashes;
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = rest.split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    kept.pop();
                }
                // A dot segment at the end names a directory.
                if last {
                    kept.push(b"");
                }
            }
            b"" if merge && !last => {}
            _ => kept.push(segment),
        }
    }
    let mut out = Vec::with_capacity(path.len());
    for segment in kept {
        out.push(b'/');
        out.extend_from_slice(segment);
    }
    out
}

/// Decodes escapes whose decoded form is equivalent, and escapes a percent sign that does not begin an escape.
fn decoded(path: &[u8], mode: PathNormalization) -> Cow<'_, [u8]> {
    if !path.iter().any(|byte| matches!(byte, b'%' | b'\\')) {
        return Cow::Borrowed(path);
    }
    let slashes = mode == PathNormalization::DecodeAndMergeSlashes;
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, escaped(after)) {
            (b'\\', _) => out.push(b'/'),
            (b'%', Some(b'/' | b'\\')) if slashes => {
                out.push(b'/');
                rest = &after[2..];
            }
            (b'%', Some(byte)) if is_unreserved(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            // Without escaping, the percent sign could form an escape with the decoded bytes that follow.
            (b'%', None) => out.extend_from_slice(b"%25"),
            _ => out.push(byte),
        }
    }
    Cow::Owned(out)
}

/// Returns the byte encoded by the two hexadecimal digits after a percent sign.
fn escaped(after: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// Returns whether a byte is unreserved (RFC 3986 §2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
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

#[cfg(test)]
mod normalization {
    use super::*;
    use PathNormalization::{Base, DecodeAndMergeSlashes, MergeSlashes};

    fn text(path: &str, mode: PathNormalization) -> String {
        let path = path.as_bytes();
        let new = normalized(path, mode);
        assert!(new == path || is_suspect(path, mode));
        assert_eq!(normalized(&new, mode), new, "twice is once");
        String::from_utf8(new).unwrap()
    }

    #[test]
    fn dot_segments_go() {
        for (path, expected) in [
            ("/a/b/c/./../../g", "/a/g"),
            ("/x/../admin", "/admin"),
            ("/../../admin", "/admin"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/..", "/"),
            ("/", "/"),
            ("/a//b", "/a//b"),
            ("/a//../b", "/a/b"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a/...", "/a/..."),
            ("*", "*"),
        ] {
            assert_eq!(text(path, Base), expected, "{path}");
        }
    }

    #[test]
    fn what_means_the_same_is_decoded() {
        for (path, expected) in [
            ("/%61dmin", "/admin"),
            ("/x/%2e%2E/admin", "/admin"),
            ("/x\\..\\admin", "/admin"),
            ("/a%2Fb%20c%25", "/a%2Fb%20c%25"),
            ("/%", "/%25"),
            ("/%6", "/%256"),
            ("/%+1", "/%25+1"),
            ("/%%361dmin", "/%2561dmin"),
        ] {
            assert_eq!(text(path, Base), expected, "{path}");
        }
    }

    #[test]
    fn slashes_are_merged_where_that_is_wanted() {
        assert_eq!(text("//a///b//", MergeSlashes), "/a/b/");
        assert_eq!(text("/a%2f..%5Cb", MergeSlashes), "/a%2f..%5Cb");
        assert_eq!(text("/a%2f..%5Cb", DecodeAndMergeSlashes), "/b");
    }
}
