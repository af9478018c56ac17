//! Validates the hash policy of a route for `maglev` and `ring-hash`.

use std::time::Duration;

use super::matching;
use crate::check::headers;
use crate::check::rule::{self, DAY};
use crate::report::At;
use crate::route::{HashKind, HashSource};
use crate::{raw, yaml};

/// Returns the parts of a request that are hashed.
pub(in crate::check) fn policy(raw: &[raw::HashPolicy], at: &At<'_>) -> Vec<HashSource> {
    let mut sources = Vec::new();
    for (i, raw) in raw.iter().enumerate() {
        let at = at.index(i);
        let kind = kind(raw, &at);
        let terminal = raw.terminal.unwrap_or(false);
        sources.extend(kind.map(|kind| HashSource { kind, terminal }));
    }
    sources
}

fn kind(raw: &raw::HashPolicy, at: &At<'_>) -> Option<HashKind> {
    let set = [
        ("header", raw.header.is_some()),
        ("cookie", raw.cookie.is_some()),
        ("query", raw.query.is_some()),
        ("path", raw.path == Some(true)),
        ("source_address", raw.source_address == Some(true)),
    ];
    match rule::exactly_one(&set, at)? {
        "header" => headers::name(raw.header.as_ref()?, &at.field("header")).map(HashKind::Header),
        "cookie" => cookie(&raw.cookie.as_ref()?.0, &at.field("cookie")),
        "query" => {
            let name = raw.query.clone()?;
            if name.is_empty() {
                at.field("query").error("the name is empty");
            }
            Some(HashKind::Query(name))
        }
        "path" => Some(HashKind::Path),
        _ => Some(HashKind::SourceAddress),
    }
}

pub(in crate::check) fn cookie(raw: &raw::Cookie, at: &At<'_>) -> Option<HashKind> {
    let Some(name) = &raw.name else {
        at.missing("name", "write `name: COOKIE`");
        return None;
    };
    if http::Method::from_bytes(name.as_bytes()).is_err() {
        at.field("name")
            .error(format!(
                "`{}` is not the name of a cookie",
                yaml::short(name)
            ))
            .help("a name consists of letters, digits and `-`, `_`, `.`");
    }
    let path = raw.path.as_deref().unwrap_or("/");
    matching::path(path, &at.field("path"));
    if path.contains([';', ',']) {
        at.field("path")
            .error("a cookie's path contains no `;` and no `,`");
    }
    let ttl = raw
        .ttl
        .map(|ttl| rule::explicit_time(ttl, &at.field("ttl"), Duration::ZERO..=3650 * DAY));
    let (name, path) = (name.clone(), path.to_owned());
    Some(HashKind::Cookie { name, ttl, path })
}
