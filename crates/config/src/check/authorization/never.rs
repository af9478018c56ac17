//! Texts of conditions that no request has. A deny rule with such a text would deny nothing.

use maglor_identity::SpiffeId;

use crate::authorization::Pattern;
use crate::listener::PathNormalization;
use crate::normal_path::Part;
use crate::yaml;

/// Why no request can match a text, and what to write instead.
pub(super) struct Never {
    pub(super) why: &'static str,
    pub(super) instead: String,
}

fn never(why: &'static str, instead: impl Into<String>) -> Option<Never> {
    let instead = instead.into();
    Some(Never { why, instead })
}

/// Suggests a text in place of that of a pattern.
fn write(pattern: &Pattern, text: &str) -> String {
    let text = yaml::short(text);
    match pattern {
        Pattern::Prefix(_) => format!("write `{text}*`"),
        Pattern::Suffix(_) => format!("write `*{text}`"),
        Pattern::Any | Pattern::Exact(_) => format!("write `{text}`"),
    }
}

pub(super) fn an_identity(pattern: &Pattern) -> Option<Never> {
    const SCHEME: &str = "spiffe://";
    match pattern {
        Pattern::Exact(text) => {
            let id = text.parse::<SpiffeId>().ok()?;
            let domain = id
                .path()
                .is_empty()
                .then(|| id.trust_domain().to_string())?;
            never(
                "this is a trust domain, not a workload",
                format!("write `trust_domains: [{domain}]`"),
            )
        }
        Pattern::Prefix(text)
            if !text.starts_with(SCHEME) && !SCHEME.starts_with(text.as_str()) =>
        {
            never(
                "an identity starts with `spiffe://`",
                format!("write `{SCHEME}{}*`", yaml::short(text)),
            )
        }
        _ => None,
    }
}

pub(super) fn a_path(pattern: &Pattern, mode: PathNormalization) -> Option<Never> {
    let (text, part) = match pattern {
        Pattern::Any => return None,
        Pattern::Exact(text) => (text, Part::Whole),
        Pattern::Prefix(text) => (text, Part::Beginning),
        Pattern::Suffix(text) => (text, Part::End),
    };
    if part == Part::Beginning && !text.starts_with('/') {
        let help = format!("write `/{}*`", yaml::short(text));
        return never("a path begins with `/`", help);
    }
    if text.contains(['?', '#']) {
        let help = "remove what follows the path";
        return never("paths are compared without query", help);
    }
    if !mode.can_yield(text, part) {
        let normal = mode.normalized(text.as_bytes());
        let help = match part {
            Part::Whole => write(pattern, &String::from_utf8_lossy(&normal)),
            _ => "write it without dot segments, with unreserved characters decoded, and others encoded in upper case"
                .to_owned(),
        };
        return never("paths are normalized before they are compared", help);
    }
    None
}

pub(super) fn a_host(pattern: &Pattern) -> Option<Never> {
    const NO_PORT: &str = "hosts are compared without port";
    let (text, begins) = match pattern {
        Pattern::Any => return None,
        Pattern::Exact(text) | Pattern::Suffix(text) => (text, false),
        Pattern::Prefix(text) => (text, true),
    };
    // The colons of an IPv6 address are in brackets.
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port))
            if !port.contains(']') && host.matches('[').count() == host.matches(']').count() =>
        {
            (host, Some(port))
        }
        _ => (text.as_str(), None),
    };
    if host.contains(':') && !host.contains('[') && !begins {
        let help = format!("write `[{}]`", yaml::short(text));
        return never("an IPv6 address is in brackets", help);
    }
    match port {
        Some(_) if begins => never(
            NO_PORT,
            format!("write `{}`, which matches any port", yaml::short(host)),
        ),
        Some(port)
            if !port.is_empty()
                && port.bytes().all(|byte| byte.is_ascii_digit())
                && !host.is_empty() =>
        {
            never(
                NO_PORT,
                format!(
                    "{}; to match a port of the server add `ports: [{port}]`",
                    write(pattern, host)
                ),
            )
        }
        Some(_) => never(NO_PORT, "match a port of the server with `ports`"),
        None if text.ends_with('.') && !begins => never(
            "hosts are compared without the final dot",
            write(pattern, host.trim_end_matches('.')),
        ),
        None => None,
    }
}
