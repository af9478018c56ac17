//! Changes of the configuration while the proxy runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use maglor_testkit::process::Signal;
use maglor_testkit::{Load, Proxy, RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support::{
    self, Web, address_now, applied, builder, connect, get, refused, reload, wait_quiet,
    without_descriptors,
};

const ASK: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn a_changed_file_is_applied_without_being_asked() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let (to_a, to_b) = (Web::to([a.address()]).yaml(), Web::to([b.address()]).yaml());
    let proxy = support::start(&to_a);
    let address = proxy.listener("web");
    let mut client = connect(&proxy);
    for (config, name) in [(&to_b, "b"), (&to_a, "a"), (&to_b, "b"), (&to_a, "a")] {
        reload(&proxy, config);
        // Existing connections use the new routes, and the socket is the same.
        assert_eq!(client.get("/").text(), name);
        assert_eq!(address_now(&proxy, "web"), address);
    }
    // Written in place, in pieces, as some tools do.
    let before = applied(&proxy);
    fs::write(proxy.config_file(), &to_b[..to_b.len() / 2]).unwrap();
    fs::write(proxy.config_file(), &to_b).unwrap();
    eventually(TIMEOUT, "the configuration is applied", || {
        applied(&proxy) > before
    });
    assert_eq!(client.get("/").text(), "b");
    eventually(
        TIMEOUT,
        "the pool of an endpoint that is gone is closed",
        || a.open_connections() == 0,
    );
}

#[test]
fn a_file_that_changes_right_after_the_start_is_not_missed() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    for _ in 0..10 {
        let proxy = Web::to([a.address()]).start();
        proxy.replace_config(&Web::to([b.address()]).yaml());
        eventually(TIMEOUT, "the configuration is applied", || {
            applied(&proxy) == 2
        });
        assert_eq!(get(&proxy, "/").text(), "b");
    }
}

#[test]
fn a_hangup_applies_the_file_again() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").status, 200);
    let before = applied(&proxy);
    proxy.signal(Signal::Hangup);
    eventually(TIMEOUT, "the configuration is applied", || {
        applied(&proxy) > before
    });
    assert_eq!(client.get("/").status, 200);
    assert_eq!(upstream.connections(), 1, "nothing has changed");
}

#[test]
fn a_config_maps_swap_is_seen() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    // As mounted by the kubelet: config.yaml → ..data/config.yaml, ..data → ..TIME.
    let version = |name: &str, endpoint: &Upstream| {
        fs::create_dir(root.join(name)).unwrap();
        let yaml = Web::to([endpoint.address()]).yaml();
        fs::write(root.join(name).join("config.yaml"), yaml).unwrap();
    };
    version("..2026_1", &a);
    symlink("..2026_1", root.join("..data")).unwrap();
    symlink("..data/config.yaml", root.join("config.yaml")).unwrap();
    let proxy = builder()
        .arg("--config")
        .arg(root.join("config.yaml"))
        .start();
    assert_eq!(get(&proxy, "/").text(), "a");
    for (number, endpoint) in [(2, &b), (3, &a), (4, &b)] {
        let name = format!("..2026_{number}");
        version(&name, endpoint);
        symlink(&name, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        fs::remove_dir_all(root.join(format!("..2026_{}", number - 1))).unwrap();
        eventually(TIMEOUT, "the configuration is applied", || {
            get(&proxy, "/").text() == endpoint.name()
        });
    }
    assert_eq!(refused(&proxy), 0);
}

/// `/etc/maglor/current → releases/1`, as many tools deploy: nothing changes in the old folder.
#[test]
fn a_swap_of_the_folder_is_seen() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for (name, endpoint) in [("1", &a), ("2", &b)] {
        fs::create_dir(root.join(name)).unwrap();
        let yaml = Web::to([endpoint.address()]).yaml();
        fs::write(root.join(name).join("config.yaml"), yaml).unwrap();
    }
    symlink("1", root.join("current")).unwrap();
    let file = root.join("current/config.yaml");
    let proxy = builder().arg("--config").arg(file).start();
    for (name, endpoint) in [("2", &b), ("1", &a), ("2", &b)] {
        symlink(name, root.join("next")).unwrap();
        fs::rename(root.join("next"), root.join("current")).unwrap();
        eventually(TIMEOUT, "the configuration is applied", || {
            get(&proxy, "/").text() == endpoint.name()
        });
    }
    assert_eq!(refused(&proxy), 0);
}

/// The file does not change when the process has a descriptor again.
#[test]
fn a_change_that_could_not_be_read_is_read_later() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let proxy = Web::to([a.address()]).start();
    without_descriptors(&proxy, || {
        proxy.replace_config(&Web::to([b.address()]).yaml());
        proxy.wait_for_log("the file cannot be read");
    });
    eventually(TIMEOUT, "the configuration is applied", || {
        get(&proxy, "/").text() == "b"
    });
    assert_eq!((applied(&proxy), refused(&proxy)), (2, 1));
}

