//! What the Gateway API's conformance suite asks of a mesh, with a real proxy and this controller on a
//! folder, without Kubernetes: one case for each of the suite's mesh tests, in the order of its files.
//!
//! The suite itself runs on a cluster (`cargo xtask conformance mesh`). Here its Services are
//! `echo` (both versions), `echo-v1` and `echo-v2`, their pods servers of the test, and its client calls
//! by name instead of by address.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use maglor_testkit::{Proxy, ProxyBuilder, RawHttp1, RawResponse, TIMEOUT, Upstream, eventually};
use serde_json::Value;

const NAMESPACE: &str = "suite";

/// The proxy's program, built with this one; `None` where only this package was built.
fn proxy_program() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_maglor-controller")).with_file_name("maglor-proxy");
    if program.exists() {
        return Some(program);
    }
    println!(
        "skipped: there is no {}; build maglor-proxy",
        program.display()
    );
    None
}

struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two versions of a server, the controller that knows them, and a proxy a namespace.
struct Mesh {
    v1: Upstream,
    v2: Upstream,
    folder: tempfile::TempDir,
    other: tempfile::TempDir,
    _controller: Controller,
    address: String,
    program: PathBuf,
}

impl Mesh {
    fn start(program: PathBuf) -> Self {
        let (v1, v2) = (Upstream::start("echo-v1"), Upstream::start("echo-v2"));
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("services.yaml"), services(&v1, &v2)).unwrap();
        let ready = other.path().join("ready.json");
        let child = Command::new(env!("CARGO_BIN_EXE_maglor-controller"))
            .args(["--plain-text", "--listen", "127.0.0.1:0", "--folder"])
            .arg(folder.path())
            .arg("--ready-file")
            .arg(&ready)
            .spawn()
            .unwrap();
        let controller = Controller(child);
        eventually(Duration::from_secs(20), "the controller serves", || {
            ready.exists()
        });
        let addresses: Value = serde_json::from_slice(&std::fs::read(&ready).unwrap()).unwrap();
        Self {
            v1,
            v2,
            folder,
            other,
            _controller: controller,
            address: addresses["listen"].as_str().unwrap().to_owned(),
            program,
        }
    }

    /// Routes in place of those before.
    fn routes(&self, text: &str) {
        let new = self.other.path().join("routes.yaml");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, self.folder.path().join("routes.yaml")).unwrap();
    }

    /// The sidecar of a client in a namespace.
    fn client(&self, namespace: &str) -> Proxy {
        let config = format!(
            "admin: {{address: '127.0.0.1:0'}}
control_plane: {{cluster: control, node: {{id: {namespace}/client}}}}
listeners:
- name: out
  address: 127.0.0.1:0
  http: {{discovery: {{namespace: {NAMESPACE}, timeout: 10s}}}}
clusters:
- {{name: control, endpoints: ['{}']}}
",
            self.address
        );
        ProxyBuilder::new(&self.program).config(config).start()
    }
}

fn services(v1: &Upstream, v2: &Upstream) -> String {
    let mut text = String::new();
    let ports = "{name: http, port: 80, appProtocol: http}, {name: http-alt, port: 8080, appProtocol: http}, {name: grpc, port: 7070, appProtocol: kubernetes.io/h2c}";
    for (name, of) in [
        ("echo", vec![v1, v2]),
        ("echo-v1", vec![v1]),
        ("echo-v2", vec![v2]),
    ] {
        write!(
            text,
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\nspec: {{ports: [{ports}]}}\n"
        )
        .unwrap();
        for (i, upstream) in of.iter().enumerate() {
            let port = upstream.address().port();
            write!(
                text,
                "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-{i}, namespace: {NAMESPACE}, labels: {{kubernetes.io/service-name: {name}}}}}\n\
                 ports: [{{name: http, port: {port}}}, {{name: http-alt, port: {port}}}, {{name: grpc, port: {port}}}]\n\
                 endpoints: [{{addresses: [127.0.0.1]}}]\n"
            )
            .unwrap();
        }
    }
    text
}

/// A route with these rules (YAML, indented by two) attached to a port of a Service.
fn route(kind: &str, namespace: &str, service: &str, port: Option<u16>, rules: &str) -> String {
    let port = port
        .map(|port| format!(", port: {port}"))
        .unwrap_or_default();
    format!(
        "---
apiVersion: gateway.networking.k8s.io/v1
kind: {kind}
metadata: {{name: of-{service}, namespace: {namespace}}}
spec:
  parentRefs: [{{group: '', kind: Service, name: {service}, namespace: {NAMESPACE}{port}}}]
  rules:
{rules}"
    )
}

