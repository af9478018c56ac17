//! The story of a request, from its record.

use std::sync::Weak;
use std::time::Duration;

use http::StatusCode;
use maglor_balance::guard::GrpcStatus;
use maglor_config::Origination;
use maglor_identity::SpiffeId;
use maglor_telemetry::story::{
    Attempt, Candidate, ClusterState, EndpointState, Request, Route, Rule, Story, Times,
};
use tokio::time::Instant;

use crate::protocol::response_flag::ResponseFlag;
use crate::telemetry::record::{
    self, Attempted, EndpointAddresses, Entry, Notes, direction_name, millis, timestamp,
};

/// Length of the longest texts of clients in a story.
const LONGEST: usize = 512;
/// Maximum number of attempts in a story.
const MOST_ATTEMPTS: usize = 16;

/// When and how a request ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: StatusCode,
    pub(crate) flag: ResponseFlag,
    pub(crate) response_bytes: u64,
    pub(crate) started: Instant,
    /// When the first byte of the response arrived,
    pub(crate) begun: Option<Instant>,
    /// and the last one.
    pub(crate) received: Option<Instant>,
    /// When its head was ready for the client.
    pub(crate) responded: Option<Instant>,
    pub(crate) ended: Instant,
    /// The time between beginning and end.
    pub(crate) took: Duration,
}

/// Returns the story of a finished request that began at `started`.
pub(super) fn of(entry: &Entry<'_>, notes: &Notes, started: Instant) -> Story {
    let unusual = notes.unusual();
    let endpoints = unusual.endpoints.as_ref().and_then(Weak::upgrade);
    let attempts = unusual.attempts.iter().enumerate().take(MOST_ATTEMPTS);
    Story {
        id: text(entry.request_id.unwrap_or_default()),
        time: timestamp().to_string(),
        listener: entry.listener.to_owned(),
        direction: direction_name(entry.direction).to_owned(),
        client: entry.client.to_string(),
        peer: entry.peer.map(SpiffeId::to_string),
        request: Some(Request {
            method: entry.method.to_string(),
            target: text(entry.target),
            host: entry.host.map(text),
            status: entry.status.as_u16(),
            response_bytes: entry.response_bytes,
        }),
        flag: entry.flag.as_str().to_owned(),
        reason: None,
        error: entry.error.map(|error| text(error.as_bytes())),
        route: entry.route.map(|route| Route {
            virtual_host: route.host.to_string(),
            name: route.name.to_string(),
            path: route.path.clone(),
        }),
        rule: unusual.rule.as_ref().map(|rule| Rule {
            field: rule.field.to_owned(),
            name: rule.name.clone(),
        }),
        cluster: unusual.rejected_by.as_deref().map(cluster_state),
        attempts: attempts
            .map(|(at, attempted)| {
                let answered = unusual
                    .answering
                    .is_some_and(|answering| answering.position() == at);
                Attempt {
                    answered,
                    ..attempt(attempted, started, unusual.queued, endpoints.as_deref())
                }
            })
            .collect(),
        times: Times::default(),
        trace_id: entry.trace_id.map(|id| id.to_string()),
        proxy: None,
    }
}

/// Returns where the time went. A forwarded request that failed without an attempt was in a queue.
pub(super) fn times(
    notes: &Notes,
    ended: &Ended,
    (uploaded, is_forwarded): (Option<Instant>, bool),
) -> Times {
    let since = |instant: Instant| millis(instant.saturating_duration_since(ended.started));
    let between = |from: Option<Instant>, to: Instant| {
        from.map(|from| millis(to.saturating_duration_since(from)))
    };
    let total = ended.took;
    let unusual = notes.unusual();
    let queued =
        match unusual.attempts.is_empty() && is_forwarded && ended.flag != ResponseFlag::None {
            true => total.saturating_sub(unusual.delayed),
            false => unusual.queued,
        };
    // A response that the proxy creates has no endpoint.
    let answering = unusual.answering();
    let has_head = answering.is_some_and(|attempt| attempt.status.is_some());
    let begun = ended.begun.filter(|_| has_head);
    let received = ended.received.unwrap_or(ended.ended);
    Times {
        total_ms: millis(total),
        queued_ms: millis(queued),
        fault_ms: millis(unusual.delayed),
        upload_ms: uploaded.map(since),
        first_byte_ms: begun.map(since),
        body_ms: between(begun, received),
        client_ms: between(ended.received, ended.ended),
    }
}

