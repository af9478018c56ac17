//! Validates conditions on requests.

use http::Method;

use crate::check::{Scope, headers, pattern, rule};
use crate::report::At;
use crate::route::{HeaderMatch, PathMatch, QueryMatch, RouteMatch, StringMatch};
use crate::{raw, yaml};

/// Well-known methods; other methods are allowed, but may be typing errors.
const METHODS: &[&str] = &[
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "SEARCH",
    "PURGE",
    "QUERY",
];

pub(in crate::check) fn route_match(
    raw: &raw::RouteMatch,
    at: &At<'_>,
    scope: &Scope<'_>,
) -> RouteMatch {
    let path = raw.path.as_ref().map(|raw::Short(path)| path);
    let path = path.and_then(|path| path_match(path, &at.field("path"), scope));
    let mut matches = RouteMatch {
        path: path.unwrap_or_default(),
        methods: methods(raw.methods.as_ref(), &at.field("methods")),
        grpc: raw.grpc.unwrap_or(false),
        ..RouteMatch::default()
    };
    let list = at.field("headers");
    for (i, raw) in raw.headers.iter().enumerate() {
        matches.headers.extend(header(raw, &list.index(i), scope));
    }
    let list = at.field("query");
    for (i, raw) in raw.query.iter().enumerate() {
        matches.query.extend(query(raw, &list.index(i), scope));
    }
    if matches.grpc && !matches.methods.is_empty() && !matches.methods.contains(&Method::POST) {
        at.field("methods")
            .warning("gRPC requests are always POST: this route matches nothing");
    }
    matches
}

fn path_match(raw: &raw::PathMatch, at: &At<'_>, scope: &Scope<'_>) -> Option<PathMatch> {
    let set = [
        ("exact", raw.exact.is_some()),
        ("prefix", raw.prefix.is_some()),
        ("regex", raw.regex.is_some()),
    ];
    let kind = rule::exactly_one(&set, at)?;
    let at_kind = at.field(kind);
    if let Some(text) = &raw.regex {
        return pattern::whole(text, &at_kind, scope).map(PathMatch::Regex);
    }
    let text = raw.exact.as_ref().or(raw.prefix.as_ref())?;
    pattern_like(text, &at_kind);
    if path(text, &at_kind) {
        occurs(text, &at_kind, scope);
    }
    Some(match kind {
        "exact" => PathMatch::Exact(text.clone()),
        _ => PathMatch::Prefix(text.clone()),
    })
}

/// Warns about a text that other proxies interpret as a pattern, but that is literal here.
fn pattern_like(text: &str, at: &At<'_>) {
    if !text.starts_with('/') {
        return;
    }
    let shown = yaml::short(text);
    let stem = text.trim_end_matches('*');
    if stem.len() < text.len() && !stem.contains('*') {
        let stem = yaml::short(if stem.len() > 1 {
            stem.trim_end_matches('/')
        } else {
            stem
        });
        at.warning(format!(
            "the `*` in the path `{shown}` is matched literally"
        ))
        .help(format!(
            "write `{{prefix: {stem}}}`: a prefix matches whole segments"
        ));
    } else if text.contains(['*', '^', '\\']) || text.ends_with('$') || text.contains("(.") {
        at.warning(format!("the path `{shown}` is matched literally"))
            .help("write `{regex: EXPRESSION}` for a regular expression");
    } else if text.contains("/:") || text.contains("/{") {
        at.warning(format!("the path `{shown}` is matched literally"))
            .help(
                "variables in paths are not supported: write `{regex: \"/users/[^/]+\"}`, or a prefix",
            );
    }
}

/// Validates a path in the form in which requests contain it; returns whether it is valid.
pub(in crate::check) fn path(text: &str, at: &At<'_>) -> bool {
    let shown = yaml::short(text);
    if !text.starts_with('/') {
        at.error(format!("the path `{shown}` does not start with `/`"))
            .help(path_for(text));
    } else if text.contains(['?', '#']) {
        at.error(format!("the path `{shown}` contains a query or a fragment"))
            .help("match the query with `query`; fragments are never sent");
    } else if text.chars().any(|c| c.is_whitespace() || c.is_control()) || !text.is_ascii() {
        at.error(format!(
            "the path `{shown}` contains characters that are not valid in a URL"
        ))
        .help("percent-encode these characters, for example `%20` for a space");
    } else {
        return true;
    }
    false
}

/// Rejects a path that no request has after normalization.
fn occurs(text: &str, at: &At<'_>, scope: &Scope<'_>) {
    let Some(mode) = scope.normalization() else {
        return;
    };
    let normal = mode.normalized(text.as_bytes());
    if normal != text.as_bytes() {
        let normal = String::from_utf8_lossy(&normal);
        at.error(format!(
            "no request has the path `{}`: paths are normalized before they are compared",
            yaml::short(text)
        ))
        .help(format!("write `{}`", yaml::short(&normal)));
    }
}

