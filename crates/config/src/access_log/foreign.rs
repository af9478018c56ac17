//! The names of access log fields in nginx and Envoy, for errors that suggest our notation.

/// Our notation, with the variables of nginx and the commands of Envoy (both "access logging") that mean the same.
const NAMES: &[(&str, &[&str], &[&str])] = &[
    (
        "{client}",
        &["remote_addr", "remote_port", "realip_remote_addr"],
        &[
            "DOWNSTREAM_REMOTE_ADDRESS",
            "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
            "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
        ],
    ),
    ("{cluster}", &["proxy_host"], &["UPSTREAM_CLUSTER"]),
    (
        "{duration_ms}",
        &["request_time", "upstream_response_time"],
        &["DURATION"],
    ),
    (
        "{response_ms}",
        &["upstream_header_time"],
        &["RESPONSE_DURATION", "RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)"],
    ),
    (
        "{forwarded_for}",
        &["http_x_forwarded_for"],
        &["REQ(X-FORWARDED-FOR)"],
    ),
    ("{referer}", &["http_referer"], &["REQ(REFERER)"]),
    ("{error}", &[], &["RESPONSE_CODE_DETAILS"]),
    ("{flag}", &[], &["RESPONSE_FLAGS"]),
    (
        "{host}",
        &["host", "http_host"],
        &["REQ(:AUTHORITY)", "REQ(HOST)"],
    ),
    ("{method}", &["request_method"], &["REQ(:METHOD)"]),
    ("{method} {target} {protocol}", &["request"], &[]),
    (
        "{peer}",
        &["ssl_client_s_dn"],
        &["DOWNSTREAM_PEER_URI_SAN", "DOWNSTREAM_PEER_SUBJECT"],
    ),
    ("{protocol}", &["server_protocol"], &["PROTOCOL"]),
    (
        "{request_id}",
        &["request_id", "http_x_request_id"],
        &["REQ(X-REQUEST-ID)", "STREAM_ID"],
    ),
    (
        "{response_bytes}",
        &["body_bytes_sent", "bytes_sent"],
        &["BYTES_SENT"],
    ),
    ("{status}", &["status"], &["RESPONSE_CODE"]),
    (
        "{target}",
        &["request_uri", "uri"],
        &["PATH", "REQ(:PATH)", "REQ(X-ENVOY-ORIGINAL-PATH?:PATH)"],
    ),
    (
        "{trace_id}",
        &["otel_trace_id", "opentelemetry_trace_id"],
        &["TRACE_ID"],
    ),
    (
        "{time}",
        &["time_local", "time_iso8601", "msec"],
        &["START_TIME"],
    ),
    (
        concat!("{", "tries", "}"),
        &[],
        &["UPSTREAM_REQUEST_ATTEMPT_COUNT"],
    ),
    ("{upstream}", &["upstream_addr"], &["UPSTREAM_HOST"]),
    ("{user_agent}", &["http_user_agent"], &["REQ(USER-AGENT)"]),
    // Without a name of ours: what is always absent here.
    ("-", &["remote_user", "gzip_ratio"], &[]),
];

/// Returns our notation for a name of nginx, without `$`, or of Envoy, without `%`.
pub(crate) fn notation(name: &str) -> Option<&'static str> {
    // `REQ(HOST):10` has a length.
    let bare = match name.split_once(')') {
        Some((inside, _)) if inside.starts_with("REQ(") || inside.starts_with("RESP(") => {
            format!("{inside})")
        }
        _ => name.split(['(', ':']).next().unwrap_or(name).to_owned(),
    };
    let found = NAMES.iter().find(|(_, nginx, envoy)| {
        nginx.contains(&&*bare) || envoy.iter().any(|one| one.eq_ignore_ascii_case(&bare))
    });
    found.map(|(ours, ..)| *ours)
}

/// A name of another proxy in a template, and the whole template in our notation.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Foreign {
    /// The first name of another proxy, as written.
    pub(crate) found: String,
    pub(crate) program: &'static str,
    /// The whole template, with all known names replaced.
    pub(crate) ours: String,
}

