//! The mesh tests of the Gateway API's conformance suite, with a real proxy and this controller on a
//! folder, without Kubernetes: one case for each of the suite's mesh tests, in the order of its files.
//!
//! The suite itself runs on a cluster (`cargo xtask conformance mesh`). Here its Services are
//! `echo` (both versions), `echo-v1` and `echo-v2`, their pods servers of the test, and its client calls
//! by name instead of by address.

mod stage;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maglor_testkit::{Proxy, RawHttp1, TIMEOUT, eventually};

use stage::{Mesh, NAMESPACE, case, holds, proxy_program, route};

/// MeshHTTPRoute…: matching, redirects, rewrites, headers, query parameters, names, weights.
#[test]
fn routes_of_http_do_what_the_suite_expects() {
    let Some(program) = proxy_program() else {
        return;
    };
    let mesh = Mesh::start(program);
    let client = mesh.client(NAMESPACE);
    assert!(
        case(&mesh, &client, "echo", "/ -> 200").is_ok(),
        "MeshBasic"
    );

    redirects(&mesh, &client);

    // MeshHTTPRouteMatching.
    let rules = "  - matches: [{path: {value: /}}, {headers: [{name: version, value: one}]}]
    backendRefs: [{name: echo-v1, port: 8080}]
  - matches: [{path: {value: /v2}}, {headers: [{name: version, value: two}]}]
    backendRefs: [{name: echo-v2, port: 8080}]
";
    let cases = [
        "/v2 -> 200 by echo-v2",
        "/ -> 200 by echo-v1",
        "/example -> 200 by echo-v1",
        "/ version:one -> 200 by echo-v1",
        "/v2/example -> 200 by echo-v2",
        "/ version:two -> 200 by echo-v2",
        "/v2/ -> 200 by echo-v2",
        "/v2example -> 200 by echo-v1",
        "/foo/v2/example -> 200 by echo-v1",
    ];
    holds(&mesh, &client, "echo", &of_http(rules), &cases);

    // MeshHTTPRouteNamedRule.
    let rules = "  - {name: named-rule, matches: [{path: {value: /named}}], backendRefs: [{name: echo-v1, port: 8080}]}
  - {matches: [{path: {value: /unnamed}}], backendRefs: [{name: echo-v2, port: 8080}]}
";
    let cases = [
        "/other -> 404",
        "/named -> 200 by echo-v1 path /named",
        "/unnamed -> 200 by echo-v2 path /unnamed",
    ];
    holds(&mesh, &client, "echo", &of_http(rules), &cases);

    query_parameters(&mesh, &client);
}

/// MeshHTTPRouteRedirect….
fn redirects(mesh: &Mesh, client: &Proxy) {
    let redirect = |prefix: &str, redirect: &str| {
        format!(
            "  - {{matches: [{{path: {{value: {prefix}}}}}], filters: [{{type: RequestRedirect, requestRedirect: {{{redirect}}}}}]}}\n"
        )
    };
    let to = |path: &str| format!("path: {{type: ReplacePrefixMatch, replacePrefixMatch: {path}}}");
    let whole = |path: &str| format!("path: {{type: ReplaceFullPath, replaceFullPath: {path}}}");
    let rules = [
        // The same location: 303, 307 and 308 differ only in the method of the next request.
        redirect("/see-other", "statusCode: 303"),
        redirect("/temporary", "statusCode: 307"),
        redirect("/permanent", "statusCode: 308"),
        redirect("/host", "hostname: example.org"),
        redirect("/host-and-status", "hostname: example.org, statusCode: 301"),
        redirect("/scheme", "scheme: https"),
        redirect("/scheme-and-host", "scheme: https, hostname: example.org"),
        redirect("/port", "port: 8083"),
        redirect(
            "/port-and-host",
            "port: 8083, hostname: example.org, statusCode: 302",
        ),
        redirect("/original-prefix", &to("/replacement-prefix")),
        redirect("/full", &whole("/full-path-replacement")),
        redirect(
            "/path-and-host",
            &format!("hostname: example.org, {}", to("/replacement-prefix")),
        ),
        redirect(
            "/path-and-status",
            &format!("statusCode: 301, {}", to("/replacement-prefix")),
        ),
    ]
    .concat();
    let cases = [
        "/see-other -> 303 location http://echo/see-other",
        "/temporary -> 307 location http://echo/temporary",
        "/permanent -> 308 location http://echo/permanent",
        "/host -> 302 location http://example.org/host",
        "/host-and-status -> 301 location http://example.org/host-and-status",
        "/scheme -> 302 location https://echo/scheme",
        "/scheme-and-host -> 302 location https://example.org/scheme-and-host",
        "/port -> 302 location http://echo:8083/port",
        "/port-and-host -> 302 location http://example.org:8083/port-and-host",
        "/original-prefix/lemon -> 302 location http://echo/replacement-prefix/lemon",
        "/full/path/original -> 302 location http://echo/full-path-replacement",
        "/path-and-host -> 302 location http://example.org/replacement-prefix",
        "/path-and-status -> 301 location http://echo/replacement-prefix",
    ];
    holds(mesh, client, "echo", &of_http(&rules), &cases);
}

