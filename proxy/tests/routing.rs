//! Selection of a request's route, and actions of routes.

use std::collections::{BTreeMap, BTreeSet};

use maglor_testkit::{Proxy, RawHttp1, RawResponse, Upstream};

use crate::support::{connect, start};

/// Starts a proxy with these virtual hosts (YAML, indented by two) and clusters `a` and `b`.
fn proxy(hosts: &str, a: &Upstream, b: &Upstream) -> Proxy {
    start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\nlisteners:\n\
         - {{name: web, address: '127.0.0.1:0', http: {{routes: main, x_forwarded: off, request_id: false}}}}\n\
         route_tables:\n- name: main\n  virtual_hosts:\n{hosts}\nclusters:\n\
         - {{name: a, endpoints: ['{}']}}\n- {{name: b, endpoints: ['{}']}}\n",
        a.address(),
        b.address()
    ))
}

/// Starts a proxy with these routes (YAML, indented by four) for every host.
fn routes(routes: &str, a: &Upstream, b: &Upstream) -> Proxy {
    proxy(&format!("  - domains: ['*']\n    routes:\n{routes}"), a, b)
}

fn pair() -> (Upstream, Upstream) {
    (Upstream::start("a"), Upstream::start("b"))
}

/// Sends `METHOD PATH` with header lines.
#[track_caller]
fn ask(client: &mut RawHttp1, line: &str, headers: &str) -> RawResponse {
    client.request(format!("{line} HTTP/1.1\r\n{headers}\r\n"))
}

