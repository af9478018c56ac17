//! Start of the proxy, and error messages when it fails.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use maglor_testkit::process::Signal;
use maglor_testkit::{Proxy, RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support::{Web, builder, connect, get, start};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maglor-proxy"))
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn flags_and_file_behave_the_same() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let (first, second) = (a.address().to_string(), format!("{},weight=3", b.address()));
    let flags = [
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        &first,
        "--upstream",
        &second,
        "--policy",
        "round-robin",
        "--admin",
        "127.0.0.1:0",
        "--workers",
        "2",
    ];
    let printed = run(&[&["--print-config"], &flags[..]].concat());
    assert!(printed.status.success());
    let yaml = text(&printed.stdout);
    let by_flags = builder().args(flags).start();
    let by_file = start(yaml);
    let seen = |proxy: &Proxy| {
        let name = proxy.listeners().keys().next().unwrap().clone();
        let mut client = RawHttp1::connect(proxy.listener(&name));
        let mut names: Vec<_> = (0..8).map(|_| client.get("/").text().to_owned()).collect();
        names.sort();
        let mut clusters = proxy.admin_get("/clusters").json();
        clusters["clusters"][0]["endpoints"][0]["outstanding"].take();
        (
            names,
            clusters.to_string(),
            proxy.admin_get("/config").text().to_owned(),
            name,
        )
    };
    let (flags, file) = (seen(&by_flags), seen(&by_file));
    assert_eq!(flags, file);
    assert_eq!(flags.0, ["a", "a", "b", "b", "b", "b", "b", "b"]);
}

#[test]
fn who_does_not_read_to_the_end_is_no_error_and_a_full_disk_is() {
    let flags = ["--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:1"];
    for what in ["--print-config", "--check"] {
        let ended = |out: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_maglor-proxy"));
            let command = command.arg(what).args(flags).stdout(out);
            command.output().unwrap()
        };
        // A pipe that is not read.
        let (_, unread) = std::io::pipe().unwrap();
        let ended_unread = ended(unread.into());
        assert!(ended_unread.status.success(), "{ended_unread:?}");
        if let Ok(full) = File::options().write(true).open("/dev/full") {
            let ended = ended(full.into());
            assert_eq!(ended.status.code(), Some(1), "{ended:?}");
            let error = text(&ended.stderr);
            assert!(
                error.starts_with("maglor-proxy: standard output: "),
                "{error}"
            );
        }
    }
    let mut refused = Command::new(env!("CARGO_BIN_EXE_maglor-proxy"));
    let (_, unread) = std::io::pipe().unwrap();
    let refused = refused
        .args(["--check", "--config", "/dev/null"])
        .stderr(unread);
    assert_eq!(refused.status().unwrap().code(), Some(2));
}

#[test]
fn a_port_in_use_is_said_clearly() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let other = ["--upstream", "127.0.0.1:1"];
    for flags in [
        ["--listen", &address, "--admin", "127.0.0.1:0"],
        ["--listen", "127.0.0.1:0", "--admin", &address],
    ] {
        let failed = builder().args(flags).args(other).try_start().unwrap_err();
        assert_eq!(failed.status.unwrap().code(), Some(1), "{failed}");
        let mut lines = failed.stderr.lines();
        let said = lines.find(|line| line.starts_with("maglor-proxy: "));
        let said = said.unwrap_or_else(|| panic!("{failed}"));
        assert!(
            said.contains(&address) && said.contains("in use"),
            "{failed}"
        );
    }
    // Another proxy on the port, also if its workers share the port.
    let upstream = Upstream::start("a");
    let yaml = Web::to([upstream.address()]).top("workers: 2").yaml();
    let first = start(&yaml);
    let address = first.listener("web").to_string();
    let second = yaml.replacen("address: 127.0.0.1:0", &format!("address: {address}"), 1);
    let failed = builder().config(second).try_start();
    assert!(failed.is_err(), "two processes on one port");
    assert_eq!(get(&first, "/").text(), "a");
}

#[test]
fn there_are_as_many_workers_as_configured() {
    let upstream = Upstream::start("a");
    for (setting, expected) in [("", 1), ("workers: 3", 3)] {
        let proxy = Web::to([upstream.address()]).top(setting).start();
        assert_eq!(get(&proxy, "/").text(), "a");
        let threads = std::fs::read_dir(format!("/proc/{}/task", proxy.pid())).unwrap();
        let names = threads.map(|one| std::fs::read_to_string(one.unwrap().path().join("comm")));
        let workers = names.filter(|name| name.as_ref().unwrap().starts_with("worker-"));
        assert_eq!(workers.count(), expected, "{setting}");
    }
}

