//! The kept hostile suite against a controller over a folder: requests to its admin port, for certificates, and what
//! members send for discovery. The webhook: `controller/src/webhook/server_tests.rs`; files:
//! `crates/cli/tests/hostile.rs`; all that needs an API server: `controller/tests/kubernetes_hostile.rs`. See
//! docs/hostile.md.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use bytes::Bytes;
use maglor_identity::{Live, x509};
use maglor_testkit::RawHttp1;
use maglor_testkit::hostile::table::unescape;
use maglor_testkit::hostile::{self, Case, Port};
use maglor_xds::Kind;
use maglor_xds::frame::frame;
use maglor_xds::grpc_server::{CertifyRequest, Node};
use maglor_xds::proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use maglor_xds::proto::google::rpc::Status;

use crate::support;
use crate::support::fixture::{CART, Fixture, WEB, case_token};
use crate::support::grpc::Stream;

const RESOURCES: &str = "
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{port: 80, name: http}]}
---
apiVersion: v1
kind: Pod
metadata: {name: cart-0, namespace: shop, annotations: {maglor.dev/injected: 'true'}}
spec: {serviceAccountName: cart}
";
/// An existing cluster.
const GOOD: &str = "cart.shop.svc.cluster.local:80";
/// Maximum growth of the controller's memory during the test, in bytes.
const MEMORY: u64 = 96 << 20;

#[track_caller]
fn none_of(failed: &[String]) {
    let count = failed.len();
    assert!(failed.is_empty(), "{count} cases:\n{}", failed.join("\n"));
}

