//! Validates endpoints: addresses, weights, priorities, localities.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use super::{host, rule};
use crate::report::At;
use crate::{Endpoint, EndpointAddress, UnixAddress, raw};

pub(super) fn all(raw: &[raw::Short<raw::Endpoint>], at: &At<'_>) -> Vec<Endpoint> {
    let (mut endpoints, mut seen) = (Vec::with_capacity(raw.len()), HashSet::new());
    for (i, raw::Short(raw)) in raw.iter().enumerate() {
        let at = at.index(i);
        let Some(endpoint) = one(raw, &at) else {
            continue;
        };
        if !seen.insert((endpoint.address.clone(), endpoint.priority)) {
            let text = raw.address.as_deref().unwrap_or_default();
            at.warning(format!(
                "the endpoint `{}` is defined twice",
                crate::yaml::short(text)
            ))
            .help("increase its `weight` instead");
        }
        endpoints.push(endpoint);
    }
    endpoints
}

fn one(raw: &raw::Endpoint, at: &At<'_>) -> Option<Endpoint> {
    let weight = weight(raw.weight, &at.field("weight"));
    let priority = rule::number(raw.priority, &at.field("priority"), 0, 0..=127);
    let locality = raw.locality.as_deref();
    let locality = locality.filter(|text| self::locality(text, &at.field("locality")));
    let Some(text) = &raw.address else {
        at.missing(
            "address",
            "write `address: IP:PORT`, `address: NAME:PORT` or `address: unix:/PATH`",
        );
        return None;
    };
    Some(Endpoint {
        address: address(text, &at.field("address"))?,
        weight,
        priority: u8::try_from(priority).unwrap_or_default(),
        locality: locality.map(Into::into),
    })
}

fn weight(value: Option<u32>, at: &At<'_>) -> NonZeroU32 {
    if value == Some(0) {
        at.error("an endpoint of weight 0 would never be used")
            .help("remove the endpoint, or set its weight to 1 to 1000000");
        return NonZeroU32::MIN;
    }
    NonZeroU32::new(rule::number(value, at, 1, 1..=1_000_000)).unwrap_or(NonZeroU32::MIN)
}

/// Validates `REGION`, `REGION/ZONE` or `REGION/ZONE/NODE`.
pub(super) fn locality(text: &str, at: &At<'_>) -> bool {
    let parts: Vec<&str> = text.split('/').collect();
    let good = parts.len() <= 3 && parts.iter().all(|part| !part.trim().is_empty());
    if !good || text.contains(char::is_whitespace) || text.len() > 253 {
        at.error(format!("`{}` is not a locality", crate::yaml::short(text)))
            .help("write `REGION`, `REGION/ZONE` or `REGION/ZONE/NODE`");
        return false;
    }
    true
}

fn address(text: &str, at: &At<'_>) -> Option<EndpointAddress> {
    if let Some(unix) = UnixAddress::parse(text) {
        return rule::unix_address(unix, text, at).map(EndpointAddress::Unix);
    }
    match parse(text) {
        Ok(EndpointAddress::Socket(address)) if address.ip().is_unspecified() => {
            let near = if address.is_ipv4() {
                "127.0.0.1"
            } else {
                "[::1]"
            };
            at.error(format!(
                "{} is a wildcard address: connections to it are not possible",
                address.ip()
            ))
            .help(format!(
                "write `{near}:{}` for a server on this machine",
                address.port()
            ));
            None
        }
        Ok(address) => Some(address),
        Err(help) => {
            let message = format!(
                "`{}` is not `IP:PORT`, `NAME:PORT` or `unix:/PATH`",
                crate::yaml::short(text)
            );
            at.error(message).help(help);
            None
        }
    }
}

/// Parses an address; the error suggests a valid one.
fn parse(text: &str) -> Result<EndpointAddress, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address.port() {
            0 => Err("the port must be 1 to 65535".into()),
            _ => Ok(EndpointAddress::Socket(address)),
        };
    }
    if text.starts_with(['/', '@']) {
        return Err(format!("write `unix:{}`", crate::yaml::short(text)));
    }
    let guess = crate::hints::shapes::endpoint(text);
    if let Some((address, options)) = text.split_once([',', ' ']) {
        let address = crate::hints::shapes::endpoint(address).unwrap_or_else(|| address.into());
        return Err(match options.trim().strip_prefix("weight=") {
            Some(weight) => format!(
                "write `{{address: {address}, weight: {}}}`",
                crate::yaml::short(weight)
            ),
            None => format!("write `{address}`; each server is an item of the list"),
        });
    }
    let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u64>());
    let out_of_range = matches!(port, Some(Ok(0 | 65536..)));
    let guess = guess.filter(|guess| guess.trim_matches('"') != text && !out_of_range);
    if let Some(guess) = guess {
        let tls = match text.split_once("://") {
            Some(("https" | "grpcs" | "wss", _)) => ", and `tls: {}` in the cluster",
            _ => "",
        };
        return Err(format!("write `{guess}`{tls}"));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err("add a port".into());
    };
    let port = match port.parse::<u16>() {
        Ok(port) if port > 0 => port,
        _ => return Err("the port must be 1 to 65535".into()),
    };
    if host::looks_like_ipv4(host) || host.parse::<IpAddr>().is_ok() || host.starts_with('[') {
        return Err("the address is not a valid IP address".into());
    }
    let host = host::dns_name(host)?;
    let host = host.into();
    Ok(EndpointAddress::Dns { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_or_names() {
        for good in [
            "127.0.0.1:80",
            "[::1]:80",
            "App.internal:8080",
            "localhost:1",
            "my_host:65535",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ":",
            "80",
            "a",
            "a:",
            "a:0",
            "a:65536",
            "::1",
            "::1:80",
            "1.2.3:80",
            "1.2.3.4.5:80",
            "[::g]:80",
            "http://a:80",
            "a b:80",
            "-a:80",
            "a..b:80",
            "unix:/x",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
