//! Validates host names: of endpoints, of virtual hosts, of TLS clients.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Domain;

/// Returns a DNS name in lower case, or why it is invalid.
pub(super) fn dns_name(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        return Err("the name is empty");
    }
    if !text.is_ascii() {
        return Err("write international names in `xn--` form (punycode)");
    }
    if text.len() > 253 {
        return Err("the name is longer than 253 characters");
    }
    if text.contains("://") || text.contains('/') {
        return Err("write only the name, without scheme and path");
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    for label in name.split('.') {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if label.is_empty() {
            return Err("the name has an empty label between dots");
        }
        if label.len() > 63 {
            return Err("a label is longer than 63 characters");
        }
        if !label.chars().all(good) || label.starts_with('-') || label.ends_with('-') {
            return Err("a label must consist of letters, digits and inner hyphens");
        }
    }
    Ok(name.to_ascii_lowercase())
}

/// Returns whether a name is probably meant as an IPv4 address: it has digits and dots only.
pub(super) fn looks_like_ipv4(text: &str) -> bool {
    text.contains('.') && text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Parses a domain of a virtual host, or returns why it is invalid.
pub(super) fn domain(text: &str) -> Result<Domain, String> {
    if text == "*" {
        return Ok(Domain::Any);
    }
    let wildcard = |what: &str, host: &str| {
        let name = dns_name(host).map_err(str::to_owned)?;
        if host.contains(':') || host.ends_with('.') || looks_like_ipv4(host) {
            return Err(format!("write {what} with a name without port"));
        }
        Ok(name)
    };
    if let Some(rest) = text.strip_prefix("*.") {
        return Ok(Domain::Suffix(format!(".{}", wildcard("`*.`", rest)?)));
    }
    if let Some(rest) = text.strip_suffix(".*") {
        return Ok(Domain::Prefix(format!("{}.", wildcard("`.*`", rest)?)));
    }
    if text.contains("://") || text.contains([' ', ',', '~']) {
        let meant = crate::hints::shapes::domains(text);
        return Err(meant.map_or_else(
            || {
                "regular expressions are not supported; write `*`, `*.example.com` or `www.*`"
                    .into()
            },
            |names| format!("write `{names}`"),
        ));
    }
    if text.contains('*') {
        return Err("a wildcard must be `*`, `*.example.com` or `www.*`".into());
    }
    exact(text).map(Domain::Exact)
}

/// Validates a host name or address, with or without port, in the form that clients send.
pub(super) fn exact(text: &str) -> Result<String, String> {
    if text.contains("://") || text.contains('/') {
        return Err("write only the host, without scheme and path".into());
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, tail) = rest.split_once(']').ok_or("the `]` is missing")?;
            let address: Ipv6Addr = address
                .parse()
                .map_err(|_| "the host is not a valid IPv6 address")?;
            let port = match tail.strip_prefix(':') {
                Some(port) => Some(port),
                None if tail.is_empty() => None,
                None => return Err("after `]` only `:PORT` may follow".into()),
            };
            (format!("[{address}]"), port)
        }
        None if text.parse::<Ipv6Addr>().is_ok() => {
            return Err(format!("write an IPv6 address in brackets: `[{text}]`"));
        }
        None => {
            let (host, port) = match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            if looks_like_ipv4(host) && host.parse::<Ipv4Addr>().is_err() {
                return Err("the host is not a valid IPv4 address".into());
            }
            (dns_name(host)?, port)
        }
    };
    match port {
        None => Ok(host),
        Some(port) => match port.parse::<u16>() {
            Ok(number) if number > 0 => Ok(format!("{host}:{number}")),
            _ => Err("the port must be 1 to 65535".into()),
        },
    }
}

/// Validates a server name of a filter chain (SNI), or returns why it is invalid.
pub(super) fn server_name(text: &str) -> Result<String, String> {
    if text == "*" {
        return Err("omit `server_names` to match any name".into());
    }
    if text.parse::<IpAddr>().is_ok() || looks_like_ipv4(text) {
        return Err(
            "clients send no server name when they connect to an IP address; remove this entry"
                .into(),
        );
    }
    match text.strip_prefix("*.") {
        Some(rest) => Ok(format!("*.{}", dns_name(rest)?)),
        None if text.contains('*') => Err("a wildcard must have the form `*.example.com`".into()),
        None => Ok(dns_name(text)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_have_four_forms() {
        assert_eq!(domain("*"), Ok(Domain::Any));
        assert_eq!(
            domain("*.Example.com"),
            Ok(Domain::Suffix(".example.com".into()))
        );
        assert_eq!(domain("www.*"), Ok(Domain::Prefix("www.".into())));
        assert_eq!(domain("A.b:80"), Ok(Domain::Exact("a.b:80".into())));
        assert_eq!(domain("10.0.0.1"), Ok(Domain::Exact("10.0.0.1".into())));
        assert_eq!(domain("[::1]:8080"), Ok(Domain::Exact("[::1]:8080".into())));
        for bad in [
            "",
            "*a.com",
            "a.*.com",
            "*.*",
            "**",
            "http://a",
            "a/b",
            "a..b",
            "::1",
            "[::1",
            "a:0",
            "a:x",
            "*.a:80",
            "-a.com",
            "1.2.3.400",
            "ü.de",
            "[::1]x",
            "*.",
            ".*",
        ] {
            assert!(domain(bad).is_err(), "{bad}: {:?}", domain(bad));
        }
    }

    #[test]
    fn server_names_are_names_or_suffix_wildcards() {
        assert_eq!(server_name("*.A.com").as_deref(), Ok("*.a.com"));
        assert_eq!(server_name("a.com").as_deref(), Ok("a.com"));
        for bad in ["*", "a.*", "1.2.3.4", "a:443", "", "::1"] {
            assert!(server_name(bad).is_err(), "{bad}");
        }
    }
}
