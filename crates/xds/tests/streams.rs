//! Clients of both protocols over a connection in memory.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use maglor_xds::frame::{Deframer, frame};
use maglor_xds::grpc_server::{
    Certified, CertifyRequest, CertifyResponse, Code, Node, Peer, Policy, Server, Status,
};
use maglor_xds::proto::envoy::service::discovery::v3 as wire;
use maglor_xds::server::{Protocol, Scope};
use maglor_xds::{Kind, Message, Resource};
use tokio::sync::mpsc;

struct Friends;

impl Policy for Friends {
    fn authorize(&self, _: &Peer, node: &Node) -> Result<Scope, Status> {
        match node.id.as_str() {
            "friend" => Ok(Arc::new(|_, name| Some(name.into()))),
            other => Err(Status::new(
                Code::PermissionDenied,
                format!("{other} is no friend"),
            )),
        }
    }

    fn certify<'a>(&'a self, _: &'a Peer, request: CertifyRequest) -> Certified<'a> {
        Box::pin(async move {
            let chain = vec![request.certificate_signing_request];
            Ok(CertifyResponse {
                chain,
                ..Default::default()
            })
        })
    }
}

/// A call with a body that continues.
struct Call {
    requests: mpsc::UnboundedSender<Bytes>,
    response: Incoming,
    deframer: Deframer,
}

const SERVICE: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService";

impl Call {
    async fn begin(server: &Server, path: &str) -> Self {
        let (near, far) = tokio::io::duplex(64 << 10);
        let peer = Peer {
            address: "127.0.0.1:1".parse().unwrap(),
            identity: None,
        };
        tokio::spawn(server.clone().serve(far, peer));
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near))
                .await
                .unwrap();
        tokio::spawn(connection);
        let (requests, receiver) = mpsc::unbounded_channel();
        let request = Request::post(format!("http://ads{path}"))
            .header("content-type", "application/grpc")
            .body(Unbounded(receiver))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        // The connection lives as long as the call.
        Self {
            requests,
            response: response.into_body(),
            deframer: Deframer::new(1 << 20),
        }
    }

    fn say(&self, message: &impl Message) {
        self.requests.send(frame(message)).unwrap();
    }

    /// The next message, or the status that ends the call.
    async fn hear<M: Message + Default>(&mut self) -> Result<M, String> {
        loop {
            if let Some(message) = self.deframer.message().unwrap() {
                return Ok(M::decode(message).unwrap());
            }
            let part = self
                .response
                .frame()
                .await
                .expect("trailers come first")
                .unwrap();
            match part.into_data() {
                Ok(data) => self.deframer.put(&data),
                Err(part) => {
                    let trailers = part.into_trailers().unwrap();
                    return Err(trailers["grpc-status"].to_str().unwrap().to_owned());
                }
            }
        }
    }
}

/// Messages as a body.
struct Unbounded(mpsc::UnboundedReceiver<Bytes>);

impl http_body::Body for Unbounded {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|part| part.map(|data| Ok(Frame::data(data))))
    }
}

fn put(server: &Server, kind: Kind, name: &str, body: &'static str) {
    let body = Bytes::from_static(body.as_bytes());
    let name = name.into();
    server.cache(|cache, now| cache.set(Resource { kind, name, body }, now));
}

fn node(id: &str) -> Option<Node> {
    Some(Node {
        id: id.to_owned(),
        ..Default::default()
    })
}

