use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use hickory_resolver::config::NameServerConfig;
use hickory_resolver::lookup::Lookup;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name as DnsName, RData, Record};
use maglor_balance::Time;
use tokio::net::UdpSocket;

use super::*;

/// A name server. Names that begin with `silent` get no answer, those with `missing` do not exist, and all others
/// have the address 127.0.0.N, where N is the number at the end of the name. The TTL is an hour for names that begin
/// with `hour`, otherwise a second. Queries for IPv4 addresses are counted.
async fn serve(socket: UdpSocket, questions: Arc<AtomicU32>) {
    let mut buffer = [0; 512];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        let question = &buffer[12..length];
        let first = &question[1..=usize::from(question[0])];
        if first.starts_with(b"silent") {
            continue;
        }
        // The query without the additional section: labels, their end, type and class.
        let end = 12 + question.iter().position(|byte| *byte == 0).unwrap() + 5;
        let is_a = buffer[end - 3] == 1;
        questions.fetch_add(u32::from(is_a), Ordering::SeqCst);
        let found = is_a && !first.starts_with(b"missing");
        let mut answer = buffer[..end].to_vec();
        answer[2..4].copy_from_slice(&[0x81, 0x80]);
        answer[4..12].copy_from_slice(&[0, 1, 0, u8::from(found), 0, 0, 0, 0]);
        if found {
            // Name of the query, A, IN.
            answer.extend([0xc0, 12, 0, 1, 0, 1]);
            let ttl = if first.starts_with(b"hour") {
                3600_u32
            } else {
                1
            };
            answer.extend(ttl.to_be_bytes());
            answer.extend([0, 4, 127, 0, 0]);
            answer.push(first[first.len() - 1] - b'0');
        }
        socket.send_to(&answer, from).await.unwrap();
    }
}

/// Returns a resolver and its name server.
async fn resolver() -> (Resolver, impl Future<Output = ()>) {
    counted(Arc::default()).await
}

/// Like [`resolver`], with counted queries.
async fn counted(questions: Arc<AtomicU32>) -> (Resolver, impl Future<Output = ()>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut server = NameServerConfig::udp(Ipv4Addr::LOCALHOST.into());
    server.connections[0].port = socket.local_addr().unwrap().port();
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
    let settings = Settings {
        resolver: super::resolver(config, ResolverOpts::default()).unwrap(),
        path: PathBuf::new(),
        version: None,
    };
    let served = serve(socket, questions);
    (Resolver(Arc::new(Mutex::new(settings))), served)
}

fn cluster(endpoints: &str, shared: &Shared) -> Arc<Cluster> {
    cluster_with(endpoints, "", shared)
}

/// The same with further settings.
fn cluster_with(endpoints: &str, settings: &str, shared: &Shared) -> Arc<Cluster> {
    let yaml = format!(
        "listeners: [{{name: l, address: '127.0.0.1:80', tcp: {{cluster: a}}}}]
clusters: [{{name: a, endpoints: [{endpoints}]{settings}}}]"
    );
    let config = maglor_config::parse(&yaml, "test").unwrap().config;
    let config = Arc::clone(&config.clusters[0]);
    let cluster = Cluster::new(config, None, &shared.metrics, None, Time::ZERO);
    Arc::new(cluster.unwrap())
}

fn addresses(cluster: &Cluster) -> Vec<String> {
    let endpoints = cluster.endpoints();
    let targets = endpoints.targets().iter();
    targets.map(|target| target.address.to_string()).collect()
}