/// MeshHTTPRouteQueryParamMatching.
fn query_parameters(mesh: &Mesh, client: &Proxy) {
    let one = |matches: &str, to: &str| {
        format!("  - {{matches: [{matches}], backendRefs: [{{name: echo-{to}, port: 8080}}]}}\n")
    };
    let animal = |name: &str| format!("queryParams: [{{name: animal, value: {name}}}]");
    let rules = [
        one(&format!("{{{}}}", animal("whale")), "v1"),
        one(&format!("{{{}}}", animal("dolphin")), "v2"),
        one(&format!("{{path: {{value: /path1}}, {}}}", animal("whale")), "v1"),
        one(&format!("{{headers: [{{name: version, value: one}}], {}}}", animal("whale")), "v2"),
        one(
            &format!(
                "{{path: {{value: /path3}}, {}}}, {{path: {{value: /path4}}, headers: [{{name: version, value: three}}], {}}}",
                animal("shark"),
                animal("kraken")
            ),
            "v1",
        ),
        one("{path: {value: /path5}}", "v1"),
        one(&format!("{{{}}}", animal("hydra")), "v2"),
    ]
    .concat();
    let cases = [
        "/?animal=dolphin -> 200 by echo-v2",
        "/?animal=whale -> 200 by echo-v1",
        "/?animal=whale&otherparam=irrelevant -> 200 by echo-v1",
        "/?animal=dolphin&color=yellow -> 200 by echo-v2",
        "/?color=blue -> 404",
        "/?animal=dog -> 404",
        "/?animal=whaledolphin -> 404",
        "/ -> 404",
        "/path1?animal=whale -> 200 by echo-v1",
        "/?animal=whale version:one -> 200 by echo-v2",
        "/path3?animal=shark -> 200 by echo-v1",
        "/path4?animal=kraken version:three -> 200 by echo-v1",
        "/?animal=shark -> 404",
        "/path4?animal=kraken -> 404",
        "/path5?animal=hydra -> 200 by echo-v1",
    ];
    holds(mesh, client, "echo", &of_http(&rules), &cases);
}

fn of_http(rules: &str) -> String {
    route("HTTPRoute", NAMESPACE, "echo", Some(80), rules)
}