#[test]
fn a_configuration_is_applied_once_what_it_names_is_there() {
    let upstream = Upstream::start("a");
    let good = Web::to([upstream.address()]).yaml();
    let proxy = support::start(&good);
    // Not in the file's folder, where it would cause an event.
    let elsewhere = tempfile::tempdir().unwrap();
    let log = elsewhere.path().join("logs/access.log");
    proxy.replace_config(&format!(
        "access_log: {{path: '{}'}}\n{good}",
        log.display()
    ));
    eventually(TIMEOUT, "it is refused", || refused(&proxy) == 1);
    fs::create_dir(log.parent().unwrap()).unwrap();
    eventually(TIMEOUT, "it is applied", || applied(&proxy) == 2);
    assert_eq!(get(&proxy, "/").text(), "a");
    eventually(TIMEOUT, "there is a line", || {
        fs::read_to_string(&log).is_ok_and(|text| !text.is_empty())
    });
}

#[test]
fn a_bad_configuration_changes_nothing() {
    let upstream = Upstream::start("a");
    let good = Web::to([upstream.address()]).yaml();
    let proxy = support::start(&good);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let shown = proxy.admin_get("/config").text().to_owned();
    let cases = [
        ("not: [yaml".to_owned(), "config.yaml"),
        (
            good.replace("cluster: backend", "cluster: bakend"),
            "bakend",
        ),
        (good.replace("endpoints", "endpoint"), "endpoint"),
        (
            good.replace(
                "listeners:",
                &format!(
                    "listeners:\n- {{name: x, address: '{taken}', tcp: {{cluster: backend}}}}"
                ),
            ),
            "cannot bind",
        ),
        (
            good.replace(
                "  http:",
                "  tls: {certificate: /nowhere.pem, private_key: /nowhere.key}\n  http:",
            ),
            "/nowhere.pem",
        ),
        (
            format!("access_log: {{path: /nowhere/log}}\n{good}"),
            "/nowhere/log",
        ),
        (String::new(), "listeners"),
    ];
    for (number, (config, why)) in (1..).zip(&cases) {
        proxy.replace_config(config);
        eventually(TIMEOUT, "the configuration is refused", || {
            refused(&proxy) >= number
        });
        proxy.wait_for_log(why);
        assert_eq!(get(&proxy, "/").text(), "a", "{why}");
        assert_eq!(proxy.admin_get("/config").text(), shown, "{why}");
    }
    assert_eq!(applied(&proxy), 1);
    assert!(proxy.stderr().contains("keeping the last valid one"));
    fs::remove_file(proxy.config_file()).unwrap();
    eventually(TIMEOUT, "a missing file is refused", || {
        refused(&proxy) > cases.len() as u64
    });
    assert_eq!(get(&proxy, "/").text(), "a");
    reload(&proxy, &good.replace("backend", "other"));
    assert_eq!(get(&proxy, "/").text(), "a");
}

/// `maglor-proxy --config maglor.yaml 2> maglor.log`: log lines in the folder are not a change of the file.
#[test]
fn a_log_beside_the_file_is_no_change_of_it() {
    let upstream = Upstream::start("a");
    let good = Web::to([upstream.address()]).yaml();
    let proxy = support::start(&good);
    proxy.replace_config("not: [yaml");
    eventually(TIMEOUT, "the configuration is refused", || {
        refused(&proxy) == 1
    });
    let log = proxy.config_file().with_file_name("maglor.log");
    let times = |text: &str| proxy.stderr().matches(text).count();
    for number in 0..8 {
        fs::write(&log, format!("line {number}")).unwrap();
        // Longer than the delay after which a change of the folder is handled.
        std::thread::sleep(Duration::from_millis(150));
    }
    assert_eq!(
        (refused(&proxy), times("keeping the last valid one")),
        (1, 1)
    );
    // The error is reported on request, and another error replaces it.
    proxy.signal(Signal::Hangup);
    eventually(TIMEOUT, "it is refused again", || refused(&proxy) == 2);
    proxy.replace_config("not: {yaml");
    eventually(TIMEOUT, "the other one is refused", || refused(&proxy) == 3);
    reload(&proxy, &good.replace("backend", "other"));
    assert_eq!(get(&proxy, "/").text(), "a");
}

