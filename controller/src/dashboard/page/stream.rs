//! Streams of server-sent events. A viewer that does not read gets one patch to the newest document when it reads
//! again: each stream holds at most one event.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use maglor_telemetry::admin::Busy;
use tokio::sync::mpsc;

use crate::dashboard::page::hub::{self, Hub, Stream, Topic};

/// The body of a response: all of it, or events as they come.
#[derive(Debug)]
pub(crate) enum Content {
    /// Events. The request is in progress until they end.
    Events(mpsc::Receiver<Bytes>, Option<Busy>),
    /// The whole body, once.
    Whole(Option<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Events(receiver, _) => receiver
                .poll_recv(cx)
                .map(|event| event.map(|event| Ok(Frame::data(event)))),
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Events(..) => SizeHint::default(),
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}

/// Sends a document and its patches until the viewer disconnects, or its service is gone.
pub(crate) async fn follow(
    hub: Arc<Hub>,
    topic: Topic,
    events: mpsc::Sender<Bytes>,
    stream: Stream,
) {
    let mut ticks = hub.ticks();
    let mut last = None;
    // The document is computed when the viewer can take it, not before.
    while let Ok(place) = events.reserve().await {
        let Some(document) = hub.document(&topic) else {
            break;
        };
        let event = match &last {
            None => hub::snapshot(&document),
            Some(last) => hub.patch(&topic, last, &document),
        };
        last = Some(document);
        match event.is_empty() {
            true => drop(place),
            false => place.send(event),
        }
        tokio::select! {
            changed = ticks.changed() => if changed.is_err() { break },
            () = events.closed() => break,
        }
    }
    drop(stream);
}