#[test]
fn the_most_specific_virtual_host_wins() {
    let (a, b) = pair();
    let hosts = [
        "'*'",
        "'*.com'",
        "'*.example.com'",
        "www.example.com",
        "'www.*'",
        "'www.example.*'",
        "'example.com:8443'",
        "'[::1]'",
        "Bücher.example",
    ];
    let yaml: Vec<_> = hosts
        .iter()
        .filter(|host| host.is_ascii())
        .map(|host| {
            let body = host.trim_matches('\'');
            format!("  - {{domains: [{host}], routes: [{{direct_response: {{status: 200, body: '{body}'}}}}]}}")
        })
        .collect();
    let proxy = proxy(&yaml.join("\n"), &a, &b);
    let mut client = connect(&proxy);
    for (host, expected) in [
        ("www.example.com", "www.example.com"),
        ("WWW.Example.COM", "www.example.com"),
        ("www.example.com:80", "www.example.com"),
        ("www.example.com.", "www.example.com"),
        ("x.example.com", "*.example.com"),
        ("x.y.example.com:8080", "*.example.com"),
        ("example.com", "*.com"),
        ("example.com:8443", "example.com:8443"),
        ("www.example.org", "www.example.*"),
        ("www.other.org", "www.*"),
        ("www", "*"),
        (".example.com", "*.com"),
        ("other.org", "*"),
        ("127.0.0.1", "*"),
        ("[::1]:80", "[::1]"),
        ("", "*"),
    ] {
        let response = ask(&mut client, "GET /", &format!("host: {host}\r\n"));
        assert_eq!(response.text(), expected, "{host}");
        let line = format!("GET http://{host}/");
        if !host.is_empty() {
            assert_eq!(
                ask(&mut client, &line, "host: x\r\n").text(),
                expected,
                "{line}"
            );
        }
    }
    // No host: 404.
    let proxy = self::proxy("  - {domains: [a.example], routes: [{cluster: a}]}", &a, &b);
    let mut client = connect(&proxy);
    assert_eq!(ask(&mut client, "GET /", "host: b.example\r\n").status, 404);
    assert_eq!(ask(&mut client, "GET /", "host: a.example\r\n").status, 200);
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn the_first_route_that_matches_wins() {
    let (a, b) = pair();
    let answer = |name: &str, condition: &str| {
        format!(
            "    - {{match: {{{condition}}}, direct_response: {{status: 200, body: '{name}'}}}}\n"
        )
    };
    let table = [
        answer("exact", "path: {exact: /exact}"),
        answer("post", "path: /m, methods: POST"),
        answer("get or put", "path: /m, methods: [GET, PUT]"),
        answer("slash", "path: {prefix: /slash/}"),
        answer("regex", "path: {regex: '/r/[0-9]+'}"),
        answer("h exact", "path: /h, headers: [{name: X-H, exact: one}]"),
        answer("h prefix", "path: /h, headers: [{name: x-h, prefix: tw}]"),
        answer("h suffix", "path: /h, headers: [{name: x-h, suffix: ee}]"),
        answer(
            "h contains",
            "path: /h, headers: [{name: x-h, contains: ou}]",
        ),
        answer("h regex", "path: /h, headers: [{name: x-h, regex: 'f.ve'}]"),
        answer(
            "h two",
            "path: /h, headers: [{name: x-h, exact: 'six,seven'}]",
        ),
        answer(
            "h absent",
            "path: /h, headers: [{name: x-h, present: false}]",
        ),
        answer(
            "h not eight",
            "path: /h, headers: [{name: x-h, exact: eight, invert: true}]",
        ),
        answer("q exact", "path: /q, query: [{name: q, exact: 'a b'}]"),
        answer("q regex", "path: /q, query: [{name: q, regex: '[0-9]+'}]"),
        answer("q prefix", "path: /q, query: [{name: q, prefix: tw}]"),
        answer("q suffix", "path: /q, query: [{name: q, suffix: ee}]"),
        answer("q contains", "path: /q, query: [{name: q, contains: ou}]"),
        answer("q there", "path: /q, query: [{name: q, present: true}]"),
        answer(
            "q not eight",
            "path: /not, query: [{name: q, exact: eight, invert: true}]",
        ),
        answer(
            "both",
            "path: /both, headers: [{name: x, exact: '1'}], query: [{name: y, exact: '2'}]",
        ),
        answer("grpc", "grpc: true"),
        answer("api", "path: /api"),
    ];
    let proxy = routes(&table.concat(), &a, &b);
    let mut client = connect(&proxy);
    for (line, headers, expected) in [
        ("GET /exact", "", "exact"),
        ("GET /exact?x=y", "", "exact"),
        ("GET /exact/", "", "404"),
        ("GET /EXACT", "", "404"),
        ("POST /m", "", "post"),
        ("PUT /m/x", "", "get or put"),
        ("DELETE /m", "", "404"),
        ("GET /slash", "", "404"),
        ("GET /slash/", "", "slash"),
        ("GET /slash/x", "", "slash"),
        ("GET /r/12", "", "regex"),
        ("GET /r/12/3", "", "404"),
        ("GET /x/r/12", "", "404"),
        ("GET /h", "x-h: one\r\n", "h exact"),
        ("GET /h", "X-H: two\r\n", "h prefix"),
        ("GET /h", "x-h: three\r\n", "h suffix"),
        ("GET /h", "x-h: four\r\n", "h contains"),
        ("GET /h", "x-h: five\r\n", "h regex"),
        ("GET /h", "x-h: six\r\nx-h: seven\r\n", "h two"),
        ("GET /h", "x-h: nine fives\r\n", "h not eight"),
        ("GET /h", "x-h: eight\r\n", "404"),
        ("GET /h", "", "h absent"),
        ("GET /q?q=a%20b", "", "q exact"),
        ("GET /q?x&q=a+b", "", "q exact"),
        ("GET /q?q=12", "", "q regex"),
        ("GET /q?q=two", "", "q prefix"),
        ("GET /q?q=three", "", "q suffix"),
        ("GET /q?q=four", "", "q contains"),
        ("GET /not?q=nine", "", "q not eight"),
        ("GET /not?q=eight", "", "404"),
        ("GET /q?q=1x", "", "q there"),
        ("GET /q?q", "", "q there"),
        ("GET /q?Q=1", "", "404"),
        ("GET /both?y=2", "x: 1\r\n", "both"),
        ("GET /both?y=2", "x: 2\r\n", "404"),
        ("GET /both", "x: 1\r\n", "404"),
        (
            "POST /svc/m",
            "content-type: application/grpc+proto\r\ncontent-length: 0\r\n",
            "grpc",
        ),
        (
            "POST /svc/m",
            "content-type: application/json\r\ncontent-length: 0\r\n",
            "404",
        ),
        ("GET /api", "", "api"),
        ("GET /api/x", "", "api"),
        ("GET /apix", "", "404"),
    ] {
        let response = ask(&mut client, line, &format!("host: a\r\n{headers}"));
        let got = if response.status == 200 {
            response.text().to_owned()
        } else {
            response.status.to_string()
        };
        assert_eq!(got, expected, "{line} {headers}");
    }
}

#[test]
fn rewrites_change_path_and_host() {
    let (a, b) = pair();
    let table = "    - {match: {path: /full}, cluster: a, rewrite: {path: /new}}
    - {match: {path: /api}, cluster: a, rewrite: {prefix: /v2}}
    - {match: {path: /root/}, cluster: a, rewrite: {prefix: /}}
    - {match: {path: {regex: '/posts/.*'}}, cluster: a, rewrite: {regex: '^/posts/([^/]*)/(.*)$', substitution: '/$2/$1'}}
    - {match: {path: /host}, cluster: a, rewrite: {host: other.example}}
    - {match: {path: /auto}, cluster: a, rewrite: {auto_host: true}}
    - {match: {path: {regex: '/bad.*'}}, cluster: a, rewrite: {regex: '^/bad', substitution: ''}}
    - {cluster: a}
";
    let proxy = routes(table, &a, &b);
    let mut client = connect(&proxy);
    let auto = a.address().to_string();
    for (path, expected, host) in [
        ("/full/x?y=z", "/new?y=z", "h"),
        ("/api/x?y=z", "/v2/x?y=z", "h"),
        ("/api", "/v2", "h"),
        ("/api?y", "/v2?y", "h"),
        ("/api//x", "/v2//x", "h"),
        ("/root/x", "/x", "h"),
        ("/root/", "/", "h"),
        ("/posts/1/2?x=/posts/3/4", "/2/1?x=/posts/3/4", "h"),
        ("/host?x", "/host?x", "other.example"),
        ("/auto", "/auto", auto.as_str()),
        ("/%41%2f?a=b?c", "/A%2F?a=b?c", "h"),
    ] {
        assert_eq!(
            ask(&mut client, &format!("GET {path}"), "host: h\r\n").status,
            200,
            "{path}"
        );
        let last = a.last();
        assert_eq!(last.uri.to_string(), expected);
        assert_eq!(last.header("host"), Some(host), "{path}");
    }
    // An invalid path is not sent.
    let before = a.requests();
    let response = ask(&mut client, "GET /badhost", "host: h\r\n");
    assert_eq!((response.status, a.requests()), (400, before));
}

#[test]
fn redirects_and_direct_responses_come_from_the_proxy() {
    let (a, b) = pair();
    let table = "    - {match: {path: /tls}, redirect: {scheme: https}}
    - {match: {path: /port}, redirect: {scheme: https, port: 8443, status: 308}}
    - {match: {path: /host}, redirect: {host: new.example, status: 302}}
    - {match: {path: /old}, redirect: {prefix: /new, status: 307}}
    - {match: {path: /path}, redirect: {path: /there, strip_query: true, status: 303}}
    - {match: {path: /teapot}, direct_response: {status: 418, body: short, headers: {x-a: b, content-type: text/x}}}
    - {match: {path: /empty}, direct_response: {status: 204}}
    - {match: {path: /maintenance}, direct_response: {status: 503}}
";
    let proxy = routes(table, &a, &b);
    let mut client = connect(&proxy);
    for (path, status, location) in [
        ("/tls/x?y=z", 301, "https://h.example/tls/x?y=z"),
        ("/port", 308, "https://h.example:8443/port"),
        ("/host/x", 302, "http://new.example:81/host/x"),
        ("/old/x?y", 307, "http://h.example:81/new/x?y"),
        ("/path/x?y", 303, "http://h.example:81/there"),
    ] {
        let response = ask(
            &mut client,
            &format!("GET {path}"),
            "host: h.example:81\r\n",
        );
        assert_eq!(
            (response.status, response.header("location")),
            (status, Some(location))
        );
        assert_eq!(response.header("content-length"), Some("0"));
    }
    // Without a host, the redirect uses the address that the client has connected to.
    let response = ask(&mut client, "GET /old", "host:\r\n");
    let address = proxy.listener("web");
    assert_eq!(
        response.header("location"),
        Some(format!("http://{address}/new").as_str())
    );
    let response = ask(&mut client, "GET /teapot", "host: h\r\n");
    assert_eq!((response.status, response.text()), (418, "short"));
    assert_eq!(
        (response.header("x-a"), response.header("content-type")),
        (Some("b"), Some("text/x"))
    );
    assert_eq!(response.header("server"), Some("maglor"));
    assert_eq!(ask(&mut client, "GET /empty", "host: h\r\n").status, 204);
    assert_eq!(
        ask(&mut client, "GET /maintenance", "host: h\r\n").status,
        503
    );
    // The body of the request is read or the connection ends; the next request is not part of it.
    let post = "host: h\r\ncontent-length: 3\r\n";
    client.send(format!("POST /teapot HTTP/1.1\r\n{post}\r\nabc"));
    assert_eq!(client.response().status, 418);
    assert_eq!((a.requests(), b.requests()), (0, 0));
}

#[test]
fn header_rules_apply_in_their_order() {
    let (a, b) = pair();
    let hosts = "  - domains: ['*']
    request_headers: {remove: x-gone, set: {x-set: host, x-both: host}, add: {x-add: [h1, h2]}}
    response_headers: {remove: x-upstream, set: {x-r: host}, add: {x-add: host}}
    routes:
    - cluster: a
      request_headers: {remove: [x-too, x-both], set: {x-set: route, x-both: route}, add: {x-add: r, x-gone: again}}
      response_headers: {set: {x-r: route}, add: {x-add: route}}
";
    let proxy = proxy(hosts, &a, &b);
    let headers =
        "host: h\r\nX-Gone: 1\r\nx-gone: 2\r\nX-Too: 1\r\nx-set: c1\r\nx-set: c2\r\nx-add: c\r\n";
    let response = ask(&mut connect(&proxy), "GET /", headers);
    let last = a.last();
    let all = |name: &str| -> Vec<_> {
        last.headers
            .get_all(name)
            .iter()
            .map(|v| v.to_str().unwrap())
            .collect()
    };
    assert_eq!(all("x-gone"), ["again"]);
    assert_eq!(all("x-too"), [""; 0]);
    assert_eq!(all("x-set"), ["route"]);
    assert_eq!(all("x-both"), ["route"]);
    assert_eq!(all("x-add"), ["c", "h1", "h2", "r"]);
    assert_eq!(response.header_all("x-r"), ["host"]);
    assert_eq!(response.header_all("x-add"), ["route", "host"]);
    assert_eq!(response.header("x-upstream"), None);
}

#[test]
fn weights_are_kept() {
    let (a, b) = pair();
    let table = "    - {clusters: [{name: a, weight: 80}, {name: b, weight: 20}]}\n";
    let proxy = routes(table, &a, &b);
    // The bound is exceeded by chance once in 10^9.
    let mut client = connect(&proxy);
    let total = 2000.0;
    for _ in 0..2000 {
        assert_eq!(client.get("/").status, 200);
    }
    let square = |got: u64, share: f64| (got as f64 - total * share).powi(2) / (total * share);
    let chi = square(a.requests(), 0.8) + square(b.requests(), 0.2);
    assert!(
        chi < 37.3,
        "χ² = {chi}: {} and {}",
        a.requests(),
        b.requests()
    );

    let none = "    - {clusters: [{name: a, weight: 0}, {name: b, weight: 1}]}\n";
    let proxy = routes(none, &a, &b);
    let before = a.requests();
    let mut client = connect(&proxy);
    for _ in 0..100 {
        assert_eq!(client.get("/").text(), "b");
    }
    assert_eq!(a.requests(), before);
}

#[test]
fn a_share_has_its_own_headers_or_only_a_status() {
    let (a, b) = pair();
    let table = "    - match: {path: /part}
      clusters: [{name: a, weight: 3}, {status: 500}]
    - match: {path: /none, grpc: true}
      clusters: [{status: 500}]
    - clusters:
      - {name: a, request_headers: {set: {x-to: a}}, response_headers: {set: {x-r: share}, add: {x-add: share}}}
      - {name: b, weight: 0, request_headers: {set: {x-to: b}}}
      request_headers: {set: {x-to: route, x-all: '1'}}
      response_headers: {set: {x-r: route}, add: {x-add: route}}
";
    let proxy = routes(table, &a, &b);
    let mut client = connect(&proxy);
    let mut statuses: BTreeMap<u16, f64> = BTreeMap::new();
    for _ in 0..2000 {
        let response = client.get("/part");
        if response.status == 500 {
            assert_eq!(response.header("x-maglor-reason"), Some("NB"));
        }
        *statuses.entry(response.status).or_default() += 1.0;
    }
    let failed = statuses.get(&500).copied().unwrap_or_default();
    assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [200, 500]);
    // Six standard deviations of a share of a quarter.
    assert!((failed - 500.0).abs() < 116.0, "{statuses:?}");

    let response = ask(&mut client, "GET /", "host: h\r\n");
    let to: Vec<_> = a.last().headers.get_all("x-to").iter().cloned().collect();
    assert_eq!(to, ["a"]);
    assert_eq!(a.last().headers["x-all"], "1");
    assert_eq!(response.header_all("x-r"), ["route"]);
    assert_eq!(response.header_all("x-add"), ["share", "route"]);

    let call = "host: h\r\ncontent-type: application/grpc\r\ncontent-length: 0\r\n";
    let response = ask(&mut client, "POST /none", call);
    assert_eq!(response.header("grpc-status"), Some("14"));
}

