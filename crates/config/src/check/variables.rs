//! Detects variables of other proxies in the values of headers.
//!
//! Values are literal. A value in which another proxy would insert a variable is rejected, because it is probably not
//! meant literally. A `$` with a word that is not a known variable causes a warning.

use crate::header_format;

/// A variable in a value.
pub(super) struct Variable {
    /// The variable as written.
    pub(super) text: String,
    /// The name of the program that has this variable.
    pub(super) program: &'static str,
    /// The suggested alternative; `None` if the variable is unknown, so that the text may be meant literally.
    pub(super) instead: Option<&'static str>,
}

const ADDRESS: &str = "remove this header: `x-forwarded-for` has the client's address; with \
                       `http.x_forwarded: replace`, no other address";
const HOST: &str =
    "remove this header: `host` is forwarded, and `x-forwarded-host` has the original host";
const SCHEME: &str = "remove this header: `x-forwarded-proto` is `http` or `https`";
const REQUEST_ID: &str = "remove this header: `x-request-id` identifies each request";
const CERTIFICATE: &str = "remove this header: `x-forwarded-client-cert` has the client's identity \
                           (`http.x_forwarded_client_cert`)";
const PATH: &str = "remove this header: path and query are forwarded; the access log has both as they are before a rewrite";
const LOG: &str = "remove this header: the access log has this value";
const HEADER: &str = "remove this header: headers are forwarded under their own names";
const UPSTREAM: &str = "remove this header: the access log has the endpoint";
const LITERAL: &str = "write literal text";

/// Pairs of the beginning of a name, in lower case and snake case, and the alternative. The first match applies.
const NAMES: &[(&str, &str)] = &[
    ("remote_addr", ADDRESS),
    ("remote_port", ADDRESS),
    ("remote_host", ADDRESS),
    ("remote_ip", ADDRESS),
    ("remote", ADDRESS),
    ("client_ip", ADDRESS),
    ("binary_remote", ADDRESS),
    ("realip", ADDRESS),
    ("proxy_add_x_forwarded_for", ADDRESS),
    ("proxy_protocol_addr", ADDRESS),
    ("src", ADDRESS),
    ("host", HOST),
    ("http_host", HOST),
    ("hostport", HOST),
    ("server_name", HOST),
    ("server_port", HOST),
    ("proxy_host", HOST),
    ("port", HOST),
    ("scheme", SCHEME),
    ("https", SCHEME),
    ("request_id", REQUEST_ID),
    ("uuid", REQUEST_ID),
    ("unique_id", REQUEST_ID),
    ("ssl_", CERTIFICATE),
    ("tls_", CERTIFICATE),
    ("request_uri", PATH),
    ("request_filename", PATH),
    ("request_path", PATH),
    ("request_method", LOG),
    ("uri", PATH),
    ("path", PATH),
    ("query", PATH),
    ("args", PATH),
    ("is_args", PATH),
    ("document_uri", PATH),
    ("method", LOG),
    ("status", LOG),
    ("request_time", LOG),
    ("msec", LOG),
    ("time_", LOG),
    ("bytes_sent", LOG),
    ("body_bytes_sent", LOG),
    ("request_length", LOG),
    ("upstream", UPSTREAM),
    ("proxy_", UPSTREAM),
    (
        "http_upgrade",
        "remove this header: WebSocket upgrades are forwarded (`http.upgrades`)",
    ),
    (
        "connection_upgrade",
        "remove this header: WebSocket upgrades are forwarded (`http.upgrades`)",
    ),
    ("http_", HEADER),
    ("header", HEADER),
    ("req_", HEADER),
    ("sent_http_", HEADER),
    ("cookie_", HEADER),
    ("arg_", PATH),
    ("server_", LITERAL),
    ("hostname", LITERAL),
    ("env_", LITERAL),
    ("pid", LITERAL),
    ("nginx_version", LITERAL),
];

fn known(name: &str) -> Option<&'static str> {
    let name: String = name
        .chars()
        .take(64)
        .map(|c| match c {
            '.' | '-' | '>' => '_',
            c => c.to_ascii_lowercase(),
        })
        .collect();
    // Caddy's `http.request.…`.
    let name = name.strip_prefix("http_request_").unwrap_or(&name);
    let row = NAMES
        .iter()
        .find(|(beginning, _)| name.starts_with(*beginning));
    row.map(|(_, instead)| *instead)
}

