//! Unix sockets of listeners and endpoints, for each protocol, and the life of their files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use maglor_testkit::process::Signal;
use maglor_testkit::{Authority, Proxy, RawHttp1, RawServer, TIMEOUT, Upstream, eventually};
use tempfile::TempDir;

use crate::support::h2::{self, Client};
use crate::support::mesh::Root;
use crate::support::{Web, builder, get, reload, start};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

fn folder() -> (TempDir, PathBuf) {
    let folder = TempDir::with_prefix("maglor-unix-").unwrap();
    let path = folder.path().join("app.sock");
    (folder, path)
}

/// Starts two hops in one process: TCP to a Unix socket, and from there to the application.
fn pair(upstream: &Upstream, path: &Path, [top, front, back, cluster]: [&str; 4]) -> Proxy {
    let (path, to) = (path.display(), upstream.address());
    let routes =
        |cluster| format!("virtual_hosts: [{{domains: ['*'], routes: [{{cluster: {cluster}}}]}}]");
    let (there, app) = (routes("there"), routes("app"));
    start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\n{top}\nlisteners:
- {{name: web, address: '127.0.0.1:0', http: {{{there}}}{front}}}
- {{name: there, address: 'unix:{path}', http: {{{app}}}{back}}}
clusters:
- {{name: there, endpoints: ['unix:{path}']{cluster}}}
- {{name: app, endpoints: ['{to}'], protocol: downstream}}\n"
    ))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Transfers bodies in both directions, larger than any buffer.
fn round_trip(proxy: &Proxy) {
    let mut client = RawHttp1::connect(proxy.listener("web"));
    assert_eq!(client.get("/").text(), "app");
    assert_eq!(client.get("/bytes/3000000").body.len(), 3_000_000);
    let body = vec![b'x'; 2_000_000];
    client.send(format!(
        "POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
        body.len()
    ));
    client.send(&body);
    assert_eq!(client.response().json()["bytes"], body.len());
    assert_eq!(client.get("/").text(), "app");
}

#[test]
fn each_protocol_goes_over_a_unix_socket() {
    let (folder, path) = folder();
    let upstream = Upstream::start("app");
    let authority = Authority::new();
    let identity = authority.issue(&["app.test"]);
    let (cert, key) = (identity.cert_file.display(), identity.key_file.display());
    let tls = format!(", tls: {{certificate: '{cert}', private_key: '{key}'}}");
    let ca = authority.file().display().to_string();
    let to_tls = format!(", tls: {{ca: '{ca}', server_name: app.test}}, protocol: auto");
    let root = Root::new();
    let member = root.member("app").yaml();
    let cases: [(&str, [&str; 4]); 6] = [
        ("http1", ["", "", "", ", protocol: http1"]),
        ("http2", ["", "", "", ", protocol: http2"]),
        ("tls", ["", "", &tls, &to_tls]),
        (
            "mesh",
            [&member, "", ", tls: mesh", ", tls: mesh, protocol: auto"],
        ),
        (
            "proxy protocol 1",
            ["", "", ", proxy_protocol: require", ", proxy_protocol: v1"],
        ),
        ("three workers", ["workers: 3", "", "", ", protocol: auto"]),
    ];
    for (name, settings) in cases {
        eprintln!("{name}");
        let proxy = pair(&upstream, &path, settings);
        round_trip(&proxy);
        let mut client = Client::connect(proxy.listener("web"));
        assert_eq!(
            client.ask(h2::get("/bytes/300000")).body.len(),
            300_000,
            "{name}"
        );
        let endpoint = format!("endpoint=\"unix:{}\"", path.display());
        let metrics = proxy.admin_get("/metrics");
        assert!(metrics.text().contains(&endpoint), "{name}");
        let forwarded = upstream.last().header("x-forwarded-for").map(str::to_owned);
        // The second hop adds no address, unless a PROXY header has provided one.
        let expected = match name.starts_with("proxy") {
            true => "127.0.0.1, 127.0.0.1",
            false => "127.0.0.1",
        };
        assert_eq!(forwarded.as_deref(), Some(expected), "{name}");
        assert!(proxy.terminate().success());
        assert!(!path.exists(), "{name}");
    }
    drop(folder);
}