/// Suggests a replacement for a path that does not begin with `/`.
fn path_for(text: &str) -> String {
    if let Some((_, rest)) = text.split_once("://") {
        let path = rest.split_once('/').map_or("", |(_, path)| path);
        return format!("write `/{}`; set the host in `domains`", yaml::short(path));
    }
    let expression = text.trim_start_matches(['~', '*', '=', ' ']);
    if text.starts_with('=') && expression.starts_with('/') {
        return format!("write `{{exact: {}}}`", yaml::short(expression));
    }
    if text.starts_with(['~', '^', '*']) || text.contains('\\') || text.ends_with('$') {
        let expression = expression.trim_start_matches('^');
        return format!(
            "write `{{regex: \"{}\"}}`, which matches the whole path",
            yaml::short(expression)
        );
    }
    format!("write `/{}`", yaml::short(text))
}

pub(in crate::check) fn methods(raw: Option<&raw::OneOrMany>, at: &At<'_>) -> Vec<Method> {
    let (mut methods, mut seen) = (Vec::new(), rule::Unique::default());
    let list = raw.map_or(&[][..], |list| &list.0);
    for (i, text) in list.iter().enumerate() {
        let at = at.index(i);
        let Some(method) = method(text, &at) else {
            continue;
        };
        seen.check(text, &at, "the method");
        methods.push(method);
    }
    methods
}

/// Parses a method, or reports an error.
pub(in crate::check) fn method(text: &str, at: &At<'_>) -> Option<Method> {
    let upper = text.to_ascii_uppercase();
    let Some(method) = Method::from_bytes(text.as_bytes())
        .ok()
        // A token may contain it, but no method does.
        .filter(|_| !text.contains('*'))
    else {
        at.error(format!("`{}` is not a method", yaml::short(text)))
            .help("write a method such as `GET`; omit `methods` to match any method");
        return None;
    };
    if METHODS.contains(&upper.as_str()) && upper != *text {
        at.error(format!("`{text}`: methods are case-sensitive"))
            .help(format!("write `{upper}`"));
    } else if !METHODS.contains(&text) {
        let near = crate::suggest::nearest(text, METHODS.iter().copied());
        at.warning(format!("the method `{}` is unusual", yaml::short(text)))
            .maybe_help(near.map(|near| format!("did you mean `{near}`?")));
    }
    Some(method)
}

pub(in crate::check) fn header(
    raw: &raw::HeaderMatch,
    at: &At<'_>,
    scope: &Scope<'_>,
) -> Option<HeaderMatch> {
    let value = string_match(raw.value(), at, scope);
    let Some(name) = &raw.name else {
        at.missing("name", "write `name: HEADER`");
        return None;
    };
    let name = headers::name(name, &at.field("name"));
    let (value, invert) = value?;
    Some(HeaderMatch {
        name: name?,
        value,
        invert,
    })
}

fn query(raw: &raw::QueryMatch, at: &At<'_>, scope: &Scope<'_>) -> Option<QueryMatch> {
    let value = string_match(raw.value(), at, scope);
    let Some(name) = &raw.name else {
        at.missing("name", "write `name: PARAMETER`");
        return None;
    };
    if name.is_empty() {
        at.field("name").error("the name is empty");
    }
    let (value, invert) = value?;
    Some(QueryMatch {
        name: name.clone(),
        value,
        invert,
    })
}

/// Returns the condition on a value, and whether the condition is inverted.
fn string_match(
    raw: raw::StringMatch<'_>,
    at: &At<'_>,
    scope: &Scope<'_>,
) -> Option<(StringMatch, bool)> {
    let set = [
        ("exact", raw.exact.is_some()),
        ("prefix", raw.prefix.is_some()),
        ("suffix", raw.suffix.is_some()),
        ("contains", raw.contains.is_some()),
        ("regex", raw.regex.is_some()),
        ("present", raw.present.is_some()),
    ];
    let kind = rule::exactly_one(&set, at)?;
    let at = at.field(kind);
    let text = raw.exact.or(raw.prefix).or(raw.suffix).or(raw.contains);
    if kind != "exact" && text == Some("") {
        at.error("an empty string matches every value")
            .help("write `present: true`, or the string");
    }
    let text = text.unwrap_or_default().to_owned();
    let value = match kind {
        "exact" => StringMatch::Exact(text),
        "prefix" => StringMatch::Prefix(text),
        "suffix" => StringMatch::Suffix(text),
        "contains" => StringMatch::Contains(text),
        "regex" => StringMatch::Regex(pattern::whole(raw.regex?, &at, scope)?),
        _ => StringMatch::Present,
    };
    // `present: false` is the inverse of `present: true`.
    Some((value, raw.invert != (raw.present == Some(false))))
}
