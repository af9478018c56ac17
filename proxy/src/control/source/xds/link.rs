//! One stream to the control plane: sends and receives messages until it ends.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use maglor_balance::{Rng, Time};
use maglor_xds::frame::Deframer;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::AbortHandle;

use super::load::{self, Reporter};
use super::outgoing::Outgoing;
use crate::protocol::message::Body;
use crate::upstream::Cluster;
use crate::upstream::grpc::{Answer, CallError, Connection, refusal};

const PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// Maximum size of a received message in bytes.
const LONGEST: usize = 16 << 20;

/// A stream to the control plane. Dropping this ends the stream.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) requests: UnboundedSender<Bytes>,
    events: UnboundedReceiver<Event>,
    task: AbortHandle,
}

/// An event of a stream.
#[derive(Debug)]
pub(super) enum Event {
    /// The connection to the server is open.
    Open,
    /// The server has begun to respond.
    Accepted,
    /// The server has sent a message.
    Message(Bytes),
    /// The stream has ended for this reason.
    Ended(CallError),
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    /// Opens a stream to one of the cluster's servers.
    pub(super) fn begin(
        cluster: Arc<Cluster>,
        reporter: Rc<RefCell<Reporter>>,
        now: Time,
        rng: &mut Rng,
    ) -> Self {
        let (requests, outgoing) = mpsc::unbounded_channel();
        let (sender, events) = mpsc::unbounded_channel();
        let picked = cluster.pick(now, None, &[], rng);
        let task = tokio::task::spawn_local(async move {
            let outcome = match picked {
                Ok(picked) => {
                    serve_channel(&cluster, &picked.target, &reporter, outgoing, &sender).await
                }
                Err(_) => Err(CallError::NoServer),
            };
            let ended = outcome.err();
            let ended = ended.unwrap_or_else(|| CallError::Refused("the end of the stream".into()));
            // The event has no reader if the link was dropped.
            let _ = sender.send(Event::Ended(ended));
        });
        Self {
            requests,
            events,
            task: task.abort_handle(),
        }
    }

    /// Waits for the next event.
    pub(super) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Returns the next event if one has already arrived.
    pub(super) fn try_next(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }
}

async fn serve_channel(
    cluster: &Cluster,
    target: &crate::upstream::Target,
    reporter: &RefCell<Reporter>,
    outgoing: UnboundedReceiver<Bytes>,
    events: &UnboundedSender<Event>,
) -> Result<(), CallError> {
    let connection = Connection::open(cluster, target).await?;
    let _ = events.send(Event::Open);
    // A server may send the response head together with its first message, so requests are sent without waiting for
    // the head.
    let outgoing = Body::source(Box::new(Outgoing(outgoing)));
    let body = connection.call(PATH, outgoing).await?;
    let _ = events.send(Event::Accepted);
    tokio::select! {
        outcome = listen(body, events) => outcome,
        never = load::send_reports(connection, reporter) => match never {},
    }
}

async fn listen(mut body: Answer, events: &UnboundedSender<Event>) -> Result<(), CallError> {
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
                let refused = trailers.as_ref().and_then(refusal);
                return Err(refused.unwrap_or_else(|| CallError::Refused("nothing".into())));
            }
        }
    }
    Ok(())
}