#[tokio::test]
async fn a_silent_name_holds_no_other_back() {
    let shared = Arc::new(Shared::new(1).0);
    let cluster = cluster(
        "'silent.test:80', 'missing.test:80', 'good1.test:81', 'good2.test:82'",
        &shared,
    );
    let (resolver, served) = resolver().await;
    let followed = resolver.follow(Arc::clone(&cluster), Arc::clone(&shared));
    let resolved = async {
        while addresses(&cluster) != ["127.0.0.1:81", "127.0.0.2:82"] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // The lookup of the silent name fails only after some ten seconds.
    tokio::select! {
        () = followed => unreachable!("it never ends"),
        () = served => unreachable!("it never ends"),
        resolved = tokio::time::timeout(Duration::from_secs(4), resolved) => {
            resolved.expect("resolved beside a silent name");
        }
    }
}

/// Returns whether a name is looked up this many times within the time.
async fn is_looked_up(name: &str, settings: &str, times: u32, within: Duration) -> bool {
    let shared = Arc::new(Shared::new(1).0);
    let cluster = cluster_with(&format!("'{name}:80'"), settings, &shared);
    let questions = Arc::new(AtomicU32::new(0));
    let (resolver, served) = counted(Arc::clone(&questions)).await;
    let asked = async {
        while questions.load(Ordering::SeqCst) < times {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = resolver.follow(cluster, shared) => unreachable!("it never ends"),
        () = served => unreachable!("it never ends"),
        asked = tokio::time::timeout(within, asked) => asked.is_ok(),
    }
}

/// A TTL of an hour is above `max`, one of a second below `min`; a missing name is looked up again after
/// `min`.
#[tokio::test]
async fn names_are_looked_up_again_after_a_time_within_the_bounds() {
    let (soon, long) = (Duration::from_millis(1600), Duration::from_secs(10));
    let often = ", dns_refresh: {min: 100ms, max: 200ms}";
    let rarely = ", dns_refresh: {min: 5s}";
    let [lowered, unbounded, raised, usual, missing] = tokio::join!(
        is_looked_up("hour1.test", often, 4, long),
        is_looked_up("hour1.test", "", 2, soon),
        is_looked_up("good1.test", rarely, 2, soon),
        is_looked_up("good1.test", "", 2, long),
        is_looked_up("missing.test", often, 4, long),
    )
    .into();
    assert!(lowered && !unbounded, "max: {lowered}, {unbounded}");
    assert!(!raised && usual, "min: {raised}, {usual}");
    assert!(missing, "min of a failure");
}

/// One of several addresses is used as long as answers contain it.
#[tokio::test]
async fn of_a_service_at_many_addresses_one_is_used() {
    let shared = Arc::new(Shared::new(1).0);
    let yaml = "listeners: [{name: l, address: '127.0.0.1:80', tcp: {cluster: a}}]
clusters: [{name: a, endpoints: ['good1.test:80'], dns_addresses: first}]";
    let config = maglor_config::parse(yaml, "test").unwrap().config;
    let config = Arc::clone(&config.clusters[0]);
    let cluster = Cluster::new(config, None, &shared.metrics, None, Time::ZERO).unwrap();
    let mut names = Name::all(&cluster);
    let name = &mut names[0];
    let mut found = |last: &[u8], changed: bool| {
        let addresses = last.iter().map(|last| Ipv4Addr::new(127, 0, 0, *last));
        let records =
            addresses.map(|ip| Record::from_rdata(DnsName::root(), 1, RData::A(ip.into())));
        let answer = LookupIp::from(Lookup::new_with_max_ttl(Query::default(), records));
        assert_eq!(name.found(&answer, &cluster), changed, "{last:?}");
        name.addresses.clone()
    };
    assert_eq!(found(&[3, 1, 2], true), [Ipv4Addr::new(127, 0, 0, 3)]);
    assert_eq!(found(&[1, 2, 3], false), [Ipv4Addr::new(127, 0, 0, 3)]);
    assert_eq!(found(&[2, 1], true), [Ipv4Addr::new(127, 0, 0, 2)]);
}

#[test]
fn name_servers_are_read_again_when_their_file_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("resolv.conf");
    let write = |ndots: u8| {
        let new = dir.path().join("new");
        let text = format!("nameserver 127.0.0.1\noptions ndots:{ndots}\n");
        fs::write(&new, text).unwrap();
        fs::rename(new, &path).unwrap();
    };
    write(2);
    let resolver = Resolver::of_file(&path).unwrap();
    let ndots = || resolver.current().options().ndots;
    assert_eq!(ndots(), 2);
    // The file is replaced, as by a kubelet or a DHCP client.
    write(3);
    assert_eq!(ndots(), 3);
    // The file is written in place.
    fs::write(&path, "nameserver 127.0.0.1\noptions ndots:10\n").unwrap();
    assert_eq!(ndots(), 10);
    fs::remove_file(&path).unwrap();
    assert_eq!(ndots(), 10);
    write(4);
    assert_eq!(ndots(), 4);
}