/// An access log in the folder of the configuration must not cause a reload for each write.
#[test]
fn a_log_beside_the_file_does_not_have_it_read_again() {
    let upstream = Upstream::start("a");
    let mut yaml = Web::to([upstream.address()]).yaml();
    for number in 0..2000 {
        yaml += &format!("- {{name: more-{number}, endpoints: ['192.0.2.1:80']}}\n");
    }
    let proxy = support::start(&yaml);
    let seconds = || proxy.metric("process_cpu_seconds_total", &[]);
    let began = seconds();
    let before = applied(&proxy);
    proxy.signal(Signal::Hangup);
    eventually(TIMEOUT, "the file is read again", || {
        applied(&proxy) > before
    });
    let once = seconds() - began;
    let began = seconds();
    let log = proxy.config_file().with_file_name("maglor.log");
    for number in 0..16 {
        fs::write(&log, format!("line {number}")).unwrap();
        // Longer than the delay after which a change of the folder is handled.
        std::thread::sleep(Duration::from_millis(150));
    }
    let often = seconds() - began;
    println!("16 writes took {often} s, one reading {once} s");
    // Sixteen reads without a change take as long as one that applies everything.
    assert!(often < 0.5 * once);
}

#[test]
fn listeners_come_go_and_move() {
    let upstream = Upstream::start("a");
    let base = Web::to([upstream.address()]).yaml();
    let with = |more: &str| base.replace("clusters:\n", &format!("{more}clusters:\n"));
    let listener = |name: &str, address: &str| {
        format!(
            "- name: {name}\n  address: {address}\n  http: {{virtual_hosts: [{{domains: ['*'], \
             routes: [{{cluster: backend}}]}}]}}\n"
        )
    };
    let proxy = support::start(&base);
    reload(&proxy, &with(&listener("second", "127.0.0.1:0")));
    let second = address_now(&proxy, "second");
    let mut client = RawHttp1::connect(second);
    assert_eq!(client.get("/").text(), "a");

    // A request in progress outlives its listener.
    let mut busy = RawHttp1::connect(second);
    busy.send("GET /delay/1s HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually(TIMEOUT, "the endpoint has it", || {
        upstream
            .recorded()
            .iter()
            .any(|r| r.uri.path() == "/delay/1s")
    });
    reload(&proxy, &base);
    let response = busy.response();
    assert_eq!(
        (response.text(), response.header("connection")),
        ("a", Some("close"))
    );
    busy.assert_closed();
    eventually(TIMEOUT, "the port is closed", || {
        std::net::TcpStream::connect(second).is_err()
    });
    assert!(proxy.admin_get("/listeners").json()["second"].is_null());

    // It moves to a separate port, under the same name and under another one.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    reload(&proxy, &with(&listener("second", &address.to_string())));
    let mut client = RawHttp1::connect(address);
    assert_eq!(client.get("/").text(), "a");
    reload(&proxy, &with(&listener("renamed", &address.to_string())));
    assert_eq!(RawHttp1::connect(address).get("/").text(), "a");
    proxy.expect_metric("maglor_http_requests_total", &["listener=\"renamed\""], 1.0);

    // And from one address to all addresses on the same port, although the old socket still exists then.
    let anywhere = format!("0.0.0.0:{}", address.port());
    reload(&proxy, &with(&listener("renamed", &anywhere)));
    assert_eq!(RawHttp1::connect(address).get("/").text(), "a");
    assert_eq!(get(&proxy, "/").text(), "a");
}

