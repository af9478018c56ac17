use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::clients::ClientMetrics;

/// Number of requests that are sent during an attack on the port, each on a separate connection.
const QUESTIONS: usize = 100;
/// Maximum time of a request. The API server waits for ten seconds, which is far longer; an idle machine needs far
/// less.
const LIMIT: Duration = Duration::from_secs(2);
/// The addresses of the API server and an attacker: both are on this host, but count as different sources.
const API_SERVER: [u8; 4] = [127, 0, 0, 1];
const ATTACKER: [u8; 4] = [127, 0, 0, 9];

/// A server that answers with the length of the body, and its address and certificate for clients.
struct Fixture {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    _serving: watch::Sender<Option<Arc<ServerConfig>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn start() -> Fixture {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["webhook".to_owned()]).unwrap();
    let certificate: CertificateDer<'static> = params.self_signed(&key).unwrap().der().clone();
    let provider = || Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (sender, serving) = watch::channel(Some(Arc::new(server)));
    let [(_, metrics), ..] = ClientMetrics::of_ports(&maglor_telemetry::Registry::new(1));
    let clients = Clients::new(LIMITS, metrics);
    let handle =
        async |request: Request<Bytes>| Response::new(Full::from(request.body().len().to_string()));
    let task = tokio::spawn(serve(socket, serving, "webhook", clients, move |request| {
        Box::pin(handle(request)) as std::pin::Pin<Box<dyn Future<Output = _> + Send>>
    }));
    Fixture {
        address,
        tls: Arc::new(client),
        _serving: sender,
        task,
    }
}

impl Fixture {
    async fn tcp(&self, from: [u8; 4]) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(IpAddr::from(from), 0))?;
        socket.connect(self.address).await
    }

    async fn tls(&self, from: [u8; 4]) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("webhook").unwrap();
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        connector.connect(name, self.tcp(from).await?).await
    }

    /// Sends a request of the API server; returns the status code and the body.
    async fn ask(&self, body: &[u8]) -> (u16, String) {
        let mut tls = self.tls(API_SERVER).await.unwrap();
        let head = head(body.len());
        // A request that is too long is refused before all of it is written.
        let _ = tls.write_all(&[head.as_bytes(), body].concat()).await;
        let mut answer = String::new();
        // The server ends without close_notify where it closes first.
        let _ = tls.read_to_string(&mut answer).await;
        let status = answer.get(9..12).and_then(|code| code.parse().ok());
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        (status.unwrap_or_default(), body.to_owned())
    }

    /// Sends [`QUESTIONS`] requests; returns the longest time of 99 % of them.
    async fn p99(&self) -> Duration {
        let mut took = Vec::new();
        for _ in 0..QUESTIONS {
            let begun = Instant::now();
            let asked = timeout(5 * LIMIT, self.ask(b"question")).await;
            assert_eq!(asked.unwrap(), (200, "8".to_owned()));
            took.push(begun.elapsed());
        }
        took.sort_unstable();
        took[QUESTIONS * 99 / 100 - 1]
    }
}

fn head(length: usize) -> String {
    format!(
        "POST / HTTP/1.1\r\nhost: webhook\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_keep_the_api_server_out() {
    let server = start().await;
    let mut tcp = Vec::new();
    let mut tls = Vec::new();
    for _ in 0..300 {
        tcp.push(server.tcp(ATTACKER).await.unwrap());
        // Earlier connections may have been closed to make room.
        tls.extend(server.tls(ATTACKER).await.ok());
    }
    let took = server.p99().await;
    println!("p99 of admission beside idle connections: {took:?}");
    assert!(took < LIMIT, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_pause_do_not_keep_the_api_server_out() {
    let server = Arc::new(start().await);
    let attack = |_| {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            let mut open = std::collections::VecDeque::new();
            loop {
                open.extend(server.tls(ATTACKER).await.ok());
                if open.len() > 64 {
                    open.pop_front();
                }
                tokio::task::yield_now().await;
            }
        })
    };
    let attacks: Vec<_> = (0..8).map(attack).collect();
    let took = server.p99().await;
    println!("p99 of admission beside new connections: {took:?}");
    attacks.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(took < LIMIT, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_do_not_end_take_bounded_memory_and_nothing_from_the_api_server() {
    let server = start().await;
    let mut open = Vec::new();
    let part = vec![b' '; 1 << 20];
    for _ in 0..64 {
        let Ok(mut tls) = server.tls(ATTACKER).await else {
            continue;
        };
        let sent = async {
            tls.write_all(head(4 << 20).as_bytes()).await?;
            tls.write_all(&part).await?;
            tls.flush().await
        };
        let _ = timeout(LIMIT, sent).await;
        open.push(tls);
    }
    // A large request in addition to these connections.
    let question = vec![b'x'; 3 << 20];
    assert_eq!(
        server.ask(&question).await,
        (200, question.len().to_string())
    );
    let took = server.p99().await;
    println!("p99 of admission beside bodies that do not end: {took:?}");
    assert!(took < LIMIT, "{took:?}");
    let mut left = 0;
    for mut tls in open {
        let mut byte = [0];
        let ended = timeout(Duration::from_millis(20), tls.read(&mut byte)).await;
        left += usize::from(ended.is_err());
    }
    assert!(
        left <= (LIMITS.bytes / 2) >> 20,
        "{left} connections hold a megabyte each"
    );
}

#[tokio::test]
async fn a_request_that_is_too_long_is_refused() {
    let server = start().await;
    let (status, why) = server.ask(&vec![b'x'; LARGEST + 1]).await;
    assert_eq!((status, &*why), (413, "more than 4 MiB\n"));
    assert_eq!(server.ask(&vec![b'x'; LARGEST]).await.0, 200);
}

#[tokio::test]
async fn a_length_that_is_too_long_is_refused_before_the_body_comes() {
    let server = start().await;
    for length in [LARGEST + 1, 1 << 60] {
        let mut tls = server.tls(ATTACKER).await.unwrap();
        tls.write_all(head(length).as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        let read = timeout(LIMIT, tls.read_exact(&mut answer)).await;
        read.unwrap().unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413", "{length}");
    }
}
