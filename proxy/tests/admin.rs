//! Interfaces for operators: the admin port, metrics, logs.

use std::fs;
use std::path::Path;

use maglor_testkit::process::Signal;
use maglor_testkit::{Proxy, RawConnection, RawHttp1, RawResponse, TIMEOUT, Upstream, eventually};
use serde_json::Value;

use crate::support::{self, Web, connect, get, outstanding, wait_quiet};

#[test]
fn every_page_is_there() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("policy: maglev(table_size=251)")
        .start();
    let mut admin = RawHttp1::connect(proxy.admin());
    let ready = admin.get_local("/ready");
    assert_eq!((ready.status, ready.text()), (200, "ready\n"));
    assert_eq!(admin.get_local("/live").text(), "live\n");
    let index = admin.get_local("/");
    for page in [
        "/metrics",
        "/ready",
        "/live",
        "/config",
        "/clusters",
        "/listeners",
        "/routes",
        "/tap",
        "/drain",
        "/logging",
    ] {
        assert!(index.text().contains(page), "{page}");
    }
    let config = admin.get_local("/config");
    assert_eq!(config.header("content-type"), Some("application/yaml"));
    // It is a valid configuration.
    assert!(config.text().contains(&upstream.address().to_string()));
    assert_eq!(get(&support::start(config.text()), "/").text(), "a");
    let listeners = admin.get_local("/listeners").json();
    assert_eq!(listeners["web"], proxy.listener("web").to_string());
    let clusters = admin.get_local("/clusters").json();
    let cluster = &clusters["clusters"][0];
    assert_eq!(
        (&cluster["name"], &cluster["policy"]),
        (&"backend".into(), &"maglev(table_size=251)".into())
    );
    let endpoint = &cluster["endpoints"][0];
    assert_eq!(endpoint["address"], upstream.address().to_string());
    assert_eq!(
        (&endpoint["outstanding"], &endpoint["healthy"]),
        (&0.into(), &true.into())
    );
    assert_eq!(
        (&endpoint["weight"], &cluster["tls"]),
        (&1.into(), &Value::Null)
    );
    let metrics = admin.get_local("/metrics");
    assert!(
        metrics
            .header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    assert_eq!(admin.get_local("/nonsense").status, 404);
    let drain = admin.get_local("/drain");
    assert_eq!(
        (drain.status, drain.header("allow")),
        (405, Some("POST, PUT"))
    );
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(admin.request(post("/metrics")).status, 405);
    assert_eq!(
        admin
            .request("HEAD /ready HTTP/1.1\r\nhost: a\r\n\r\n")
            .status,
        200
    );
    assert_eq!(get(&proxy, "/").status, 200, "nothing of it drained");
    // The data path's port does not serve it.
    assert_eq!(get(&proxy, "/metrics").text(), "a");
}

#[test]
fn the_log_level_changes_while_it_runs() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut admin = RawHttp1::connect(proxy.admin());
    let mut set = |level: &str| {
        let path = format!("/logging?level={level}");
        admin
            .request(format!(
                "PUT {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"
            ))
            .status
    };
    let bad = || {
        let mut client = connect(&proxy);
        client.send("GET / HTTP/1.1\r\n\r\n");
        assert_eq!(client.response().status, 400);
    };
    bad();
    assert_eq!(set("debug"), 200);
    assert!(!proxy.stderr().contains("request rejected"));
    bad();
    proxy.wait_for_log("request rejected");
    assert_eq!(set("nonsense"), 400);
    assert_eq!(set("maglor_proxy=warn"), 200);
    let lines = proxy.stderr().matches("request rejected").count();
    bad();
    assert_eq!(set("info"), 200);
    assert_eq!(proxy.stderr().matches("request rejected").count(), lines);
    assert_eq!(admin.get_local("/logging").text().trim(), "info");
    // A GET request changes nothing; a request without a level is an error.
    assert_eq!(
        admin.get_local("/logging?level=debug").text().trim(),
        "info"
    );
    let vague =
        "POST /logging?Level=debug HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(admin.request(vague).status, 400);
    assert_eq!(admin.get_local("/logging").text().trim(), "info");
}

