//! The order of events, where no clock is needed: the proxy is stopped while a flood and one request of a
//! victim arrive at its sockets, and then continued. Its access log shows how much of the flood it has served
//! before the victim.
//!
//! The flood requests an unknown host: the proxy answers these requests itself, without a server, so that only
//! its own turns limit a connection.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;

use maglor_testkit::process::Signal;
use maglor_testkit::{Proxy, ProxyBuilder, RawHttp1, TIMEOUT, Upstream, eventually};

use crate::clients::{self, Member};
use crate::floods::{frame, member_frame};
use crate::support::mesh::Root;

const FLOODING: usize = 20;
/// Number of requests of one connection before another one has its turn.
const TURN: usize = 4;
/// Number of concurrent streams of one connection, and number of those that are begun in one turn.
const STREAMS: usize = 100;
const BEGUN: usize = 8;

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: absent\r\n\r\n";
const PIPELINED: usize = 400;

/// A connection of the flood.
enum Client {
    Plain(TcpStream),
    Member(Box<Member>),
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).unwrap(),
            Self::Member(member) => member.try_send(bytes).unwrap(),
        }
    }
}

struct Setup {
    proxy: Proxy,
    root: Root,
    upstream: Upstream,
    folder: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        let upstream = Upstream::start("victim");
        let root = Root::new();
        let folder = tempfile::TempDir::with_prefix("maglor-floods-").unwrap();
        let http = "http: {virtual_hosts: [{domains: [victim], routes: [{cluster: victims}]}]}";
        let config = format!(
            "admin: {{address: '127.0.0.1:0'}}\naccess_log: {{path: '{}'}}\n{}\nlisteners:\n\
             - {{name: web, address: '127.0.0.1:0', {http}}}\n\
             - {{name: mesh, address: '127.0.0.1:0', tls: mesh, {http}}}\n\
             clusters: [{{name: victims, endpoints: ['{}']}}]\n",
            folder.path().join("access.log").display(),
            root.member("server").yaml(),
            upstream.address(),
        );
        let binary = env!("CARGO_BIN_EXE_maglor-proxy");
        Self {
            proxy: ProxyBuilder::new(binary).config(config).start(),
            root,
            upstream,
            folder,
        }
    }

    fn plain(&self, first: &[u8]) -> Client {
        let mut stream = clients::connect(self.proxy.listener("web"), None).unwrap();
        stream.write_all(first).unwrap();
        Client::Plain(stream)
    }

    fn log(&self) -> String {
        let log: &Path = &self.folder.path().join("access.log");
        fs::read_to_string(log).unwrap_or_default()
    }
}

/// Returns how many requests of `flood` on each of some connections are served before one of a victim. `open`
/// opens a connection that has sent its first request; `host` is the host that the victim requests.
fn before_the_victim(open: impl Fn(&Setup) -> Client, flood: &[u8], host: &str) -> usize {
    let setup = Setup::new();
    let mut floods: Vec<_> = (0..FLOODING).map(|_| open(&setup)).collect();
    let mut victim = RawHttp1::connect(setup.proxy.listener("web"));
    victim.request("GET / HTTP/1.1\r\nhost: victim\r\n\r\n");
    let warm = FLOODING + 1;
    eventually(TIMEOUT, "all connections have been served", || {
        setup.log().lines().count() == warm
    });
    setup.proxy.signal(Signal::Stop);
    floods.iter_mut().for_each(|client| client.send(flood));
    victim.send(format!("GET /victim HTTP/1.1\r\nhost: {host}\r\n\r\n"));
    setup.proxy.signal(Signal::Continue);
    let expected = if host == "victim" { (200, 2) } else { (404, 1) };
    assert_eq!(victim.response().status, expected.0);
    let position = || {
        setup
            .log()
            .lines()
            .position(|line| line.contains("/victim"))
    };
    eventually(TIMEOUT, "the victim is in the access log", || {
        position().is_some()
    });
    assert_eq!(setup.upstream.requests(), expected.1);
    position().unwrap() - warm
}

#[test]
fn pipelines_take_turns_with_a_victim() {
    let served = before_the_victim(|setup| setup.plain(GET), &GET.repeat(PIPELINED), "victim");
    assert!(served <= TURN * FLOODING, "{served} requests came first");
}

#[test]
fn streams_of_http2_take_turns_with_a_victim() {
    // GET, http, / and the authority, from the static table of HPACK.
    let head = [&[0x82, 0x86, 0x84, 0x41, 6][..], b"absent"].concat();
    let request = |n: usize| frame(1, 5, u32::try_from(2 * n + 1).unwrap(), &head);
    let first = [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &frame(4, 0, 0, &[]),
        &request(0),
    ];
    let flood: Vec<u8> = (1..=STREAMS).flat_map(request).collect();
    let served = before_the_victim(|setup| setup.plain(&first.concat()), &flood, "absent");
    println!("{served} streams of HTTP/2 came first");
    assert!(served <= BEGUN * FLOODING, "{served} requests came first");
}

#[test]
fn streams_of_the_mesh_transport_take_turns_with_a_victim() {
    let request = |n: usize| member_frame(1, 1, u32::try_from(n).unwrap(), GET);
    let flood: Vec<u8> = (2..2 + STREAMS).flat_map(request).collect();
    let open = |setup: &Setup| {
        let config = setup.root.member("client").client("maglor/1");
        let mut member = Member::connect(setup.proxy.listener("mesh"), &config).unwrap();
        member.try_send(&request(1)).unwrap();
        Client::Member(Box::new(member))
    };
    let served = before_the_victim(open, &flood, "absent");
    println!("{served} streams of the mesh transport came first");
    assert!(served <= BEGUN * FLOODING, "{served} requests came first");
}
