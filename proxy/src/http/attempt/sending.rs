//! Sends a request to one endpoint.
//!
//! What a waiting request needs is held here or by the caller, and lent to the futures below, which reserve space for
//! whatever they are given.

use std::pin::Pin;
use std::rc::Rc;

use tokio::time::{Sleep, sleep};

use super::accounting::Attempt;
use super::body::counted;
use crate::http::connection::Hop;
use crate::http::deadline::Deadline;
use crate::http::upload::Upload;
use crate::mesh::load_feedback::queue_protocol::QueueResponse;
use crate::protocol::error::ProxyError;
use crate::protocol::message::{Message, Response};

/// One sending of a request, to the endpoint of an attempt.
pub(super) struct Sending<'a> {
    pub(super) hop: &'a Hop<'a>,
    /// Deadline of the attempt; `None` if it has none of its own.
    pub(super) limit: Option<Box<Deadline>>,
    /// The upload of a body that waits for permission; `None` if none does.
    pub(super) held: Option<Rc<Upload>>,
}

impl Sending<'_> {
    /// Sends the request, and notes in the attempt how it was answered.
    ///
    /// # Errors
    /// If the endpoint cannot be reached, does not answer within `limit`, or breaks off.
    pub(super) fn send(
        self,
        message: &mut Message,
        attempt: &mut Attempt,
    ) -> impl Future<Output = Result<Response, ProxyError>> {
        async move {
            if let Some(delay) = self.delay(attempt) {
                delay.await;
            }
            let cluster = attempt.cluster();
            let shard = self.hop.service.worker.shard();
            message.body = counted(message.body.take(), cluster, shard);
            let started = attempt.started();
            let mut sender = self.hop.sender(cluster, attempt.target(), started);
            sender.noted = attempt.noted();
            if let Some(held) = &self.held {
                sender.interim = Some(&**held);
            }
            let sent = sender.send(message);
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
                attempt.answered(&response, message.request.is_grpc());
            }
            Ok(response)
        }
    }

    /// Returns the delay that stands for the distance to the cluster; `None` if there is none.
    fn delay(&self, attempt: &Attempt) -> Option<Pin<Box<Sleep>>> {
        let distance = attempt.cluster().config().delay.as_ref()?;
        let worker = &self.hop.service.worker;
        let delay = worker.with_rng(|rng| distance.draw(rng));
        Some(Box::pin(sleep(delay)))
    }
}