fn delta(names: &[&str]) -> wire::DeltaDiscoveryRequest {
    wire::DeltaDiscoveryRequest {
        node: node("friend"),
        type_url: Kind::Cluster.type_url().to_owned(),
        resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_change_comes_by_itself_and_its_answer_is_noted() {
    let server = Server::new(Arc::new(Friends));
    put(&server, Kind::Cluster, "a", "1");
    let mut call = Call::begin(&server, &format!("{SERVICE}/DeltaAggregatedResources")).await;
    call.say(&delta(&["a"]));
    let first: wire::DeltaDiscoveryResponse = call.hear().await.unwrap();
    assert_eq!(first.resources[0].name, "a");
    put(&server, Kind::Cluster, "a", "2");
    let second: wire::DeltaDiscoveryResponse = call.hear().await.unwrap();
    call.say(&wire::DeltaDiscoveryRequest {
        type_url: second.type_url.clone(),
        response_nonce: second.nonce.clone(),
        ..Default::default()
    });
    let change = server.cache(|cache, _| cache.last_change());
    let complete = || {
        server.cache(|cache, _| {
            let receipt = cache.receipts().of(change).unwrap();
            receipt.deliveries.len() == 1 && receipt.is_complete()
        })
    };
    while !complete() {
        tokio::task::yield_now().await;
    }
    let sessions = server.sessions();
    assert_eq!((sessions.len(), &*sessions[0].node), (1, "friend"));
    assert_eq!(sessions[0].protocol, Protocol::Delta);
    drop(call);
    while !server.sessions().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn state_of_the_world_is_spoken_too() {
    let server = Server::new(Arc::new(Friends));
    put(&server, Kind::Cluster, "a", "1");
    let mut call = Call::begin(&server, &format!("{SERVICE}/StreamAggregatedResources")).await;
    call.say(&wire::DiscoveryRequest {
        node: node("friend"),
        type_url: Kind::Cluster.type_url().to_owned(),
        ..Default::default()
    });
    let first: wire::DiscoveryResponse = call.hear().await.unwrap();
    assert_eq!(first.resources.len(), 1);
    put(&server, Kind::Cluster, "b", "1");
    let second: wire::DiscoveryResponse = call.hear().await.unwrap();
    assert_eq!(second.resources.len(), 2);
}

#[tokio::test]
async fn unauthorized_clients_are_rejected() {
    let server = Server::new(Arc::new(Friends));
    let path = format!("{SERVICE}/DeltaAggregatedResources");
    for (id, status) in [("outsider", "7"), ("", "3")] {
        let mut call = Call::begin(&server, &path).await;
        call.say(&wire::DeltaDiscoveryRequest {
            node: node(id),
            ..delta(&["a"])
        });
        let outcome = call.hear::<wire::DeltaDiscoveryResponse>().await;
        assert_eq!(outcome.unwrap_err(), status, "{id}");
    }
    let mut call = Call::begin(&server, "/unknown.Service/Method").await;
    let outcome = call.hear::<wire::DeltaDiscoveryResponse>().await;
    assert_eq!(outcome.unwrap_err(), "12");
    let mut call = Call::begin(&server, &path).await;
    call.requests
        .send(Bytes::from_static(&[1, 0, 0, 0, 0]))
        .unwrap();
    let outcome = call.hear::<wire::DeltaDiscoveryResponse>().await;
    assert_eq!(outcome.unwrap_err(), "8", "compressed");
}

/// A client that subscribes to more and more names does not get more of the server's memory.
#[tokio::test]
async fn names_are_kept_up_to_a_limit() {
    let server = Server::new(Arc::new(Friends));
    let mut call = Call::begin(&server, &format!("{SERVICE}/DeltaAggregatedResources")).await;
    let mut said = 0;
    let outcome = loop {
        let names: Vec<String> = (said..said + 10_000)
            .map(|at| format!("name-{at}"))
            .collect();
        said += names.len();
        assert!(said < 1_000_000, "there is no limit");
        call.say(&wire::DeltaDiscoveryRequest {
            resource_names_subscribe: names,
            ..delta(&[])
        });
        if let Err(status) = call.hear::<wire::DeltaDiscoveryResponse>().await {
            break status;
        }
    };
    assert_eq!(outcome, "8");
    assert!(said > 20_000, "a wide mesh has as many: {said}");
    while !server.sessions().is_empty() {
        tokio::task::yield_now().await;
    }
}

struct Members;

impl Policy for Members {
    fn admit(&self, _: &Peer) -> Result<(), Status> {
        Err(Status::new(Code::Unauthenticated, "members only"))
    }

    fn authorize(&self, _: &Peer, _: &Node) -> Result<Scope, Status> {
        panic!("no client is accepted")
    }

    fn load_interval(&self) -> Option<std::time::Duration> {
        Some(std::time::Duration::from_secs(1))
    }
}

/// Nothing is read from, and so nothing stored for, a client without permission.
#[tokio::test]
async fn unauthorized_clients_are_rejected_before_the_first_message() {
    let server = Server::new(Arc::new(Members));
    let paths = ["DeltaAggregatedResources", "StreamAggregatedResources"];
    let paths = paths.map(|method| format!("{SERVICE}/{method}"));
    for path in paths
        .iter()
        .map(String::as_str)
        .chain([maglor_xds::load::PATH])
    {
        let mut call = Call::begin(&server, path).await;
        let outcome = call.hear::<wire::DeltaDiscoveryResponse>().await;
        assert_eq!(outcome.unwrap_err(), "16", "{path}");
    }
}

#[tokio::test]
async fn a_server_that_closes_sends_its_clients_away() {
    let server = Server::new(Arc::new(Friends));
    let mut call = Call::begin(&server, &format!("{SERVICE}/DeltaAggregatedResources")).await;
    call.say(&delta(&["a"]));
    call.hear::<wire::DeltaDiscoveryResponse>().await.unwrap();
    server.close();
    let outcome = call.hear::<wire::DeltaDiscoveryResponse>().await;
    assert_eq!(outcome.unwrap_err(), "14");
}

#[tokio::test]
async fn a_key_is_certified() {
    let server = Server::new(Arc::new(Friends));
    let (near, far) = tokio::io::duplex(64 << 10);
    let peer = Peer {
        address: "127.0.0.1:1".parse().unwrap(),
        identity: None,
    };
    tokio::spawn(server.serve(far, peer));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = CertifyRequest {
        certificate_signing_request: Bytes::from_static(b"csr"),
        token: "token".to_owned(),
    };
    let body = StreamBody::new(futures(frame(&request)));
    let request = Request::post("http://ads/maglor.identity.v1.Identity/Certify")
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let whole = response.into_body().collect().await.unwrap();
    assert_eq!(whole.trailers().unwrap()["grpc-status"], "0");
    let mut deframer = Deframer::new(1000);
    deframer.put(&whole.to_bytes());
    let response = CertifyResponse::decode(deframer.message().unwrap().unwrap()).unwrap();
    assert_eq!(response.chain, [Bytes::from_static(b"csr")]);
}

/// One message as a stream.
fn futures(message: Bytes) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> {
    futures_util::stream::iter([Ok(Frame::data(message))])
}