#[test]
fn requests_are_counted_by_what_became_of_them() {
    let (a, gone) = (Upstream::start("a"), Upstream::start("gone"));
    let yaml = Web::to([a.address()]).yaml().replace(
        "routes: [",
        "routes: [{name: direct, match: {path: /direct}, direct_response: {status: 200, body: mine}}, \
         {name: gone, match: {path: /gone}, cluster: gone}, ",
    );
    let yaml = format!(
        "{yaml}- {{name: gone, endpoints: ['{}']}}\n",
        gone.address()
    );
    gone.kill();
    let proxy = support::start(&yaml);
    let mut client = connect(&proxy);
    for (path, times) in [
        ("/bytes/1000", 5),
        ("/status/301", 2),
        ("/status/404", 3),
        ("/status/503", 1),
        ("/close", 1),
        ("/direct", 4),
        ("/gone", 2),
    ] {
        for _ in 0..times {
            let _ = client.get(path);
        }
    }
    let mut left = connect(&proxy);
    left.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually(TIMEOUT, "it is under way", || outstanding(&proxy) == 1.0);
    assert_eq!(proxy.metric("maglor_downstream_open_connections", &[]), 2.0);
    drop((left, client));
    wait_quiet(&proxy);
    let requests = |labels: &[&str]| proxy.metric("maglor_http_requests_total", labels);
    assert_eq!(requests(&["route=\"direct\""]), 4.0);
    assert_eq!(requests(&["route=\"gone\"", "status=\"5xx\""]), 2.0);
    for (class, count) in [
        ("2xx", 9.0),
        ("3xx", 2.0),
        ("4xx", 3.0),
        ("5xx", 4.0),
        ("none", 1.0),
    ] {
        assert_eq!(
            requests(&[&format!("status=\"{class}\"")]),
            count,
            "{class}"
        );
    }
    let upstream =
        |cluster, class| proxy.metric("maglor_upstream_requests_total", &[cluster, class]);
    assert_eq!(upstream("backend", "2xx"), 5.0);
    assert_eq!(upstream("backend", "status=\"none\""), 2.0);
    assert_eq!(upstream("gone", "2xx"), 0.0);
    assert_eq!(
        proxy.metric("maglor_upstream_connect_failures_total", &["gone"]),
        12.0,
        "each request was retried five times, because no application had seen it"
    );
    assert_eq!(
        proxy.metric("maglor_downstream_connections_total", &[]),
        2.0
    );
    assert_eq!(
        proxy.metric("maglor_http_request_duration_seconds_count", &[]),
        19.0
    );
    assert_eq!(
        proxy.metric("maglor_config_reloads_total", &["applied"]),
        1.0
    );
    assert_well_formed(proxy.admin_get("/metrics").text());
}

/// Checks that each sample has a type, a number and a name of ours, and that none occurs twice.
fn assert_well_formed(text: &str) {
    let mut seen = std::collections::HashSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(seen.insert(series), "twice: {series}");
        let name = series.split('{').next().unwrap();
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end));
        let known = [Some(name), family].into_iter().flatten();
        assert!(
            known
                .into_iter()
                .any(|name| text.contains(&format!("# TYPE {name} "))),
            "{name}"
        );
        assert!(
            name.starts_with("maglor_") || name.starts_with("process_"),
            "{name}"
        );
    }
}

#[track_caller]
fn lines(file: &Path, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(file).unwrap_or_default();
    eventually(TIMEOUT, &format!("{count} lines are logged"), || {
        let text = read();
        text.ends_with('\n') && text.lines().count() >= count
    });
    let lines: Vec<_> = read().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), count, "{lines:?}");
    lines
}

