//! Virtual hosts: nothing panics, and the table finds the host that a walk over all domains finds.
//!
//! The first line is the name that a client sends, each other one a domain of a host of its own.

#![no_main]

use std::fmt::Write;

use libfuzzer_sys::{Corpus, fuzz_target};
use maglor_config::{Domain, Filter};
use maglor_proxy::seams::Router;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let name = lines.next().unwrap_or_default();
    let mut yaml = String::from(
        "listeners:\n- name: l\n  address: 127.0.0.1:1\n  http:\n    virtual_hosts:\n",
    );
    for (index, domain) in lines.enumerate() {
        let Ok(domain) = std::str::from_utf8(domain) else {
            return Corpus::Reject;
        };
        let domain = domain.replace('\'', "''");
        let _ = write!(
            yaml,
            "    - domains: ['{domain}']\n      routes:\n      - {{name: '{index}', direct_response: {{status: 200}}}}\n"
        );
    }
    // Bad and repeated domains are the configuration's concern.
    let Some(router) = Router::new(&yaml) else {
        return Corpus::Reject;
    };
    assert_eq!(router.host(name), walk(&yaml, name).as_deref(), "{yaml}");
    Corpus::Keep
});

/// The most specific domain: exact with port, exact, longest suffix, longest prefix, any.
fn walk(yaml: &str, name: &[u8]) -> Option<String> {
    let config = maglor_config::parse(yaml, "fuzz.yaml").ok()?.config;
    let Filter::Http(settings) = &config.listeners[0].filter_chains[0].filter else {
        return None;
    };
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let host = host(&name);
    let rank = |domain: &Domain| match domain {
        Domain::Exact(exact) if *exact == name => Some((4, 0)),
        Domain::Exact(exact) if exact == host => Some((3, 0)),
        Domain::Suffix(suffix) if host.len() > suffix.len() && host.ends_with(suffix) => {
            Some((2, suffix.len()))
        }
        Domain::Prefix(prefix) if host.len() > prefix.len() && host.starts_with(prefix) => {
            Some((1, prefix.len()))
        }
        Domain::Any => Some((0, 0)),
        _ => None,
    };
    let hosts = settings.routes.virtual_hosts.iter();
    let ranked = hosts.filter_map(|host| {
        let best = host.domains.iter().filter_map(rank).max()?;
        Some((best, host.routes.first()?.name.to_string()))
    });
    ranked.max_by_key(|(best, _)| *best).map(|(_, route)| route)
}

/// The name without port and root dot.
fn host(name: &str) -> &str {
    let host = match name.rfind(':') {
        Some(at) if name[at + 1..].bytes().all(|byte| byte.is_ascii_digit()) => {
            let before = &name[..at];
            let bracketed = before.starts_with('[') && before.ends_with(']');
            let bare = !before.starts_with('[') && !before.ends_with(']') && !before.ends_with(':');
            if bracketed || bare { before } else { name }
        }
        _ => name,
    };
    host.strip_suffix('.').unwrap_or(host)
}
