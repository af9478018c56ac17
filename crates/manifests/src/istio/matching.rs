//! Translates `http[].match`: the requests that a rule of a `VirtualService` matches.

use maglor_config::raw::{self, HeaderMatch, OneOrMany, PathMatch, QueryMatch, Short};

use crate::istio::block::Block;
use crate::istio::finding::Effect;

/// A match of a rule: conditions on requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Match {
    /// The port of the Service to which the request must be sent; `None` = any.
    pub port: Option<u16>,
    /// The conditions on the request.
    pub conditions: raw::RouteMatch,
}

/// The form of a path condition, on which rewrites depend.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Matched {
    Exact,
    /// A prefix, with a regular expression that matches it.
    Prefix(String),
    Regex,
}

impl Matched {
    pub(crate) fn prefix(text: &str, any_case: bool) -> Self {
        let case = if any_case { "(?i)" } else { "" };
        Self::Prefix(format!("{case}^{}", escaped(text)))
    }
}

/// A condition on a text.
enum Condition<'a> {
    Exact(&'a str),
    Prefix(&'a str),
    Present,
    Regex(&'a str),
}

fn condition<'a>(block: &Block<'a>) -> Condition<'a> {
    let (exact, prefix) = (block.text("exact"), block.text("prefix"));
    let regex = block.text("regex");
    block.end(Effect::Refused);
    match (exact, prefix, regex) {
        (Some(text), _, _) => Condition::Exact(text),
        (None, Some(text), _) => Condition::Prefix(text),
        (None, None, Some(text)) => Condition::Regex(text),
        (None, None, None) => Condition::Present,
    }
}

/// Translates a match, and returns the form of its path condition; `None` if the match applies only to gateways.
pub(crate) fn read(block: &Block<'_>) -> Option<(Match, Matched)> {
    let gateways = block.texts("gateways");
    if !gateways.is_empty() && !gateways.iter().any(|one| one == "mesh") {
        return None;
    }
    block.text("name");
    block.text("statPrefix");
    let any_case = block.flag("ignoreUriCase") == Some(true);
    let (path, matched) = match block.block("uri") {
        None => (None, Matched::prefix("/", false)),
        Some(uri) => path(&condition(&uri), any_case),
    };
    let mut conditions = raw::RouteMatch {
        path: path.map(Short),
        ..raw::RouteMatch::default()
    };
    if let Some(method) = block.block("method") {
        match condition(&method) {
            Condition::Exact(text) => {
                conditions.methods = Some(OneOrMany(vec![text.to_owned()]));
            }
            _ => block.refuse("method", "only `exact` is supported"),
        }
    }
    if let Some(authority) = block.block("authority") {
        let host = header("host", &condition(&authority), false);
        conditions.headers.push(host);
    }
    for (name, one) in block.named_blocks("headers") {
        conditions
            .headers
            .push(header(name, &condition(&one), false));
    }
    for (name, one) in block.named_blocks("withoutHeaders") {
        conditions
            .headers
            .push(header(name, &condition(&one), true));
    }
    for (name, one) in block.named_blocks("queryParams") {
        conditions.query.push(query(name, &condition(&one)));
    }
    let read = Match {
        port: block.port("port"),
        conditions,
    };
    block.end(Effect::Refused);
    Some((read, matched))
}

/// Translates a path condition. A prefix consists of characters in Istio, and of whole segments in our configuration.
fn path(condition: &Condition<'_>, any_case: bool) -> (Option<PathMatch>, Matched) {
    let regex = |text: String| PathMatch {
        regex: Some(match any_case {
            true => format!("(?i){text}"),
            false => text,
        }),
        ..PathMatch::default()
    };
    match condition {
        Condition::Present | Condition::Prefix("" | "/") => (None, Matched::prefix("/", false)),
        Condition::Exact(text) if any_case => (Some(regex(escaped(text))), Matched::Exact),
        Condition::Exact(text) => {
            let exact = PathMatch {
                exact: Some((*text).to_owned()),
                ..PathMatch::default()
            };
            (Some(exact), Matched::Exact)
        }
        Condition::Prefix(text) if text.ends_with('/') && !any_case => {
            let prefix = PathMatch {
                prefix: Some((*text).to_owned()),
                ..PathMatch::default()
            };
            (Some(prefix), Matched::prefix(text, false))
        }
        Condition::Prefix(text) => {
            let all = regex(format!("{}.*", escaped(text)));
            (Some(all), Matched::prefix(text, any_case))
        }
        Condition::Regex(text) => (Some(regex((*text).to_owned())), Matched::Regex),
    }
}

fn header(name: &str, condition: &Condition<'_>, invert: bool) -> HeaderMatch {
    let mut read = HeaderMatch {
        name: Some(name.to_owned()),
        invert: invert.then_some(true),
        ..HeaderMatch::default()
    };
    match condition {
        Condition::Exact(text) => read.exact = Some((*text).to_owned()),
        Condition::Prefix(text) => read.prefix = Some((*text).to_owned()),
        Condition::Present => read.present = Some(true),
        Condition::Regex(text) => read.regex = Some((*text).to_owned()),
    }
    read
}

fn query(name: &str, condition: &Condition<'_>) -> QueryMatch {
    let mut read = QueryMatch {
        name: Some(name.to_owned()),
        ..QueryMatch::default()
    };
    match condition {
        Condition::Exact(text) => read.exact = Some((*text).to_owned()),
        Condition::Prefix(text) => read.prefix = Some((*text).to_owned()),
        Condition::Present => read.present = Some(true),
        Condition::Regex(text) => read.regex = Some((*text).to_owned()),
    }
    read
}

/// Returns a regular expression that matches only this text.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() && !c.is_ascii_alphanumeric() && c != '_' && c != '/' {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
