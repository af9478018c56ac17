//! Paths and locations: what a route makes of a request's target.

use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Request, request};
use maglor_config::route::{Forward, PathRewrite, Redirect, RedirectPath};

use super::headers::{self, Client};
use crate::codec::HeadError;
use crate::error::ProxyError;
use crate::route::Route;

/// Applies a route's path rewrite.
pub(crate) fn path(
    parts: &mut request::Parts,
    forward: &Forward,
    route: &Route,
) -> Result<(), ProxyError> {
    let Some(rewrite) = &forward.path_rewrite else { return Ok(()) };
    let old = parts.uri.path();
    let new = match rewrite {
        PathRewrite::Full(path) => path.clone(),
        PathRewrite::Prefix(prefix) => replace_prefix(old, route.matched_prefix(), prefix),
        PathRewrite::Regex(regex, with) => regex.replace_all(old, with.as_str()).into_owned(),
    };
    let target = with_query(&new, parts.uri.query());
    let target = PathAndQuery::try_from(target).map_err(|_| bad_target())?;
    let mut uri = std::mem::take(&mut parts.uri).into_parts();
    uri.path_and_query = Some(target);
    parts.uri = Uri::from_parts(uri).map_err(|_| bad_target())?;
    Ok(())
}

fn bad_target() -> ProxyError {
    ProxyError::DownstreamHead(HeadError::Target)
}

fn with_query(path: &str, query: Option<&str>) -> String {
    match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}

/// Replaces the matched prefix so that exactly one slash stands where the parts meet.
fn replace_prefix(path: &str, prefix: &str, with: &str) -> String {
    let rest = path.strip_prefix(prefix).unwrap_or(path);
    let with = with.strip_suffix('/').unwrap_or(with);
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    if rest.is_empty() && !with.is_empty() && !path.ends_with('/') {
        return with.to_owned();
    }
    format!("{with}/{rest}")
}

/// The `location` of a redirect.
pub(crate) fn location<B>(
    redirect: &Redirect,
    route: &Route,
    request: &Request<B>,
    client: &Client,
) -> Result<HeaderValue, ProxyError> {
    let scheme = redirect.scheme.as_deref().unwrap_or(client.scheme());
    let authority = headers::host_of(request.uri(), request.headers());
    let authority = authority.as_ref().and_then(|host| host.to_str().ok()).unwrap_or_default();
    let (own_host, own_port) = split_port(authority);
    let host = redirect.host.as_deref().unwrap_or(own_host);
    // A port of the request belongs to its own scheme: a new scheme means its default port.
    let kept = own_port.filter(|_| redirect.scheme.is_none());
    let port = redirect.port.map(|port| port.to_string()).or(kept.map(str::to_owned));
    let default = if scheme == "https" { "443" } else { "80" };
    let port = port.filter(|port| port != default).map(|port| format!(":{port}"));
    let old = request.uri().path();
    let path = match &redirect.path {
        Some(RedirectPath::Full(path)) => path.clone(),
        Some(RedirectPath::Prefix(prefix)) => replace_prefix(old, route.matched_prefix(), prefix),
        None => old.to_owned(),
    };
    let query = request.uri().query().filter(|_| !redirect.strip_query);
    let target = with_query(&path, query);
    let location = format!("{scheme}://{host}{}{target}", port.unwrap_or_default());
    HeaderValue::try_from(location).map_err(|_| bad_target())
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !port.is_empty() => {
            (host, Some(port))
        }
        _ => (authority, None),
    }
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
