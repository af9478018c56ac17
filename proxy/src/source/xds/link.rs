//! One stream to the control plane: messages out, messages in, until it ends.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use maglor_balance::{Rng, Time};
use maglor_xds::frame::Deframer;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::AbortHandle;

use crate::error::ProxyError;
use crate::message::{Body, Source};
use crate::upstream::{Cluster, LocalExecutor, connect_for_control};

const PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// Bytes of a message that are taken at most.
const LONGEST: usize = 16 << 20;
/// A server that says nothing is asked so often whether it is there, and has so long to answer.
const PING: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module's documentation. The stream ends with it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) requests: UnboundedSender<Bytes>,
    events: UnboundedReceiver<Event>,
    task: AbortHandle,
}

/// What happens on a stream.
#[derive(Debug)]
pub(super) enum Event {
    /// The server can be reached.
    Open,
    /// It has sent a message.
    Message(Bytes),
    /// There will be no more; why.
    Ended(LinkError),
}

/// Why a stream has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("cannot connect in time")]
    ConnectTimeout,
    #[error("no server is usable")]
    NoServer,
    #[error("HTTP/2: {0}")]
    Http2(#[from] hyper::Error),
    #[error("it answered {0}")]
    Refused(String),
    #[error("{0}")]
    Frame(#[from] maglor_xds::frame::FrameError),
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    /// Begins a stream to one of the cluster's servers.
    pub(super) fn begin(cluster: Arc<Cluster>, now: Time, rng: &mut Rng) -> Self {
        let (requests, outgoing) = mpsc::unbounded_channel();
        let (sender, events) = mpsc::unbounded_channel();
        let picked = cluster.pick(now, None, &[], rng);
        let task = tokio::task::spawn_local(async move {
            let outcome = match picked {
                Ok(picked) => converse(&cluster, &picked.target, outgoing, &sender).await,
                Err(_) => Err(LinkError::NoServer),
            };
            let ended = outcome.err();
            let ended = ended.unwrap_or_else(|| LinkError::Refused("the end of the stream".into()));
            // Whoever has dropped the link wants to know nothing.
            let _ = sender.send(Event::Ended(ended));
        });
        Self {
            requests,
            events,
            task: task.abort_handle(),
        }
    }

    /// What happens next.
    pub(super) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// What has happened meanwhile, without waiting.
    pub(super) fn try_next(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }
}

async fn converse(
    cluster: &Cluster,
    target: &crate::upstream::Target,
    outgoing: UnboundedReceiver<Bytes>,
    events: &UnboundedSender<Event>,
) -> Result<(), LinkError> {
    let limit = cluster.config().connect_timeout;
    let io = tokio::time::timeout(limit, connect_for_control(cluster, target)).await;
    let io = io
        .map_err(|_| LinkError::ConnectTimeout)?
        .map_err(LinkError::Connect)?;
    let (mut sender, connection) = Builder::new(LocalExecutor)
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING_TIMEOUT)
        .handshake(TokioIo::new(io))
        .await?;
    // Ends with its last stream.
    tokio::task::spawn_local(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to the control plane ended");
        }
    });
    let request = Request::post(format!("http://{}{PATH}", target.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::source(Box::new(Outgoing(outgoing))));
    let request = request.map_err(|error| LinkError::Refused(error.to_string()))?;
    let _ = events.send(Event::Open);
    // Servers may answer with the first response, so nothing waits for the head.
    let response = sender.send_request(request).await?;
    if response.status() != http::StatusCode::OK {
        return Err(LinkError::Refused(response.status().to_string()));
    }
    if let Some(status) = status(response.headers()) {
        return Err(LinkError::Refused(status));
    }
    listen(response.into_body(), events).await
}

async fn listen(mut body: Incoming, events: &UnboundedSender<Event>) -> Result<(), LinkError> {
    let mut deframer = Deframer::new(LONGEST);
    while let Some(part) = body.frame().await {
        match part?.into_data() {
            Ok(data) => {
                deframer.put(&data);
                while let Some(message) = deframer.message()? {
                    let _ = events.send(Event::Message(message));
                }
            }
            Err(part) => {
                let trailers = part.into_trailers().ok();
                let status = trailers.as_ref().and_then(status);
                return Err(LinkError::Refused(
                    status.unwrap_or_else(|| "nothing".into()),
                ));
            }
        }
    }
    Ok(())
}

/// gRPC's status, where there is one that is said.
fn status(fields: &http::HeaderMap) -> Option<String> {
    let text = |name| {
        fields
            .get(name)
            .and_then(|value: &http::HeaderValue| value.to_str().ok())
    };
    let code = text("grpc-status")?;
    let message = text("grpc-message").unwrap_or_default();
    Some(format!("gRPC status {code} {message}"))
}

/// What is to be said, as a body.
#[derive(Debug)]
struct Outgoing(UnboundedReceiver<Bytes>);

impl Source for Outgoing {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        self.0
            .poll_recv(cx)
            .map(|part| part.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::default()
    }
}
