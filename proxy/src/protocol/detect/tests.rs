use std::net::IpAddr;
use std::sync::Arc;

use maglor_config::listener::FilterChainMatch;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::protocol::proxy_protocol::Addresses;

/// Returns the first message of a rustls client.
fn hello_bytes(server_name: &str, alpn: &[&str]) -> Vec<u8> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(server_name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

fn hello(server_name: Option<&str>, alpn: &[&str]) -> ClientHello {
    ClientHello {
        server_name: server_name.map(str::to_owned),
        alpn: alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
        is_fallback: false,
    }
}

#[test]
fn a_line_of_another_protocol_is_distinguished_from_bad_http() {
    for other in [
        "INVALID CONNECTION PREFACE\r\n\r\n",
        "GET / FTP/1.1\n",
        "a b c d\r\n",
    ] {
        assert!(other_protocol(other.as_bytes()), "{other}");
    }
    for http in [
        "",
        "GET / HTTP/1.1",
        "GET / FTP/1.1",
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/9.9 \r\n",
        "GET / http/1.1\r\n",
        "GET  /a b HTTP/1.1\r\n",
        "GET /\r\n",
        "\r\n",
        "\r\nGET / FTP/1.1\r\n",
    ] {
        assert!(!other_protocol(http.as_bytes()), "{http}");
    }
}

/// Sends `bytes` in pieces of `step`, closes, and detects.
async fn detect(bytes: Vec<u8>, step: usize) -> (Result<Option<ClientHello>, Error>, BytesMut) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (client, accepted) = tokio::join!(client, listener.accept());
    let (mut client, mut tcp) = (client.unwrap(), accepted.unwrap().0);
    client.set_nodelay(true).unwrap();
    let sender = async move {
        for part in bytes.chunks(step) {
            // Fails when the detector has seen enough.
            let _ = client.write_all(part).await;
            tokio::task::yield_now().await;
        }
    };
    let mut buf = BytesMut::new();
    let (result, ()) = tokio::join!(read_client_hello(&mut tcp, &mut buf), sender);
    (result, buf)
}

