use super::*;

const PAGES: [Page; 5] = [
    Page::public("/ready"),
    Page::public("/probe/"),
    Page::operators("/", Methods::Read),
    Page::operators("/drain", Methods::Change),
    Page::operators("/logging", Methods::ReadAndChange),
];

fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> Parts {
    let mut request = http::Request::builder().method(method).uri(target);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

#[track_caller]
fn status(via: Via, opened: bool, method: &str, target: &str, fields: &[(&str, &str)]) -> u16 {
    let refused = refusal(&PAGES, via, opened, &head(method, target, fields));
    refused.map_or(200, |refused| refused.status.as_u16())
}

#[track_caller]
fn local(method: &str, target: &str, fields: &[(&str, &str)]) -> u16 {
    let with_host = [&[("host", "localhost:15020")], fields].concat();
    status(Via::Loopback, false, method, target, &with_host)
}

#[test]
fn the_way_is_that_of_both_ends() {
    let via = |peer: &str, local: &str| Via::of(peer.parse().unwrap(), local.parse().unwrap());
    assert_eq!(via("127.0.0.1:1", "127.0.0.1:2"), Via::Loopback);
    assert_eq!(via("127.0.0.9:1", "127.0.0.1:2"), Via::Loopback);
    assert_eq!(via("[::1]:1", "[::1]:2"), Via::Loopback);
    assert_eq!(
        via("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:2"),
        Via::Loopback
    );
    assert_eq!(via("10.0.0.1:1", "10.0.0.1:2"), Via::Network);
    assert_eq!(via("127.0.0.1:1", "10.0.0.1:2"), Via::Network);
    assert_eq!(via("10.0.0.1:1", "127.0.0.1:2"), Via::Network);
    assert_eq!(
        via("[::ffff:10.0.0.1]:1", "[::ffff:127.0.0.1]:2"),
        Via::Network
    );
    assert_eq!(via("[fe80::1]:1", "[::1]:2"), Via::Network);
}

#[test]
fn the_network_has_its_own_pages_only() {
    for (target, expected) in [
        ("/ready", 200),
        ("/probe/web/liveness", 200),
        ("/", 403),
        ("/drain", 403),
        ("/logging", 403),
        ("/ready/", 404),
        ("//drain", 404),
        ("/Drain", 404),
        ("/drain/", 404),
        ("/probe", 404),
        ("/ready?x=/drain", 200),
        ("http://localhost/drain", 403),
    ] {
        for host in ["localhost", "127.0.0.1:15020", "10.0.0.1:15020", "web.shop"] {
            let fields = [("host", host)];
            assert_eq!(
                status(Via::Network, false, "GET", target, &fields),
                expected,
                "{target} {host}"
            );
        }
    }
    let host = [("host", "localhost")];
    assert_eq!(status(Via::Network, false, "POST", "/drain", &host), 403);
    assert_eq!(status(Via::Network, false, "POST", "/ready", &host), 405);
    // An HTTP/1.0 health check.
    assert_eq!(status(Via::Network, false, "GET", "/ready", &[]), 200);
}

#[test]
fn each_page_has_its_methods() {
    for (method, page, expected) in [
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("POST", "/", 405),
        ("GET", "/drain", 405),
        ("POST", "/drain", 200),
        ("PUT", "/drain", 200),
        ("DELETE", "/drain", 405),
        ("OPTIONS", "/drain", 405),
        ("TRACE", "/logging", 405),
        ("GET", "/logging", 200),
        ("PUT", "/logging?level=debug", 200),
        ("PATCH", "/logging", 405),
        ("post", "/drain", 405),
        ("POST", "/ready", 405),
    ] {
        assert_eq!(local(method, page, &[]), expected, "{method} {page}");
    }
    let refused = refusal(&PAGES, Via::Loopback, false, &head("GET", "/drain", &[]));
    assert_eq!(refused.unwrap().allow, Some("POST, PUT"));
}

#[test]
fn only_hosts_of_loopback_are_answered() {
    for (host, expected) in [
        ("localhost", 200),
        ("LocalHost:15020", 200),
        ("127.0.0.1", 200),
        ("127.8.9.1:80", 200),
        ("[::1]:15020", 200),
        ("[::ffff:127.0.0.1]", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("localhost@evil.example", 403),
        ("evil.example@localhost", 403),
        ("127.0.0.1.evil.example", 403),
        ("0.0.0.0:15020", 403),
        ("10.0.0.1:15020", 403),
        ("[::]:1", 403),
        ("127.1", 403),
        ("2130706433", 403),
        ("", 403),
        ("localhost, evil.example", 403),
        ("localhost/", 403),
    ] {
        for (method, page) in [("GET", "/"), ("POST", "/drain"), ("PUT", "/logging")] {
            let seen = status(Via::Loopback, false, method, page, &[("host", host)]);
            assert_eq!(seen, expected, "{host:?}");
        }
        assert_eq!(
            status(Via::Loopback, false, "GET", "/ready", &[("host", host)]),
            200
        );
    }
    let loopback =
        |target: &str, fields: &[(&str, &str)]| status(Via::Loopback, false, "GET", target, fields);
    assert_eq!(loopback("/", &[]), 400);
    assert_eq!(
        loopback("/", &[("host", "localhost"), ("host", "evil.example")]),
        400
    );
    assert_eq!(
        loopback("http://evil.example/", &[("host", "localhost")]),
        403
    );
    assert_eq!(
        loopback("http://localhost/", &[("host", "evil.example")]),
        403
    );
    assert_eq!(loopback("http://127.0.0.1/", &[("host", "localhost")]), 200);
    let mut old = head("GET", "/", &[]);
    old.version = Version::HTTP_10;
    assert_eq!(
        refusal(&PAGES, Via::Loopback, false, &old),
        None,
        "no browser sends that"
    );
}

#[test]
fn opened_to_the_network_it_still_has_to_be_asked_by_address() {
    let opened = |host: &str| status(Via::Network, true, "POST", "/drain", &[("host", host)]);
    assert_eq!(opened("10.0.0.1:15020"), 200);
    assert_eq!(opened("[fd00::1]:15020"), 200);
    assert_eq!(opened("localhost:15020"), 200);
    assert_eq!(opened("evil.example"), 403);
    // From a browser on this host it is as before.
    let here = status(
        Via::Loopback,
        true,
        "POST",
        "/drain",
        &[("host", "10.0.0.1")],
    );
    assert_eq!(here, 403);
}

#[test]
fn other_websites_cause_nothing() {
    for (field, value, expected) in [
        ("origin", "http://localhost:15020", 200),
        ("origin", "http://LOCALHOST:15020", 200),
        ("origin", "http://localhost:3000", 403),
        ("origin", "http://localhost", 403),
        ("origin", "http://evil.example", 403),
        ("origin", "https://evil.example:15020", 403),
        ("origin", "null", 403),
        ("origin", "", 403),
        ("origin", "file://localhost:15020", 403),
        ("origin", "localhost:15020", 403),
        ("sec-fetch-site", "none", 200),
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "", 403),
        ("sec-fetch-site", "same-origin, cross-site", 403),
    ] {
        for (method, page) in [("GET", "/"), ("POST", "/drain"), ("PUT", "/logging")] {
            assert_eq!(
                local(method, page, &[(field, value)]),
                expected,
                "{field}: {value:?}"
            );
        }
        assert_eq!(local("GET", "/ready", &[(field, value)]), 200);
    }
    let twice = [
        ("origin", "http://localhost:15020"),
        ("origin", "http://evil.example"),
    ];
    assert_eq!(local("POST", "/drain", &twice), 403);
}

#[test]
fn forms_change_nothing() {
    for (kind, expected) in [
        ("application/x-www-form-urlencoded", 415),
        ("Application/X-WWW-Form-Urlencoded; charset=utf-8", 415),
        ("multipart/form-data; boundary=x", 415),
        ("text/plain", 415),
        ("text/plain, application/json", 415),
        (" text/plain ", 415),
        ("application/json", 200),
    ] {
        let fields = [("content-type", kind)];
        assert_eq!(local("POST", "/drain", &fields), expected, "{kind}");
        assert_eq!(local("PUT", "/logging", &fields), expected, "{kind}");
        assert_eq!(local("GET", "/logging", &fields), 200, "{kind}");
    }
    let twice = [
        ("content-type", "application/json"),
        ("content-type", "text/plain"),
    ];
    assert_eq!(local("POST", "/drain", &twice), 415);
}
