//! The port where proxies are served and the admin port, while one source attacks them: changes reach members all the
//! same, pods are certified, and memory is bounded. The webhook's port: `controller/src/https/tests.rs`.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use maglor_identity::tls::{Client, Expected};
use maglor_identity::{Live, SpiffeId};
use maglor_testkit::RawHttp1;
use maglor_xds::Kind;
use tokio::net::TcpSocket;

use crate::support::fixture::{CART, Fixture, WEB, domain};
use crate::support::grpc::{Connection, Stream};

/// The attacker's address; members connect from 127.0.0.1.
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
/// Maximum delay of a change that is pushed during the attack; the target is a second on an idle
/// machine.
const PUSH: Duration = Duration::from_secs(5);
/// Maximum additional memory of the process, in bytes.
const MEMORY: u64 = 64 << 20;
const SERVICES: usize = 300;
const CHANGES: u16 = 10;

/// Services, the port of the first of which is `port`.
fn services(port: u16) -> String {
    let mut text = String::new();
    for i in 0..SERVICES {
        let port = if i == 0 { port } else { 80 };
        write!(
            text,
            "---
apiVersion: v1
kind: Service
metadata: {{name: s{i}, namespace: shop}}
spec: {{clusterIP: 10.0.{}.{}, ports: [{{port: {port}, name: http}}]}}
",
            i / 250,
            i % 250 + 1
        )
        .unwrap();
    }
    text
}

/// A controller, and a member that receives changes.
struct Attacked {
    fixture: Fixture,
    member: Stream,
    before: u64,
}

async fn start() -> Attacked {
    let fixture = Fixture::start(&services(80), "1h").await;
    let live = fixture.member(CART).await;
    let mut member = Stream::open(fixture.connect(&live).await, "shop/cart-0").await;
    member.want(Kind::Listener, &["10.0.0.1:80"]);
    let known = member.until("the first answer", |seen| !seen.is_empty());
    known.await;
    let before = fixture.controller.memory();
    Attacked {
        fixture,
        member,
        before,
    }
}

impl Attacked {
    /// Measures the slowest of several changes; a pod gets a certificate in that time, and memory is bounded.
    async fn holds(&mut self, what: &str) {
        let mut slowest = Duration::ZERO;
        for change in 1..=CHANGES {
            let name = format!("10.0.0.1:{}", 80 + change);
            self.member.want(Kind::Listener, &[&name]);
            self.fixture.put(&services(80 + change));
            let begun = Instant::now();
            let key = (Kind::Listener, name.clone());
            let there = |seen: &std::collections::BTreeMap<_, Option<_>>| {
                seen.get(&key).is_some_and(Option::is_some)
            };
            self.member.until(&name, there).await;
            slowest = slowest.max(begun.elapsed());
        }
        let begun = Instant::now();
        self.fixture.certified(WEB).await;
        let certified = begun.elapsed();
        let more = self.fixture.controller.memory().saturating_sub(self.before);
        println!(
            "{what}: slowest of {CHANGES} changes {slowest:?}, certified within {certified:?}, {} MB more",
            more >> 20
        );
        assert!(slowest < PUSH, "{what}: {slowest:?}");
        assert!(certified < PUSH, "{what}: {certified:?}");
        assert!(more < MEMORY, "{what}: {} MB", more >> 20);
    }

    fn nameless(&self) -> Arc<rustls::ClientConfig> {
        let id = SpiffeId::workload(&domain(), "maglor", "maglor-controller").unwrap();
        let live = Live::nameless(self.fixture.bundle()).unwrap();
        let client = Client::new(&live, Expected::OneOf(vec![id]), &[b"h2"]);
        client.unwrap().config()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_end_take_bounded_memory() {
    let mut attacked = start().await;
    let tls = attacked.nameless();
    let mut open = Vec::new();
    // A message of which one byte is missing; one of a length that is taken, and one of a longer one.
    let part = |length: u32| {
        let mut part = vec![0; length as usize + 4];
        part[1..5].copy_from_slice(&length.to_be_bytes());
        part
    };
    let parts = [part(16_000), part(60_000)];
    for part in parts.iter().cycle().take(300) {
        let address = &attacked.fixture.controller.listen;
        let opened = Connection::open_from(ATTACKER, address, Arc::clone(&tls)).await;
        let Ok(mut connection) = opened else { continue };
        let calls = [(); 16].map(|()| connection.certify_without_end(part.clone().into()));
        open.push((connection, calls));
    }
    attacked.holds("calls without end").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_and_handshakes_without_pause_delay_no_member() {
    let mut attacked = start().await;
    let (tls, address) = (
        attacked.nameless(),
        attacked.fixture.controller.listen.clone(),
    );
    let mut silent = Vec::new();
    for _ in 0..400 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((ATTACKER, 0).into()).unwrap();
        silent.extend(socket.connect(address.parse().unwrap()).await.ok());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let attack = |_| {
        let (tls, address, stop) = (Arc::clone(&tls), address.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let _ = Connection::open_from(ATTACKER, &address, Arc::clone(&tls)).await;
            }
        })
    };
    let attacks: Vec<_> = (0..8).map(attack).collect();
    attacked.holds("handshakes without pause").await;
    stop.store(true, Ordering::SeqCst);
    for attack in attacks {
        let _ = attack.await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_for_operators_delay_no_member() {
    let mut attacked = start().await;
    let admin = (
        Ipv4Addr::LOCALHOST,
        attacked.fixture.controller.admin_port(),
    );
    let stop = Arc::new(AtomicBool::new(false));
    let attack = |_| {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut pages = 0;
            let head = "GET /resources?kind=cluster&full HTTP/1.1\r\nhost: localhost\r\n\r\n";
            while !stop.load(Ordering::SeqCst) {
                let answer = RawHttp1::connect(admin.into()).request(head);
                assert_eq!(answer.status, 200);
                pages += 1;
            }
            pages
        })
    };
    let attacks: Vec<_> = (0..4).map(attack).collect();
    attacked.holds("pages for operators").await;
    stop.store(true, Ordering::SeqCst);
    let pages: u32 = attacks
        .into_iter()
        .map(|attack| attack.join().unwrap())
        .sum();
    assert!(pages > 0);
}
