//! Which part of a slow request took longest.

use super::kind::{Cause, CauseKind};
use super::spent::{Part, Spent, spent};
use super::words::{count, list, part};
use super::{Attempt, Story};

/// Explains a request that was slow.
pub(super) fn explain(story: &Story) -> Cause {
    let total = story.times.total_ms;
    let longest = spent(story)
        .into_iter()
        .max_by(|a, b| a.ms.total_cmp(&b.ms));
    let Some(Spent { part: on, ms }) = longest else {
        let sentence = format!("slow: {} in the proxy", part(total, total));
        return Cause::new(CauseKind::Other, sentence);
    };
    let were = format!("slow: {} were spent", part(ms, total));
    let answer = story.answer();
    let endpoint = answer.map_or("the endpoint", |attempt| &attempt.endpoint);
    let cluster = answer.map_or("-", |attempt| &attempt.cluster);
    let (kind, sentence) = match on {
        Part::Fault => (
            CauseKind::FaultInjected,
            format!("{were} in a delay that the route injects"),
        ),
        Part::Queue => (
            CauseKind::QueueWait,
            format!("{were} in the queue of cluster `{cluster}`"),
        ),
        Part::Upload => (
            CauseKind::SlowUpload,
            format!("{were} waiting for the client to send the request's body"),
        ),
        Part::FailedAttempts => (
            CauseKind::RetryStorm,
            format!(
                "{were} in {} before the one that answered: {}",
                count(earlier(story).count() as u64, "failed attempt"),
                list(&earlier(story).map(outcome).collect::<Vec<_>>()),
            ),
        ),
        Part::ConnectionLimit => (
            CauseKind::ConnectionLimit,
            format!("{were} waiting for the limit of connections of cluster `{cluster}`"),
        ),
        Part::Connect => (
            CauseKind::SlowConnect,
            format!("{were} connecting to {endpoint}"),
        ),
        Part::Body => (
            CauseKind::SlowBody,
            format!("{were} waiting for the rest of the body from {endpoint}"),
        ),
        Part::Client => (
            CauseKind::SlowClient,
            format!("{were} waiting for the client to read the response"),
        ),
        Part::Endpoint => {
            let queue = answer.map(queue).unwrap_or_default();
            (
                CauseKind::SlowEndpoint,
                format!("{were} waiting for the first byte from {endpoint}{queue}"),
            )
        }
    };
    Cause::new(kind, sentence)
}

fn earlier(story: &Story) -> impl Iterator<Item = &Attempt> {
    story.attempts.iter().filter(|attempt| !attempt.answered)
}

/// Describes the end of an attempt: `503 from 10.0.0.1:80`.
pub(super) fn outcome(attempt: &Attempt) -> String {
    let end = match (&attempt.error, attempt.status, &*attempt.outcome) {
        (_, _, "bounced") => "returned unread".to_owned(),
        (Some(error), _, _) => error.clone(),
        (None, Some(status), _) => status.to_string(),
        (None, None, _) => "cancelled".to_owned(),
    };
    format!("{} ({end})", attempt.endpoint)
}

/// Describes the queues that a policy saw: `, which had 14 requests in flight; the other candidates had 2 and 3`.
pub(super) fn queue(attempt: &Attempt) -> String {
    let own = count(attempt.in_flight, "other request");
    let others = attempt.candidates.iter().skip(1);
    let others: Vec<_> = others.map(|one| one.in_flight.to_string()).collect();
    let more = attempt.candidates_total as usize;
    let more = match more.saturating_sub(attempt.candidates.len()) {
        0 => String::new(),
        more => format!(" ({more} more are not shown)"),
    };
    match others.len() {
        0 => format!(", which had {own} in flight and was the only endpoint"),
        1 => format!(
            ", which had {own} in flight; the other candidate had {}",
            others[0]
        ),
        _ => format!(
            ", which had {own} in flight; the other candidates had {}{more}",
            list(&others)
        ),
    }
}
