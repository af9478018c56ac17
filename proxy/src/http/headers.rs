//! Header fields of forwarded messages: removes hop-by-hop fields and adds fields for the next hop (RFC 9110 §7.6,
//! RFC 7239).

use std::fmt::Write as _;
use std::time::Duration;

use http::{Method, Version};
use maglor_balance::Rng;
use maglor_config::listener::{ClientCertMode, ForwardedMode, HttpFilter};
use maglor_config::route::HeaderRules;

use super::client::Client;
use crate::protocol::fields::{Fields, Known};
use crate::protocol::message::Request;

/// Returns the first protocol of a request's `upgrade` field that is one of `allowed` (lower case).
pub(crate) fn upgrade_protocol(request: &Request, allowed: &[String]) -> Option<Vec<u8>> {
    let fields = &request.fields;
    // RFC 9110 §7.8: HTTP/1.0 has no upgrades.
    if !fields.contains(Known::Upgrade) || request.version == Version::HTTP_10 {
        return None;
    }
    let is_allowed = |wanted: &[u8]| {
        allowed
            .iter()
            .any(|protocol| wanted.eq_ignore_ascii_case(protocol.as_bytes()))
    };
    let wanted = fields
        .tokens(Known::Upgrade)
        .find(|wanted| is_allowed(wanted))?;
    let asks = fields.has_token(Known::Connection, "upgrade");
    asks.then(|| wanted.to_vec())
}

/// Removes `te` unless it is `trailers`, the only value that HTTP/2 allows; gRPC needs it.
pub(crate) fn keep_only_te_trailers(fields: &mut Fields) {
    if !fields.contains(Known::Te) {
        return;
    }
    let trailers = fields.has_token(Known::Te, "trailers");
    fields.remove(Known::Te);
    if trailers {
        fields.push(Known::Te, b"trailers");
    }
}

/// Restores the fields of an HTTP/1.1 upgrade for its next hop.
pub(crate) fn set_upgrade(fields: &mut Fields, protocol: &[u8]) {
    fields.set(Known::Connection, b"upgrade");
    fields.set(Known::Upgrade, protocol);
}

/// Adds the fields that describe the client for the next hop.
pub(crate) fn add_forwarded(request: &mut Request, client: &Client, settings: &HttpFilter) {
    if settings.x_forwarded != ForwardedMode::Off {
        add_x_forwarded(
            request,
            client,
            settings.x_forwarded == ForwardedMode::Append,
        );
    }
    if settings.forwarded == ForwardedMode::Off {
        return;
    }
    let mut value = Vec::new();
    if settings.forwarded == ForwardedMode::Append {
        join(request.fields.all(Known::Forwarded), b", ", &mut value);
    }
    client.append_forwarded(&mut value);
    if let Some(host) = request.host() {
        value.extend_from_slice(b";host=\"");
        value.extend_from_slice(host);
        value.extend_from_slice(b"\"");
    }
    request.fields.set(Known::Forwarded, &value);
}

fn add_x_forwarded(request: &mut Request, client: &Client, append: bool) {
    let fields = &mut request.fields;
    match client.ip.as_deref().map(str::as_bytes) {
        Some(ip) if append && fields.contains(Known::XForwardedFor) => {
            let mut list = Vec::new();
            join(fields.all(Known::XForwardedFor), b", ", &mut list);
            list.extend_from_slice(ip);
            fields.set(Known::XForwardedFor, &list);
        }
        Some(ip) => fields.set(Known::XForwardedFor, ip),
        None if append => {}
        None => fields.remove(Known::XForwardedFor),
    }
    if !append || !fields.contains(Known::XForwardedProto) {
        fields.set(Known::XForwardedProto, client.scheme().as_bytes());
    }
    if !append || !fields.contains(Known::XForwardedHost) {
        fields.remove(Known::XForwardedHost);
        if let Some(host) = fields.find(Known::Host) {
            fields.push_copy(Known::XForwardedHost, host);
        }
    }
}

/// Appends each value, followed by the separator.
fn join<'a>(values: impl Iterator<Item = &'a [u8]>, separator: &[u8], out: &mut Vec<u8>) {
    for value in values {
        out.extend_from_slice(value);
        out.extend_from_slice(separator);
    }
}