/// A request and what is expected of it, in words: `[METHOD] TARGET [name:value…] -> STATUS
/// [by BACKEND] [location URL] [+name:value…] [-name…] [got name:value…] [got -name…] [path PATH]`.
///
/// `+` and `-` are headers of the response, `got` those that the server was sent.
fn case(mesh: &Mesh, client: &Proxy, host: &str, text: &str) -> Result<(), String> {
    let (request, expected) = text.split_once(" -> ").unwrap();
    let mut words = request.split(' ');
    let target = words.next().unwrap();
    let mut head = format!("GET {target} HTTP/1.1\r\n");
    let mut host = host.to_owned();
    for word in words {
        match word.split_once(':').unwrap() {
            ("host", value) => value.clone_into(&mut host),
            (name, value) => write!(head, "{name}: {value}\r\n").unwrap(),
        }
    }
    write!(head, "host: {host}\r\n\r\n").unwrap();
    let response = RawHttp1::connect(client.listener("out")).request(head);
    expect(mesh, &response, expected).map_err(|what| format!("{text}: {what}"))
}

fn expect(mesh: &Mesh, response: &RawResponse, expected: &str) -> Result<(), String> {
    let mut words = expected.split(' ');
    let status = words.next().unwrap();
    if response.status.to_string() != status {
        return Err(format!("got {} {}", response.status, response.text()));
    }
    let who = response.text().to_owned();
    let server = if who == "echo-v2" { &mesh.v2 } else { &mesh.v1 };
    while let Some(word) = words.next() {
        let (found, wanted) = match word {
            "by" => (who.clone(), words.next().unwrap().to_owned()),
            "location" => {
                let location = response.header("location").unwrap_or_default();
                (location.to_owned(), words.next().unwrap().to_owned())
            }
            "path" => (
                server.last().uri.path().to_owned(),
                words.next().unwrap().to_owned(),
            ),
            "got" => {
                let last = server.last();
                let header = words.next().unwrap();
                let (name, wanted) = header.split_once(':').unwrap_or((&header[1..], ""));
                let values = last.headers.get_all(name).iter();
                let values: Vec<&str> = values.map(|value| value.to_str().unwrap()).collect();
                (values.join(","), wanted.to_owned())
            }
            other => {
                let (name, wanted) = other[1..].split_once(':').unwrap_or((&other[1..], ""));
                (response.header_all(name).join(","), wanted.to_owned())
            }
        };
        if found != wanted {
            return Err(format!("{word}: `{found}` instead of `{wanted}`"));
        }
    }
    Ok(())
}

/// Waits for the first case, which tells these routes from others; then all hold at once.
#[track_caller]
fn holds(mesh: &Mesh, client: &Proxy, host: &str, routes: &str, cases: &[&str]) {
    mesh.routes(routes);
    eventually(TIMEOUT, cases[0], || {
        case(mesh, client, host, cases[0]).is_ok()
    });
    for text in cases {
        case(mesh, client, host, text).unwrap_or_else(|what| panic!("{what}"));
    }
}

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
    let http = |rules: &str| route("HTTPRoute", NAMESPACE, "echo", Some(80), rules);

    let redirect = |prefix: &str, redirect: &str| {
        format!(
            "  - {{matches: [{{path: {{value: {prefix}}}}}], filters: [{{type: RequestRedirect, requestRedirect: {{{redirect}}}}}]}}\n"
        )
    };
    let to = |path: &str| format!("path: {{type: ReplacePrefixMatch, replacePrefixMatch: {path}}}");
    let whole = |path: &str| format!("path: {{type: ReplaceFullPath, replaceFullPath: {path}}}");
    let rules = [
        // The same place: 303, 307 and 308 say only how to come again.
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
    holds(&mesh, &client, "echo", &http(&rules), &cases);

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
    holds(&mesh, &client, "echo", &http(rules), &cases);

    // MeshHTTPRouteNamedRule.
    let rules = "  - {name: named-rule, matches: [{path: {value: /named}}], backendRefs: [{name: echo-v1, port: 8080}]}
  - {matches: [{path: {value: /unnamed}}], backendRefs: [{name: echo-v2, port: 8080}]}
";
    let cases = [
        "/other -> 404",
        "/named -> 200 by echo-v1 path /named",
        "/unnamed -> 200 by echo-v2 path /unnamed",
    ];
    holds(&mesh, &client, "echo", &http(rules), &cases);

    // MeshHTTPRouteQueryParamMatching.
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
    holds(&mesh, &client, "echo", &http(&rules), &cases);
}

/// MeshHTTPRouteRequestHeaderModifier, its kin for one backend, and MeshHTTPRouteRewritePath.
#[test]
fn what_is_forwarded_is_changed_as_the_suite_expects() {
    let Some(program) = proxy_program() else {
        return;
    };
    let mesh = Mesh::start(program);
    let client = mesh.client(NAMESPACE);
    let http = |rules: &str| route("HTTPRoute", NAMESPACE, "echo", Some(80), rules);
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
    holds(&mesh, &client, "echo", &http(&of_rule), &cases);
    mesh.routes("");
    let gone = "/remove x-remove:val -> 200 got x-remove:val";
    eventually(TIMEOUT, gone, || case(&mesh, &client, "echo", gone).is_ok());
    holds(&mesh, &client, "echo", &http(&of_backend), &cases);

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
    holds(&mesh, &client, "echo", &http(&rules), &cases);
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

/// MeshHTTPRouteWeight, MeshGRPCRouteWeight, and what the API says of backends that do not exist.
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
        // The suite's own bound, and it tries ten times, too.
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
