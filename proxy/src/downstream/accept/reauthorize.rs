//! Reauthorizes byte connections when their listener changes.
//!
//! HTTP is authorized per request, a byte connection only when it begins. Therefore an open byte connection is
//! authorized again when its listener changes: against the listener's rules, and, for plain text, by whether the
//! listener still accepts it. A connection that would no longer be admitted has [`GRACE`] to finish; a change that is
//! reverted in the meantime has no effect.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

use crate::mesh::authorization::Facts;
use crate::net::client_address::ClientAddress;
use crate::protocol::detect::ClientHello;
use crate::protocol::proxy_protocol::Addresses;
use crate::routing::listener::{Listener, Termination};
use crate::runtime::worker::Worker;
use crate::tls::Peer;

/// How long a connection may continue after it is no longer admitted.
const GRACE: Duration = Duration::from_secs(5);

/// Facts on which the admission of a byte connection is based.
pub(super) struct GrantedBy {
    pub(super) state: watch::Receiver<Arc<Listener>>,
    pub(super) addresses: Option<Addresses>,
    /// Identity of the client; `None` if it is not a mesh member.
    pub(super) peer: Option<Box<Peer>>,
    /// Whether a proxy in front made the connection for an unknown client.
    pub(super) asserted_client: bool,
    /// Whether the connection is plain text where mesh members use TLS.
    pub(super) plain_text: bool,
}

/// Reason why a connection is not admitted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// The rules do not allow it.
    Denied,
    /// The listener accepts mesh members only.
    PlainText,
}

impl Refusal {
    /// Returns why the connection is not admitted, as a message.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Denied => "the authorization rules deny the connection",
            Self::PlainText => "plain text, where mutual TLS is required",
        }
    }
}

impl GrantedBy {
    /// Checks whether a listener admits the connection. A connection of a proxy in front is admitted only if there
    /// are no rules.
    pub(super) fn check(&self, listener: &Listener, shard: usize) -> Result<(), Refusal> {
        if self.plain_text && !self.takes_plain_text(listener) {
            return Err(Refusal::PlainText);
        }
        let facts = Facts {
            peer: self.peer.as_deref().map(|peer| &peer.id),
            client: self.client().ip(),
            port: self.addresses.map(|both| both.destination.port()),
            request: None,
        };
        match &listener.authorization {
            Some(rules) if self.asserted_client || rules.check(&facts, shard).is_err() => {
                Err(Refusal::Denied)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn client(&self) -> ClientAddress {
        ClientAddress::new(self.addresses.map(|both| both.source))
    }

    fn takes_plain_text(&self, listener: &Listener) -> bool {
        let hello = ClientHello::default();
        let chain = listener.selector.select(&hello, self.addresses);
        let chain = chain.and_then(|chain| listener.chains.get(chain));
        match chain.and_then(|chain| chain.tls.as_ref()) {
            Some(Termination::Mesh(mesh)) => mesh.takes_plain_text(),
            Some(Termination::Certificates(_)) => false,
            None => true,
        }
    }

    /// Runs the connection until it ends, or until it has been refused for [`GRACE`].
    pub(super) async fn keep(mut self, connection: impl Future<Output = ()>, worker: Rc<Worker>) {
        let shard = worker.shard();
        let mut connection = pin!(connection);
        let mut notice: Option<(Refusal, Pin<Box<Sleep>>)> = None;
        let ended = poll_fn(|cx| {
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            // A change of a listener wakes its connections. Without a sender the listener has been removed, and its
            // connections are ended elsewhere.
            if self.state.has_changed().unwrap_or(false) {
                let listener = Arc::clone(&self.state.borrow_and_update());
                notice = match (self.check(&listener, shard), notice.take()) {
                    (Ok(()), _) => None,
                    (Err(why), Some((_, sleep))) => Some((why, sleep)),
                    (Err(why), None) => Some((why, Box::pin(sleep(GRACE)))),
                };
            }
            match &mut notice {
                Some((why, sleep)) => sleep.as_mut().poll(cx).map(|()| Some(*why)),
                None => Poll::Pending,
            }
        });
        if let Some(why) = ended.await {
            self.ended(why, shard);
        }
    }

    fn ended(&self, why: Refusal, shard: usize) {
        let listener = self.state.borrow();
        let (counter, reason) = match why {
            Refusal::Denied => (
                &listener.metrics.ended_denied,
                "the changed authorization rules deny the connection",
            ),
            Refusal::PlainText => (
                &listener.metrics.ended_plain_text,
                "plain text is no longer accepted",
            ),
        };
        counter.inc(shard);
        if let Some(unsaid) = listener.ended.allow() {
            tracing::info!(
                listener = %listener.config.name,
                client = %self.client(),
                peer = self.peer.as_deref().map(|peer| peer.id.as_str()),
                reason,
                suppressed = unsaid,
                "connection closed after a policy change"
            );
        }
    }
}