#[test]
fn a_check_says_what_would_keep_the_proxy_from_starting_here() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("maglor.yaml");
    let path = file.to_str().unwrap();
    let good = Web::to(["127.0.0.1:1".parse().unwrap()]).yaml();
    let tls = "  tls: {certificate: no.pem, private_key: no.key}\n  http:";
    std::fs::write(&file, good.replace("  http:", tls)).unwrap();
    let checked = run(&["--check", "--config", path]);
    let said = text(&checked.stderr);
    assert_eq!(checked.status.code(), Some(1), "{said}");
    assert!(said.contains("`web`") && said.contains("no.pem"), "{said}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("address: {}", taken.local_addr().unwrap());
    for part in ["listeners:", "admin:"] {
        let at = good.find(part).unwrap();
        let (before, after) = good.split_at(at);
        let with_taken = after.replacen("127.0.0.1:0", &taken["address: ".len()..], 1);
        std::fs::write(&file, format!("{before}{with_taken}")).unwrap();
        let checked = run(&["--check", "--config", path]);
        let said = text(&checked.stderr);
        assert_eq!(checked.status.code(), Some(1), "{said}");
        assert!(
            said.contains("cannot bind") && said.contains("--reload"),
            "{said}"
        );
        assert!(
            run(&["--check", "--reload", "--config", path])
                .status
                .success()
        );
    }
}

