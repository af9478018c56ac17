//! Network namespaces as hosts: they reach each other with configured delays, and are removed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use maglor_testkit::netns::{Network, NetworkError};
use maglor_testkit::{TIMEOUT, eventually};

const APP: &str = env!("CARGO_BIN_EXE_maglor-app");

/// The name of this process's namespaces.
fn namespaces() -> usize {
    let output = Command::new("ip").args(["netns", "list"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let own = format!("maglor-{}-", std::process::id());
    text.unwrap_or_default().matches(&own).count()
}

/// Sends one request by the shell, which needs no other program; returns the response.
fn ask(network: &Network, target: Ipv4Addr) -> String {
    let script = format!(
        "exec 3<>/dev/tcp/{target}/8080 || exit 1; \
         printf 'GET /api/v1 HTTP/1.1\\r\\nhost: a\\r\\nconnection: close\\r\\n\\r\\n' >&3; head -n 1 <&3"
    );
    let output = network.hosts()[1]
        .command("bash")
        .args(["-c", &script])
        .output();
    String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
}

#[test]
fn hosts_reach_each_other_after_the_delay_and_leave_nothing() {
    let delay = Duration::from_millis(20);
    let (network, delay) = match Network::new(2, delay) {
        Ok(network) => (network, delay),
        Err(missing) => {
            println!("without delay: {missing}");
            match Network::new(2, Duration::ZERO) {
                Ok(network) => (network, Duration::ZERO),
                Err(missing) => {
                    println!("skipped: {missing}");
                    return;
                }
            }
        }
    };
    assert_eq!(namespaces(), 3);
    let server = &network.hosts()[0];
    let files = tempfile::TempDir::with_prefix("maglor-netns-").unwrap();
    let write = |name: &str, text: String| {
        let file = files.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let listen = format!("{}:8080", server.address());
    let deployment = format!("{{\"instances\": [{{\"host\": \"a\", \"listen\": \"{listen}\"}}]}}");
    let mut app = server
        .command(APP)
        .arg("--workmodel")
        .arg(write("workmodel.json", "{\"a\": {}}".into()))
        .arg("--deployment")
        .arg(write("deployment.json", deployment))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually(TIMEOUT, "the server answers", || {
        ask(&network, server.address()).starts_with("HTTP/1.1 200")
    });
    let began = Instant::now();
    ask(&network, server.address());
    // A round trip for the connection, one for the request.
    assert!(began.elapsed() >= 4 * delay, "{:?}", began.elapsed());
    app.kill().unwrap();
    app.wait().unwrap();
    drop(network);
    assert_eq!(namespaces(), 0);
}

#[test]
fn too_many_hosts_are_refused() {
    let error = Network::new(1000, Duration::ZERO).unwrap_err();
    assert_eq!(error, NetworkError::TooMany(1000));
}
