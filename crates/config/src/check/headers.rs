//! Validates header names and values, and which headers an operator may change.

use http::{HeaderName, HeaderValue};

use super::rule::Unique;
use super::variables;
use crate::report::At;
use crate::route::HeaderRules;
use crate::{raw, yaml};

/// The message whose headers are changed.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Message {
    Request,
    Response,
}

/// Headers that frame a message or belong to one connection, which only the proxy sets.
const FRAMING: &[&str] = &[
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Parses the name of a header, or reports an error.
pub(super) fn name(text: &str, at: &At<'_>) -> Option<HeaderName> {
    match HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) => Some(name),
        Err(_) => {
            let help = match text {
                ":method" => "match the method with `methods`",
                ":path" => "match the path with `path`, change the path with `rewrite`",
                ":authority" | ":scheme" => "set the host in `domains` or `rewrite.host`",
                _ if text.starts_with(':') => "pseudo-headers are not supported",
                _ => "a name consists of letters, digits and `-`",
            };
            at.error(format!(
                "`{}` is not the name of a header",
                yaml::short(text)
            ))
            .on_key()
            .help(help);
            None
        }
    }
}

/// Parses the value of a header, or reports an error.
pub(super) fn value(text: &str, at: &At<'_>) -> Option<HeaderValue> {
    let value = HeaderValue::from_str(text).ok();
    if value.is_none() || text.trim() != text {
        at.error("the value is not a valid header value")
            .help("a value must be printable text on one line, without surrounding spaces");
        return None;
    }
    if let Some(variable) = variables::find(text) {
        let shown = yaml::short(&variable.text);
        let Some(instead) = variable.instead else {
            at.warning(format!("`{shown}` is used literally"))
                .help("header values are literal text, without variables");
            return value;
        };
        let program = variable.program;
        at.error(format!(
            "`{shown}` is a variable of {program}; header values are literal text"
        ))
        .help(instead);
        return None;
    }
    value
}

/// Parses a header that may be changed, or reports an error.
fn changeable(text: &str, at: &At<'_>, message: Message) -> Option<HeaderName> {
    let name = name(text, at)?;
    if FRAMING.contains(&name.as_str()) {
        at.error(format!(
            "`{name}` cannot be changed: it describes the connection and is set by the proxy"
        ))
        .on_key()
        .help("remove this line");
        return None;
    }
    if message == Message::Request && name == http::header::HOST {
        at.error("`host` cannot be changed as a header; use the route's `rewrite`")
            .on_key()
            .help("write `rewrite: {host: NAME}` or `rewrite: {auto_host: true}`");
        return None;
    }
    Some(name)
}

/// Validates the changes `remove`, `set` and `add`.
pub(super) fn rules(
    raw: Option<&raw::HeaderRules>,
    at: &At<'_>,
    message: Message,
) -> Option<Box<HeaderRules>> {
    let raw = raw?;
    let mut rules = HeaderRules::default();
    if let Some(raw::OneOrMany(names)) = &raw.remove {
        let at = at.field("remove");
        for (i, text) in names.iter().enumerate() {
            rules.remove.extend(changeable(text, &at.index(i), message));
        }
    }
    if let Some(pairs) = &raw.set {
        rules.set = pairs_of(pairs, &at.field("set"), message);
    }
    if let Some(raw::Pairs(pairs)) = &raw.add {
        let at = at.field("add");
        for (text, raw::OneOrMany(values)) in pairs {
            let at = at.field(text);
            let name = changeable(text, &at, message);
            for (i, text) in values.iter().enumerate() {
                let value = value(text, &at.index(i));
                rules.add.extend(name.clone().zip(value));
            }
        }
    }
    Some(Box::new(rules))
}

/// Validates names with values; each name may occur once.
pub(super) fn pairs_of(
    raw::Pairs(pairs): &raw::Pairs<String>,
    at: &At<'_>,
    message: Message,
) -> Vec<(HeaderName, HeaderValue)> {
    let (mut seen, mut all) = (Unique::default(), Vec::new());
    for (text, content) in pairs {
        let at = at.field(text);
        let (name, value) = (changeable(text, &at, message), value(content, &at));
        if let Some(name) = &name {
            seen.check(name.as_str(), &at, "the header");
        }
        all.extend(name.zip(value));
    }
    all
}
