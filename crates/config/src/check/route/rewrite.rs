//! Validates rewrites: new paths and hosts of forwarded requests.

use http::HeaderValue;

use super::matching;
use crate::check::{Scope, host, pattern, rule};
use crate::report::At;
use crate::route::{HostRewrite, PathMatch, PathRewrite};
use crate::{raw, yaml};

pub(in crate::check) fn path(
    raw: &raw::Rewrite,
    at: &At<'_>,
    path: &PathMatch,
    scope: &Scope<'_>,
) -> Option<PathRewrite> {
    let set = [
        ("path", raw.path.is_some()),
        ("prefix", raw.prefix.is_some()),
        ("regex", raw.regex.is_some()),
    ];
    if raw.substitution.is_some() && raw.regex.is_none() {
        at.field("substitution")
            .error("`substitution` needs a `regex`")
            .on_key()
            .when_readable();
    }
    if set.iter().all(|(_, there)| !there) {
        return None;
    }
    match rule::exactly_one(&set, at)? {
        "path" => {
            let text = raw.path.as_ref()?;
            matching::path(text, &at.field("path"));
            Some(PathRewrite::Full(text.clone()))
        }
        "prefix" => {
            let text = raw.prefix.as_ref()?;
            prefix(text, &at.field("prefix"), path);
            Some(PathRewrite::Prefix(text.clone()))
        }
        _ => {
            let regex = pattern::find(raw.regex.as_ref()?, &at.field("regex"), scope)?;
            let Some(text) = &raw.substitution else {
                at.missing(
                    "substitution",
                    "`substitution: \"\"` removes the match of `regex`",
                );
                return None;
            };
            substitution(text, &regex, &at.field("substitution"));
            Some(PathRewrite::Regex(regex, text.clone()))
        }
    }
}

/// Checks that a route with a prefix rewrite matches by prefix.
pub(in crate::check) fn prefix(text: &str, at: &At<'_>, path: &PathMatch) {
    matching::path(text, at);
    if !matches!(path, PathMatch::Prefix(_)) {
        at.error("`prefix` needs a route that matches by prefix")
            .on_key()
            .help("match with `path: {prefix: …}`, or write `path` instead of `prefix`");
    }
}

/// Checks that the groups that a substitution refers to exist in the expression.
fn substitution(text: &str, regex: &regex::Regex, at: &At<'_>) {
    let back = |pair: &[u8]| pair[0] == b'\\' && pair[1].is_ascii_digit();
    if text.as_bytes().windows(2).any(back) {
        at.warning("`\\1` is used literally")
            .help("write a group as `$1` or `${1}`");
    }
    if text.contains(['?', '#']) {
        at.error("the query cannot be rewritten")
            .help("write a path without `?` and `#`");
    }
    let mut rest = text;
    while let Some(start) = rest.find('$') {
        rest = &rest[start + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            rest = after;
            continue;
        }
        let group = match rest.strip_prefix('{') {
            Some(braced) => braced.split('}').next().unwrap_or_default(),
            None => {
                let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                &rest[..rest.len() - rest.trim_start_matches(word).len()]
            }
        };
        let known = match group.parse::<usize>() {
            Ok(number) => number < regex.captures_len(),
            Err(_) => regex.capture_names().flatten().any(|name| name == group),
        };
        if !group.is_empty() && !known {
            let group = yaml::short(group);
            at.error(format!("the expression has no group `{group}`"))
                .help("write `${1}x` if text follows a group, and `$$` for a `$`");
        }
    }
}

pub(in crate::check) fn host(raw: &raw::Rewrite, at: &At<'_>) -> Option<HostRewrite> {
    let auto = raw.auto_host.unwrap_or(false);
    let Some(text) = &raw.host else {
        return auto.then_some(HostRewrite::Endpoint);
    };
    if auto {
        at.field("auto_host")
            .error("`host` and `auto_host` are mutually exclusive")
            .on_key();
    }
    let at = at.field("host");
    match host::exact(text) {
        Ok(_) => HeaderValue::from_str(text).ok().map(HostRewrite::Literal),
        Err(help) => {
            at.error(format!("`{}` is not a host", yaml::short(text)))
                .help(help);
            None
        }
    }
}
