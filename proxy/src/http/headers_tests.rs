use super::*;

fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    fields
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

#[test]
fn hop_by_hop_fields_and_those_that_connection_names_are_removed() {
    let mut headers = map(&[
        ("connection", "close, X-Secret, host, content-length"),
        ("x-secret", "1"),
        ("host", "a"),
        ("content-length", "5"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "h2c"),
        ("x-other", "2"),
    ]);
    remove_hop_by_hop(&mut headers);
    assert_eq!(headers, map(&[("host", "a"), ("content-length", "5"), ("x-other", "2")]));
}

#[test]
fn an_upgrade_needs_both_fields_and_a_known_protocol() {
    let allowed = ["websocket".to_owned()];
    let full = map(&[("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")]);
    assert!(upgrade_protocol(&full, &allowed).is_some());
    assert!(upgrade_protocol(&full, &[]).is_none());
    assert!(upgrade_protocol(&map(&[("upgrade", "websocket")]), &allowed).is_none());
    let other = map(&[("connection", "upgrade"), ("upgrade", "h2c")]);
    assert!(upgrade_protocol(&other, &allowed).is_none());
}

#[test]
fn request_ids_are_version_4_uuids() {
    let mut rng = Rng::seed(1);
    let id = uuid(&mut rng);
    let id = id.to_str().unwrap();
    assert_eq!(id.len(), 36);
    assert_eq!(id.as_bytes()[14], b'4');
    assert!(matches!(id.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
    assert_ne!(uuid(&mut rng), id);
}

#[test]
fn forwarded_for_is_appended_or_replaced() {
    let client = Client::new("[::ffff:10.0.0.9]:5000".parse().unwrap(), true);
    let mut headers = map(&[("x-forwarded-for", "1.2.3.4"), ("x-forwarded-proto", "http")]);
    add_x_forwarded(&mut headers, &client, None, ForwardedMode::Append);
    assert_eq!(headers["x-forwarded-for"], "1.2.3.4, 10.0.0.9");
    assert_eq!(headers["x-forwarded-proto"], "http");
    add_x_forwarded(&mut headers, &client, None, ForwardedMode::Replace);
    assert_eq!(headers["x-forwarded-for"], "10.0.0.9");
    assert_eq!(headers["x-forwarded-proto"], "https");
}

#[test]
fn split_cookies_are_joined() {
    let mut headers = HeaderMap::new();
    headers.append("cookie", HeaderValue::from_static("a=1"));
    headers.append("cookie", HeaderValue::from_static("b=2"));
    join_cookies(&mut headers);
    assert_eq!(headers["cookie"], "a=1; b=2");
    assert_eq!(headers.get_all("cookie").iter().count(), 1);
}
