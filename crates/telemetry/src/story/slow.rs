//! Which part of a slow request took longest.

use super::kind::{Cause, CauseKind};
use super::words::{count, list, part};
use super::{Attempt, Story};

/// A part of a request's time.
struct Part {
    kind: CauseKind,
    ms: f64,
}

/// Explains a request that was slow.
pub(super) fn explain(story: &Story) -> Cause {
    let total = story.times.total_ms;
    let longest = parts(story)
        .into_iter()
        .max_by(|a, b| a.ms.total_cmp(&b.ms));
    let Some(Part { kind, ms }) = longest.filter(|part| part.ms > 0.0) else {
        let sentence = format!("slow: {} in the proxy", part(total, total));
        return Cause::new(CauseKind::Other, sentence);
    };
    let spent = format!("slow: {} were spent", part(ms, total));
    let answer = story.answer();
    let endpoint = answer.map_or("the endpoint", |attempt| &attempt.endpoint);
    let cluster = answer.map_or("-", |attempt| &attempt.cluster);
    let sentence = match kind {
        CauseKind::FaultInjected => format!("{spent} in a delay that the route injects"),
        CauseKind::QueueWait => format!("{spent} in the queue of cluster `{cluster}`"),
        CauseKind::SlowUpload => {
            format!("{spent} waiting for the client to send the request's body")
        }
        CauseKind::RetryStorm => format!(
            "{spent} in {} before the one that answered: {}",
            count(earlier(story).count() as u64, "failed attempt"),
            list(&earlier(story).map(outcome).collect::<Vec<_>>()),
        ),
        CauseKind::ConnectionLimit => {
            format!("{spent} waiting for the limit of connections of cluster `{cluster}`")
        }
        CauseKind::SlowConnect => format!("{spent} connecting to {endpoint}"),
        CauseKind::SlowBody => format!("{spent} waiting for the rest of the body from {endpoint}"),
        CauseKind::SlowClient => {
            format!("{spent} waiting for the client to read the response")
        }
        _ => {
            let queue = answer.map(queue).unwrap_or_default();
            format!("{spent} waiting for the first byte from {endpoint}{queue}")
        }
    };
    Cause::new(kind, sentence)
}

/// Returns how long each part took.
fn parts(story: &Story) -> Vec<Part> {
    let times = &story.times;
    let mut parts = vec![
        (CauseKind::FaultInjected, times.fault_ms),
        (CauseKind::QueueWait, times.queued_ms),
        (CauseKind::SlowBody, times.body_ms.unwrap_or_default()),
        (CauseKind::SlowClient, times.client_ms.unwrap_or_default()),
    ];
    if let Some(answer) = story.answer() {
        let first = story.attempts.first().unwrap_or(answer);
        let head = times.first_byte_ms.unwrap_or(times.total_ms);
        let room = answer.room_ms.unwrap_or_default();
        let connect = answer.connect_ms.unwrap_or_default();
        let waited = (head - answer.began_ms - room - connect).max(0.0);
        // While the client is still sending, the endpoint cannot answer.
        let upload = times.upload_ms.unwrap_or_default() - answer.began_ms;
        let upload = upload.clamp(0.0, waited);
        parts.extend([
            (CauseKind::RetryStorm, answer.began_ms - first.began_ms),
            (CauseKind::ConnectionLimit, room),
            (CauseKind::SlowConnect, connect),
            (CauseKind::SlowUpload, upload),
            (CauseKind::SlowEndpoint, waited - upload),
        ]);
    }
    let parts = parts.into_iter();
    parts.map(|(kind, ms)| Part { kind, ms }).collect()
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