/// MeshHTTPRouteRequestHeaderModifier, its kin for one backend, and MeshHTTPRouteRewritePath.
#[test]
fn what_is_forwarded_is_changed_as_the_suite_expects() {
    let Some(program) = proxy_program() else {
        return;
    };
    let mesh = Mesh::start(program);
    let client = mesh.client(NAMESPACE);
    let cases = [
        "/set some-other:val -> 200 by echo-v1 got some-other:val got x-set:overwrites path /set",
        "/set x-set:mine -> 200 by echo-v1 got x-set:overwrites",
        "/add -> 200 by echo-v1 got x-add:appends",
        "/add x-add:mine -> 200 by echo-v1 got x-add:mine,appends",
        "/remove x-remove:val -> 200 by echo-v1 got -x-remove",
        "/multiple x-set-2:s x-add-2:a x-remove-2:r other:o -> 200 got x-set-1:1 got x-set-2:2 got x-add-1:1 got x-add-2:a,2 got other:o got -x-remove-2",
        "/case x-SET:val X-add:val X-REMOVE:val -> 200 got x-set:set got x-add:val,add got -x-remove",
    ];
    let changes = [
        ("/set", "set: [{name: X-Set, value: overwrites}]"),
        ("/add", "add: [{name: X-Add, value: appends}]"),
        ("/remove", "remove: [X-Remove]"),
        (
            "/multiple",
            "set: [{name: X-Set-1, value: '1'}, {name: X-Set-2, value: '2'}], add: [{name: X-Add-1, value: '1'}, {name: X-Add-2, value: '2'}], remove: [X-Remove-1, X-Remove-2]",
        ),
        (
            "/case",
            "set: [{name: X-Set, value: set}], add: [{name: x-add, value: add}], remove: [x-remove]",
        ),
    ];
    let (mut of_rule, mut of_backend) = (String::new(), String::new());
    for (path, change) in changes {
        let filter = format!(
            "filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{{change}}}}}]"
        );
        writeln!(of_rule, "  - {{matches: [{{path: {{value: {path}}}}}], {filter}, backendRefs: [{{name: echo-v1, port: 8080}}]}}").unwrap();
        writeln!(of_backend, "  - {{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: echo-v1, port: 8080, {filter}}}]}}").unwrap();
    }
    holds(&mesh, &client, "echo", &of_http(&of_rule), &cases);
    mesh.routes("");
    let gone = "/remove x-remove:val -> 200 got x-remove:val";
    eventually(TIMEOUT, gone, || case(&mesh, &client, "echo", gone).is_ok());
    holds(&mesh, &client, "echo", &of_http(&of_backend), &cases);

    let rewrite = |path: &str, change: &str| {
        format!(
            "  - {{matches: [{{path: {{value: {path}}}}}], filters: [{{type: URLRewrite, urlRewrite: {{path: {{{change}}}}}}}], backendRefs: [{{name: echo-v1, port: 80}}]}}\n"
        )
    };
    let prefix = |to: &str| format!("type: ReplacePrefixMatch, replacePrefixMatch: {to}");
    let rules = [
        rewrite("/prefix/one", &prefix("/one")),
        rewrite("/strip-prefix", &prefix("/")),
        rewrite("/full/one", "type: ReplaceFullPath, replaceFullPath: /one"),
    ]
    .concat();
    let cases = [
        "/prefix/one/two -> 200 by echo-v1 path /one/two",
        "/strip-prefix/three -> 200 by echo-v1 path /three",
        "/strip-prefix -> 200 by echo-v1 path /",
        "/full/one/two -> 200 by echo-v1 path /one",
    ];
    holds(&mesh, &client, "echo", &of_http(&rules), &cases);
}

