//! Connections without a request: they end, and occupy no descriptor that another client needs.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use maglor_testkit::{Proxy, ProxyBuilder, RawHttp1, TIMEOUT, Upstream, eventually};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::support::mesh::Root;
use crate::support::{Web, get, wait_quiet};

const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[test]
fn silent_connections_end_after_the_time_of_a_head_in_every_protocol() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .top(&root.member("server").yaml())
        .listener("tls: mesh")
        .http("header_timeout: 1s")
        .start();
    let client = root.member("client");
    // An unfinished head of the mesh transport: its length is 3, and it is not the last frame of the head.
    let half_head = "\0\x03\x01\x02\0\0\0\x01GET";
    let cases = [
        ("h2", ""),
        ("h2", &PREFACE[..7]),
        ("http/1.1", ""),
        ("http/1.1", "GET / HT"),
        ("maglor/1", ""),
        ("maglor/1", "\0"),
        ("maglor/1", half_head),
    ];
    let started = Instant::now();
    let mut clients = cases.map(|(alpn, first)| {
        let config = client.client(alpn);
        let mut client = RawHttp1::connect_tls(proxy.listener("web"), "a.test", config);
        client.send(first);
        client.into_connection()
    });
    for ((alpn, first), client) in cases.iter().zip(&mut clients) {
        let ended = client.read_to_end().map_err(|error| error.kind());
        let took = started.elapsed();
        // TLS may end without a close_notify alert.
        let closed = matches!(ended, Ok(_) | Err(ErrorKind::UnexpectedEof));
        assert!(closed, "{alpn} {first:?}: {ended:?}");
        assert!(took >= Duration::from_millis(900), "{alpn} {first:?}");
        assert!(took < Duration::from_secs(8), "{alpn} {first:?}: {took:?}");
    }
    drop(clients);
    wait_quiet(&proxy);
}

/// Starts a proxy with these soft and hard limits of open files.
fn limited(config: &str, limits: &str) -> (tempfile::TempDir, Proxy) {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("limited");
    let binary = env!("CARGO_BIN_EXE_maglor-proxy");
    fs::write(
        &script,
        format!("#!/bin/sh\n{limits}\nexec {binary} \"$@\"\n"),
    )
    .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let proxy = ProxyBuilder::new(script).config(config).start();
    (dir, proxy)
}

/// Clients that connect and send no complete head occupy all descriptors except the reserved ones. Other
/// clients are served all the same: by another connection to the endpoint and by the admin port.
#[test]
fn silent_connections_make_room_when_descriptors_are_short() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let web = || Web::to([upstream.address()]);
    let plain = web().yaml();
    let mesh = web()
        .top(&root.member("server").yaml())
        .listener("tls: mesh")
        .yaml();
    for (config, first) in [
        (&plain, ""),
        (&plain, "GET / HT"),
        (&plain, PREFACE),
        (&mesh, ""),
    ] {
        let (_dir, proxy) = limited(config, "ulimit -n 256");
        let address = proxy.listener("web");
        let in_mesh = std::ptr::eq(config, &mesh);
        let connect = || match in_mesh {
            true => {
                RawHttp1::connect_tls(address, "a.test", root.member("client").client("http/1.1"))
            }
            false => RawHttp1::connect(address),
        };
        let silent: Vec<_> = (0..300)
            .map(|_| {
                let mut client = RawHttp1::connect(address);
                client.send(first);
                client
            })
            .collect();
        let shed = || {
            proxy.metric(
                "maglor_downstream_connections_refused_total",
                &["reason=\"descriptors\""],
            )
        };
        eventually(TIMEOUT, "connections make room", || shed() >= 60.0);
        let asked = Instant::now();
        for _ in 0..20 {
            assert_eq!(proxy.admin_get("/ready").status, 200);
            assert_eq!(connect().get("/").status, 200);
        }
        assert!(
            asked.elapsed() < Duration::from_secs(5),
            "{:?}",
            asked.elapsed()
        );
        assert!(proxy.open_files() < 240, "{}", proxy.open_files());
        drop(silent);
        wait_quiet(&proxy);
    }
}

/// Connections that are accepted while others end are counted: the reserved descriptors are not used up little
/// by little.
#[test]
fn silent_connections_that_come_slowly_hold_no_more() {
    let upstream = Upstream::start("a");
    let (_dir, proxy) = limited(&Web::to([upstream.address()]).yaml(), "ulimit -n 256");
    let address = proxy.listener("web");
    let accepted = || proxy.metric("maglor_downstream_connections_total", &["listener=\"web\""]);
    let mut silent = Vec::new();
    let mut most = 0;
    for n in 1..=450 {
        silent.push(RawHttp1::connect(address));
        eventually(TIMEOUT, "the connection is accepted", || {
            accepted() >= f64::from(n)
        });
        most = most.max(proxy.open_files());
    }
    // 192 are for clients and descriptors that were open before them, and the root of 384 in excess; from 224
    // on clients are refused.
    assert!((180..=215).contains(&most), "{most}");
    drop(silent);
}

/// A connection with a request stays open, although others without one need descriptors.
#[test]
fn connections_with_requests_make_no_room() {
    let upstream = Upstream::start("a");
    let (_dir, proxy) = limited(&Web::to([upstream.address()]).yaml(), "ulimit -n 256");
    let address = proxy.listener("web");
    let mut asking: Vec<_> = (0..50).map(|_| RawHttp1::connect(address)).collect();
    for client in &mut asking {
        assert_eq!(client.get("/").status, 200);
    }
    let silent: Vec<_> = (0..300).map(|_| RawHttp1::connect(address)).collect();
    let shed = || {
        proxy.metric(
            "maglor_downstream_connections_refused_total",
            &["reason=\"descriptors\""],
        )
    };
    eventually(TIMEOUT, "connections make room", || shed() >= 60.0);
    for client in &mut asking {
        assert_eq!(client.get("/").status, 200);
    }
    drop(silent);
}

/// The soft limit is raised to the hard one.
#[test]
fn the_limit_of_open_files_is_raised() {
    let upstream = Upstream::start("a");
    let (_dir, proxy) = limited(&Web::to([upstream.address()]).yaml(), "ulimit -Sn 128");
    let pid = Pid::from_raw(i32::try_from(proxy.pid()).unwrap());
    let hard = getrlimit(Resource::Nofile).maximum;
    let Rlimit { current, maximum } = prlimit(
        pid,
        Resource::Nofile,
        Rlimit {
            current: hard,
            maximum: hard,
        },
    )
    .unwrap();
    assert_eq!((current, maximum), (hard, hard));
    assert_eq!(get(&proxy, "/").status, 200);
}
