//! Hashes of parts of a request, for `maglev` and `ring-hash`.

use std::net::IpAddr;
use std::time::Duration;

use maglor_balance::{Rng, combine, hash_bytes};
use maglor_config::route::{HashKind, HashSource};

use super::client::Client;
use super::headers;
use crate::protocol::fields::{Fields, Known};
use crate::protocol::message::Request;
use crate::routing::route::query_value;

/// The hash of a request, and the cookie to set if the client sent none.
#[derive(Debug, Default)]
pub(crate) struct HashKey {
    pub(crate) hash: Option<u64>,
    pub(crate) set_cookie: Option<Box<str>>,
}

/// Computes the hash of a request by a route's hash policy.
pub(crate) fn hash_key(
    policy: &[HashSource],
    request: &Request,
    client: &Client,
    rng: &mut Rng,
) -> HashKey {
    let mut key = HashKey::default();
    for source in policy {
        let part = of_kind(&source.kind, request, client, rng);
        key.set_cookie = part.set_cookie.or(key.set_cookie);
        if let Some(part) = part.hash {
            key.hash = Some(key.hash.map_or(part, |before| combine(before, part)));
            if source.terminal {
                break;
            }
        }
    }
    key
}

/// Computes the hash of one part of a request.
pub(crate) fn of_kind(
    kind: &HashKind,
    request: &Request,
    client: &Client,
    rng: &mut Rng,
) -> HashKey {
    let hash = match kind {
        HashKind::Cookie { name, ttl, path } => match (cookie(&request.fields, name), ttl) {
            (None, Some(ttl)) => return new_cookie(name, path, *ttl, rng),
            (hash, _) => hash,
        },
        HashKind::Header(name) => request.fields.all(name).map(hash_bytes).reduce(combine),
        HashKind::Path => Some(hash_bytes(request.path())),
        HashKind::Query(name) => {
            let query = request.query().map(String::from_utf8_lossy);
            let value = query.as_ref().and_then(|query| query_value(query, name));
            value.map(|value| hash_bytes(value.as_bytes()))
        }
        HashKind::SourceAddress => client.address.ip().map(|ip| match ip {
            IpAddr::V4(ip) => hash_bytes(&ip.octets()),
            IpAddr::V6(ip) => hash_bytes(&ip.octets()),
        }),
    };
    HashKey {
        hash,
        set_cookie: None,
    }
}

fn new_cookie(name: &str, path: &str, ttl: Duration, rng: &mut Rng) -> HashKey {
    let value = format!("{:016x}", rng.next_u64());
    HashKey {
        hash: Some(hash_bytes(value.as_bytes())),
        set_cookie: Some(headers::set_cookie(name, &value, path, ttl).into()),
    }
}

fn cookie(fields: &Fields, name: &str) -> Option<u64> {
    let mut pairs = fields
        .all(Known::Cookie)
        .flat_map(|field| field.split(|b| *b == b';'));
    let value = pairs.find_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=")
    })?;
    let bare = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""));
    Some(hash_bytes(bare.unwrap_or(value)))
}

#[cfg(test)]
mod tests {
    use http::{Method, Version};

    use super::*;
    use crate::protocol::http1::Target;

    fn key(policy: &[HashSource], uri: &str, cookie: Option<&str>) -> HashKey {
        let mut request = Request {
            method: Method::GET,
            target: Target::default(),
            version: Version::HTTP_11,
            fields: Fields::default(),
        };
        request.set_path_and_query(uri.as_bytes());
        if let Some(cookie) = cookie {
            request.fields.push(Known::Cookie, cookie.as_bytes());
        }
        let client = Client::new(
            std::net::SocketAddr::from(([127, 0, 0, 1], 1)).into(),
            false,
            None,
        );
        hash_key(policy, &request, &client, &mut Rng::seed(1))
    }

    fn source(kind: HashKind) -> HashSource {
        HashSource {
            kind,
            terminal: false,
        }
    }

    #[test]
    fn equal_values_hash_alike_and_absent_ones_not_at_all() {
        let policy = [source(HashKind::Query("user".into()))];
        let one = key(&policy, "/a?user=1", None).hash;
        assert_eq!(one, key(&policy, "/b?x=y&user=1", None).hash);
        assert_ne!(one, key(&policy, "/a?user=2", None).hash);
        assert!(key(&policy, "/a", None).hash.is_none());
    }

    #[test]
    fn a_missing_cookie_is_made_and_then_found() {
        let ttl = Some(Duration::from_secs(60));
        let kind = HashKind::Cookie {
            name: "id".into(),
            ttl,
            path: "/".into(),
        };
        let policy = [source(kind)];
        let made = key(&policy, "/", None);
        let cookie = made.set_cookie.unwrap();
        assert!(
            cookie.ends_with("; HttpOnly; Path=/; Max-Age=60"),
            "{cookie}"
        );
        let pair = cookie.split(';').next().unwrap();
        let again = key(&policy, "/", Some(pair));
        assert_eq!(again.hash, made.hash);
        assert!(again.set_cookie.is_none());
    }

    #[test]
    fn a_terminal_source_ends_the_list() {
        let first = HashSource {
            kind: HashKind::Query("a".into()),
            terminal: true,
        };
        let policy = [first, source(HashKind::Path)];
        assert_eq!(
            key(&policy, "/x?a=1", None).hash,
            key(&policy, "/y?a=1", None).hash
        );
        assert_ne!(key(&policy, "/x", None).hash, key(&policy, "/y", None).hash);
    }
}
