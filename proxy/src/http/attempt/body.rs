//! The body of a request for its attempts: it is sent once or several times, kept within the memory budget, and
//! counted for the cluster.
//!
//! A body of known length is counted as a whole when it is sent. Only a body of unknown length is counted while
//! it is transferred.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::HeaderMap;
use http_body::Body as _;

use super::replay::Replay;
use crate::protocol::error::ProxyError;
use crate::protocol::message::{Account, Body};
use crate::runtime::shared::Shared;
use crate::upstream::Cluster;

/// Memory reserved for a kept body until this is dropped.
pub(super) struct Reserved {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Reserved {
    /// Reserves memory for the part of a body that will be kept; `None` if the body is empty or the budget is
    /// exhausted.
    pub(super) fn new(body: &Body, limit: usize, shared: &Arc<Shared>) -> Option<Self> {
        if body.is_empty() {
            return None;
        }
        let length = body
            .size_hint()
            .exact()
            .and_then(|n| usize::try_from(n).ok());
        let bytes = length.map_or(limit, |length| length.min(limit));
        shared.memory.keep(bytes).then(|| Self {
            shared: Arc::clone(shared),
            bytes,
        })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.shared.memory.release(self.bytes);
    }
}

/// The extent to which the request's body can still be sent.
pub(super) enum Payload {
    Empty,
    /// Can be sent by one attempt only.
    Once,
    /// Can be sent by any number of attempts.
    Replay(Replay),
    Gone,
}

impl Payload {
    /// Takes over a body that is `kept`, up to a limit.
    pub(super) fn new(body: &mut Body, kept: bool, limit: usize) -> Self {
        if body.is_empty() {
            Self::Empty
        } else if kept {
            Self::Replay(Replay::new(body.take(), limit))
        } else {
            Self::Once
        }
    }

    /// Makes the body of the request that of another attempt.
    pub(super) fn restore(&mut self, body: &mut Body) {
        match self {
            Self::Empty => {}
            Self::Gone => *body = Body::empty(),
            Self::Replay(replay) => *body = replay.body(),
            Self::Once => *self = Self::Gone,
        }
    }

    pub(super) fn replay(&self) -> Option<&Replay> {
        match self {
            Self::Replay(replay) => Some(replay),
            Self::Empty | Self::Once | Self::Gone => None,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Empty | Self::Once => true,
            Self::Replay(replay) => replay.is_whole(),
            Self::Gone => false,
        }
    }

    /// Returns whether the body could be sent again, regardless of the outcome of this attempt.
    pub(super) fn is_resendable(&self, limit: u64) -> bool {
        match self {
            Self::Empty => true,
            Self::Once | Self::Gone => false,
            Self::Replay(replay) => {
                replay.is_whole() && replay.length().is_some_and(|length| length <= limit)
            }
        }
    }
}

/// Wraps the body of an attempt to count its bytes for the cluster.
pub(super) fn counted(body: Body, cluster: &Arc<Cluster>, shard: usize) -> Body {
    match body.size_hint().exact() {
        Some(0) => body,
        Some(length) => {
            cluster.metrics().sent(shard, length);
            body
        }
        None => {
            let cluster = Arc::clone(cluster);
            body.with_account(Box::new(Watched { cluster, shard }))
        }
    }
}

#[derive(Debug)]
struct Watched {
    cluster: Arc<Cluster>,
    shard: usize,
}

impl Account for Watched {
    fn count(&mut self, bytes: u64) {
        self.cluster.metrics().sent(self.shard, bytes);
    }

    fn sent(&mut self, _: u64) {}

    fn trailers(&mut self, _: &HeaderMap) {}

    fn received(&mut self) {}

    fn complete(&mut self) {}

    fn fail(&mut self, _: &ProxyError) {}

    fn poll_timeout(&mut self, _: &mut Context<'_>) -> Poll<ProxyError> {
        // Timeouts are handled by the request's own accounting.
        Poll::Pending
    }
}