#[test]
fn the_access_log_has_a_line_for_each_request() {
    let upstream = Upstream::start("a");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("access.log");
    let log = format!("access_log: {{path: '{}', format: json}}", file.display());
    let proxy = Web::to([upstream.address()])
        .top(&log)
        .route("timeout: 300ms")
        .start();
    let mut client = connect(&proxy);
    let request = "GET /bytes/1000?x=y HTTP/1.1\r\nhost: a.example\r\nuser-agent: \"me\\\r\nx-request-id: r1\r\n\
                   referer: https://r.example/\r\nx-forwarded-for: 192.0.2.1\r\n\r\n";
    assert_eq!(client.request(request).body.len(), 1000);
    let line: Value = serde_json::from_str(&lines(&file, 1)[0]).unwrap();
    for (field, value) in [
        ("method", "GET"),
        ("target", "/bytes/1000?x=y"),
        ("protocol", "HTTP/1.1"),
        ("host", "a.example"),
        ("user_agent", "\"me\\"),
        ("referer", "https://r.example/"),
        ("forwarded_for", "192.0.2.1"),
        ("request_id", "r1"),
        ("flag", "-"),
        ("cluster", "backend"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
    assert_eq!(
        (&line["status"], &line["response_bytes"]),
        (&200.into(), &1000.into())
    );
    assert_eq!(line["upstream"], upstream.address().to_string());
    assert!(line["client"].as_str().unwrap().starts_with("127.0.0.1:"));
    let number = |field: &str| line[field].as_f64().unwrap();
    assert!(number("response_ms") > 0.0 && number("duration_ms") >= number("response_ms"));
    assert!(line["time"].as_str().unwrap().ends_with('Z'));

    assert_eq!(client.get("/hang").status, 504);
    client.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually(TIMEOUT, "it is under way", || outstanding(&proxy) == 1.0);
    drop(client);
    let all = lines(&file, 3);
    let line: Value = serde_json::from_str(&all[1]).unwrap();
    assert_eq!(
        (&line["status"], &line["flag"]),
        (&504.into(), &"UT".into())
    );
    assert_eq!(line["error"], "request timeout");
    let line: Value = serde_json::from_str(&all[2]).unwrap();
    assert_eq!(
        (&line["status"], &line["flag"]),
        (&499.into(), &"DC".into()),
        "{line}"
    );
    assert_eq!(line["response_ms"], Value::Null, "there was no response");
    assert!(line["request_id"].as_str().unwrap().len() == 36);

    // Requests that cannot be parsed are logged, too.
    assert_eq!(
        connect(&proxy).request("GET / HTTP/1.1\r\n\r\n").status,
        400
    );
    let line: Value = serde_json::from_str(&lines(&file, 4)[3]).unwrap();
    assert_eq!(
        (&line["status"], &line["flag"], &line["target"]),
        (&400.into(), &"DPE".into(), &"-".into()),
        "{line}"
    );

    // Rotation: no line is lost, and the new file is used.
    let old = dir.path().join("access.log.1");
    fs::rename(&file, &old).unwrap();
    assert_eq!(get(&proxy, "/").status, 200);
    lines(&old, 5);
    proxy.signal(Signal::User1);
    eventually(TIMEOUT, "the file is made", || file.exists());
    assert_eq!(get(&proxy, "/").status, 200);
    lines(&file, 1);
    lines(&old, 5);
    // Buffered lines are written at the end.
    assert_eq!(get(&proxy, "/").status, 200);
    assert!(proxy.terminate().success());
    lines(&file, 2);
}

#[test]
fn the_access_log_may_be_text_and_change_with_the_configuration() {
    let upstream = Upstream::start("a");
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let web = Web::to([upstream.address()]);
    let with = |file: &Path, format: &str| {
        web.clone()
            .top(&format!(
                "access_log: {{path: '{}', format: {format}}}",
                file.display()
            ))
            .yaml()
    };
    let proxy = support::start(&with(&first, "text"));
    let mut client = connect(&proxy);
    client.request("GET /x HTTP/1.1\r\nhost: a\r\nx-request-id: \"r\\\"\r\n\r\n");
    let line = lines(&first, 1).remove(0);
    let expected = "\"GET /x HTTP/1.1\" 200 - 1 ";
    assert!(line.contains(expected), "{line}");
    assert!(
        // The last field is the client's identity inside the mesh.
        line.ends_with(&format!("{} \"a\" \"\\\"r\\\\\\\"\" -", upstream.address())),
        "{line}"
    );
    support::reload(&proxy, &with(&second, "json"));
    client.get("/y");
    let line: Value = serde_json::from_str(&lines(&second, 1)[0]).unwrap();
    assert_eq!(line["target"], "/y");
    support::reload(&proxy, &web.yaml());
    client.get("/z");
    support::reload(&proxy, &with(&second, "json"));
    client.get("/zz");
    lines(&second, 2);
    lines(&first, 1);
}

#[test]
fn a_line_of_the_access_log_has_the_fields_that_were_chosen() {
    let upstream = Upstream::start("a");
    let dir = tempfile::tempdir().unwrap();
    for (at, (settings, expected)) in [
        (
            "fields: [target, status, method]",
            r#"{"target":"/x?y","status":200,"method":"GET"}"#,
        ),
        (
            "fields: {code: status, path: target}",
            r#"{"code":200,"path":"/x?y"}"#,
        ),
        (
            "template: '{method} {target}: {{{status}}}'",
            "GET /x?y: {200}",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let file = dir.path().join(at.to_string());
        let log = format!("access_log: {{path: '{}', {settings}}}", file.display());
        let proxy = Web::to([upstream.address()]).top(&log).start();
        assert_eq!(get(&proxy, "/x?y").status, 200);
        assert_eq!(lines(&file, 1), [expected], "{settings}");
    }
}

/// A tap of the proxy's requests.
struct Tap(RawConnection);

impl Tap {
    fn open(proxy: &Proxy, filters: &str) -> Self {
        let mut connection = RawHttp1::connect(proxy.admin()).into_connection();
        let request = format!("GET /tap?{filters} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        connection.send(request).unwrap();
        let head = connection.read_head().unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        Self(connection)
    }

    /// Returns the next request; each is in a chunk of its own.
    fn next(&mut self) -> Value {
        let chunk = self.0.read_until(b"\n\r\n").unwrap();
        let line = chunk.splitn(2, |byte| *byte == b'\n').nth(1).unwrap();
        serde_json::from_slice(line.strip_suffix(b"\r\n").unwrap()).unwrap()
    }
}

#[test]
fn requests_are_shown_as_they_end_during_a_tap() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    assert_eq!(get(&proxy, "/before").status, 200);
    let mut all = Tap::open(&proxy, "");
    let mut failed = Tap::open(&proxy, "status=5xx&path=/status&method=GET");
    assert_eq!(get(&proxy, "/bytes/10?x=y").status, 200);
    assert_eq!(get(&proxy, "/status/503").status, 503);
    let first = all.next();
    assert_eq!(first["target"], "/bytes/10?x=y", "{first}");
    assert_eq!(
        (&first["listener"], &first["direction"], &first["status"]),
        (&"web".into(), &"unspecified".into(), &200.into())
    );
    assert_eq!(first["upstream"], upstream.address().to_string());
    assert_eq!(all.next()["status"], 503);
    assert_eq!(failed.next()["target"], "/status/503");

    // An unknown filter is an error.
    let mut admin = RawHttp1::connect(proxy.admin());
    let refused = admin.get_local("/tap?statuss=5xx");
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("`statuss`"), "{}", refused.text());

    // A tap that was closed costs nothing and makes room for others.
    drop(failed);
    let many: Vec<_> = (0..7).map(|_| Tap::open(&proxy, "")).collect();
    assert_eq!(admin.get_local("/tap").status, 429);
    drop(many);
    eventually(TIMEOUT, "there is room again", || {
        let mut connection = RawHttp1::connect(proxy.admin()).into_connection();
        connection
            .send("GET /tap HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .unwrap();
        connection.read_head().unwrap().starts_with("HTTP/1.1 200")
    });
}

#[test]
fn the_routes_in_force_are_shown() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .route("name: api, match: {path: {prefix: /api}, methods: [GET]}, timeout: 2s, retry: 5xx")
        .start();
    let routes = proxy.admin_get("/routes").json();
    let listener = &routes["listeners"][0];
    assert_eq!(listener["name"], "web", "{routes}");
    assert_eq!(listener["direction"], "unspecified");
    let host = &listener["chains"][0]["hosts"][0];
    assert_eq!(
        (&host["domains"][0], &host["discovered"]),
        (&"*".into(), &false.into())
    );
    let route = &host["routes"][0];
    assert_eq!(route["match"], "path /api*, method GET", "{route}");
    assert_eq!(route["clusters"][0]["name"], "backend");
    assert_eq!(
        (&route["timeout_ms"], &route["name"]),
        (&2000.into(), &"api".into())
    );
    assert!(route["retries"].as_u64().unwrap() > 0);
}

/// A request for the metrics with these headers.
fn metrics_with(proxy: &Proxy, headers: &str) -> RawResponse {
    let request = format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    RawHttp1::connect(proxy.admin()).request(request)
}

#[test]
fn metrics_are_openmetrics_for_clients_that_prefer_it() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    assert_eq!(get(&proxy, "/").status, 200);
    let accept =
        "accept: application/openmetrics-text;version=1.0.0;q=0.6\r\naccept: */*;q=0.1\r\n";
    let response = metrics_with(&proxy, accept);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(response.header("content-type"), Some(kind));
    assert_eq!(response.header("vary"), Some("accept, accept-encoding"));
    let text = response.text();
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    // A family has one type, although its name has no suffix.
    let mut families: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    families.sort_unstable();
    let names: Vec<_> = families
        .iter()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert!(
        names.len() > 40 && names.is_sorted_by(|one, next| one < next),
        "{names:?}"
    );
    assert!(
        families.contains(&"maglor_downstream_connections counter"),
        "{families:?}"
    );
    assert!(families.contains(&"maglor_downstream_open_connections gauge"));
    assert!(text.contains("# UNIT maglor_http_request_duration_seconds seconds\n"));

    let compressed = metrics_with(&proxy, "accept-encoding: gzip\r\n");
    assert_eq!(compressed.header("content-encoding"), Some("gzip"));
    assert!(
        compressed
            .header("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
    assert!(compressed.body.starts_with(&[0x1f, 0x8b]));
}
