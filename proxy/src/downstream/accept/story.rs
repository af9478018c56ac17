//! Stories of connections that were closed before they had a request.

use maglor_config::Listener;
use maglor_identity::SpiffeId;
use maglor_telemetry::story::Story;
use tokio::time::Instant;

use crate::net::client_address::ClientAddress;
use crate::runtime::worker::Worker;
use crate::telemetry::record::{direction_name, timestamp};

/// A connection that was closed.
pub(super) struct Closed<'a> {
    pub(super) listener: &'a Listener,
    pub(super) client: ClientAddress,
    pub(super) peer: Option<&'a SpiffeId>,
}

/// Keeps the story of a connection.
#[cold]
pub(super) fn keep(closed: &Closed<'_>, reason: &'static str, error: &str, worker: &Worker) {
    let stories = &worker.shared().observers.stories;
    let now = worker.time(Instant::now());
    if !stories.is_on() || !stories.permits(true, now) {
        return;
    }
    let story = Story {
        id: stories.next_id(),
        time: timestamp().to_string(),
        listener: closed.listener.name.to_string(),
        direction: direction_name(closed.listener.direction).to_owned(),
        client: closed.client.to_string(),
        peer: closed.peer.map(SpiffeId::to_string),
        flag: reason.to_owned(),
        error: Some(error.to_owned()),
        ..Story::default()
    };
    stories.keep(&story, now);
}
