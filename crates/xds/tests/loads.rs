//! Clients that report their load, over a connection in memory.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use maglor_xds::Message as _;
use maglor_xds::frame::{Deframer, frame};
use maglor_xds::grpc_server::{Code, Node, Peer, Policy, Server, Status};
use maglor_xds::load::{self, ClusterLoad, LoadReport, Wish};
use maglor_xds::proto::envoy::service::load_stats::v3::LoadStatsResponse;
use maglor_xds::server::Scope;
use tokio::sync::{mpsc, watch};

const EVERY: Duration = Duration::from_secs(7);

/// Accepts all clients but `outsider`, and all reports but those of `liar`.
#[derive(Default)]
struct Curious {
    every: Option<Duration>,
    /// A later interval.
    later: Mutex<Option<Duration>>,
    changed: watch::Sender<()>,
    heard: Mutex<Vec<(String, LoadReport)>>,
}

impl Policy for Curious {
    fn authorize(&self, _: &Peer, node: &Node) -> Result<Scope, Status> {
        match node.id.as_str() {
            "outsider" => Err(Status::new(Code::PermissionDenied, "who is that?")),
            _ => Ok(Arc::new(|_, name| Some(name.into()))),
        }
    }

    fn load_interval(&self) -> Option<Duration> {
        self.later.lock().unwrap().or(self.every)
    }

    fn load_interval_changes(&self) -> Option<watch::Receiver<()>> {
        Some(self.changed.subscribe())
    }

    fn load(&self, _: &Peer, node: &Node, report: &LoadReport) -> Result<(), Status> {
        if node.id == "liar" {
            return Err(Status::new(Code::PermissionDenied, "that is not so"));
        }
        let mut heard = self.heard.lock().unwrap();
        heard.push((node.id.clone(), report.clone()));
        Ok(())
    }
}

/// The response body, and the sender for further messages.
async fn call(policy: &Arc<Curious>, node: &str) -> (mpsc::UnboundedSender<Bytes>, Incoming) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let peer = Peer {
        address: "127.0.0.1:1".parse().unwrap(),
        identity: None,
    };
    let policy: Arc<dyn Policy> = Arc::clone(policy) as _;
    tokio::spawn(Server::new(policy).serve(far, peer));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near))
            .await
            .unwrap();
    tokio::spawn(connection);
    let (say, said) = mpsc::unbounded_channel();
    let body = stream::unfold(said, |mut said| async move {
        let part: Bytes = said.recv().await?;
        Some((Ok::<_, std::io::Error>(Frame::data(part)), said))
    });
    let request = Request::post(format!("http://ads{}", load::PATH))
        .header("content-type", "application/grpc")
        .body(StreamBody::new(Box::pin(body)))
        .unwrap();
    let introduction = load::introduction(Node {
        id: node.to_owned(),
        ..Node::default()
    });
    say.send(frame(&introduction)).unwrap();
    let response = sender.send_request(request).await.unwrap();
    (say, response.into_body())
}

/// The next message, or the status that ends the call.
async fn hear(body: &mut Incoming) -> Result<Wish, String> {
    let part = body.frame().await.expect("trailers come first").unwrap();
    match part.into_data() {
        Ok(data) => {
            let mut deframer = Deframer::new(1 << 10);
            deframer.put(&data);
            let message = deframer.message().unwrap().unwrap();
            Ok(Wish::read(LoadStatsResponse::decode(message).unwrap()).unwrap())
        }
        Err(part) => {
            let trailers = part.into_trailers().unwrap();
            Err(trailers["grpc-status"].to_str().unwrap().to_owned())
        }
    }
}

fn report(requests: u64) -> LoadReport {
    LoadReport {
        interval: EVERY,
        clusters: vec![ClusterLoad {
            name: "cart".into(),
            succeeded: requests,
            timed: requests,
            seconds: 0.5,
            ..ClusterLoad::default()
        }],
        memory: None,
    }
}

#[tokio::test]
async fn a_client_gets_the_interval_and_reports() {
    let policy = Arc::new(Curious {
        every: Some(EVERY),
        ..Curious::default()
    });
    let (say, mut body) = call(&policy, "web").await;
    let wish = hear(&mut body).await.unwrap();
    assert_eq!((wish.interval, wish.clusters), (EVERY, None));
    for requests in [3, 4] {
        say.send(frame(&report(requests).request())).unwrap();
    }
    while policy.heard.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    let heard = policy.heard.lock().unwrap().clone();
    let expected = [("web".to_owned(), report(3)), ("web".to_owned(), report(4))];
    assert_eq!(heard, expected);
}

#[tokio::test]
async fn a_client_gets_another_interval_on_the_same_stream() {
    let policy = Arc::new(Curious {
        every: Some(EVERY),
        ..Curious::default()
    });
    let (say, mut body) = call(&policy, "web").await;
    assert_eq!(hear(&mut body).await.unwrap().interval, EVERY);
    // A change to the same interval is not sent.
    policy.changed.send_replace(());
    let often = Duration::from_secs(2);
    *policy.later.lock().unwrap() = Some(often);
    policy.changed.send_replace(());
    let wish = hear(&mut body).await.unwrap();
    assert_eq!((wish.interval, wish.clusters), (often, None));
    say.send(frame(&report(3).request())).unwrap();
    while policy.heard.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn unauthorized_reports_are_rejected() {
    let policy = Arc::new(Curious {
        every: Some(EVERY),
        ..Curious::default()
    });
    for (node, status) in [("outsider", "7"), ("", "3")] {
        let (_say, mut body) = call(&policy, node).await;
        assert_eq!(hear(&mut body).await.unwrap_err(), status, "{node}");
    }
    let (say, mut body) = call(&policy, "liar").await;
    assert!(hear(&mut body).await.is_ok());
    say.send(frame(&report(1).request())).unwrap();
    assert_eq!(hear(&mut body).await.unwrap_err(), "7");
    // And without a receiver.
    let (_say, mut body) = call(&Arc::default(), "web").await;
    assert_eq!(hear(&mut body).await.unwrap_err(), "12");
    assert!(policy.heard.lock().unwrap().is_empty());
}
