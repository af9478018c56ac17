//! Attempts of a network peer to get a page for operators, and the expected results.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::pages::Port;

/// The timeout of an attempt.
const LIMIT: Duration = Duration::from_secs(20);
const METHODS: [&str; 12] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY", "get", "post",
    "DRAIN",
];
/// A field of the application's responses, and of no admin port's.
const OF_APPLICATION: &str = "\r\nx-exact-us: ";
/// Header fields by which a request may claim to come from this host, from one of its pages, or from nowhere.
const CLAIMS: [&str; 21] = [
    "x-forwarded-for: 127.0.0.1",
    "x-forwarded-for: ::1, 127.0.0.1",
    "forwarded: for=127.0.0.1;host=localhost;proto=http",
    "x-real-ip: 127.0.0.1",
    "true-client-ip: 127.0.0.1",
    "x-client-ip: 127.0.0.1",
    "x-envoy-external-address: 127.0.0.1",
    "x-maglor-client: 127.0.0.1",
    "x-forwarded-client-cert: URI=spiffe://cluster.local/ns/maglor/sa/maglor-controller",
    "x-forwarded-host: localhost",
    "x-original-url: /ready",
    "x-rewrite-url: /config",
    "x-http-method-override: POST",
    "authorization: Basic YWRtaW46YWRtaW4=",
    "origin: http://localhost",
    "origin: http://evil.example",
    "origin: null",
    "sec-fetch-site: same-origin",
    "sec-fetch-site: none",
    "sec-fetch-site: cross-site",
    "connection: host, x-forwarded-for",
];
/// Content types of forms, and others.
const KINDS: [&str; 5] = [
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=a",
    "text/plain",
    "application/json",
    "application/grpc",
];

/// A request, and the expected result.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    what: String,
    bytes: Vec<u8>,
    expected: Expected,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Expected {
    /// Responses with these statuses, in this order, and no other.
    Statuses(Vec<u16>),
    /// No response but errors, one of the application, or none at all.
    Refused,
}

impl Attempt {
    fn new(what: impl Into<String>, bytes: impl Into<Vec<u8>>, expected: Expected) -> Self {
        Self {
            what: what.into(),
            bytes: bytes.into(),
            expected,
        }
    }

    /// A request that must not succeed at any port.
    pub(crate) fn refused(line: &str, fields: &str) -> Self {
        let bytes = request(line, fields, "");
        Self::new(format!("{line} {fields:?}"), bytes, Expected::Refused)
    }

    fn status(line: &str, fields: &str, status: u16) -> Self {
        let bytes = request(line, fields, "");
        let expected = Expected::Statuses(vec![status]);
        Self::new(format!("{line} {fields:?}"), bytes, expected)
    }

    /// Makes it over a connection of its own; the error in the response.
    pub(crate) fn fails(&self, to: SocketAddr) -> Option<String> {
        let received = match round_trip(to, &self.bytes) {
            Ok(received) => received,
            Err(error) => return Some(format!("{}: {error}", self.what)),
        };
        let seen = statuses(&received);
        let text = String::from_utf8_lossy(&received);
        let as_expected = match &self.expected {
            Expected::Statuses(expected) => *expected == seen,
            Expected::Refused => {
                let is_http = received.is_empty() || received.starts_with(b"HTTP/1.");
                let errors = seen.iter().all(|status| *status >= 400);
                (is_http || is_alert(&received)) && (errors || text.contains(OF_APPLICATION))
            }
        };
        let short: String = text.chars().take(300).collect();
        (!as_expected)
            .then(|| format!("{}: expected {:?}, got {short:?}", self.what, self.expected))
    }
}

/// A TLS peer rejects by an alert (RFC 8446, 6): a record of 7 bytes; HTTP/2's GOAWAY has 17.
fn is_alert(received: &[u8]) -> bool {
    received.first() == Some(&0x15) && received.len() <= 7
}

/// Bytes of a request in HTTP/1.1 after which the connection ends.
fn request(line: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{line} HTTP/1.1\r\n{fields}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// Sends bytes and reads up to the end. A reset is an end; silence is none.
fn round_trip(to: SocketAddr, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&to, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    // It may have been refused before all is written.
    let _ = stream.write_all(bytes);
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => Err(error),
        _ => Ok(received),
    }
}

/// The statuses of all responses: no page has a status line in its body.
fn statuses(received: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(received);
    let lines = text.split("HTTP/1.").skip(1);
    let status = |line: &str| line.split(' ').nth(1)?.get(..3)?.parse().ok();
    lines.filter_map(status).collect()
}

/// All attempts on a port.
pub(crate) fn all(port: &Port) -> Vec<Attempt> {
    let mut all: Vec<_> = port.public.iter().flat_map(|path| public(path)).collect();
    for path in &port.private {
        all.extend(as_it_is(path, port.address));
        all.extend(spellings(path));
        all.extend(other_protocols(path, port.address));
    }
    all.extend([
        Attempt::refused("CONNECT 127.0.0.1:15020", "host: 127.0.0.1:15020\r\n"),
        Attempt::refused("OPTIONS *", "host: localhost\r\n"),
        Attempt::refused("GET /no-such-page", "host: localhost\r\n"),
        Attempt::new("no request", vec![0; 100], Expected::Refused),
    ]);
    all
}

