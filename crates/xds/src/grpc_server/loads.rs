//! A stream of load reports (LRS): the client sends its identity, gets the report interval, and reports.

use std::sync::Arc;

use crate::Message as _;
use crate::frame::frame;
use crate::load::{self, LoadReport, Wish};
use crate::proto::envoy::service::load_stats::v3::LoadStatsRequest;
use bytes::Bytes;
use hyper::body::Incoming;
use tokio::sync::mpsc::{self, Sender};
use tokio::sync::watch;

use crate::grpc_server::body::{Answer, Part};
use crate::grpc_server::state::{State, closed};
use crate::grpc_server::stream::Requests;
use crate::grpc_server::{Code, Node, Peer, Status};

/// Starts the task of a load report stream. The call fails unless the operator has enabled load reports.
pub(crate) fn open(server: Arc<State>, peer: Peer, body: Incoming) -> Answer {
    let Some(interval) = server.policy.load_interval() else {
        let status = Status::new(Code::Unimplemented, "load reports are disabled");
        return Answer::Once(Some(Err(status)));
    };
    let wish = Wish {
        interval,
        clusters: None,
    };
    let (parts, receiver) = mpsc::channel(1);
    let requests = Requests::new(body);
    tokio::spawn(run(server, peer, requests, wish, parts));
    Answer::Stream(receiver)
}

async fn run(
    server: Arc<State>,
    peer: Peer,
    mut requests: Requests,
    wish: Wish,
    parts: Sender<Part>,
) {
    if let Err(status) = serve_channel(&server, &peer, &mut requests, wish, &parts).await {
        // If the client has gone, the status has no receiver.
        let _ = parts.send(Err(status)).await;
    }
}

async fn serve_channel(
    server: &State,
    peer: &Peer,
    requests: &mut Requests,
    mut wish: Wish,
    parts: &Sender<Part>,
) -> Result<(), Status> {
    let Some(message) = requests.next().await? else {
        return Ok(());
    };
    let mut request = decode(message)?;
    let node: Option<Node> = request.node.take().filter(|node| !node.id.is_empty());
    let node =
        node.ok_or_else(|| Status::new(Code::InvalidArgument, "the first request has no node.id"))?;
    // A peer that may request resources may also report.
    server.policy.authorize(peer, &node)?;
    let omits = load::omits_empty(&node);
    let _open = omits.then(|| server.policy.omits_empty_loads(peer, &node));
    let mut changes = server.policy.load_interval_changes();
    if parts.send(Ok(frame(&wish.response()))).await.is_err() {
        return Ok(());
    }
    let mut closing = server.closing();
    loop {
        tokio::select! {
            message = requests.next() => match message? {
                Some(message) => {
                    let report = LoadReport::read(&decode(message)?);
                    server.policy.load(peer, &node, &report)?;
                }
                None => return Ok(()),
            },
            () = changed(&mut changes) => {
                let interval = server.policy.load_interval().unwrap_or(wish.interval);
                let differs = interval != std::mem::replace(&mut wish.interval, interval);
                if differs && parts.send(Ok(frame(&wish.response()))).await.is_err() {
                    return Ok(());
                }
            }
            () = parts.closed() => return Ok(()),
            () = closed(&mut closing) => {
                return Err(Status::new(Code::Unavailable, "the server is shutting down"));
            }
        }
    }
}

/// Waits for a change; for ever if there is none.
async fn changed(changes: &mut Option<watch::Receiver<()>>) {
    if let Some(receiver) = changes
        && receiver.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

fn decode(message: Bytes) -> Result<LoadStatsRequest, Status> {
    LoadStatsRequest::decode(message)
        .map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))
}
