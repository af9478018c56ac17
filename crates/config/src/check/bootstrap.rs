//! Validates top-level settings.

use std::collections::BTreeMap;
use std::time::Duration;

use super::rule;
use crate::report::At;
use crate::{Admin, Config, LogLevel, Probe, raw};

const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn workers(raw: &raw::Document, at: &At<'_>) -> usize {
    rule::number(raw.workers, &at.field("workers"), 1, 1..=256) as usize
}

pub(super) fn admin(raw: &raw::Document, at: &At<'_>) -> Option<Admin> {
    let admin = raw.admin.as_ref()?;
    let address = rule::listen_address(admin.address.as_ref(), &at.field("admin"))?;
    let at = at.field("admin");
    let Some(address) = address.ip() else {
        at.field("address")
            .error("the admin server listens on IP addresses only")
            .help("write `127.0.0.1:15000`, which is reachable only from this host");
        return None;
    };
    let opened = admin.remote_access == Some(raw::RemoteAccess::Full);
    let ip = address.ip().to_canonical();
    if !opened && !ip.is_loopback() && !ip.is_unspecified() {
        at.field("address")
            .warning("operator pages (`/config`, `/drain`, `/tap`) are unreachable: they are served only over loopback")
            .help("listen on `0.0.0.0` or `[::]`, which includes loopback, or set `remote_access: full`");
    }
    let at = at.field("probes");
    let mut probes = BTreeMap::new();
    for (name, text) in &admin.probes {
        let at = at.field(name);
        if name.is_empty() || !name.bytes().all(in_path) {
            at.error("the name of the probe is not valid in a URL path; use letters, digits, `-`, `.`, `_` and `/`");
        }
        match text.parse::<Probe>() {
            Ok(probe) => {
                probes.insert(name.clone(), probe);
            }
            Err(error) => {
                at.error(error.to_string());
            }
        }
    }
    Some(Admin {
        address,
        opened,
        probes,
    })
}

fn in_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._/".contains(&byte)
}

pub(super) fn log_level(raw: &raw::Document) -> LogLevel {
    match raw.log_level {
        None | Some(raw::LogLevel::Info) => LogLevel::Info,
        Some(raw::LogLevel::Error) => LogLevel::Error,
        Some(raw::LogLevel::Warn) => LogLevel::Warn,
        Some(raw::LogLevel::Debug) => LogLevel::Debug,
        Some(raw::LogLevel::Trace) => LogLevel::Trace,
    }
}

pub(super) fn memory_budget(raw: &raw::Document, at: &At<'_>) -> Option<u64> {
    let set = raw.memory_budget?;
    let range = Config::LEAST_MEMORY_BUDGET..=Config::MOST_MEMORY_BUDGET;
    let size = rule::size(Some(set), &at.field("memory_budget"), 32 << 20, range);
    Some(size as u64)
}

pub(super) fn drain_timeout(raw: &raw::Document, at: &At<'_>) -> Duration {
    let range = Duration::ZERO..=rule::DAY;
    let place = at.field("drain_timeout");
    rule::time(raw.drain_timeout, &place, DRAIN_TIMEOUT, range)
}

pub(super) fn outbound_grace(raw: &raw::Document, at: &At<'_>) -> Duration {
    let limit = raw.drain_timeout.map_or(DRAIN_TIMEOUT, |span| span.0);
    let place = at.field("outbound_grace");
    let range = Duration::ZERO..=rule::DAY;
    let grace = rule::time(raw.outbound_grace, &place, 5 * rule::SECOND, range);
    if raw.outbound_grace.is_some() {
        let (grace, limit) = (("outbound_grace", grace), ("drain_timeout", limit));
        rule::ordered(grace, limit, at);
    }
    grace.min(limit)
}