#[test]
fn preface_of_http2() {
    assert_eq!(http2_preface(b""), Detected::More);
    assert_eq!(
        http2_preface(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"),
        Detected::More
    );
    assert_eq!(
        http2_preface(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        Detected::Yes
    );
    assert_eq!(
        http2_preface(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0"),
        Detected::Yes
    );
    assert_eq!(http2_preface(b"PRI * HTTP/1.1\r\n"), Detected::No);
    assert_eq!(http2_preface(b"PUT"), Detected::No);
}

#[tokio::test]
async fn client_hello_is_read_and_kept() {
    let bytes = hello_bytes("API.Example.com", &["h2", "http/1.1"]);
    for step in [1, 7, bytes.len()] {
        let (result, buf) = detect(bytes.clone(), step).await;
        let expected = hello(Some("api.example.com"), &["h2", "http/1.1"]);
        assert_eq!(result.unwrap(), Some(expected), "in pieces of {step}");
        assert_eq!(&buf[..], &bytes);
    }
    let (result, _) = detect(hello_bytes("192.0.2.1", &[]), 10_000).await;
    assert_eq!(result.unwrap(), Some(hello(None, &[])));
}

#[tokio::test]
async fn client_hello_over_several_records() {
    let whole = hello_bytes("a.example.com", &["h2"]);
    let mut cut = Vec::new();
    for part in whole[5..].chunks(40) {
        cut.extend([0x16, 3, 1, 0, u8::try_from(part.len()).unwrap()]);
        cut.extend(part);
    }
    cut.extend(b"what follows");
    let (result, buf) = detect(cut.clone(), 64).await;
    assert_eq!(result.unwrap(), Some(hello(Some("a.example.com"), &["h2"])));
    assert!(cut.starts_with(&buf));
}

#[tokio::test]
async fn other_protocols_are_not_tls() {
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x02", b"\0"] {
        let (result, buf) = detect(bytes.to_vec(), 1).await;
        assert_eq!(result.unwrap(), None);
        assert!(!buf.is_empty() && bytes.starts_with(&buf));
    }
}

#[tokio::test]
async fn malformed_endless_and_cut_off_hellos_are_refused() {
    let (result, _) = detect(b"\x16\x03\x01\x00\x04\x02\x00\x00\x00".to_vec(), 100).await;
    assert!(matches!(result, Err(Error::Malformed(_))), "{result:?}");
    let (result, _) = detect(hello_bytes("a.example.com", &[])[..60].to_vec(), 100).await;
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    let (result, _) = detect(Vec::new(), 1).await;
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");

    // A message of 60000 bytes, one record after the other.
    let mut endless = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xea, 0x60];
    endless.resize(5 + 0x4000, 0);
    for _ in 0..2 {
        endless.extend([0x16, 3, 1, 0x40, 0]);
        endless.resize(endless.len() + 0x4000, 0);
    }
    let (result, buf) = detect(endless, 4096).await;
    assert!(matches!(result, Err(Error::TooLong)), "{result:?}");
    assert!(buf.len() < 2 * MAX_CLIENT_HELLO, "{}", buf.len());
}

/// Returns a ClientHello of TLS 1.1 with these extensions and without `signature_algorithms`, which our own TLS
/// would refuse.
fn old_hello(extensions: &[(u16, &[u8])]) -> Vec<u8> {
    let length = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
    let mut listed = Vec::new();
    for (kind, value) in extensions {
        listed.extend(kind.to_be_bytes());
        listed.extend(length(value.len()));
        listed.extend(*value);
    }
    let mut body = vec![3, 2];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    if !listed.is_empty() {
        body.extend(length(listed.len()));
        body.extend(listed);
    }
    let mut message = vec![0x16, 3, 1];
    message.extend(length(body.len() + 4));
    message.extend([1, 0]);
    message.extend(length(body.len()));
    message.extend(body);
    message
}

#[test]
fn a_client_hello_is_read_although_we_would_not_speak_with_its_sender() {
    let read = |extensions: &[(u16, &[u8])]| {
        let hello = ClientHelloParser::default().push(&old_hello(extensions));
        hello.map(Option::unwrap)
    };
    let name: &[u8] = b"\0\x04\0\0\x01A";
    assert_eq!(read(&[]).unwrap(), hello(None, &[]));
    let unknown = (0x0a0a, &b""[..]);
    assert_eq!(read(&[unknown, (0, name)]).unwrap(), hello(Some("a"), &[]));
    let alpn: &[u8] = b"\0\x06\x02h2\x02h3";
    assert_eq!(read(&[(16, alpn)]).unwrap(), hello(None, &["h2", "h3"]));
    // A text that is not a valid host name is ignored.
    for nameless in [&b"\0\x03\0\0\0"[..], b"\0\x04\0\0\x01\xff", b"\0\0"] {
        assert_eq!(read(&[(0, nameless)]).unwrap(), hello(None, &[]));
    }
    for malformed in [
        &[(0, name), (0, name)][..],
        &[(16, alpn), (16, alpn)],
        // Two names, a byte behind the name, one behind the list, and a name that is longer than its list.
        &[(0, b"\0\x08\0\0\x01a\0\0\x01b")],
        &[(0, b"\0\x05\0\0\x01ab")],
        &[(0, b"\0\x04\0\0\x01ab")],
        &[(0, b"\0\x04\0\0\x02a")],
        &[(0, &name[..5])],
        &[(16, &alpn[..5])],
    ] {
        let read = read(malformed);
        assert!(matches!(read, Err(Error::Malformed(_))), "{read:?}");
    }
    let mut cut = old_hello(&[(0, name)]);
    let end = cut.len();
    cut[end - name.len() - 5] += 1;
    let read = ClientHelloParser::default().push(&cut);
    assert!(matches!(read, Err(Error::Malformed(_))), "{read:?}");
}

#[test]
fn a_client_that_fell_back_is_known_by_its_suites_and_versions() {
    // Replaces the only suite of `old_hello`, in a place that its other bytes do not match.
    let with = |suite: [u8; 2], extensions: &[(u16, &[u8])]| {
        let mut bytes = old_hello(extensions);
        let at = bytes.windows(4).position(|w| w == [0, 2, 0, 0x2f]).unwrap();
        bytes[at + 2..at + 4].copy_from_slice(&suite);
        let hello = ClientHelloParser::default().push(&bytes);
        hello.unwrap().unwrap().is_fallback
    };
    let versions = |list: &'static [u8]| (43, list);
    assert!(!with([0xc0, 0x2b], &[]));
    assert!(with([0x56, 0], &[]));
    assert!(with([0x56, 0], &[versions(b"\x02\x03\x03")]));
    assert!(with([0x56, 0], &[versions(b"")]));
    assert!(!with([0x56, 0], &[versions(b"\x04\x03\x03\x03\x04")]));
}

// === filter chains ===

/// Builds a selector from one line for each chain: `server names | protocols | sources`, each separated by
/// commas; destinations may follow: `| ports | networks`.
fn selector(chains: &[&str]) -> ChainSelector {
    let list = |field: &str| -> Vec<String> {
        let parts = field.split(',').map(str::trim);
        parts.filter(|s| !s.is_empty()).map(str::to_owned).collect()
    };
    let networks = |field: &str| list(field).iter().map(|s| s.parse().unwrap()).collect();
    let parse = |line: &&str| {
        let fields: Vec<_> = line.split('|').chain(["", ""]).collect();
        FilterChainMatch {
            server_names: list(fields[0]),
            application_protocols: list(fields[1]),
            source: networks(fields[2]),
            destination_ports: list(fields[3]).iter().map(|s| s.parse().unwrap()).collect(),
            destination_networks: networks(fields[4]),
        }
    };
    ChainSelector::new(&chains.iter().map(parse).collect::<Vec<_>>())
}

fn ends(source: IpAddr, destination: &str) -> Addresses {
    Addresses {
        source: (source, 1000).into(),
        destination: destination.parse().unwrap(),
    }
}

const DESTINATION: &str = "198.51.100.9:443";

#[track_caller]
fn check(selector: &ChainSelector, name: &str, alpn: &[&str], source: &str, expect: Option<usize>) {
    let hello = hello(Some(name).filter(|name| !name.is_empty()), alpn);
    let source: IpAddr = source.parse().unwrap();
    assert_eq!(
        selector.select(&hello, Some(ends(source, DESTINATION))),
        expect
    );
}

#[track_caller]
fn check_destination(selector: &ChainSelector, destination: &str, expect: Option<usize>) {
    let (hello, source) = (ClientHello::default(), IpAddr::from([192, 0, 2, 1]));
    assert_eq!(
        selector.select(&hello, Some(ends(source, destination))),
        expect
    );
}

/// The connection of a Unix socket has no addresses.
#[test]
fn a_connection_without_addresses_takes_a_chain_that_asks_for_none() {
    let nothing = ClientHello::default();
    let s = selector(&[
        "||0.0.0.0/0",
        "|||80",
        "||||0.0.0.0/0",
        "a.example.com||",
        "||",
    ]);
    assert_eq!(s.select(&nothing, None), Some(4));
    assert_eq!(s.select(&hello(Some("a.example.com"), &[]), None), Some(3));
    assert!(s.needs_client_hello(None));
    let s = selector(&["||0.0.0.0/0", "|||80", "||||0.0.0.0/0"]);
    assert_eq!(s.select(&nothing, None), None);
}

#[test]
fn destination_by_port_then_longest_prefix_then_any() {
    let s = selector(&[
        "||",
        "|||80",
        "||||10.0.0.0/8",
        "||||10.1.0.0/16, 10.0.0.5/32, fd00::5/128",
        "|||80|10.0.0.5/32",
        "||192.0.2.9/32|80|10.0.0.6/32",
        "||||0.0.0.0/0",
    ]);
    check_destination(&s, "10.0.0.5:80", Some(4));
    check_destination(&s, "[::ffff:10.0.0.5]:80", Some(4));
    check_destination(&s, "10.2.2.2:80", Some(1));
    // The most specific one is for another client.
    check_destination(&s, "10.0.0.6:80", Some(1));
    check_destination(&s, "10.0.0.5:81", Some(3));
    check_destination(&s, "10.1.0.5:81", Some(3));
    check_destination(&s, "10.2.0.5:81", Some(2));
    check_destination(&s, "192.0.2.1:81", Some(6));
    check_destination(&s, "[fd00::5]:81", Some(3));
    check_destination(&s, "[fd00::6]:81", Some(0));
    check_destination(&selector(&["|||80"]), "10.0.0.1:81", None);
}

#[test]
fn a_client_is_waited_for_only_where_its_hello_decides() {
    let s = selector(&[
        "a.example.com||",
        "|||25",
        "||10.0.0.0/8|26",
        "b.example.com|||27|10.0.0.1/32",
        "||",
    ]);
    let source = IpAddr::from([192, 0, 2, 1]);
    let needs = |destination: &str| s.needs_client_hello(Some(ends(source, destination)));
    assert!(s.may_need_client_hello());
    assert!(!needs("10.0.0.1:25"));
    assert!(needs("10.0.0.1:26") && needs("10.0.0.1:27") && needs("10.0.0.1:80"));
}

#[test]
fn server_name_exact_then_longest_wildcard_then_any() {
    let s = selector(&[
        "||",
        "*.com||",
        "*.example.com, other.org||",
        "a.example.com||",
    ]);
    check(&s, "a.example.com", &[], "192.0.2.1", Some(3));
    check(&s, "a.example.com.", &[], "192.0.2.1", Some(3));
    check(&s, "b.example.com", &[], "192.0.2.1", Some(2));
    check(&s, "x.b.example.com", &[], "192.0.2.1", Some(2));
    check(&s, "other.org", &[], "192.0.2.1", Some(2));
    check(&s, "example.com", &[], "192.0.2.1", Some(1));
    check(&s, ".example.com", &[], "192.0.2.1", Some(1));
    check(&s, "com", &[], "192.0.2.1", Some(0));
    check(&s, "example.org", &[], "192.0.2.1", Some(0));
    check(&s, "", &[], "192.0.2.1", Some(0));
}

#[test]
fn protocol_by_the_clients_preference_then_any() {
    let s = selector(&["||", "|http/1.1|", "|h2|"]);
    check(&s, "", &["h2", "http/1.1"], "192.0.2.1", Some(2));
    check(&s, "", &["http/1.1", "h2"], "192.0.2.1", Some(1));
    check(&s, "", &["h3", "h2"], "192.0.2.1", Some(2));
    check(&s, "", &["h3"], "192.0.2.1", Some(0));
    check(&s, "", &[], "192.0.2.1", Some(0));
}

#[test]
fn source_by_the_longest_prefix_then_any() {
    let s = selector(&[
        "||",
        "||0.0.0.0/0",
        "||10.0.0.0/8, 192.0.2.0/24",
        "||10.1.0.0/16, 2001:db8::/32",
    ]);
    check(&s, "", &[], "10.1.2.3", Some(3));
    check(&s, "", &[], "::ffff:10.1.2.3", Some(3));
    check(&s, "", &[], "10.2.2.3", Some(2));
    check(&s, "", &[], "192.0.2.9", Some(2));
    check(&s, "", &[], "198.51.100.1", Some(1));
    check(&s, "", &[], "2001:db8::1", Some(3));
    check(&s, "", &[], "2001:db9::1", Some(0));
}

#[test]
fn name_before_protocol_before_source_and_all_must_hold() {
    let s = selector(&[
        "|h2|10.1.1.1/32",
        "a.example.com||",
        "a.example.com|h2|",
        "*.example.com||10.0.0.0/8",
        "b.example.com|h3|",
    ]);
    check(&s, "a.example.com", &["h2"], "10.1.1.1", Some(2));
    check(&s, "a.example.com", &["http/1.1"], "10.1.1.1", Some(1));
    check(&s, "", &["h2"], "10.1.1.1", Some(0));
    check(&s, "", &["h2"], "10.1.1.2", None);
    // The exact name's chain requires another protocol, so the wildcard's chain matches.
    check(&s, "b.example.com", &["h2"], "10.1.1.1", Some(3));
    check(&s, "b.example.com", &["h2"], "192.0.2.1", None);
}

#[test]
fn equally_specific_chains_go_by_their_order() {
    let s = selector(&["a.example.com||", "a.example.com||", "||"]);
    check(&s, "a.example.com", &[], "192.0.2.1", Some(0));
}

#[test]
fn client_hello_is_needed_only_when_something_depends_on_it() {
    assert!(!selector(&["||", "||10.0.0.0/8"]).may_need_client_hello());
    assert!(selector(&["||", "a.example.com||"]).may_need_client_hello());
    assert!(selector(&["|h2|"]).may_need_client_hello());
    check(&selector(&[]), "", &[], "127.0.0.1", None);
}