/// Finds names of other proxies in a template; `$5` and `100 %` are literal text.
pub(crate) fn translate(template: &str) -> Option<Foreign> {
    let (mut ours, mut first, mut rest) = (String::new(), None, template);
    while let Some(at) = rest.find(['$', '%']) {
        let (before, after) = rest.split_at(at);
        ours.push_str(before);
        let found = match after.starts_with('$') {
            true => variable(after).map(|found| (found, "nginx")),
            false => command(after).map(|found| (found, "Envoy")),
        };
        let length = match found {
            Some(((text, name), program)) => {
                ours.push_str(notation(name).unwrap_or(text));
                first.get_or_insert((text.to_owned(), program));
                text.len()
            }
            None => {
                ours.push_str(&after[..1]);
                1
            }
        };
        rest = &after[length..];
    }
    ours.push_str(rest);
    first.map(|(found, program)| Foreign {
        found,
        program,
        ours,
    })
}

/// Returns the nginx variable at the beginning of a text, as written and as named: `$status`, `${status}`.
fn variable(text: &str) -> Option<(&str, &str)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let inner = text.strip_prefix('$')?;
    if let Some(inner) = inner.strip_prefix('{') {
        let (name, _) = inner.split_once('}')?;
        let all = !name.is_empty() && name.chars().all(is_name);
        return all.then(|| (&text[..name.len() + 3], name));
    }
    let end = inner.find(|c| !is_name(c)).unwrap_or(inner.len());
    let name = &inner[..end];
    name.starts_with(|c: char| c.is_ascii_lowercase())
        .then(|| (&text[..=end], name))
}

/// Returns the Envoy command at the beginning of a text: `%REQ(:METHOD)%`.
fn command(text: &str) -> Option<(&str, &str)> {
    let (name, _) = text.strip_prefix('%')?.split_once('%')?;
    let upper = |c: char| c.is_ascii_uppercase() || c == '_';
    let end = name.find(|c| !upper(c)).unwrap_or(name.len());
    let is_command = end > 2 && matches!(name[end..].chars().next(), None | Some('(' | ':'));
    is_command.then(|| (&text[..name.len() + 2], name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessLogPart;

    #[test]
    fn all_notations_are_templates() {
        for (ours, ..) in NAMES {
            let parts = super::super::template(ours).unwrap();
            assert!(!parts.is_empty(), "{ours}");
        }
        let field = |name: &str| super::super::template(notation(name).unwrap()).unwrap();
        for name in [
            "remote_addr",
            "DOWNSTREAM_REMOTE_ADDRESS",
            "%".trim_matches('%'),
        ] {
            if !name.is_empty() {
                assert_eq!(
                    field(name),
                    [AccessLogPart::Field("client".parse().unwrap())]
                );
            }
        }
    }

    #[test]
    fn formats_of_other_proxies_are_translated() {
        let nginx = "$remote_addr - $remote_user [$time_local] \"$request\" $status ${body_bytes_sent} $unknown_one";
        let translated = translate(nginx).unwrap();
        assert_eq!(
            (translated.found.as_str(), translated.program),
            ("$remote_addr", "nginx")
        );
        assert_eq!(
            translated.ours,
            "{client} - - [{time}] \"{method} {target} {protocol}\" {status} {response_bytes} $unknown_one"
        );
        let envoy = "[%START_TIME%] %REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %RESPONSE_CODE% %RESPONSE_FLAGS%";
        let translated = translate(envoy).unwrap();
        assert_eq!(translated.program, "Envoy");
        assert_eq!(
            translated.ours,
            "[{time}] {method} {target} {status} {flag}"
        );
        for text in [
            "{status} $5 100 % of 20 %",
            "a % b % c",
            "$",
            "${",
            "%x%",
            "{client} 5%",
        ] {
            assert_eq!(translate(text), None, "{text}");
        }
    }
}