/// Returns the first variable of a value.
pub(super) fn find(value: &str) -> Option<Variable> {
    if !value.contains(['$', '%', '{']) {
        return None;
    }
    haproxy(value)
        .or_else(|| envoy(value))
        .or_else(|| nginx(value))
        .or_else(|| caddy(value))
}

fn envoy(value: &str) -> Option<Variable> {
    let command = header_format::command(value)?;
    let instead = match command.split(['(', ':']).next().unwrap_or_default() {
        name if name.starts_with("DOWNSTREAM_REMOTE") || name.starts_with("DOWNSTREAM_DIRECT") => {
            ADDRESS
        }
        name if name.starts_with("DOWNSTREAM_") => CERTIFICATE,
        name if name.starts_with("UPSTREAM_") => UPSTREAM,
        "REQ" => HEADER,
        "STREAM_ID" | "TRACE_ID" | "UNIQUE_ID" => REQUEST_ID,
        "HOSTNAME" | "ENVIRONMENT" => LITERAL,
        _ => LOG,
    };
    Some(Variable {
        text: format!("%{command}%"),
        program: "Envoy",
        instead: Some(instead),
    })
}

/// Matches variables of HAProxy: `%[src]`, `%{+Q}[…]`, `%ci`.
fn haproxy(value: &str) -> Option<Variable> {
    let at = value.find("%[")?;
    let end = value[at..].find(']')?;
    let inner = &value[at + 2..at + end];
    let name = inner.split(['(', ',']).next().unwrap_or_default();
    Some(Variable {
        text: value[at..=at + end].to_owned(),
        program: "HAProxy",
        instead: Some(match name {
            "req.hdr" | "req.fhdr" | "hdr" => HEADER,
            name if name.starts_with("ssl") => CERTIFICATE,
            name => known(name).unwrap_or(LITERAL),
        }),
    })
}

/// Matches variables of nginx: `$remote_addr`, `${remote_addr}`.
fn nginx(value: &str) -> Option<Variable> {
    value.match_indices('$').find_map(|(at, _)| {
        let rest = &value[at + 1..];
        let (inner, braces) = match rest.strip_prefix('{') {
            Some(inner) => (inner, true),
            None => (rest, false),
        };
        let end = inner
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(inner.len());
        let name = &inner[..end];
        let closed = !braces || inner[end..].starts_with('}');
        let variable = name.len() > 2 && name.starts_with(|c: char| c.is_ascii_alphabetic());
        (variable && closed).then(|| Variable {
            text: if braces {
                format!("${{{name}}}")
            } else {
                format!("${name}")
            },
            program: match name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
                true => "the environment",
                false => "nginx",
            },
            instead: match name.chars().any(|c| c.is_ascii_lowercase()) {
                true => known(name),
                false => Some("render the file first, for example with `envsubst`"),
            },
        })
    })
}

/// Matches placeholders of Caddy: `{remote_host}`, `{http.request.header.X}`, `{header.X}`.
fn caddy(value: &str) -> Option<Variable> {
    value.match_indices('{').find_map(|(at, _)| {
        let inner = value[at + 1..].split_once('}')?.0;
        let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '>');
        if inner.is_empty() || !inner.chars().all(name) {
            return None;
        }
        Some(Variable {
            text: format!("{{{inner}}}"),
            program: "Caddy",
            instead: Some(known(inner)?),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_others_are_found() {
        for (value, text) in [
            ("$remote_addr", "$remote_addr"),
            ("a ${host}:$server_port", "${host}"),
            ("$http_x_user", "$http_x_user"),
            ("%DOWNSTREAM_REMOTE_ADDRESS%", "%DOWNSTREAM_REMOTE_ADDRESS%"),
            ("%REQ(x-user)%", "%REQ(x-user)%"),
            ("%[src]", "%[src]"),
            ("%[req.hdr(host)]", "%[req.hdr(host)]"),
            ("{remote_host}", "{remote_host}"),
            ("{http.request.host}", "{http.request.host}"),
            ("$HOSTNAME", "$HOSTNAME"),
            ("$my_variable", "$my_variable"),
        ] {
            assert_eq!(find(value).unwrap().text, text);
        }
    }

    #[test]
    fn plain_text_has_no_variables() {
        for value in [
            "100%",
            "$5",
            "costs $5 or 10%",
            "a%20b",
            "{\"group\":\"default\",\"max_age\":10886400}",
            "default-src 'self'; img-src *",
            "{}",
            "{a b}",
            "max-age=63072000",
            "^/a$",
        ] {
            assert!(find(value).is_none(), "{value}");
        }
    }
}