/// Sets the field that identifies the client to the application. Only mesh members are trusted to describe other
/// clients.
pub(crate) fn set_client_cert(fields: &mut Fields, element: Option<&str>, mode: ClientCertMode) {
    fields.remove_lookalikes(Known::XForwardedClientCert);
    match (mode, element) {
        (ClientCertMode::Append, Some(element)) => {
            let mut list = Vec::new();
            join(fields.all(Known::XForwardedClientCert), b",", &mut list);
            list.extend_from_slice(element.as_bytes());
            fields.set(Known::XForwardedClientCert, &list);
        }
        (ClientCertMode::Replace, Some(element)) => {
            fields.set(Known::XForwardedClientCert, element.as_bytes());
        }
        (ClientCertMode::Remove, _) | (_, None) => fields.remove(Known::XForwardedClientCert),
    }
}

/// Sets the request identifier, which identifies the request in the logs of every hop.
pub(crate) fn set_request_id(fields: &mut Fields, settings: &HttpFilter, rng: &mut Rng) {
    if settings.preserve_request_id && fields.contains(Known::XRequestId) {
        return;
    }
    fields.set(Known::XRequestId, &uuid(rng));
}

/// Generates a random (version 4) UUID.
pub(super) fn uuid(rng: &mut Rng) -> [u8; 36] {
    let high = rng.next_u64() & !0xf000 | 0x4000;
    let low = rng.next_u64() & !(0b11 << 62) | 0b10 << 62;
    let (high, low) = (hex(high), hex(low));
    let mut text = [b'-'; 36];
    text[..8].copy_from_slice(&high[..8]);
    text[9..13].copy_from_slice(&high[8..12]);
    text[14..18].copy_from_slice(&high[12..]);
    text[19..23].copy_from_slice(&low[..4]);
    text[24..].copy_from_slice(&low[4..]);
    text
}

/// Formats a number as sixteen hexadecimal digits.
fn hex(word: u64) -> [u8; 16] {
    let mut text = [0; 16];
    for (pair, byte) in text.as_chunks_mut().0.iter_mut().zip(word.to_be_bytes()) {
        *pair = PAIRS[usize::from(byte)];
    }
    text
}

/// The two hexadecimal digits of each byte.
static PAIRS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    pairs
};

/// Applies the operator's header rules: remove, set, add.
pub(crate) fn apply(rules: Option<&HeaderRules>, fields: &mut Fields) {
    let Some(rules) = rules else {
        return;
    };
    for name in &rules.remove {
        fields.remove(name);
    }
    for (name, value) in &rules.set {
        fields.set(name, value.as_bytes());
    }
    for (name, value) in &rules.add {
        fields.push(name, value.as_bytes());
    }
}

/// Joins cookie fields: HTTP/2 may split them, HTTP/1.1 may not (RFC 9113 §8.2.3).
pub(crate) fn join_cookies(fields: &mut Fields) {
    if fields.all(Known::Cookie).nth(1).is_none() {
        return;
    }
    let mut joined = Vec::new();
    join(fields.all(Known::Cookie), b"; ", &mut joined);
    joined.truncate(joined.len() - 2);
    fields.set(Known::Cookie, &joined);
}

/// Formats the `set-cookie` value of the cookie that assigns a client to an endpoint.
pub(crate) fn set_cookie(name: &str, value: &str, path: &str, max_age: Duration) -> String {
    let mut text = format!("{name}={value}; HttpOnly");
    // Writing to a string does not fail.
    if !path.is_empty() {
        let _ = write!(text, "; Path={path}");
    }
    if !max_age.is_zero() {
        let _ = write!(text, "; Max-Age={}", max_age.as_secs());
    }
    text
}

/// Moves the authority of the request target into the `host` field, where rules can change it.
pub(super) fn settle_host(request: &mut Request) {
    if request.method == Method::CONNECT {
        return;
    }
    if let Some(authority) = request.target.authority.take() {
        request.fields.remove(Known::Host);
        request.fields.push_copy(Known::Host, authority);
        // RFC 9112 §3.2.4: the form of an OPTIONS request to a proxy that concerns the server as a whole.
        if request.method == Method::OPTIONS && request.path_and_query().is_empty() {
            request.set_path_and_query(b"*");
        }
    }
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
