//! Sends a request to one endpoint.
//!
//! What a waiting request needs is held here and lent to the futures below, which reserve space for whatever they are given.

use std::rc::Rc;

use tokio::time::Instant;

use super::accounting::Attempt;
use super::body::counted;
use crate::http::connection::Hop;
use crate::http::deadline::Deadline;
use crate::http::upload::Upload;
use crate::mesh::load_feedback::queue_protocol::QueueResponse;
use crate::protocol::error::ProxyError;
use crate::protocol::message::{Body, Request, Response};

/// One sending of a request, to the endpoint of an attempt.
pub(super) struct Sending<'a> {
    pub(super) hop: &'a Hop<'a>,
    pub(super) now: Instant,
    /// Deadline of the attempt; `None` if it has none of its own.
    pub(super) limit: Option<Box<Deadline>>,
    /// The upload of a body that waits for permission; `None` if none does.
    pub(super) held: Option<Rc<Upload>>,
    pub(super) body: Body,
}

impl Sending<'_> {
    /// Sends the request, and notes in the attempt how it was answered.
    ///
    /// # Errors
    /// If the endpoint cannot be reached, does not answer within `limit`, or breaks off.
    pub(super) async fn send(
        &mut self,
        request: &Request,
        attempt: &mut Attempt,
    ) -> Result<Response, ProxyError> {
        let worker = &self.hop.service.worker;
        let cluster = attempt.cluster();
        if let Some(distance) = &cluster.config().delay {
            let delay = worker.with_rng(|rng| distance.draw(rng));
            Box::pin(tokio::time::sleep(delay)).await;
        }
        self.body = counted(self.body.take(), cluster, worker.shard());
        let mut sender = self.hop.sender(cluster, attempt.target(), self.now);
        sender.noted = attempt.noted();
        if let Some(held) = &self.held {
            sender.interim = Some(&**held);
        }
        let sent = sender.send(request, &mut self.body);
        let response = match &self.limit {
            None => sent.await?,
            // Rarely used futures are boxed: every request's future reserves space for those that it holds inline.
            Some(limit) => {
                let sent = Box::pin(limit.wait(sent)).await;
                sent.unwrap_or(Err(ProxyError::PerTryTimeout))?
            }
        };
        // An endpoint that rejects because it is busy has not failed.
        let bounced = attempt.cluster().queue_protocol().is_some()
            && matches!(
                QueueResponse::of(&response.fields),
                Some(QueueResponse::Refused(_))
            );
        if !bounced {
            attempt.answered(&response, request.is_grpc());
        }
        Ok(response)
    }
}