/// For a first look from somewhere else: each page, read and changed.
pub(crate) fn some(port: &Port) -> Vec<Attempt> {
    let of = |path: &String| {
        let line = |method| format!("{method} {path}");
        ["GET", "POST", "PUT"]
            .map(|method| Attempt::status(&line(method), "host: localhost\r\n", 403))
    };
    let mut some: Vec<_> = port.private.iter().flat_map(of).collect();
    some.extend(port.public.iter().flat_map(|path| public(path)));
    some
}

/// Results of this host's own clients: pages of finite length succeed, unless a website or a name that leads here is
/// behind it.
pub(crate) fn over_loopback(port: &Port) -> Vec<Attempt> {
    let of = |path: &String, host: &str, status| {
        Attempt::status(&format!("GET {path}"), &format!("host: {host}\r\n"), status)
    };
    let private = port.private.iter();
    // A tap does not end.
    let readable = private
        .clone()
        .filter(|path| !["/drain", "/tap"].contains(&path.as_str()));
    let mut all: Vec<_> = readable
        .clone()
        .map(|path| of(path, "localhost", 200))
        .collect();
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "10.0.0.1",
    ] {
        all.extend(readable.clone().map(|path| of(path, host, 403)));
    }
    all.extend(private.flat_map(|path| by_website(path)));
    all
}

/// Requests that a website can make a browser send to a port of the browser's own host.
fn by_website(path: &str) -> Vec<Attempt> {
    let fields = [
        "origin: http://evil.example\r\n",
        "origin: null\r\n",
        "origin: http://localhost:8080\r\n",
        "sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n",
        "sec-fetch-site: same-site\r\n",
    ];
    let of = |method: &str| {
        fields.map(|fields| {
            Attempt::refused(
                &format!("{method} {path}"),
                &format!("host: localhost\r\n{fields}"),
            )
        })
    };
    let mut all = ["GET", "HEAD", "POST", "OPTIONS"].map(of).concat();
    for kind in &KINDS[..3] {
        let fields = format!("host: localhost\r\ncontent-type: {kind}\r\n");
        let bytes = request(&format!("POST {path}"), &fields, "level=error");
        all.push(Attempt::new(
            format!("POST {path} as {kind}"),
            bytes,
            Expected::Refused,
        ));
    }
    all
}

/// A page for every peer, by way of a route: that the route leads to the port.
pub(crate) fn leads_there(host: &str) -> Attempt {
    Attempt::status("GET /ready", &format!("host: {host}\r\n"), 200)
}

/// Every peer may read it, with any host; no request changes anything.
fn public(path: &str) -> Vec<Attempt> {
    let of = |method: &str, host: &str, status| {
        Attempt::status(
            &format!("{method} {path}"),
            &format!("host: {host}\r\n"),
            status,
        )
    };
    let mut all = vec![of("GET", "evil.example", 200), of("HEAD", "a", 200)];
    all.extend(["POST", "PUT", "DELETE", "PATCH"].map(|method| of(method, "localhost", 405)));
    all
}

/// The page by its own name: it exists, and is forbidden.
fn as_it_is(path: &str, to: SocketAddr) -> Vec<Attempt> {
    let forbidden = |line: &str, fields: &str| Attempt::status(line, fields, 403);
    let mut all = Vec::new();
    for method in METHODS {
        all.push(forbidden(
            &format!("{method} {path}"),
            "host: localhost\r\n",
        ));
    }
    let own = to.to_string();
    let hosts = [
        "127.0.0.1",
        "127.0.0.1:15020",
        "[::1]",
        "LOCALHOST:80",
        "localhost.",
        "0.0.0.0",
        &own,
        "evil.example",
        "127.0.0.1.nip.io",
        "a@localhost",
        "localhost, evil.example",
        "",
    ];
    for method in ["GET", "POST"] {
        let line = format!("{method} {path}");
        for host in hosts {
            all.push(forbidden(&line, &format!("host: {host}\r\n")));
        }
        all.push(forbidden(&line, ""));
        all.push(forbidden(
            &line,
            "host: localhost\r\nhost: evil.example\r\n",
        ));
        for claim in CLAIMS {
            all.push(forbidden(&line, &format!("host: localhost\r\n{claim}\r\n")));
        }
        for authority in [
            "localhost",
            "127.0.0.1:15020",
            "evil.example",
            "a@localhost",
        ] {
            let absolute = format!("{method} http://{authority}{path}");
            all.push(forbidden(&absolute, "host: localhost\r\n"));
        }
        let query = format!("{line}?level=error&x=/ready");
        all.push(forbidden(&query, "host: localhost\r\n"));
    }
    for kind in KINDS {
        let fields = format!("host: localhost\r\ncontent-type: {kind}\r\n");
        let bytes = request(&format!("POST {path}"), &fields, "level=error");
        let expected = Expected::Statuses(vec![403]);
        all.push(Attempt::new(
            format!("POST {path} as {kind}"),
            bytes,
            expected,
        ));
    }
    all
}