/// MeshPorts, MeshSplit, MeshFrontend and MeshConsumerRoute.
#[test]
fn routes_hold_for_the_ports_and_the_clients_that_they_are_for() {
    let Some(program) = proxy_program() else {
        return;
    };
    let mesh = Mesh::start(program);
    let (client, consumer) = (mesh.client(NAMESPACE), mesh.client("consumer"));
    let mark = |service: &str, mark: &str| {
        format!(
            "  - {{filters: [{{type: ResponseHeaderModifier, responseHeaderModifier: {{set: [{{name: X-Header-Set, value: {mark}}}]}}}}], backendRefs: [{{name: {service}, namespace: {NAMESPACE}, port: 80}}]}}\n"
        )
    };
    let both = [
        route(
            "HTTPRoute",
            NAMESPACE,
            "echo-v1",
            Some(80),
            &mark("echo-v1", "v1"),
        ),
        route(
            "HTTPRoute",
            NAMESPACE,
            "echo-v2",
            None,
            &mark("echo-v2", "v2"),
        ),
    ]
    .concat();
    let cases = [
        "/ host:echo-v1 -> 200 by echo-v1 +x-header-set:v1",
        "/ host:echo-v1:8080 -> 200 by echo-v1 -x-header-set",
        "/ host:echo-v2 -> 200 by echo-v2 +x-header-set:v2",
        "/ host:echo-v2:8080 -> 200 by echo-v2 +x-header-set:v2",
        "/ host:echo -> 200 -x-header-set",
    ];
    holds(&mesh, &client, "echo", &both, &cases);

    let split = "  - {matches: [{path: {type: Exact, value: /v1}}], backendRefs: [{name: echo-v1, port: 80}]}
  - {matches: [{path: {type: Exact, value: /v2}}], backendRefs: [{name: echo-v2, port: 80}]}
";
    let split = route("HTTPRoute", NAMESPACE, "echo", None, split);
    let cases = ["/ -> 404", "/v1 -> 200 by echo-v1", "/v2 -> 200 by echo-v2"];
    holds(&mesh, &client, "echo", &split, &cases);

    let own = route(
        "HTTPRoute",
        "consumer",
        "echo-v1",
        None,
        &mark("echo-v1", "set"),
    );
    let cases = ["/ -> 200 by echo-v1 +x-header-set:set"];
    let host = "echo-v1.suite";
    holds(&mesh, &consumer, host, &own, &cases);
    case(&mesh, &client, host, "/ -> 200 by echo-v1 -x-header-set").unwrap();
}

/// MeshHTTPRouteWeight, MeshGRPCRouteWeight, and the required behaviour for backends that do not exist.
#[test]
fn weights_and_missing_backends_are_kept() {
    let Some(program) = proxy_program() else {
        return;
    };
    let mesh = Mesh::start(program);
    let client = mesh.client(NAMESPACE);
    let weighted = |port: u16, third: &str| {
        format!(
            "  - backendRefs: [{{name: echo-v1, port: {port}, weight: 70}}, {{name: echo-v2, port: {port}, weight: 30}}, {third}]\n"
        )
    };
    let none = "{name: echo-v3, port: 7070, weight: 0}";
    let both = [
        route(
            "HTTPRoute",
            NAMESPACE,
            "echo",
            Some(80),
            &weighted(8080, "{name: echo-v2, port: 8080, weight: 0}"),
        ),
        route(
            "GRPCRoute",
            NAMESPACE,
            "echo",
            Some(7070),
            &weighted(7070, none),
        ),
    ]
    .concat();
    mesh.routes(&both);
    let call = "content-type: application/grpc\r\nte: trailers\r\ncontent-length: 0\r\n";
    for (host, headers) in [("echo", ""), ("echo:7070", call)] {
        let count = || {
            let mut seen: BTreeMap<String, f64> = BTreeMap::new();
            let mut requests = RawHttp1::connect(client.listener("out"));
            for _ in 0..500 {
                let method = if headers.is_empty() { "GET" } else { "POST" };
                let head = format!("{method} / HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n");
                let response = requests.request(head);
                assert_eq!(response.status, 200, "{host}");
                *seen.entry(response.text().to_owned()).or_default() += 1.0;
            }
            seen
        };
        // The suite's own bound, with ten attempts, too.
        let near = |seen: &BTreeMap<String, f64>| {
            let share = seen.get("echo-v1").copied().unwrap_or_default() / 500.0;
            (share - 0.7).abs() <= 0.05
        };
        eventually(TIMEOUT, host, || near(&count()));
    }

    let half = "  - backendRefs: [{name: echo-v1, port: 80}, {name: gone, port: 80}]\n";
    mesh.routes(&route("HTTPRoute", NAMESPACE, "echo", Some(80), half));
    let status = || {
        let head = "GET / HTTP/1.1\r\nhost: echo\r\n\r\n";
        RawHttp1::connect(client.listener("out"))
            .request(head)
            .status
    };
    eventually(TIMEOUT, "some fail", || status() == 500);
    let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
    for _ in 0..200 {
        *statuses.entry(status()).or_default() += 1;
    }
    // Seven standard deviations of a half.
    let failed = statuses[&500];
    assert!((50..=150).contains(&failed), "{statuses:?}");
    assert_eq!(statuses.len(), 2, "{statuses:?}");
}
