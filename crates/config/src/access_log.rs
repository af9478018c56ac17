//! The access log: where it is written, and what a line has.

use std::path::PathBuf;
use std::str::FromStr;

/// Where and how requests are logged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessLog {
    /// A file, or `/dev/stdout`.
    pub path: PathBuf,
    /// Layout of one line.
    pub format: AccessLogFormat,
}

/// Layout of an access log line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum AccessLogFormat {
    /// One JSON object a line, of these fields in this order.
    Fields(Vec<AccessLogField>),
    /// One JSON object a line, of all fields.
    #[default]
    Json,
    /// A text with fields in it.
    Template(Vec<AccessLogPart>),
    /// Space-separated, quoted where needed.
    Text,
}

/// A part of a template.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AccessLogPart {
    /// What a field has, `-` for nothing.
    Field(AccessLogField),
    /// This text.
    Text(String),
}

/// What is known of a request when it has ended; docs/access-log.md has the meanings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AccessLogField(&'static str);

impl AccessLogField {
    /// All names, in the order of the documentation.
    pub const NAMES: [&'static str; 19] = [
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
        "request_id",
        "status",
        "flag",
        "response_bytes",
        "duration_ms",
        "cluster",
        "upstream",
        "tries",
        "error",
    ];

    /// Its name: the key in JSON, the word in a template.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0
    }
}

impl FromStr for AccessLogField {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let found = Self::NAMES.into_iter().find(|name| *name == text);
        found.map(Self).ok_or(())
    }
}

/// Reads a template: `{field}` is a field, `{{` and `}}` are braces.
///
/// # Errors
/// The first name in braces that is no field, or a brace that is not closed (empty).
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
