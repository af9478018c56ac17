//! `maglor-proxy sidecar`: the configuration built from flags and a pod's environment.

use std::process::{Command, Output};

use maglor_testkit::{RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support::builder;
use crate::support::control_plane::ControlPlane;

fn sidecar(arguments: &str, variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maglor-proxy"))
        .arg("sidecar")
        .args(arguments.split_whitespace())
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

const POD: &[(&str, &str)] = &[
    ("POD_NAMESPACE", "shop"),
    ("POD_NAME", "cart-1"),
    ("POD_IPS", "10.1.2.3,fd00::3"),
];

#[test]
fn the_pod_says_who_it_is() {
    let output = sidecar("--plain-text --print-config", POD);
    assert!(output.status.success(), "{output:?}");
    let yaml = String::from_utf8(output.stdout).unwrap();
    for part in [
        "id: shop/cart-1",
        "discovery: shop/cart-1",
        "'[::]:15006'",
        "'[::]:15001'",
        "'[::]:15020'",
    ] {
        assert!(yaml.contains(part), "{part}: {yaml}");
    }
    // Flags override the environment.
    let output = sidecar(
        "--plain-text --print-config --pod-name b --pod-ips 10.0.0.1",
        POD,
    );
    let yaml = String::from_utf8(output.stdout).unwrap();
    assert!(
        yaml.contains("id: shop/b") && yaml.contains("0.0.0.0:15006"),
        "{yaml}"
    );
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    for (arguments, variables, what) in [
        (
            "--plain-text",
            &POD[1..],
            "--pod-namespace is missing; set the flag or the environment variable POD_NAMESPACE",
        ),
        ("--plain-text", &POD[..1], "POD_NAME"),
        ("", POD, "--token-file is missing"),
        ("--plain-text --pod-ips 10.0.0", POD, "--pod-ips: `10.0.0`"),
        (
            "--plain-text",
            &[POD[0], POD[1], ("POD_IPS", "x")],
            "POD_IPS: `x`",
        ),
        (
            "--plain-text --control-plane here",
            POD,
            "--control-plane here",
        ),
        ("--plain-text --drain-timeout soon", POD, "--drain-timeout"),
        ("--certificate a.pem", POD, "--private-key"),
    ] {
        let output = sidecar(arguments, variables);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(said.contains(what), "{arguments}: {said}");
    }
}

/// Started manually on one machine: no redirection, no identity.
#[test]
fn two_applications_call_each_other_through_their_sidecars() {
    let (control, cart) = (ControlPlane::start(), Upstream::start("cart"));
    let start = |name: &str, application: &str| {
        builder()
            .args(["sidecar", "--plain-text", "--bind", "127.0.0.1"])
            .args([
                "--inbound-port",
                "0",
                "--outbound-port",
                "0",
                "--admin-port",
                "0",
            ])
            .args(["--control-plane", &control.address.to_string()])
            .args(["--pod-namespace", "shop", "--pod-name", name])
            .args(["--application", application])
            .start()
    };
    let server = start("cart-1", &cart.address().to_string());
    let client = start("web-1", "127.0.0.1:1");
    control.inbound("shop/cart-1", "{tls: permissive}");
    control.serve(
        "cart.shop.svc.cluster.local:80",
        "cart",
        &[server.listener("inbound")],
    );
    eventually(TIMEOUT, "the server is ready", || {
        server.admin_get("/ready").status == 200
    });
    let mut application = RawHttp1::connect(client.listener("outbound"));
    let response = application.request("GET http://cart/ HTTP/1.1\r\nhost: cart\r\n\r\n");
    assert_eq!((response.status, response.text()), (200, "cart"));
    server.expect_metric("maglor_http_requests_total", &["listener=\"inbound\""], 1.0);
}