/// A non-loopback address of this machine; packets to it do not leave the machine.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Chooses a route; a connect of UDP sends nothing.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[tokio::test]
async fn requests_to_the_admin_port() {
    let cases = hostile::admin_controller();
    assert!(cases.len() > 60, "{}", cases.len());
    let folder = tempfile::tempdir().unwrap();
    let resources = folder.path().display().to_string();
    let arguments = [
        ["--listen", "127.0.0.1:0"],
        ["--folder", &resources],
        ["--admin", "0.0.0.0:0"],
    ];
    let arguments = [arguments.as_flattened(), &["--plain-text"]].concat();
    let ready = folder.path().join("ready.json");
    let controller = support::process::Controller::start(&ready, &arguments).await;
    let (port, network) = (controller.admin_port(), own_address());
    let seen = |case: &Case| {
        let ip = match case.name.starts_with("network ") {
            true => network?,
            false => Ipv4Addr::LOCALHOST.into(),
        };
        let client = RawHttp1::connect(SocketAddr::new(ip, port)).into_connection();
        hostile::check_port(case, &Port::run(case, client)).err()
    };
    none_of(&cases.iter().filter_map(seen).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_certificates() {
    let cases = hostile::requests_for_certificates();
    assert!(cases.len() > 40, "{}", cases.len());
    let fixture = Fixture::start(RESOURCES, "1h").await;
    let mut failed = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let asked = hostile::signing_request(case);
        let request = CertifyRequest {
            certificate_signing_request: asked.der.into(),
            token: asked.token.unwrap_or_else(|| case_token(number)),
        };
        let outcome = match fixture.nameless().await.certify(&request).await {
            Err(status) => status.code.to_string(),
            Ok(response) => {
                let leaf = x509::parse(&response.chain[0]).unwrap();
                let id = format!("spiffe://mesh.example/ns/shop/sa/case-{number}");
                let only = leaf.uris == [id]
                    && leaf.dns_names.is_empty()
                    && leaf.addresses.is_empty()
                    && leaf
                        .common_name
                        .as_ref()
                        .is_none_or(|name| *name == format!("case-{number}"));
                match only && !leaf.is_ca && !leaf.may_sign && leaf.workload().is_ok() {
                    true => "certified".to_owned(),
                    false => format!("certified as {leaf:?}"),
                }
            }
        };
        if !case.expected.split(' ').any(|word| word == outcome) {
            failed.push(format!(
                "{}: expected {}, got {outcome}",
                case.name, case.expected
            ));
        }
    }
    none_of(&failed);
    fixture.certified(WEB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_members_for_discovery() {
    let cases = hostile::discovery();
    assert!(cases.len() > 35, "{}", cases.len());
    let fixture = Fixture::start(RESOURCES, "1h").await;
    let (cart, web) = (fixture.member(CART).await, fixture.member(WEB).await);
    let mut other = Stream::open(fixture.connect(&web).await, "shop/web-0").await;
    let before = fixture.controller.memory();
    let mut failed = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let outcome = discover(&fixture, &cart, case).await;
        if !case.expected.split(' ').any(|word| word == outcome) {
            failed.push(format!(
                "{}: expected {}, got {outcome}",
                case.name, case.expected
            ));
        }
        let name = format!("no-such-{number}");
        other.want(Kind::Cluster, &[&name]);
        assert_eq!(
            other.heard(Kind::Cluster, &name).await,
            Ok(()),
            "{}",
            case.name
        );
    }
    none_of(&failed);
    let more = fixture.controller.memory().saturating_sub(before);
    assert!(more < MEMORY, "{} MB", more >> 20);
}

async fn discover(fixture: &Fixture, cart: &Arc<Live>, case: &Case) -> String {
    let mut stream = Stream::open(fixture.connect(cart).await, "shop/cart-0").await;
    if !case.name.starts_with("first/") {
        stream.want(Kind::Endpoints, &[GOOD]);
    }
    let mut node = None;
    for command in case.commands().filter(|command| !command.is_empty()) {
        follow(command, &mut stream, &mut node);
    }
    stream.want(Kind::Cluster, &[GOOD]);
    match stream.heard(Kind::Cluster, GOOD).await {
        Ok(()) => "serves".to_owned(),
        Err(code) => code.to_string(),
    }
}

/// | command | message |
/// | --- | --- |
/// | `want KIND NAME`, `drop KIND NAME` | subscribes, or no longer; `-` is empty, `LONGn` n letters, `cluster` and `inbound` are kinds, all else is a type |
/// | `many N KIND` | subscribes to N names in one message |
/// | `floods N M` | N messages of M names each |
/// | `ack KIND NONCE`, `nack KIND NONCE TEXT` | an answer |
/// | `versions KIND NAME VERSION` | reports a resource in this version |
/// | `node ID` | the node of the next message |
/// | `raw TEXT`, `bytes TEXT` | bytes in place of a message; with its prefix |
/// | `times N COMMAND` | the command N times |
fn follow(command: &str, stream: &mut Stream, node: &mut Option<Node>) {
    let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
    match word {
        "node" => {
            let id = text(rest);
            *node = Some(Node {
                id,
                ..Node::default()
            });
        }
        "raw" => {
            let bytes = unescape(rest);
            let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
            stream.send([&[0], &length[..], &bytes].concat().into());
        }
        "bytes" => stream.send(Bytes::from(unescape(rest))),
        "times" => {
            let (count, command) = rest.split_once(' ').unwrap();
            for _ in 0..count.parse().unwrap() {
                follow(command, stream, node);
            }
        }
        "floods" => {
            let (messages, names) = rest.split_once(' ').unwrap();
            for number in 0..messages.parse().unwrap() {
                stream.send(frame(&many(names, "cluster", number)));
            }
        }
        _ => {
            let request = DeltaDiscoveryRequest {
                node: node.take(),
                ..request(word, rest)
            };
            stream.send(frame(&request));
        }
    }
}

/// The message of a command that is one.
fn request(word: &str, rest: &str) -> DeltaDiscoveryRequest {
    let words: Vec<_> = rest.split(' ').collect();
    if let ("many", [count, of]) = (word, &words[..]) {
        return many(count, of, 0);
    }
    let mut request = DeltaDiscoveryRequest {
        type_url: kind(words[0]),
        ..DeltaDiscoveryRequest::default()
    };
    match (word, &words[1..]) {
        ("want", [name]) => request.resource_names_subscribe = vec![text(name)],
        ("drop", [name]) => request.resource_names_unsubscribe = vec![text(name)],
        ("ack", [nonce]) => request.response_nonce = text(nonce),
        ("nack", [nonce, message]) => {
            request.response_nonce = text(nonce);
            request.error_detail = Some(Status {
                code: 3,
                message: text(message),
            });
        }
        ("versions", [name, version]) => {
            let versions = [(text(name), text(version))];
            request.initial_resource_versions = versions.into_iter().collect();
        }
        _ => panic!("no command \"{word} {rest}\""),
    }
    request
}

/// Subscribes to this many names, which differ between numbers.
fn many(count: &str, of: &str, number: usize) -> DeltaDiscoveryRequest {
    let names = 0..count.parse::<usize>().unwrap();
    DeltaDiscoveryRequest {
        type_url: kind(of),
        resource_names_subscribe: names.map(|name| format!("n-{number}-{name}")).collect(),
        ..DeltaDiscoveryRequest::default()
    }
}

fn kind(word: &str) -> String {
    match word {
        "cluster" => Kind::Cluster.type_url().to_owned(),
        "inbound" => Kind::Inbound.type_url().to_owned(),
        other => text(other),
    }
}

fn text(word: &str) -> String {
    match word.strip_prefix("LONG") {
        _ if word == "-" => String::new(),
        Some(length) => "x".repeat(length.parse().unwrap()),
        None => String::from_utf8(unescape(word)).unwrap(),
    }
}