#[test]
fn bytes_pass_through_unix_sockets_with_their_ends() {
    let (_folder, path) = folder();
    let server = RawServer::start(|connection, _| {
        let all = connection.read_to_end()?;
        connection.send(all)
    });
    let (to, there) = (server.address(), path.display());
    let proxy = start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\nlisteners:
- {{name: web, address: '127.0.0.1:0', tcp: {{cluster: there}}}}
- {{name: there, address: 'unix:{there}', tcp: {{cluster: app}}}}
clusters:
- {{name: there, endpoints: ['unix:{there}']}}
- {{name: app, endpoints: ['{to}']}}\n"
    ));
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
    let mut client = RawHttp1::connect(proxy.listener("web")).into_connection();
    client.send(&sent).unwrap();
    client.finish_sending().unwrap();
    assert!(client.read_to_end().unwrap() == sent);
    // A reset passes, too, and nothing is left.
    let mut client = RawHttp1::connect_unix(&path).into_connection();
    client.send("x").unwrap();
    drop(client);
    eventually(TIMEOUT, "no connection is left", || {
        proxy.metric("maglor_downstream_open_connections", &[]) == 0.0
    });
}

#[test]
fn a_client_of_a_unix_socket_has_no_address() {
    let (folder, path) = folder();
    let upstream = Upstream::start("a");
    let log = folder.path().join("access.log");
    let yaml = Web::to([upstream.address()])
        .top(&format!("access_log: {{path: '{}'}}", log.display()))
        .http("forwarded: append")
        .yaml()
        .replace("127.0.0.1:0\n", &format!("unix:{}\n", path.display()));
    let proxy = start(&yaml);
    let mut client = RawHttp1::connect_unix(&path);
    assert_eq!(client.request(GET).text(), "a");
    assert_eq!(upstream.last().header("x-forwarded-for"), None);
    assert_eq!(upstream.last().header("x-forwarded-proto"), Some("http"));
    assert_eq!(
        upstream.last().header("forwarded"),
        Some("for=unknown;proto=http;host=\"a\"")
    );
    client.request("GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 10.0.0.1\r\n\r\n");
    assert_eq!(upstream.last().header("x-forwarded-for"), Some("10.0.0.1"));
    eventually(TIMEOUT, "the access log", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("\"unix:\""))
    });
    let replacing = yaml.replace("forwarded: append", "x_forwarded: replace");
    reload(&proxy, &replacing);
    let mut client = RawHttp1::connect_unix(&path);
    client.request("GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 10.0.0.1\r\n\r\n");
    assert_eq!(upstream.last().header("x-forwarded-for"), None);
}

/// No address is made up: a rule with networks or ports does not match such a client, one with exceptions for
/// them does.
#[test]
fn rules_by_address_take_no_client_without_one() {
    let (_folder, path) = folder();
    let upstream = Upstream::start("a");
    let proxy = |rules: &str| {
        let yaml = Web::to([upstream.address()])
            .listener("proxy_protocol: accept")
            .listener(&format!("authorization: {{rules: [{rules}]}}"))
            .yaml();
        start(&yaml.replace("127.0.0.1:0\n", &format!("unix:{}\n", path.display())))
    };
    let status = |header: &str| {
        let mut client = RawHttp1::connect_unix(&path);
        client.request(format!("{header}{GET}")).status
    };
    let known = "PROXY TCP4 10.0.0.1 10.0.0.2 1000 80\r\n";
    for (rules, of_unix, of_known) in [
        ("{from: [{networks: 0.0.0.0/0}]}", 403, 200),
        ("{from: [{networks: '::/0'}]}", 403, 403),
        ("{action: deny, from: [{networks: 0.0.0.0/0}]}", 200, 403),
        (
            "{action: deny, not_from: [{networks: 10.0.0.0/8}]}",
            403,
            200,
        ),
        ("{to: [{ports: 80}]}", 403, 200),
    ] {
        let proxy = proxy(rules);
        assert_eq!((status(""), status(known)), (of_unix, of_known), "{rules}");
        // LOCAL provides no address, either.
        assert_eq!(status("PROXY UNKNOWN\r\n"), of_unix, "{rules}");
        drop(proxy);
    }
}