/// Returns the responding endpoint and a new cookie, if there is one.
fn endpoint(client: &mut RawHttp1, path: &str, headers: &str) -> (String, Option<String>) {
    let response = ask(
        client,
        &format!("GET {path}"),
        &format!("host: h\r\n{headers}"),
    );
    assert_eq!(response.status, 200);
    (
        response.text().to_owned(),
        response.header("set-cookie").map(str::to_owned),
    )
}

#[test]
fn hashing_keeps_a_key_at_its_endpoint() {
    let names = ["e0", "e1", "e2", "e3"];
    let upstreams = names.map(Upstream::start);
    let addresses: Vec<_> = upstreams
        .iter()
        .map(|u| format!("'{}'", u.address()))
        .collect();
    for policy in ["maglev(table_size=251)", "ring-hash(min=1024)"] {
        let proxy = start(&format!(
            "listeners:\n- name: web\n  address: 127.0.0.1:0\n  http:\n    virtual_hosts:\n    - domains: ['*']\n      routes:\n\
             \x20     - {{match: {{path: /header}}, cluster: c, hash_policy: [{{header: x-user}}]}}\n\
             \x20     - {{match: {{path: /cookie}}, cluster: c, hash_policy: [{{cookie: {{name: id, ttl: 1h}}}}]}}\n\
             \x20     - {{match: {{path: /query}}, cluster: c, hash_policy: [{{query: user}}]}}\n\
             \x20     - {{match: {{path: /path}}, cluster: c, hash_policy: [{{path: true}}]}}\n\
             \x20     - {{match: {{path: /source}}, cluster: c, hash_policy: [{{source_address: true}}]}}\n\
             \x20     - {{match: {{path: /first}}, cluster: c, hash_policy: [{{header: x-user, terminal: true}}, {{path: true}}]}}\n\
             \x20     - {{match: {{path: /both}}, cluster: c, hash_policy: [{{header: x-user}}, {{path: true}}]}}\n\
             clusters:\n- {{name: c, policy: '{policy}', endpoints: [{}]}}\n",
            addresses.join(", ")
        ));
        let mut client = connect(&proxy);
        let mut loads: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for key in 0..40 {
            let requests = [
                ("header", "/header".to_owned(), format!("x-user: {key}\r\n")),
                (
                    "cookie",
                    "/cookie".to_owned(),
                    format!("cookie: a=b; id={key}\r\n"),
                ),
                ("query", format!("/query?x=y&user={key}"), String::new()),
                ("path", format!("/path/{key}"), String::new()),
            ];
            for (kind, path, headers) in requests {
                let (first, cookie) = endpoint(&mut client, &path, &headers);
                assert_eq!(cookie, None, "{kind}");
                for _ in 0..3 {
                    assert_eq!(endpoint(&mut connect(&proxy), &path, &headers).0, first);
                }
                loads.entry(kind).or_default().insert(first);
            }
            let address = format!("127.0.0.{}", key + 2).parse().unwrap();
            let source = |path| {
                let mut client = RawHttp1::connect_from(address, proxy.listener("web"));
                endpoint(&mut client, path, "").0
            };
            let first = source("/source");
            assert_eq!(source("/source?x"), first);
            loads.entry("source").or_default().insert(first);
        }
        for (kind, endpoints) in &loads {
            assert_eq!(endpoints.len(), 4, "{policy} by {kind}: {endpoints:?}");
        }
        // A client without a cookie gets one, which leads back to the same endpoint.
        let mut made = BTreeSet::new();
        for _ in 0..40 {
            let (first, cookie) = endpoint(&mut client, "/cookie", "");
            let cookie = cookie.expect("a cookie");
            assert!(
                cookie.ends_with("; HttpOnly; Path=/; Max-Age=3600"),
                "{cookie}"
            );
            let pair = cookie.split(';').next().unwrap();
            let again = endpoint(&mut client, "/cookie", &format!("cookie: {pair}\r\n"));
            assert_eq!(again, (first.clone(), None));
            made.insert(first);
        }
        assert_eq!(made.len(), 4, "{policy}");
        // A terminal part that is present is the whole key; otherwise the next part is used.
        let user = "x-user: 1\r\n";
        let mut endpoints = |path: &str, headers: &str| -> BTreeSet<_> {
            let one = |at: u32| endpoint(&mut client, &format!("{path}/{at}"), headers).0;
            (0..40).map(one).collect()
        };
        assert_eq!(endpoints("/first", user).len(), 1, "{policy}");
        assert_eq!(endpoints("/first", "").len(), 4, "{policy}");
        assert_eq!(endpoints("/both", user).len(), 4, "{policy}");
        // Without a key, requests are spread.
        let anywhere: BTreeSet<_> = (0..60)
            .map(|_| endpoint(&mut client, "/header", "").0)
            .collect();
        assert!(anywhere.len() > 1, "{policy}: {anywhere:?}");
    }
}

