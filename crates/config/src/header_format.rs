//! Envoy's format strings in the values of header rules.
//!
//! Our values are literal: `100%` is `100%`. In Envoy's `HeaderValue.value` (config.core.v3) a `%` begins a command,
//! such as `%START_TIME%`, and `%%` is a percent sign. Istio passes the values of a VirtualService to Envoy unchanged.

use std::borrow::Cow;

/// The names of Envoy's commands (Envoy, "Access logging", "Command operators").
const COMMANDS: &[&str] = &[
    "ACCESS_LOG_TYPE",
    "BYTES_",
    "CEL",
    "CLUSTER_METADATA",
    "COMMON_DURATION",
    "CONNECTION_",
    "CUSTOM_FLAGS",
    "DOWNSTREAM_",
    "DURATION",
    "DYNAMIC_METADATA",
    "EMIT_TIME",
    "ENVIRONMENT",
    "FILTER_CHAIN_NAME",
    "FILTER_STATE",
    "GRPC_STATUS",
    "HOSTNAME",
    "LISTENER_METADATA",
    "LOCAL_REPLY_BODY",
    "METADATA",
    "PATH",
    "PER_REQUEST_STATE",
    "PROTOCOL",
    "QUERY_PARAM",
    "REQ",
    "RESP",
    "ROUTE_",
    "SPAN_ID",
    "START_TIME",
    "STREAM_ID",
    "TLS_JA3_FINGERPRINT",
    "TRACE_ID",
    "TRAILER",
    "UNIQUE_ID",
    "UPSTREAM_",
    "VIRTUAL_CLUSTER_NAME",
];

/// The reason why a value is not literal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NotLiteral<'a> {
    /// A command, without the enclosing `%`, such as `REQ(x-user)`.
    Command(&'a str),
    /// A `%` that is neither part of a command nor doubled.
    Percent,
}

/// Converts a literal value to Envoy's form.
#[must_use]
pub fn escape(value: &str) -> Cow<'_, str> {
    match value.contains('%') {
        true => value.replace('%', "%%").into(),
        false => value.into(),
    }
}

/// Converts a value in Envoy's form to a literal one.
///
/// # Errors
///
/// If the value contains a command, or a `%` that Envoy would reject.
pub fn unescape(value: &str) -> Result<Cow<'_, str>, NotLiteral<'_>> {
    read(value, false)
}

/// Converts a VirtualService's value to a literal one, as [`unescape`] does, but takes a `%` that begins no command
/// literally, where Envoy would reject it.
///
/// # Errors
///
/// If the value contains a command.
pub fn unescape_lenient(value: &str) -> Result<Cow<'_, str>, NotLiteral<'_>> {
    read(value, true)
}

fn read(value: &str, lenient: bool) -> Result<Cow<'_, str>, NotLiteral<'_>> {
    if !value.contains('%') {
        return Ok(value.into());
    }
    let (mut out, mut rest) = (String::with_capacity(value.len()), value);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = match after.strip_prefix('%') {
            Some(after) => after,
            None => match form(after) {
                Some(command) => return Err(NotLiteral::Command(command)),
                None if lenient => after,
                None => return Err(NotLiteral::Percent),
            },
        };
        out.push('%');
    }
    out.push_str(rest);
    Ok(out.into())
}

