//! Filter chains and the sockets before them: the selection of a chain, its versions of TLS and HTTP, and
//! forwarding to original destinations.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

use maglor_testkit::{Authority, Identity, Proxy, RawHttp1, TIMEOUT, Upstream};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ProtocolVersion, ServerConfig, SupportedProtocolVersion};

use crate::support::h2::{self, Client};
use crate::support::mesh::careless;
use crate::support::{Web, get, start};

/// Starts a proxy with a listener `web` of these filter chains, one for each line, and clusters `a` and `b`.
fn chains(listener: &str, chains: &[&str], a: &Upstream, b: &Upstream) -> Proxy {
    let chains: String = chains
        .iter()
        .map(|chain| format!("  - {chain}\n"))
        .collect();
    start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\nlisteners:\n- name: web\n  address: 127.0.0.1:0\n{listener}  \
         filter_chains:\n{chains}clusters:\n- {{name: a, endpoints: ['{}']}}\n- {{name: b, endpoints: ['{}']}}\n",
        a.address(),
        b.address()
    ))
}

/// Opens a connection whose PROXY header contains its source and its original destination.
fn from_to(proxy: &Proxy, from: &str, to: &str, port: u16) -> RawHttp1 {
    let mut client = RawHttp1::connect(proxy.listener("web"));
    client.send(format!("PROXY TCP4 {from} {to} 1234 {port}\r\n"));
    client
}

#[test]
fn a_chain_is_chosen_by_port_and_by_network() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let to = |condition: &str| {
        let condition = format!("{{match: {{{condition}}}, tcp: {{cluster: a}}}}");
        let require = "  proxy_protocol: require\n";
        let rest = "{name: rest, tcp: {cluster: b}}";
        chains(require, &[&condition, rest], &a, &b)
    };
    let ports = to("destination_ports: [8443, 9443]");
    for (port, expected) in [(8443, "a"), (9443, "a"), (8444, "b")] {
        let mut client = from_to(&ports, "10.2.0.1", "10.0.0.1", port);
        assert_eq!(client.get("/").text(), expected, "{port}");
    }
    let networks = to("source: [10.1.0.0/16, 10.9.9.9]");
    for (from, expected) in [("10.1.2.3", "a"), ("10.9.9.9", "a"), ("10.2.0.1", "b")] {
        let mut client = from_to(&networks, from, "10.1.0.1", 80);
        assert_eq!(client.get("/").text(), expected, "{from}");
    }
    let names = networks.admin_get("/routes").json();
    let names = ["0", "1"].map(|at| {
        let chain = &names["listeners"][0]["chains"][at.parse::<usize>().unwrap()];
        chain["name"].as_str().unwrap().to_owned()
    });
    assert_eq!(names, ["0", "rest"], "by position, or as it is called");
}

#[test]
fn a_chain_is_chosen_by_what_a_client_offers_to_speak() {
    let authority = Authority::new();
    let identity = authority.issue(&["a.example"]);
    let [first, second] = ["first", "second"].map(|name| {
        let config = authority.server_config(&identity, &["h2", "http/1.1"], false);
        Upstream::builder(name).tls(config).start()
    });
    let table = [
        "{match: {application_protocols: [h2]}, tcp: {cluster: a}}",
        "{tcp: {cluster: b}}",
    ];
    let proxy = chains("", &table, &first, &second);
    let address = proxy.listener("web");
    let both = authority.client_config(None, &["h2", "http/1.1"]);
    let mut client = Client::connect_tls(address, "a.example", both);
    assert_eq!(client.ask(h2::get("/")).text(), "first");
    let one = authority.client_config(None, &["http/1.1"]);
    let mut client = RawHttp1::connect_tls(address, "a.example", one);
    assert_eq!(client.get("/").text(), "second");
}

/// Returns the protocol and the version of TLS that a handshake negotiates.
fn handshake(
    address: SocketAddr,
    config: Arc<ClientConfig>,
) -> io::Result<(Option<String>, Option<ProtocolVersion>)> {
    let name = "a.example".try_into().unwrap();
    let mut tls = rustls::ClientConnection::new(config, name).unwrap();
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    let protocol = tls.alpn_protocol();
    let protocol = protocol.map(|name| String::from_utf8_lossy(name).into_owned());
    Ok((protocol, tls.protocol_version()))
}

fn terminating(identity: &Identity, upstream: &Upstream, more: &str) -> Proxy {
    let (cert, key) = (identity.cert_file.display(), identity.key_file.display());
    Web::to([upstream.address()])
        .listener(&format!(
            "tls: {{certificate: '{cert}', private_key: '{key}'{more}}}"
        ))
        .start()
}