#[test]
fn paths_are_normalized_before_they_are_routed() {
    let upstream = Upstream::start("a");
    let yaml = |mode: &str| {
        format!(
            "admin: {{address: '127.0.0.1:0'}}\nlisteners:\n- name: web\n  address: 127.0.0.1:0\n  \
             http:\n    {mode}\n    virtual_hosts:\n    - domains: ['*']\n      routes:\n      \
             - {{match: {{path: /admin}}, direct_response: {{status: 403}}}}\n      - {{cluster: backend}}\n\
             clusters:\n- {{name: backend, endpoints: ['{}']}}\n",
            upstream.address()
        )
    };
    let status = |proxy: &Proxy, target: &str| {
        let mut client = connect(proxy);
        client.get(target).status
    };
    let proxy = start(&yaml(""));
    for target in ["/admin", "/x/../admin", "/%61dmin?q", "/x/%2e%2e/admin/b"] {
        assert_eq!(status(&proxy, target), 403, "{target}");
    }
    // Escapes with a meaning are kept, and so is the query.
    assert_eq!(status(&proxy, "/a%2Fb/../c?x=/../y"), 200);
    let seen = upstream.recorded().last().unwrap().uri.to_string();
    assert_eq!(seen, "/c?x=/../y");
    let proxy = start(&yaml("path_normalization: off"));
    assert_eq!(status(&proxy, "/x/../admin"), 200);
    let proxy = start(&yaml("path_normalization: decode-and-merge-slashes"));
    assert_eq!(status(&proxy, "//x%2F..//admin"), 403);
}
