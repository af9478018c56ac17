//! Header fields on their way through: what is between two neighbours only is taken off, what the
//! next one should know is put on (RFC 9110 §7.6, RFC 7239).

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use bytes::{BufMut, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::Uri;
use maglor_balance::Rng;
use maglor_config::listener::{ForwardedMode, HttpFilter};
use maglor_config::route::HeaderRules;

use crate::codec;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// Also read by the access log.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");

/// The client of a connection, in the forms in which headers want it. Made once a connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) tls: bool,
    ip: HeaderValue,
    /// `for=…;proto=…` of RFC 7239.
    forwarded: String,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, tls: bool) -> Self {
        let ip = address.ip().to_canonical();
        let scheme = scheme(tls);
        let forwarded = match ip {
            IpAddr::V4(ip) => format!("for={ip};proto={scheme}"),
            IpAddr::V6(ip) => format!("for=\"[{ip}]\";proto={scheme}"),
        };
        // An address prints as visible ASCII.
        let ip = HeaderValue::from_str(&ip.to_string());
        let ip = ip.unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        Self { address, tls, ip, forwarded }
    }

    pub(crate) fn scheme(&self) -> &'static str {
        scheme(self.tls)
    }
}

fn scheme(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}

/// The protocol that a request asks to switch to, where it is one of `allowed` (lower case).
pub(crate) fn upgrade_protocol(headers: &HeaderMap, allowed: &[String]) -> Option<HeaderValue> {
    if allowed.is_empty() {
        return None;
    }
    let wanted = headers.get(header::UPGRADE)?;
    let text = wanted.to_str().ok()?;
    let known = allowed.iter().any(|protocol| text.eq_ignore_ascii_case(protocol));
    (known && codec::has_token(headers, &header::CONNECTION, "upgrade")).then(|| wanted.clone())
}

/// Takes off what concerns only the connection that the message came by.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = codec::tokens(headers, &header::CONNECTION)
            .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
            // Naming these would change what the message is, not how it is carried.
            .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH)
            .collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    headers.remove(KEEP_ALIVE);
    headers.remove(PROXY_CONNECTION);
    headers.remove(header::UPGRADE);
    headers.remove(HTTP2_SETTINGS);
}

/// `te` passes only as the one value that HTTP/2 allows; gRPC needs it.
pub(crate) fn keep_te_trailers(headers: &mut HeaderMap, had_te_trailers: bool) {
    headers.remove(header::TE);
    if had_te_trailers {
        headers.insert(header::TE, TRAILERS);
    }
}

/// Puts back what an HTTP/1.1 upgrade needs on its next hop.
pub(crate) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, UPGRADE);
    headers.insert(header::UPGRADE, protocol);
}

/// Adds what the next hop should know about the client.
pub(crate) fn add_forwarded(
    headers: &mut HeaderMap,
    client: &Client,
    host: Option<&HeaderValue>,
    settings: &HttpFilter,
) {
    add_x_forwarded(headers, client, host, settings.x_forwarded);
    let value = match settings.forwarded {
        ForwardedMode::Off => return,
        ForwardedMode::Replace => None,
        ForwardedMode::Append => headers.get(header::FORWARDED),
    };
    let mut text = BytesMut::new();
    if let Some(value) = value {
        text.put_slice(value.as_bytes());
        text.put_slice(b", ");
    }
    text.put_slice(client.forwarded.as_bytes());
    if let Some(host) = host {
        text.put_slice(b";host=\"");
        text.put_slice(host.as_bytes());
        text.put_slice(b"\"");
    }
    if let Ok(value) = HeaderValue::from_maybe_shared(text.freeze()) {
        headers.insert(header::FORWARDED, value);
    }
}