/// Returns the first of Envoy's commands in a value of the Gateway API or of our own resources, in which `%` is
/// otherwise literal. Percent-encoded bytes are not commands.
#[must_use]
pub fn command(value: &str) -> Option<&str> {
    let mut rest = value;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        let found = form(rest).filter(|text| {
            let name = text.split(['(', ':']).next().unwrap_or_default();
            let is = |known: &&str| match known.strip_suffix('_') {
                Some(_) => name.starts_with(*known),
                None => name == *known || name.strip_prefix(*known).is_some_and(is_variant),
            };
            COMMANDS.iter().any(is)
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Matches variants of a command: `REQUEST_…`, `REQ_WITHOUT_QUERY`, `RESPONSE_CODE`, `START_TIME_LOCAL`, `PATH_…`.
fn is_variant(rest: &str) -> bool {
    rest.starts_with('_') || rest.starts_with("UEST") || rest.starts_with("ONSE_")
}

/// Matches `NAME`, `NAME(ARGUMENT)` or `NAME:LENGTH` up to the closing `%`.
fn form(after: &str) -> Option<&str> {
    let name = after
        .bytes()
        .take_while(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'));
    // Two hexadecimal digits are a percent-encoded byte.
    let name = Some(name.count())
        .filter(|count| *count > 2 && !after.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut end = name;
    if after[end..].starts_with('(') {
        end += after[end..].find(')')? + 1;
    }
    if let Some(length) = after[end..].strip_prefix(':') {
        end += 1 + length.bytes().take_while(u8::is_ascii_digit).count();
    }
    after[end..].starts_with('%').then(|| &after[..end])
}

/// Returns the reason why a command cannot be used, with an alternative.
#[must_use]
pub fn refusal(command: &str) -> String {
    let name = command.split(['(', ':']).next().unwrap_or_default();
    let instead = match name {
        _ if name.starts_with("DOWNSTREAM_REMOTE_ADDRESS")
            || name.starts_with("DOWNSTREAM_DIRECT_REMOTE") =>
        {
            "`x-forwarded-for` has the client's address"
        }
        _ if name.starts_with("DOWNSTREAM_PEER") || name.starts_with("DOWNSTREAM_TLS") => {
            "`x-forwarded-client-cert` has the client's identity"
        }
        "STREAM_ID" | "TRACE_ID" | "UNIQUE_ID" => "`x-request-id` identifies the request",
        _ if name.starts_with("START_TIME")
            || name.starts_with("RESP")
            || name.starts_with("BYTES_")
            || name.starts_with("DURATION") =>
        {
            "the access log has this value"
        }
        "REQ" => "request headers are forwarded under their own names",
        _ => "write literal text",
    };
    format!("`%{command}%` is a format string of Envoy; header values are literal text: {instead}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_values_come_back() {
        for value in [
            "",
            "100%",
            "%",
            "%%",
            "a%20b",
            "%START_TIME%",
            "%%REQ(x)%%",
            "é%é",
            "50% of %d",
        ] {
            assert_eq!(unescape(&escape(value)).unwrap(), value);
        }
    }

    #[test]
    fn commands_are_distinguished_from_percent_signs() {
        for (value, lenient, found) in [
            ("100%", Ok("100%"), None),
            ("100%%", Ok("100%"), None),
            ("a%20b%E2%82%AC", Ok("a%20b%E2%82%AC"), None),
            ("%REQ(x-user)%", Err("REQ(x-user)"), Some("REQ(x-user)")),
            (
                "a %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% b",
                Err("DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT"),
                Some("DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT"),
            ),
            (
                "%START_TIME(%s.%3f)%",
                Err("START_TIME(%s.%3f)"),
                Some("START_TIME(%s.%3f)"),
            ),
            (
                "%REQ(:PATH):10%",
                Err("REQ(:PATH):10"),
                Some("REQ(:PATH):10"),
            ),
            (
                "%RESPONSE_CODE%",
                Err("RESPONSE_CODE"),
                Some("RESPONSE_CODE"),
            ),
            (
                "%REQUESTED_SERVER_NAME%",
                Err("REQUESTED_SERVER_NAME"),
                Some("REQUESTED_SERVER_NAME"),
            ),
            ("%%REQ(x)%%", Ok("%REQ(x)%"), Some("REQ(x)")),
            ("%WINDIR%", Err("WINDIR"), None),
            ("%ABC", Ok("%ABC"), None),
            ("%REQ(", Ok("%REQ("), None),
        ] {
            let read = unescape_lenient(value);
            let expected = lenient.map(Cow::from).map_err(NotLiteral::Command);
            assert_eq!(read, expected, "{value}");
            assert_eq!(command(value), found, "{value}");
        }
        assert_eq!(unescape("100%"), Err(NotLiteral::Percent));
    }
}
