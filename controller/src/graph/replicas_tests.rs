use std::net::Ipv4Addr;

use maglor_identity::tls::{Client, Expected, OpenServer};
use maglor_identity::{Authority, Identity, LeafRequest, Live, SpiffeId, TrustDomain};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::graph::Settings;
use crate::graph::peers::Peers;
use crate::identity::own::REPLICA_ALPN;
use crate::resource_server::Table;

const CONTROLLER: &str = "maglor-controller";

fn domain() -> TrustDomain {
    "mesh.example".parse().unwrap()
}

fn id(account: &str) -> SpiffeId {
    SpiffeId::workload(&domain(), "maglor", account).unwrap()
}

fn authority() -> Authority {
    Authority::create(&domain(), SystemTime::now()).unwrap()
}

fn live(authority: &Authority, account: &str) -> Arc<Live> {
    let request = LeafRequest::new(id(account));
    let issued = authority.issue(&request, SystemTime::now()).unwrap();
    let key = issued.private_key_pem.unwrap();
    let identity = Identity::from_pem(issued.certificate_pem.as_bytes(), key.as_bytes()).unwrap();
    Live::new(identity, authority.bundle().unwrap()).unwrap()
}

/// A replica that authenticates with an account and answers one connection.
async fn replica(authority: &Authority, account: &str) -> u16 {
    let server = OpenServer::new(&live(authority, account), &[b"h2", REPLICA_ALPN]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let Ok(stream) = TlsAcceptor::from(server.config()).accept(socket).await else {
            return;
        };
        let proved = server.peer(stream.get_ref().1, SystemTime::now()).ok();
        let proved = proved.map(|(id, _)| id);
        let peers = Peers {
            graphs: Arc::new(Graphs::new(Settings::default())),
            table: Table::new(true),
            id: Some(id(CONTROLLER)),
        };
        peers.serve(stream, proved.as_ref()).await;
    });
    port
}

async fn ask_as(live: &Arc<Live>, port: u16, path: &str) -> Result<Vec<Part>, AskError> {
    let itself = Expected::OneOf(vec![id(CONTROLLER)]);
    let client = Client::new(live, itself, &[REPLICA_ALPN]).unwrap();
    let tls = Some(watch::channel(Some(client)).1);
    let connector = Connector { port, tls };
    connector.ask(Ipv4Addr::LOCALHOST.into(), path).await
}

#[tokio::test]
async fn replicas_prove_to_each_other_who_they_are() {
    let authority = authority();
    let own = live(&authority, CONTROLLER);
    let port = replica(&authority, CONTROLLER).await;
    assert_eq!(ask_as(&own, port, "/graph?parts").await.unwrap().len(), 0);
    let port = replica(&authority, CONTROLLER).await;
    let other = ask_as(&own, port, "/resources").await;
    assert!(
        matches!(other, Err(AskError::Status(StatusCode::NOT_FOUND))),
        "{other:?}"
    );

    // Requests of a workload that is not a replica, then of a client without a certificate.
    let nameless = Live::nameless(authority.bundle().unwrap()).unwrap();
    for client in [live(&authority, "web"), nameless] {
        let port = replica(&authority, CONTROLLER).await;
        let refused = ask_as(&client, port, "/graph?parts").await;
        assert!(
            matches!(refused, Err(AskError::Status(StatusCode::FORBIDDEN))),
            "{refused:?}"
        );
    }
    // Another member pretends to be a replica.
    let port = replica(&authority, "web").await;
    let refused = ask_as(&own, port, "/graph?parts").await;
    assert!(matches!(refused, Err(AskError::Connect(_))), "{refused:?}");
}

#[tokio::test]
async fn without_an_authority_nothing_is_asked() {
    let tls = Some(watch::channel(None).1);
    let connector = Connector { port: 1, tls };
    let none = connector.ask::<Vec<Part>>(Ipv4Addr::LOCALHOST.into(), "/graph?parts");
    assert!(matches!(none.await, Err(AskError::NoIdentity)));
}

/// Requests the parts of a plain-text server that sends this response.
async fn plain(answer: String) -> Result<Vec<Part>, AskError> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = [0; 1024];
        let length = socket.read(&mut head).await.unwrap();
        assert!(head[..length].starts_with(b"GET /graph?parts HTTP/1.1\r\n"));
        let answer = format!("HTTP/1.1 {answer}");
        socket.write_all(answer.as_bytes()).await.unwrap();
    });
    let connector = Connector { port, tls: None };
    connector
        .ask(Ipv4Addr::LOCALHOST.into(), "/graph?parts")
        .await
}

#[tokio::test]
async fn another_replica_is_asked_for_its_part() {
    let body = "[{\"proxy\": \"shop/web-0\", \"age_seconds\": 1.5, \"taken\": false, \"from\": \"a\", \
                \"to\": \"b\", \"rps\": 2.0, \"latency_ms\": 3.0, \"failures\": 0.0, \
                \"bytes_per_second\": 0.0, \"in_flight\": 1.0}]";
    let good = format!("200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let parts = plain(good).await.unwrap();
    assert_eq!((&*parts[0].proxy, parts[0].edge.rps), ("shop/web-0", 2.0));
    let bad = plain("503 Busy\r\ncontent-length: 0\r\n\r\n".to_owned()).await;
    assert!(matches!(bad, Err(AskError::Status(_))));
    let odd = plain("200 OK\r\ncontent-length: 2\r\n\r\n{}".to_owned()).await;
    assert!(matches!(odd, Err(AskError::Answer(_))));
}
