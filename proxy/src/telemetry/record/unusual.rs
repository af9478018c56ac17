//! What most requests have not: attempts that a reader keeps, delays, and errors.

use std::sync::{Arc, Weak};
use std::time::Duration;

use maglor_balance::guard::GrpcStatus;

use super::attempt::{AttemptIndex, Attempted, Begun, Candidates, EndpointAddresses, Opening};
use super::cluster_state::ClusterState;

/// The rule that has decided about a request.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Field of the configuration: `authorization`, `rate_limit` or `fault`.
    pub(crate) field: &'static str,
    pub(crate) name: String,
}

/// The notes of a request that most requests have not. In an allocation of its own, so that a record is small while its
/// request waits.
#[derive(Debug)]
pub(crate) struct Unusual {
    pub(crate) rule: Option<Rule>,
    /// How long the request has waited for admission to its cluster, or for an endpoint with room.
    pub(crate) queued: Duration,
    /// How long a fault delayed the request.
    pub(crate) delayed: Duration,
    /// Where the request was sent; the last one is not necessarily the one that answered.
    pub(crate) attempts: Vec<Attempted>,
    /// Index of the attempt whose result is the request's.
    pub(crate) answering: Option<AttemptIndex>,
    /// The cluster of the attempts, by which candidates are named. It may go before the request ends.
    pub(crate) endpoints: Option<Weak<dyn EndpointAddresses>>,
    /// The state of the cluster when it rejected the request.
    pub(crate) rejected_by: Option<Box<ClusterState>>,
    /// Message of the request's error.
    pub(crate) error: Option<String>,
    /// Which of several reasons of the response flag is the request's.
    pub(crate) reason: Option<&'static str>,
    /// Status with which the proxy itself answers a gRPC call.
    pub(crate) own_status: Option<GrpcStatus>,
    /// Why the attempt that is noted next is not followed by another.
    retry_refused: Option<&'static str>,
}

impl Unusual {
    /// The notes of a request that has none of them.
    pub(super) const NONE: Self = Self {
        rule: None,
        queued: Duration::ZERO,
        delayed: Duration::ZERO,
        attempts: Vec::new(),
        answering: None,
        endpoints: None,
        rejected_by: None,
        error: None,
        reason: None,
        own_status: None,
        retry_refused: None,
    };

    /// Returns the attempt whose result is the request's.
    pub(crate) fn answering(&self) -> Option<&Attempted> {
        self.attempts.get(self.answering?.position())
    }

    /// Adds an attempt; returns its index.
    pub(super) fn begin_attempt(
        &mut self,
        begun: Begun<'_>,
        candidates: Candidates,
        opening: Opening,
    ) -> AttemptIndex {
        let index = AttemptIndex::new(self.attempts.len());
        if self.attempts.is_empty() {
            // Most requests have one.
            self.attempts.reserve_exact(1);
        }
        self.attempts.push(Attempted {
            span: begun.span,
            cluster: Arc::clone(begun.cluster),
            address: begun.address.clone(),
            queue: begun.queue,
            number: begun.number,
            started: begun.started,
            ended: None,
            status: None,
            grpc: None,
            error: None,
            message: None,
            bounced: false,
            retry_refused: self.retry_refused.take(),
            opening,
            candidates,
        });
        index
    }

    /// Notes why the latest attempt is not followed by another.
    pub(super) fn refuse_retry(&mut self, reason: &'static str) {
        match self.attempts.last_mut() {
            Some(last) if last.ended.is_none() => last.retry_refused = Some(reason),
            // It is noted when it ends.
            _ => self.retry_refused = Some(reason),
        }
    }
}