#[test]
fn a_reload_keeps_the_socket_and_changes_its_mode() {
    let (_folder, path) = folder();
    let upstream = Upstream::start("a");
    let yaml = |more: &str| {
        let yaml = Web::to([upstream.address()]).listener(more).yaml();
        yaml.replace("127.0.0.1:0\n", &format!("unix:{}\n", path.display()))
    };
    let proxy = start(&yaml("max_connections: 100"));
    assert_eq!(mode(&path), 0o660);
    let mut client = RawHttp1::connect_unix(&path);
    assert_eq!(client.request(GET).text(), "a");
    reload(&proxy, &yaml("mode: 0666"));
    assert_eq!(mode(&path), 0o666);
    assert_eq!(client.request(GET).text(), "a");
    assert_eq!(RawHttp1::connect_unix(&path).request(GET).text(), "a");
    // The socket exists as long as its listener is configured.
    let without = Web::to([upstream.address()]).yaml();
    reload(&proxy, &without);
    eventually(TIMEOUT, "the file is gone", || !path.exists());
    reload(&proxy, &yaml("mode: 0600"));
    assert_eq!(mode(&path), 0o600);
    assert_eq!(RawHttp1::connect_unix(&path).request(GET).text(), "a");
}

#[test]
fn a_socket_in_use_is_refused_and_a_stale_one_replaced() {
    let (folder, path) = folder();
    let upstream = Upstream::start("a");
    let yaml = Web::to([upstream.address()])
        .yaml()
        .replace("127.0.0.1:0\n", &format!("unix:{}\n", path.display()));
    let first = start(&yaml);
    let second = builder().config(&yaml).try_start().unwrap_err().to_string();
    assert!(second.contains("in use"), "{second}");
    assert_eq!(RawHttp1::connect_unix(&path).request(GET).text(), "a");
    first.kill();
    assert!(path.exists() && UnixStream::connect(&path).is_err());
    let third = start(&yaml);
    assert_eq!(RawHttp1::connect_unix(&path).request(GET).text(), "a");
    // A file that another process has created there meanwhile is not removed.
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    assert!(third.terminate().success());
    assert!(path.exists());
    drop(other);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "text").unwrap();
    let fourth = builder().config(&yaml).try_start().unwrap_err().to_string();
    assert!(fourth.contains("not a socket"), "{fourth}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    drop(folder);
}

/// A client that connected before the end is served by any worker; the file is removed first.
#[test]
fn a_drain_serves_who_waits_and_removes_the_file() {
    let (_folder, path) = folder();
    let upstream = Upstream::start("a");
    let yaml = Web::to([upstream.address()])
        .top("workers: 2")
        .yaml()
        .replace("127.0.0.1:0\n", &format!("unix:{}\n", path.display()));
    let mut proxy = start(&yaml);
    let mut clients: Vec<_> = (0..20).map(|_| RawHttp1::connect_unix(&path)).collect();
    for client in &mut clients {
        client.send("GET /delay/300ms HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    proxy.signal(Signal::Terminate);
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert!(proxy.wait_exit(TIMEOUT).success());
    assert!(!path.exists());
}

#[test]
fn the_command_line_and_the_abstract_namespace_know_unix_sockets() {
    let (_folder, path) = folder();
    let upstream = Upstream::start("a");
    let listen = format!("unix:{}", path.display());
    let name = format!("unix:@maglor-test-{}", std::process::id());
    let to = upstream.address().to_string();
    let back = builder()
        .args(["--listen", &listen, "--upstream", &to])
        .start();
    let middle = builder()
        .args(["--listen", &name, "--upstream", &listen])
        .start();
    let web = ["--listen", "127.0.0.1:0", "--upstream", &name];
    let front = builder().args(web).start();
    assert_eq!(get(&front, "/").text(), "a");
    drop((front, middle));
    assert!(back.terminate().success());
}

#[test]
fn endpoints_on_unix_sockets_are_checked_and_ejected() {
    let (_folder, path) = folder();
    let upstream = Upstream::start("a");
    let proxy = start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\nlisteners:
- {{name: web, address: '127.0.0.1:0', http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: both}}]}}]}}}}
clusters:
- {{name: both, endpoints: ['unix:{}', '{}'], policy: round-robin, health_check: {{http: /, interval: 50ms, timeout: 50ms}}}}\n",
        path.display(),
        upstream.address()
    ));
    let healthy = || proxy.metric("maglor_upstream_available_endpoints", &[]);
    eventually(TIMEOUT, "the missing one is found out", || healthy() == 1.0);
    assert_eq!(get(&proxy, "/").text(), "a");
    let there = start(
        &Web::to([upstream.address()])
            .yaml()
            .replace("127.0.0.1:0\n", &format!("unix:{}\n", path.display())),
    );
    eventually(TIMEOUT, "it has come", || healthy() == 2.0);
    drop(there);
    eventually(TIMEOUT, "it has gone", || healthy() == 1.0);
}