#[test]
fn a_check_says_what_is_wrong_and_where() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("maglor.yaml");
    let path = file.to_str().unwrap();
    let good = Web::to(["127.0.0.1:1".parse().unwrap()]).yaml();
    std::fs::write(&file, &good).unwrap();
    let checked = run(&["--check", "--config", path]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert_eq!(text(&checked.stderr), "");
    for words in [&["--check", path][..], &["-c", path, "--check"]] {
        let checked = run(words);
        assert!(
            checked.status.success(),
            "{words:?}: {}",
            text(&checked.stderr)
        );
    }
    std::fs::write(&file, good.replace("['*']", "[*.example.com]")).unwrap();
    let said = text(&run(&["--check", "--config", path]).stderr).to_owned();
    assert!(said.contains("\"*.example.com\""), "{said}");
    std::fs::write(
        &file,
        good.replace("cluster: backend", "cluster: bakcend, timout: 1s"),
    )
    .unwrap();
    let checked = run(&["--check", "--config", path]);
    let said = text(&checked.stderr);
    assert_eq!(checked.status.code(), Some(2));
    for part in [path, "bakcend", "backend", "timout", "timeout"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Without any of them, the message describes both ways.
    for args in [&[][..], &["--check"]] {
        let said = text(&run(args).stderr).to_owned();
        for part in ["maglor-proxy FILE", "--listen", "--upstream"] {
            assert!(said.contains(part), "{said}");
        }
    }
    for args in [
        &[][..],
        &["--config", "/nowhere.yaml"],
        &["--listen", "nonsense", "--upstream", "127.0.0.1:1"],
        &["--listen", "127.0.0.1:0"],
        &[
            "--listen",
            "127.0.0.1:0",
            "--upstream",
            "127.0.0.1:1",
            "--policy",
            "best",
        ],
        &[
            "--listen",
            "127.0.0.1:0",
            "--upstream",
            "127.0.0.1:1,weight=0",
        ],
        &["--listen", "127.0.0.1:0", "--upstream", "nonsense"],
        &["--config", path, "--listen", "127.0.0.1:0"],
    ] {
        let failed = run(args);
        assert_eq!(
            failed.status.code(),
            Some(2),
            "{args:?}: {}",
            text(&failed.stderr)
        );
        assert!(!failed.stderr.is_empty(), "{args:?}");
    }
    for args in ["--help", "--version"] {
        let answer = run(&[args]);
        assert!(answer.status.success() && text(&answer.stdout).contains("maglor-proxy"));
    }
}

#[test]
fn names_are_resolved() {
    // A name that is in /etc/hosts everywhere.
    let upstream = Upstream::start("a");
    let port = upstream.address().port();
    let proxy = builder()
        .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .args(["--upstream", &format!("localhost:{port}")])
        .start();
    let name = proxy.listeners().keys().next().unwrap().clone();
    let mut client = RawHttp1::connect(proxy.listener(&name));
    eventually(TIMEOUT, "the name is resolved", || {
        client.get("/").status == 200
    });
    assert_eq!(upstream.last().header("host"), Some("test"));
    let clusters = proxy.admin_get("/clusters").json();
    let endpoints = clusters["clusters"][0]["endpoints"].as_array().unwrap();
    assert!(
        endpoints.iter().any(|e| e["host"] == "localhost"),
        "{clusters}"
    );

    // A name that does not exist affects requests, not the process.
    let yaml = Web::to([])
        .yaml()
        .replace("endpoints: []", "endpoints: ['absent.invalid:80']");
    let proxy = start(&yaml);
    assert_eq!(get(&proxy, "/").status, 503);
    eventually(TIMEOUT * 2, "the failure is counted", || {
        proxy.metric("maglor_dns_failures_total", &["backend"]) > 0.0
    });
}

#[test]
fn it_is_ready_soon_and_quiet_about_it() {
    let upstream = Upstream::start("a");
    let web = Web::to([upstream.address()]);
    let fastest = (0..5).map(|_| web.start().ready_after()).min().unwrap();
    let limit = if cfg!(debug_assertions) { 500 } else { 50 };
    assert!(fastest < Duration::from_millis(limit), "{fastest:?}");
    let proxy = web.clone().top("log_level: error").start();
    assert_eq!(connect(&proxy).get("/").text(), "a");
    assert_eq!(proxy.stderr(), "");
    let proxy = builder()
        .config(web.yaml())
        .args(["--log-format", "json"])
        .start();
    proxy.wait_for_log("listening");
    let line: serde_json::Value =
        serde_json::from_str(proxy.stderr().lines().next().unwrap()).unwrap();
    assert!(line.to_string().contains("listening"), "{line}");
}

#[test]
fn waiting_ends_when_the_proxy_is_ready() {
    let wait = |port: u16, timeout: &str| {
        run(&[
            "wait",
            "--admin-port",
            &port.to_string(),
            "--timeout",
            timeout,
        ])
    };
    let admin = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = admin.local_addr().unwrap().port();
    let answering = std::thread::spawn(move || {
        for answer in [
            "503 Service Unavailable",
            "503 Service Unavailable",
            "200 OK",
        ] {
            let (mut socket, _) = admin.accept().unwrap();
            let mut question = [0; 1024];
            let length = socket.read(&mut question).unwrap();
            assert!(question[..length].starts_with(b"GET /ready "));
            // In one write: the command reads no further than a successful status.
            let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 8\r\n\r\nbecause\n");
            socket.write_all(answer.as_bytes()).unwrap();
        }
    });
    let not_yet = wait(port, "0s");
    assert_eq!(not_yet.status.code(), Some(1));
    let said = "HTTP/1.1 503: because\n";
    assert!(text(&not_yet.stderr).ends_with(said), "{not_yet:?}");
    assert!(wait(port, "1m").status.success(), "the third answer is 200");
    answering.join().unwrap();

    let server = Upstream::start("a");
    let upstream = server.address().to_string();
    let flags = [
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        &upstream,
        "--admin",
        "127.0.0.1:0",
    ];
    let proxy = builder().args(flags).start();
    assert!(wait(proxy.admin().port(), "1m").status.success());

    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_vain = wait(mute.local_addr().unwrap().port(), "0s");
    let said = "the admin server does not respond\n";
    assert!(text(&in_vain.stderr).ends_with(said), "{in_vain:?}");
}

/// Notifications that systemd waits for (sd_notify(3)): ready, a reload and its end, the end.
#[test]
fn a_service_manager_is_notified_of_start_reload_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let next = || {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        text(&buffer[..length]).to_owned()
    };
    let upstream = Upstream::start("a");
    let mut proxy = builder()
        .config(Web::to([upstream.address()]).yaml())
        .env("NOTIFY_SOCKET", &path)
        .start();
    assert!(next().starts_with("READY=1\n"));
    assert_eq!(get(&proxy, "/").text(), "a");
    proxy.signal(Signal::Hangup);
    let reloading = next();
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert!(next().starts_with("READY=1\n"));
    proxy.signal(Signal::Terminate);
    assert!(next().starts_with("STOPPING=1\n"));
    assert!(proxy.wait_exit(TIMEOUT).success());
}