fn add_x_forwarded(
    headers: &mut HeaderMap,
    client: &Client,
    host: Option<&HeaderValue>,
    mode: ForwardedMode,
) {
    if mode == ForwardedMode::Off {
        return;
    }
    let append = mode == ForwardedMode::Append;
    match headers.entry(X_FORWARDED_FOR) {
        header::Entry::Occupied(mut before) if append => {
            let mut list = BytesMut::new();
            for value in before.iter() {
                list.put_slice(value.as_bytes());
                list.put_slice(b", ");
            }
            list.put_slice(client.ip.as_bytes());
            if let Ok(list) = HeaderValue::from_maybe_shared(list.freeze()) {
                before.insert(list);
            }
        }
        header::Entry::Occupied(mut before) => {
            before.insert(client.ip.clone());
        }
        header::Entry::Vacant(none) => {
            none.insert(client.ip.clone());
        }
    }
    set_unless(headers, X_FORWARDED_PROTO, append, || {
        Some(HeaderValue::from_static(client.scheme()))
    });
    set_unless(headers, X_FORWARDED_HOST, append, || host.cloned());
}

fn set_unless(
    headers: &mut HeaderMap,
    name: HeaderName,
    keep: bool,
    value: impl FnOnce() -> Option<HeaderValue>,
) {
    match headers.entry(name) {
        header::Entry::Occupied(_) if keep => {}
        header::Entry::Occupied(mut before) => match value() {
            Some(value) => {
                before.insert(value);
            }
            None => {
                before.remove();
            }
        },
        header::Entry::Vacant(none) => {
            if let Some(value) = value() {
                none.insert(value);
            }
        }
    }
}

/// Makes sure that a request can be found again in the logs of everybody on its way.
pub(crate) fn set_request_id(headers: &mut HeaderMap, settings: &HttpFilter, rng: &mut Rng) {
    if settings.preserve_request_id && headers.contains_key(X_REQUEST_ID) {
        return;
    }
    headers.insert(X_REQUEST_ID, uuid(rng));
}

/// A random (version 4) UUID.
fn uuid(rng: &mut Rng) -> HeaderValue {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let high = rng.next_u64() & !0xf000 | 0x4000;
    let low = rng.next_u64() & !(0b11 << 62) | 0b10 << 62;
    let mut text = [0u8; 36];
    let mut nibble = 0;
    for (at, byte) in text.iter_mut().enumerate() {
        if matches!(at, 8 | 13 | 18 | 23) {
            *byte = b'-';
            continue;
        }
        let word = if nibble < 16 { high } else { low };
        *byte = HEX[(word >> (60 - 4 * (nibble % 16)) & 15) as usize];
        nibble += 1;
    }
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("-"))
}

/// Applies an operator's rules: remove, set, add.
pub(crate) fn apply(rules: &HeaderRules, headers: &mut HeaderMap) {
    for name in &rules.remove {
        headers.remove(name);
    }
    for (name, value) in &rules.set {
        headers.insert(name, value.clone());
    }
    for (name, value) in &rules.add {
        headers.append(name, value.clone());
    }
}

/// The host that a request is for: its authority, or its `host` header.
pub(crate) fn host_of(uri: &Uri, headers: &HeaderMap) -> Option<HeaderValue> {
    match uri.authority() {
        Some(authority) => {
            let host = authority.as_str();
            // Credentials in an authority are not part of the host.
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            HeaderValue::from_str(host).ok()
        }
        None => headers.get(header::HOST).cloned(),
    }
}

/// HTTP/2 may split cookies over fields; HTTP/1.1 may not (RFC 9113 §8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_none() {
        return;
    }
    let mut joined = BytesMut::new();
    for value in headers.get_all(header::COOKIE) {
        if !joined.is_empty() {
            joined.put_slice(b"; ");
        }
        joined.put_slice(value.as_bytes());
    }
    if let Ok(value) = HeaderValue::from_maybe_shared(joined.freeze()) {
        headers.insert(header::COOKIE, value);
    }
}

/// The `set-cookie` value for a cookie that the proxy makes to keep a client at its endpoint.
pub(crate) fn set_cookie(
    name: &str,
    value: &str,
    path: &str,
    max_age: std::time::Duration,
) -> Option<HeaderValue> {
    let mut text = format!("{name}={value}; HttpOnly");
    if !path.is_empty() {
        let _ = write!(text, "; Path={path}");
    }
    if !max_age.is_zero() {
        let _ = write!(text, "; Max-Age={}", max_age.as_secs());
    }
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
