//! Lists of ports and networks that bypass the sidecar, as they are written in annotations and settings.

use std::net::IpAddr;

/// Validates ports and ranges, separated by commas; an empty list is valid.
pub(crate) fn check_ports(text: &str) -> Result<(), String> {
    match ports(text) {
        Ok(_) => Ok(()),
        Err(part) => Err(format!(
            "invalid port `{part}`, expected 1 to 65535 or a range such as 8000-8010"
        )),
    }
}

/// Parses a list such as `22,8000-8010`, without spaces, into the first and last port of each range.
///
/// # Errors
///
/// The invalid part of the list.
pub fn ports(text: &str) -> Result<Vec<(u16, u16)>, &str> {
    let parts = text.split(',').filter(|_| !text.is_empty());
    let range = |part| {
        let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
        let (first, last) = part_ends(part);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok((first, last)),
            _ => Err(part),
        }
    };
    parts.map(range).collect()
}

fn part_ends(part: &str) -> (&str, &str) {
    part.split_once('-').unwrap_or((part, part))
}

/// Validates networks in CIDR notation, or addresses, separated by commas; an empty list is valid.
pub(crate) fn check_subnets(text: &str) -> Result<(), String> {
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (address, length) = match part.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (part, None),
        };
        let address: Option<IpAddr> = address.parse().ok();
        let most = match address {
            Some(IpAddr::V4(_)) => 32,
            _ => 128,
        };
        let fits = |length: &str| length.parse().is_ok_and(|bits: u8| bits <= most);
        if address.is_none() || !length.is_none_or(fits) {
            return Err(format!(
                "invalid network `{part}`, expected for example 10.0.0.0/8"
            ));
        }
    }
    Ok(())
}