fn attempt(
    attempted: &Attempted,
    started: Instant,
    queued: Duration,
    endpoints: Option<&dyn EndpointAddresses>,
) -> Attempt {
    let millis_between = |from: Instant, to: Instant| millis(to.saturating_duration_since(from));
    let now = Instant::now();
    let ended = attempted.ended.unwrap_or(now);
    // The clock of the first attempt is that of the request's arrival.
    let waited = match attempted.started == started {
        true => queued,
        false => Duration::ZERO,
    };
    let began = attempted.started + waited;
    let opening = &attempted.opening;
    let outcome = match attempted {
        Attempted { bounced: true, .. } => "bounced",
        Attempted { error: Some(_), .. } => "error",
        Attempted {
            status: Some(_), ..
        } => "status",
        _ => "cancelled",
    };
    Attempt {
        number: attempted.number,
        cluster: attempted.cluster.name.to_string(),
        policy: attempted.cluster.policy.name().to_owned(),
        endpoint: attempted.address.to_string(),
        tls: attempted.cluster.tls.as_ref().map(|tls| {
            let kind = match tls {
                Origination::Mesh(_) => "mesh",
                Origination::Names(_) => "names",
            };
            kind.to_owned()
        }),
        in_flight: attempted.queue,
        candidates: candidates(attempted, endpoints),
        candidates_total: attempted.candidates.total().max(1),
        began_ms: millis_between(started, began),
        took_ms: millis_between(began, ended),
        room_ms: opening
            .wanted()
            .map(|wanted| millis_between(wanted, opening.begun().unwrap_or(ended))),
        connect_ms: opening
            .begun()
            .map(|begun| millis_between(begun, opening.ended().unwrap_or(ended))),
        connected: opening.wanted().map(|_| opening.ended().is_some()),
        status: attempted.status.map(|status| status.as_u16()),
        grpc_status: attempted
            .grpc
            .map(|status| GrpcStatus::name(status).to_owned()),
        outcome: outcome.to_owned(),
        flag: attempted.error.map(|flag| flag.as_str().to_owned()),
        error: attempted
            .message
            .as_deref()
            .map(|message| text(message.as_bytes())),
        retry_refused: attempted.retry_refused.map(str::to_owned),
        answered: false,
    }
}

fn candidates(attempted: &Attempted, endpoints: Option<&dyn EndpointAddresses>) -> Vec<Candidate> {
    let name = |id: u32| Some(endpoints?.address_of(id)?.to_string());
    let each = attempted.candidates.each().enumerate();
    each.map(|(at, (id, in_flight))| match at {
        // Counted with this request.
        0 => Candidate {
            endpoint: attempted.address.to_string(),
            in_flight: in_flight.saturating_sub(1),
        },
        _ => Candidate {
            endpoint: name(id).unwrap_or_else(|| "removed since".to_owned()),
            in_flight,
        },
    })
    .collect()
}

fn cluster_state(state: &record::ClusterState) -> ClusterState {
    ClusterState {
        name: state.name.to_string(),
        requests: state.requests,
        max_requests: state.max_requests,
        waiting: state.waiting,
        max_pending_requests: state.max_pending,
        connections: state.connections,
        max_connections: state.max_connections,
        circuit_breaker: state.breaker.map(str::to_owned),
        endpoints: state.total,
        usable: state.usable,
        each: state
            .endpoints
            .iter()
            .map(|one| EndpointState {
                endpoint: one.address.to_string(),
                in_flight: one.in_flight,
                healthy: one.healthy,
                ejected: one.ejected,
                draining: one.draining,
            })
            .collect(),
    }
}

fn text(bytes: &[u8]) -> String {
    let short = bytes.get(..LONGEST).unwrap_or(bytes);
    String::from_utf8_lossy(short).into_owned()
}