#[test]
fn a_listener_speaks_the_protocols_and_versions_of_its_tls() {
    let authority = Authority::new();
    let identity = authority.issue(&["a.example"]);
    let upstream = Upstream::start("a");
    let offers = authority.client_config(None, &["http/1.1", "h2"]);
    for (alpn, expected) in [
        ("", "h2"),
        (", alpn: [http/1.1]", "http/1.1"),
        (", alpn: [http/1.1, h2]", "http/1.1"),
    ] {
        let proxy = terminating(&identity, &upstream, alpn);
        let (protocol, _) = handshake(proxy.listener("web"), Arc::clone(&offers)).unwrap();
        assert_eq!(protocol.as_deref(), Some(expected), "{alpn}");
    }
    let old = careless(None, &[&TLS12]);
    let any = terminating(&identity, &upstream, "");
    let (_, version) = handshake(any.listener("web"), Arc::clone(&old)).unwrap();
    assert_eq!(version, Some(ProtocolVersion::TLSv1_2));
    let new = terminating(&identity, &upstream, ", min_version: '1.3'");
    assert!(handshake(new.listener("web"), old).is_err());
    let (_, version) = handshake(new.listener("web"), careless(None, &[&TLS13])).unwrap();
    assert_eq!(version, Some(ProtocolVersion::TLSv1_3));
}

/// Starts a server that supports only this version of TLS.
fn server(identity: &Identity, version: &'static SupportedProtocolVersion) -> Upstream {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = CertificateDer::pem_file_iter(&identity.cert_file).unwrap();
    let key = PrivateKeyDer::from_pem_file(&identity.key_file).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.collect::<Result<_, _>>().unwrap(), key)
        .unwrap();
    Upstream::builder("a").tls(Arc::new(config)).start()
}

#[test]
fn endpoints_have_to_speak_a_version_of_tls_that_is_new_enough() {
    let authority = Authority::new();
    let identity = authority.issue(&["127.0.0.1"]);
    let (old, new) = (server(&identity, &TLS12), server(&identity, &TLS13));
    for (upstream, min_version, status) in
        [(&old, "1.2", 200), (&old, "1.3", 503), (&new, "1.3", 200)]
    {
        let ca = authority.file();
        let proxy = Web::to([upstream.address()])
            .cluster(&format!(
                "tls: {{ca: '{}', min_version: '{min_version}'}}",
                ca.display()
            ))
            .start();
        assert_eq!(get(&proxy, "/").status, status, "{min_version}");
    }
}

/// The preface of HTTP/2 is an invalid request of HTTP/1.1, and the other way round.
#[test]
fn a_chain_speaks_the_versions_of_http_that_it_may() {
    let upstream = Upstream::start("a");
    let speaks = |protocol: &str| {
        let proxy = Web::to([upstream.address()])
            .http(&format!("protocol: {protocol}"))
            .start();
        let mut old = RawHttp1::connect(proxy.listener("web"));
        old.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let head = old.connection().read_head();
        let old = head.is_ok_and(|head| head.starts_with("HTTP/1.1 200"));
        let mut new = RawHttp1::connect(proxy.listener("web"));
        new.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        new.send([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        // The first frame of a server is SETTINGS.
        let new = new.connection().read_exact(4);
        (old, new.is_ok_and(|frame| frame[3] == 4))
    };
    assert_eq!(speaks("auto"), (true, true));
    assert_eq!(speaks("http1"), (true, false));
    assert_eq!(speaks("http2"), (false, true));
}

#[test]
fn responses_of_the_proxy_itself_have_the_configured_name() {
    let upstream = Upstream::start("a");
    for (settings, expected) in [
        ("upgrades: []", "maglor"),
        ("server_name: edge-7", "edge-7"),
    ] {
        let proxy = Web::to([upstream.address()])
            .http(settings)
            .route("match: {path: /here}")
            .start();
        let response = get(&proxy, "/elsewhere");
        let name = response.header("server");
        assert_eq!((response.status, name), (404, Some(expected)));
    }
}

/// A route without a name is named after its virtual host and its position.
#[test]
fn routes_are_called_after_their_virtual_host() {
    let upstream = Upstream::start("a");
    for (host, label) in [
        ("domains: [shop.example]", "route=\"shop.example/0\""),
        ("name: shop, domains: [shop.example]", "route=\"shop/0\""),
    ] {
        let yaml = Web::to([upstream.address()]).yaml();
        let proxy = start(&yaml.replace("domains: ['*']", host));
        let request = "GET / HTTP/1.1\r\nhost: shop.example\r\n\r\n";
        let mut client = RawHttp1::connect(proxy.listener("web"));
        assert_eq!(client.request(request).status, 200);
        proxy.expect_metric("maglor_http_requests_total", &[label], 1.0);
    }
}

/// There is no redirection, so the PROXY protocol carries the original destination.
#[test]
fn a_cluster_of_original_destinations_goes_where_they_were_going_or_to_another_address() {
    let at = |ip: &str, port: u16| {
        let address = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port);
        Upstream::builder(ip).address(address).start()
    };
    let own = at("127.0.0.1", 0);
    let port = own.address().port();
    let other = at("127.0.0.2", port);
    for (address, to, expected) in [
        ("", "127.0.0.2", "127.0.0.2"),
        (", address: loopback", "10.9.9.9", "127.0.0.1"),
        (", address: 127.0.0.2", "10.9.9.9", "127.0.0.2"),
    ] {
        let proxy = start(&format!(
            "listeners:\n- {{name: web, address: '127.0.0.1:0', proxy_protocol: require, tcp: {{cluster: there}}}}\n\
             clusters:\n- {{name: there, type: original-destination{address}}}\n"
        ));
        let mut client = from_to(&proxy, "10.2.0.1", to, port);
        assert_eq!(client.get("/").text(), expected, "{address}");
    }
    drop(other);
}
