//! Validates redirects and direct responses.

use http::StatusCode;

use super::{matching, rewrite};
use crate::check::headers::{self, Message};
use crate::check::{host, rule};
use crate::report::At;
use crate::route::{DirectResponse, PathMatch, Redirect, RedirectPath};
use crate::{raw, yaml};

/// Statuses that a browser follows.
const STATUSES: [u32; 5] = [301, 302, 303, 307, 308];
/// The maximum size of a direct response's body in bytes.
const MAX_BODY: usize = 1 << 20;

pub(in crate::check) fn redirect(
    raw: &raw::Redirect,
    at: &At<'_>,
    path: &PathMatch,
) -> Option<Redirect> {
    let status = raw.status.unwrap_or(301);
    if !STATUSES.contains(&status) {
        at.field("status")
            .error(format!("{status} is not a redirect status"))
            .help("write 301, 302, 303, 307 or 308");
    }
    let scheme = raw.scheme.as_deref();
    if let Some(text) = scheme.filter(|text| !matches!(*text, "http" | "https")) {
        at.field("scheme")
            .error(format!("`{}` is not a scheme", yaml::short(text)))
            .help("write `http` or `https`");
    }
    let port = raw
        .port
        .map(|port| rule::number(Some(port), &at.field("port"), 443, 1..=65_535));
    let changes = scheme.is_some()
        || raw.host.is_some()
        || port.is_some()
        || raw.path.is_some()
        || raw.prefix.is_some()
        || raw.strip_query == Some(true);
    if !changes {
        at.warning("the redirect leads back to the same URL")
            .when_readable()
            .help("change a part of the URL, for example `scheme: https`");
    }
    Some(Redirect {
        status: StatusCode::from_u16(u16::try_from(status).ok()?).ok()?,
        scheme: scheme.map(Into::into),
        host: raw
            .host
            .as_deref()
            .and_then(|text| redirect_host(text, &at.field("host"))),
        port: port.and_then(|port| u16::try_from(port).ok()),
        path: redirect_path(raw, at, path),
        strip_query: raw.strip_query.unwrap_or(false),
    })
}

fn redirect_host(text: &str, at: &At<'_>) -> Option<String> {
    let portless = text.starts_with('[') && text.ends_with(']') || !text.contains(':');
    match host::exact(text) {
        Ok(_) if !portless => {
            at.error("expected a host without port")
                .help("write the port in `port`");
            None
        }
        Ok(name) => Some(name),
        Err(help) => {
            at.error(format!("`{}` is not a host", yaml::short(text)))
                .help(help);
            None
        }
    }
}

fn redirect_path(raw: &raw::Redirect, at: &At<'_>, path: &PathMatch) -> Option<RedirectPath> {
    match (&raw.path, &raw.prefix) {
        (None, None) => None,
        (Some(text), None) => {
            matching::path(text, &at.field("path"));
            Some(RedirectPath::Full(text.clone()))
        }
        (None, Some(text)) => {
            rewrite::prefix(text, &at.field("prefix"), path);
            Some(RedirectPath::Prefix(text.clone()))
        }
        (Some(_), Some(_)) => {
            let at = at.field("prefix");
            at.error("`path` and `prefix` are mutually exclusive")
                .on_key();
            None
        }
    }
}

pub(in crate::check) fn direct(raw: &raw::DirectResponse, at: &At<'_>) -> Option<DirectResponse> {
    let body = raw.body.as_deref().unwrap_or_default();
    if body.len() > MAX_BODY {
        at.field("body").error(format!(
            "the body has {} bytes; maximum {MAX_BODY}",
            body.len()
        ));
    }
    let response = Message::Response;
    let headers = raw.headers.as_ref();
    let headers = headers.map(|pairs| headers::pairs_of(pairs, &at.field("headers"), response));
    let Some(status) = raw.status else {
        at.missing("status", "write `status: 200`");
        return None;
    };
    let status = rule::number(Some(status), &at.field("status"), 200, 200..=599);
    if matches!(status, 204 | 205 | 304) && !body.is_empty() {
        at.field("body")
            .error(format!("a response with status {status} has no body"));
    }
    Some(DirectResponse {
        status: StatusCode::from_u16(u16::try_from(status).ok()?).ok()?,
        body: body.into(),
        headers: headers.unwrap_or_default(),
    })
}
