//! The access log: its destination and the layout of each line.

pub(crate) mod foreign;

use std::path::PathBuf;
use std::str::FromStr;

/// The destination of the access log and the layout of its lines.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessLog {
    /// The path of a file to append to, or `/dev/stdout`.
    pub path: PathBuf,
    /// The layout of each line.
    pub format: AccessLogFormat,
}

/// The layout of an access log line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum AccessLogFormat {
    /// One JSON object per line, with these keys in this order.
    Fields(Vec<AccessLogKey>),
    /// One JSON object per line, with all fields.
    #[default]
    Json,
    /// A template: literal text and the values of fields.
    Template(Vec<AccessLogPart>),
    /// The values of all fields, separated by spaces and quoted where needed.
    Text,
}

/// A part of a template.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AccessLogPart {
    /// The value of a field; `-` if the request has none.
    Field(AccessLogField),
    /// Literal text.
    Text(String),
}

/// A key of a JSON object, and the field that is its value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessLogKey {
    /// The key as JSON text, with quotes and a colon.
    pub json: Box<str>,
    /// The field whose value is logged.
    pub field: AccessLogField,
}

impl AccessLogKey {
    /// Encodes the key once, rather than for each line.
    #[must_use]
    pub fn new(key: &str, field: AccessLogField) -> Self {
        let json = serde_json::Value::from(key);
        Self {
            json: format!("{json}:").into(),
            field,
        }
    }
}

/// A field of a finished request; docs/access-log.md describes all of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AccessLogField {
    /// `tries`.
    Attempts,
    /// `client`.
    Client,
    /// `cluster`.
    Cluster,
    /// `direction`.
    Direction,
    /// `duration_ms`.
    DurationMs,
    /// `error`.
    Error,
    /// `flag`.
    Flag,
    /// `forwarded_for`.
    ForwardedFor,
    /// `host`.
    Host,
    /// `listener`.
    Listener,
    /// `method`.
    Method,
    /// `peer`.
    Peer,
    /// `protocol`.
    Protocol,
    /// `referer`.
    Referer,
    /// `request_id`.
    RequestId,
    /// `response_bytes`.
    ResponseBytes,
    /// `response_ms`.
    ResponseMs,
    /// `status`.
    Status,
    /// `target`.
    Target,
    /// `time`.
    Time,
    /// `trace_id`.
    TraceId,
    /// `upstream`.
    Upstream,
    /// `user_agent`.
    UserAgent,
}

impl AccessLogField {
    /// All fields, in the order of docs/access-log.md.
    pub const ALL: [Self; 23] = [
        Self::Time,
        Self::Listener,
        Self::Direction,
        Self::Client,
        Self::Peer,
        Self::Method,
        Self::Target,
        Self::Protocol,
        Self::Host,
        Self::UserAgent,
        Self::Referer,
        Self::ForwardedFor,
        Self::RequestId,
        Self::TraceId,
        Self::Status,
        Self::Flag,
        Self::ResponseBytes,
        Self::DurationMs,
        Self::ResponseMs,
        Self::Cluster,
        Self::Upstream,
        Self::Attempts,
        Self::Error,
    ];

    /// The names of all fields, in the order of [`ALL`](Self::ALL).
    pub const NAMES: [&'static str; 23] = [
        "time",
        "listener",
        "direction",
        "client",
        "peer",
        "method",
        "target",
        "protocol",
        "host",
        "user_agent",
        "referer",
        "forwarded_for",
        "request_id",
        "trace_id",
        "status",
        "flag",
        "response_bytes",
        "duration_ms",
        "response_ms",
        "cluster",
        "upstream",
        "tries",
        "error",
    ];

    /// Returns the name of the field: its key in JSON and its name in a template.
    #[must_use]
    pub fn name(self) -> &'static str {
        let place = Self::ALL.iter().position(|field| *field == self);
        place.map_or("", |place| Self::NAMES[place])
    }
}

impl FromStr for AccessLogField {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let place = Self::NAMES.iter().position(|name| *name == text);
        place.map(|place| Self::ALL[place]).ok_or(())
    }
}

/// Parses a template: `{field}` is a field; `{{` and `}}` are literal braces.
///
/// # Errors
///
/// The first name in braces that is not a field; empty for a brace that is not closed.
pub(crate) fn template(text: &str) -> Result<Vec<AccessLogPart>, String> {
    let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        plain.push_str(before);
        let brace = &after[..1];
        if let Some(after) = after[1..].strip_prefix(brace) {
            plain.push_str(brace);
            rest = after;
            continue;
        }
        let inner = after
            .strip_prefix('{')
            .and_then(|inner| inner.split_once('}'));
        let (name, after) = inner.ok_or_else(String::new)?;
        let field = name.parse().map_err(|()| name.to_owned())?;
        if !plain.is_empty() {
            parts.push(AccessLogPart::Text(std::mem::take(&mut plain)));
        }
        parts.push(AccessLogPart::Field(field));
        rest = after;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(AccessLogPart::Text(plain));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_have_fields_in_braces() {
        let field = |name: &str| AccessLogPart::Field(name.parse().unwrap());
        let text = |text: &str| AccessLogPart::Text(text.into());
        assert_eq!(
            template("{client} \"{method}\" {{{status}}}").unwrap(),
            [
                field("client"),
                text(" \""),
                field("method"),
                text("\" {"),
                field("status"),
                text("}")
            ]
        );
        assert_eq!(template(""), Ok(Vec::new()));
        assert_eq!(template("{none}"), Err("none".into()));
        assert_eq!(template("a {"), Err(String::new()));
        assert_eq!(template("a }"), Err(String::new()));
    }
}
