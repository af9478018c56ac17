//! Validates listeners on Unix sockets: the permissions of the file, and settings that need the addresses of
//! connections, which are known only from a PROXY header.

use crate::listener::Listener;
use crate::report::At;
use crate::{Address, raw};

/// Without a PROXY header the addresses of the client and of its destination are unknown.
const NO_ADDRESSES: &str =
    "add `proxy_protocol: require` if a load balancer in front sends the addresses";

/// Validates the permissions of the socket's file; returns the default if they are absent.
pub(super) fn mode(raw: Option<&str>, address: &Address, at: &At<'_>) -> u32 {
    let Some(text) = raw else {
        return Listener::DEFAULT_MODE;
    };
    let Some(unix) = address.unix() else {
        at.error("`mode` applies only to the file of a Unix socket")
            .on_key()
            .help("remove `mode`, or write `address: unix:/PATH`");
        return Listener::DEFAULT_MODE;
    };
    if unix.path().is_none() {
        at.error("a socket of the abstract namespace has no file: every process of the network namespace can connect")
            .on_key()
            .help("remove `mode`, or write `address: unix:/PATH`");
        return Listener::DEFAULT_MODE;
    }
    let read = octal(text);
    if read.is_none() {
        let text = crate::yaml::short(text);
        at.error(format!("`{text}` is not a mode")).help(
            "write a zero and three octal digits: `0660` for owner and group, `0666` for everyone",
        );
    }
    read.unwrap_or(Listener::DEFAULT_MODE)
}

/// Parses `0660` or `0o660`. The leading zero is required, so that no decimal number is read as octal.
fn octal(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('0')?;
    let digits = digits.strip_prefix('o').unwrap_or(digits);
    let octal = digits.len() == 3 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    octal.then(|| u32::from_str_radix(digits, 8).ok())?
}

/// Rejects settings that have no effect on a Unix socket.
pub(super) fn check(raw: &raw::Listener, at: &At<'_>) {
    if raw.original_destination == Some(true) {
        at.field("original_destination")
            .error("connections are not redirected to a Unix socket")
            .on_key()
            .help("remove `original_destination`, or write `address: IP:PORT`");
    }
    let short = [
        ("inbound", raw.inbound.is_some()),
        ("outbound", raw.outbound.is_some()),
    ];
    for (field, _) in short.iter().filter(|(_, there)| *there) {
        at.field(field)
            .error(format!(
                "`{field}` uses the addresses of redirected connections, which a Unix socket does not have"
            ))
            .on_key()
            .help("write `http` or `tcp`, or `address: IP:PORT`");
    }
    if raw.workload.is_some() {
        at.field("workload")
            .error("the control plane's rules for a workload depend on the destination port, which a Unix socket does not have")
            .on_key()
            .help("write `tls` and `authorization`, or `address: IP:PORT`");
    }
    if matches!(raw.proxy_protocol, None | Some(raw::ProxyProtocolIn::Off)) {
        without_addresses(raw, at);
    }
}

/// Rejects conditions on addresses, which connections to a Unix socket without PROXY header do not have.
fn without_addresses(raw: &raw::Listener, at: &At<'_>) {
    let refuse = |at: &At<'_>, what: &str| {
        at.error(format!(
            "a connection of a Unix socket has no {what}: the condition matches nothing"
        ))
        .on_key()
        .help(NO_ADDRESSES);
    };
    for (i, chain) in raw.filter_chains.iter().enumerate() {
        let Some(matches) = &chain.r#match else {
            continue;
        };
        let at = at.field("filter_chains");
        let at = at.index(i);
        let at = at.field("match");
        let conditions = [
            (
                "destination_ports",
                !matches.destination_ports.is_empty(),
                "port",
            ),
            (
                "destination_networks",
                !matches.destination_networks.is_empty(),
                "IP address",
            ),
            ("source", !matches.source.is_empty(), "client address"),
        ];
        for (field, _, what) in conditions.iter().filter(|(_, set, _)| *set) {
            refuse(&at.field(field), what);
        }
    }
    if raw.server_first_ports.is_some() {
        refuse(&at.field("server_first_ports"), "port");
    }
    let Some(authorization) = &raw.authorization else {
        return;
    };
    let list = at.field("authorization");
    let list = list.field("rules");
    for (i, rule) in authorization.rules.iter().enumerate() {
        let at = list.index(i);
        for (field, sources) in [("from", &rule.from), ("not_from", &rule.not_from)] {
            let at = at.field(field);
            for (j, _) in sources
                .iter()
                .enumerate()
                .filter(|(_, one)| one.networks.is_some())
            {
                refuse(&at.index(j).field("networks"), "client address");
            }
        }
        for (field, operations) in [("to", &rule.to), ("not_to", &rule.not_to)] {
            let at = at.field(field);
            for (j, _) in operations
                .iter()
                .enumerate()
                .filter(|(_, one)| one.ports.is_some())
            {
                refuse(&at.index(j).field("ports"), "port");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_with_a_zero() {
        assert_eq!(octal("0660"), Some(0o660));
        assert_eq!(octal("0o777"), Some(0o777));
        for bad in [
            "660", "432", "0o66", "06600", "0680", "rw", "", "0", "+660", "0+66",
        ] {
            assert_eq!(octal(bad), None, "{bad}");
        }
    }
}