#[test]
fn changed_settings_reach_new_requests_and_old_ones_end() {
    let upstream = Upstream::start("a");
    let web = Web::to([upstream.address()]);
    let proxy = web.start();
    let mut busy = connect(&proxy);
    busy.send("GET /delay/500ms HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually(TIMEOUT, "the endpoint has it", || upstream.requests() == 1);
    let mut idle = connect(&proxy);
    assert_eq!(idle.get("/").status, 200);
    reload(&proxy, &web.clone().http("max_header_bytes: 1KiB").yaml());
    assert_eq!(busy.response().text(), "a");
    busy.assert_closed();
    // An old idle connection may still send one request, or is closed.
    idle.assert_closed();
    let large = format!(
        "GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n",
        "y".repeat(2000)
    );
    assert_eq!(connect(&proxy).request(&large).status, 431);
    wait_quiet(&proxy);
}

#[test]
fn changed_settings_of_clusters_hold_for_endpoints_that_stay() {
    let upstream = Upstream::start("a");
    let web = Web::to([upstream.address()]);
    let proxy = web.start();
    // Returns the number of connections that the proxy opens for five requests.
    let made = || {
        let before = upstream.connections();
        for _ in 0..5 {
            assert_eq!(get(&proxy, "/").status, 200);
        }
        upstream.connections() - before
    };
    let open = || proxy.metric("maglor_upstream_open_connections", &[]);
    assert_eq!((made(), made()), (1, 0));
    let with = |settings: &str| reload(&proxy, &web.clone().cluster(settings).yaml());
    // The first request uses the existing connection.
    with("max_requests_per_connection: 1");
    assert_eq!(made(), 4);
    with("max_idle_connections: 0");
    assert_eq!(made(), 5);
    with("idle_timeout: 50ms");
    assert!(made() >= 1);
    eventually(TIMEOUT, "it has idled for too long", || open() == 0.0);
    with("idle_timeout: 1m");
    let clients: Vec<_> = (0..3).map(|_| busy(&proxy)).collect();
    eventually(TIMEOUT, "all are under way", || open() == 3.0);
    // More than this are open; they close after their present requests.
    with("limits: {max_connections: 1}");
    assert_eq!(get(&proxy, "/").text(), "a");
    drop(clients);
    eventually(TIMEOUT, "the limit holds", || open() == 1.0);
}

/// Returns a client with a request in progress.
fn busy(proxy: &Proxy) -> RawHttp1 {
    let mut client = connect(proxy);
    client.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    client
}

#[test]
fn a_hundred_reloads_under_load_cost_no_request() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let proxy = Web::to([a.address()]).start();
    let load = Load::start(proxy.listener("web"), 8, ASK);
    for number in 0..100 {
        let web = match number % 4 {
            0 => Web::to([b.address()]),
            1 => Web::to([a.address(), b.address()]).cluster("policy: round-robin"),
            // Another chain: connections end after their response.
            2 => Web::to([a.address()]).http(&format!("max_headers: {}", 50 + number)),
            _ => Web::to([a.address()]).route("timeout: 5s"),
        };
        let before = applied(&proxy);
        proxy.replace_config(&web.yaml());
        proxy.signal(Signal::Hangup);
        eventually(TIMEOUT, "the configuration is applied", || {
            applied(&proxy) > before
        });
        load.wait_for(5);
    }
    let answered = load.stop();
    assert!(answered >= 500);
    assert_eq!(refused(&proxy), 0);
    assert!(a.requests() > 0 && b.requests() > 0);
    wait_quiet(&proxy);
    let errors = proxy.metric("maglor_http_requests_total", &["status=\"5xx\""]);
    assert_eq!(errors, 0.0);
    eventually(Duration::from_secs(5), "old clusters are forgotten", || {
        proxy.open_files() < 40
    });
}

#[test]
fn listeners_change_places_and_what_they_speak() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    // On a separate address, so that no outgoing connection takes the port meanwhile.
    let free = || std::net::TcpListener::bind("127.0.7.1:0").unwrap();
    let (one, two) = (free(), free());
    let addresses = [one.local_addr().unwrap(), two.local_addr().unwrap()];
    drop((one, two));
    let http = |cluster: &str| {
        format!("http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: {cluster}}}]}}]}}")
    };
    let yaml = |workers: usize, listeners: [(&str, usize, String); 2]| {
        let each = listeners.map(|(name, address, filter)| {
            format!(
                "- {{name: {name}, address: '{}', {filter}}}\n",
                addresses[address]
            )
        });
        format!(
            "workers: {workers}\nadmin: {{address: '127.0.0.1:0'}}\nlisteners:\n{}clusters:\n\
             - {{name: a, endpoints: ['{}']}}\n- {{name: b, endpoints: ['{}']}}\n",
            each.concat(),
            a.address(),
            b.address()
        )
    };
    for workers in [1, 2] {
        let proxy = support::start(&yaml(workers, [("x", 0, http("a")), ("y", 1, http("b"))]));
        let ask = |index: usize| {
            RawHttp1::connect(addresses[index])
                .get("/")
                .text()
                .to_owned()
        };
        assert_eq!((ask(0), ask(1)), ("a".into(), "b".into()));
        reload(
            &proxy,
            &yaml(workers, [("x", 1, http("a")), ("y", 0, http("b"))]),
        );
        assert_eq!((ask(0), ask(1)), ("b".into(), "a".into()));
        let tcp = "tcp: {cluster: b}".to_owned();
        reload(&proxy, &yaml(workers, [("x", 1, tcp), ("y", 0, http("a"))]));
        assert_eq!((ask(0), ask(1)), ("a".into(), "b".into()));
        assert!(proxy.metric("maglor_tcp_bytes_total", &["listener=\"x\""]) > 0.0);
        assert!(proxy.terminate().success());
    }
}

#[test]
fn what_needs_a_restart_is_said() {
    let upstream = Upstream::start("a");
    let yaml = Web::to([upstream.address()]).yaml();
    let proxy = support::start(&yaml);
    reload(&proxy, &format!("workers: 2\n{yaml}"));
    proxy.wait_for_log("workers");
    reload(&proxy, &yaml.replace("127.0.0.1:0\"}", "127.0.0.2:0\"}"));
    proxy.wait_for_log("admin");
    reload(&proxy, &format!("log_level: debug\n{yaml}"));
    proxy.wait_for_log("log level");
    assert!(proxy.stderr().contains("restart"));
    assert_eq!(get(&proxy, "/").text(), "a");
}