/// Names that something else might read as the page's.
fn spellings(path: &str) -> Vec<Attempt> {
    let name = path.trim_start_matches('/');
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let targets = [
        format!("//{name}"),
        format!("///{name}"),
        format!("/./{name}/."),
        format!("/ready/../{name}"),
        format!("/ready/..%2f{name}"),
        format!("/ready/..;/{name}"),
        format!("/probe/../{name}"),
        format!("/probe/%2e%2e/{name}"),
        format!("/probe/..%2f{name}"),
        format!("/%2f{name}"),
        format!("/{encoded}%20"),
        format!("/{encoded}/"),
        format!("/{name}%00"),
        format!("/{name};x"),
        format!("/{}X", name.to_uppercase()),
        format!("\\{name}"),
        format!("{name}x"),
        format!("http://localhost//{name}"),
        format!("//localhost/{name}"),
    ];
    let methods = ["GET", "POST"];
    let lines = targets
        .iter()
        .flat_map(|target| methods.map(|method| format!("{method} {target}")));
    let fields = "host: localhost\r\n";
    lines.map(|line| Attempt::refused(&line, fields)).collect()
}

/// The page by something else than one request in HTTP/1.1, or behind something else.
fn other_protocols(path: &str, to: SocketAddr) -> Vec<Attempt> {
    let fields = "host: localhost\r\n";
    let plain = request(&format!("GET {path}"), fields, "");
    let change = request(&format!("POST {path}"), fields, "");
    let public = "GET /ready HTTP/1.1\r\nhost: localhost\r\n";
    let v1 = format!("PROXY TCP4 127.0.0.1 127.0.0.1 1 {}\r\n", to.port());
    let refused = |what: &str, bytes: Vec<u8>| {
        Attempt::new(format!("{path}: {what}"), bytes, Expected::Refused)
    };
    let statuses = |what: &str, bytes: String, statuses: &[u16]| {
        let expected = Expected::Statuses(statuses.to_vec());
        Attempt::new(format!("{path}: {what}"), bytes, expected)
    };
    vec![
        refused("HTTP/2 by prior knowledge", http2("GET", path)),
        refused("a change in HTTP/2 by prior knowledge", http2("POST", path)),
        refused(
            "PROXY protocol 1",
            [v1.as_bytes(), plain.as_bytes()].concat(),
        ),
        refused(
            "PROXY protocol 2",
            [&proxy_v2(to.port())[..], plain.as_bytes()].concat(),
        ),
        refused(
            "PROXY protocol 2, LOCAL",
            [&LOCAL_V2[..], change.as_bytes()].concat(),
        ),
        statuses("HTTP/1.0", format!("GET {path} HTTP/1.0\r\n\r\n"), &[403]),
        statuses(
            "HTTP/1.0, a change",
            format!("POST {path} HTTP/1.0\r\n{fields}\r\n"),
            &[403],
        ),
        statuses(
            "behind a public page",
            format!("{public}\r\n{plain}"),
            &[200, 403],
        ),
        statuses(
            "behind a refused page",
            format!("GET /x HTTP/1.1\r\n{fields}\r\n{change}"),
            &[404, 403],
        ),
        statuses(
            "in the body of another request",
            format!(
                "{public}connection: close\r\ncontent-length: {}\r\n\r\n{plain}",
                plain.len()
            ),
            &[200],
        ),
        statuses(
            "an upgrade",
            format!(
                "GET {path} HTTP/1.1\r\n{fields}connection: upgrade, close\r\nupgrade: h2c\r\n\r\n"
            ),
            &[403],
        ),
    ]
}

/// The preface, SETTINGS, and a request on stream 1 (RFC 9113, 3.4 and 6.2; RFC 7541, 6.2.2).
fn http2(method: &str, path: &str) -> Vec<u8> {
    let literal = |index: u8, value: &str| {
        let length = u8::try_from(value.len()).unwrap();
        [&[index, length], value.as_bytes()].concat()
    };
    // `:method: GET` and `POST`, `:scheme: http`; `:path` and `:authority` by the indices of their names.
    let method = if method == "POST" { 0x83 } else { 0x82 };
    let block = [
        vec![method, 0x86],
        literal(0x04, path),
        literal(0x01, "localhost"),
    ]
    .concat();
    let length = u8::try_from(block.len()).unwrap();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // END_STREAM and END_HEADERS.
    let headers = [0, 0, length, 1, 5, 0, 0, 0, 1];
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &settings[..],
        &headers,
        &block,
    ]
    .concat()
}

/// A header of version 2 for a connection of the proxy itself (PROXY protocol, 2.2).
const LOCAL_V2: [u8; 16] = *b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// A version 2 header with a connection from loopback to a loopback port.
fn proxy_v2(port: u16) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01\0\x01".to_vec();
    header.extend(port.to_be_bytes());
    header
}
