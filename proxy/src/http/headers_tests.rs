use http::{Method, Version};

use super::*;
use crate::protocol::fields::Key;
use crate::protocol::http1::Target;

fn fields(list: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::default();
    for (name, value) in list {
        fields.push(Key::new(name.as_bytes()), value.as_bytes());
    }
    fields
}

fn pairs(fields: &Fields) -> Vec<(String, String)> {
    let text = |part: &[u8]| String::from_utf8(part.to_vec()).unwrap();
    fields
        .iter()
        .map(|(_, name, value)| (text(name), text(value)))
        .collect()
}

#[test]
fn hop_by_hop_fields_and_those_that_connection_names_are_removed() {
    let mut all = fields(&[
        ("connection", "close, X-Secret, host, content-length"),
        ("x-secret", "1"),
        ("host", "a"),
        ("content-length", "5"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "h2c"),
        ("x-other", "2"),
    ]);
    all.remove_hop_by_hop();
    let left = fields(&[("host", "a"), ("content-length", "5"), ("x-other", "2")]);
    assert_eq!(pairs(&all), pairs(&left));
}

#[test]
fn an_upgrade_needs_both_fields_and_a_known_protocol() {
    let allowed = ["websocket".to_owned()];
    let ask = |list: &[(&str, &str)], version, allowed: &[String]| {
        let request = Request {
            method: Method::GET,
            target: Target::default(),
            version,
            fields: fields(list),
        };
        upgrade_protocol(&request, allowed)
    };
    let full = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
    ];
    let new = Version::HTTP_11;
    assert_eq!(ask(&full, new, &allowed), Some(b"WebSocket".to_vec()));
    assert_eq!(ask(&full, new, &[]), None);
    assert_eq!(ask(&full[1..], new, &allowed), None);
    let other = [("connection", "upgrade"), ("upgrade", "h2c")];
    assert_eq!(ask(&other, new, &allowed), None);
    let several = [("connection", "upgrade"), ("upgrade", "h2c, websocket, x")];
    assert_eq!(ask(&several, new, &allowed), Some(b"websocket".to_vec()));
    assert_eq!(ask(&full, Version::HTTP_10, &allowed), None);
}

#[test]
fn request_ids_are_version_4_uuids() {
    let mut rng = Rng::seed(1);
    let id = uuid(&mut rng);
    let text = std::str::from_utf8(&id).unwrap();
    let dashes: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    assert_eq!(dashes, [8, 13, 18, 23]);
    assert_eq!(id[14], b'4');
    assert!(matches!(id[19], b'8' | b'9' | b'a' | b'b'));
    assert!(text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit()));
    assert_ne!(uuid(&mut rng), id);
}

#[test]
fn words_print_as_hexadecimal() {
    for word in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX, 0xf0f0_0f0f_1234_0000] {
        assert_eq!(hex(word), format!("{word:016x}").as_bytes());
    }
}

#[test]
fn forwarded_for_is_appended_or_replaced() {
    let address: std::net::SocketAddr = "[::ffff:10.0.0.9]:5000".parse().unwrap();
    let client = Client::new(address.into(), true, None);
    let list = [
        ("host", "h"),
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-proto", "http"),
    ];
    let mut request = Request {
        method: Method::GET,
        target: Target::default(),
        version: Version::HTTP_11,
        fields: fields(&list),
    };
    add_x_forwarded(&mut request, &client, true);
    assert_eq!(
        request.fields.get(Known::XForwardedFor),
        Some(&b"1.2.3.4, 10.0.0.9"[..])
    );
    assert_eq!(
        request.fields.get(Known::XForwardedProto),
        Some(&b"http"[..])
    );
    assert_eq!(request.fields.get(Known::XForwardedHost), Some(&b"h"[..]));
    add_x_forwarded(&mut request, &client, false);
    assert_eq!(
        request.fields.get(Known::XForwardedFor),
        Some(&b"10.0.0.9"[..])
    );
    assert_eq!(
        request.fields.get(Known::XForwardedProto),
        Some(&b"https"[..])
    );
}

#[test]
fn split_cookies_are_joined() {
    let mut cookies = fields(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")]);
    join_cookies(&mut cookies);
    assert_eq!(
        cookies.all(Known::Cookie).collect::<Vec<_>>(),
        [b"a=1; b=2"]
    );
}
