//! The cause of a failed or slow request, from its story.

use super::kind::{Cause, CauseKind};
use super::slow::{self, outcome, queue};
use super::words::{count, duration, list};
use super::{Attempt, ClusterState, Story};

/// Explains a story.
#[must_use]
pub fn explain(story: &Story) -> Cause {
    if story.request.is_none() {
        return refused_connection(story);
    }
    match &*story.flag {
        "-" if story.is_slow_only() => slow::explain(story),
        "RBAC" => denied(story),
        "RL" => rate_limited(story),
        "FI" => Cause::new(
            CauseKind::FaultInjected,
            format!(
                "fault injected: {} aborts requests with status {}",
                route(story),
                status(story)
            ),
        ),
        "NR" => no_route(story),
        "UO" => overflow(story),
        "UH" => no_endpoint(story),
        "DC" => client_gone(story),
        // The same for every attempt: retries are not its cause.
        "UF" if failed_attempts(story).all(|one| one.flag.as_deref() == Some("UF")) => {
            no_connection(story)
        }
        _ if failed_attempts(story).count() > 1 || is_refused_by_budget(story) => storm(story),
        "UF" => no_connection(story),
        "UC" | "UR" | "UPE" => reset(story),
        "UT" | "SI" => timeout(story),
        "-" => endpoint_error(story),
        _ => Cause::new(
            CauseKind::Other,
            format!("refused with status {}: {}", status(story), error(story)),
        ),
    }
}

fn status(story: &Story) -> u16 {
    story.request.as_ref().map_or(0, |request| request.status)
}

fn error(story: &Story) -> &str {
    story.error.as_deref().unwrap_or("unknown error")
}

fn route(story: &Story) -> String {
    match &story.route {
        Some(route) => format!("route `{}`", route.name),
        None => format!("listener `{}`", story.listener),
    }
}

fn client(story: &Story) -> String {
    match &story.peer {
        Some(peer) => peer.clone(),
        None => format!("{} (without an identity)", story.client),
    }
}

fn denied(story: &Story) -> Cause {
    let by = match &story.rule {
        Some(rule) if rule.name != "default" => format!("rule `{}`", rule.name),
        _ => "the default: no rule allows it".to_owned(),
    };
    let what = match &story.request {
        Some(request) => format!("{} {}", request.method, request.target),
        None => "the connection".to_owned(),
    };
    let sentence = format!(
        "denied by authorization of listener `{}`, {by}: {what} from {}",
        story.listener,
        client(story)
    );
    Cause::new(CauseKind::AuthorizationDenied, sentence)
}

fn rate_limited(story: &Story) -> Cause {
    let limit = match &story.rule {
        Some(rule) => rule.name.clone(),
        None => route(story),
    };
    let sentence = format!("rate limited: the limit of {limit} was exceeded");
    Cause::new(CauseKind::RateLimited, sentence)
}

fn no_route(story: &Story) -> Cause {
    let request = story.request.clone().unwrap_or_default();
    let sentence = match request.method.as_str() {
        "CONNECT" => format!("no route: {}", error(story)),
        _ => format!(
            "no route: listener `{}` has none for host `{}` and path `{}`",
            story.listener,
            request.host.as_deref().unwrap_or_default(),
            request.target
        ),
    };
    Cause::new(CauseKind::NoRoute, sentence)
}

fn overflow(story: &Story) -> Cause {
    let state = story.cluster.clone().unwrap_or_default();
    let name = &state.name;
    let load = load(&state);
    match story.reason.as_deref() {
        Some("breaker-open") => Cause::new(
            CauseKind::CircuitBreaker,
            format!(
                "the circuit breaker of cluster `{name}` was open, because too many of its last requests failed"
            ),
        ),
        Some("queue-timeout") => Cause::new(
            CauseKind::QueueWait,
            format!(
                "queue timeout: {} in the queue of cluster `{name}`; {load}",
                duration(story.times.total_ms)
            ),
        ),
        Some("endpoints-full") => Cause::new(
            CauseKind::QueueFull,
            format!("every endpoint of cluster `{name}` was at its limit of requests; {load}"),
        ),
        _ => Cause::new(
            CauseKind::QueueFull,
            format!("the queue of cluster `{name}` was full; {load}"),
        ),
    }
}

fn load(state: &ClusterState) -> String {
    let of = |limit: Option<u32>| limit.map_or_else(String::new, |limit| format!(" of {limit}"));
    format!(
        "{}{} requests in progress, {} of {} waiting",
        state.requests,
        of(state.max_requests),
        state.waiting,
        state.max_pending_requests
    )
}

fn no_endpoint(story: &Story) -> Cause {
    let Some(state) = &story.cluster else {
        let sentence = format!("no healthy endpoint: {}", error(story));
        return Cause::new(CauseKind::NoHealthyEndpoint, sentence);
    };
    let endpoints = count(state.endpoints as u64, "endpoint");
    let number =
        |of: fn(&super::EndpointState) -> bool| state.each.iter().filter(|one| of(one)).count();
    let states = [
        (number(|one| !one.healthy), "unhealthy"),
        (number(|one| one.ejected), "ejected"),
        (number(|one| one.draining), "draining"),
    ];
    let states: Vec<_> = states
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, state)| format!("{number} {state}"))
        .collect();
    let states = match states.is_empty() {
        true => String::new(),
        false => format!(": {}", list(&states)),
    };
    let sentence = format!(
        "no healthy endpoint: cluster `{}` has {endpoints}, {} usable{states}",
        state.name, state.usable
    );
    Cause::new(CauseKind::NoHealthyEndpoint, sentence)
}

fn client_gone(story: &Story) -> Cause {
    let total = duration(story.times.total_ms);
    let doing = match (story.times.first_byte_ms, story.answer()) {
        (Some(_), _) => "while it received the response".to_owned(),
        (None, Some(attempt)) => format!(
            "while the proxy waited for {}{}",
            attempt.endpoint,
            queue(attempt)
        ),
        (None, None) => "before the request was sent to an endpoint".to_owned(),
    };
    let sentence = format!("the client left after {total}, {doing}");
    Cause::new(CauseKind::ClientGone, sentence)
}

fn failed_attempts(story: &Story) -> impl Iterator<Item = &Attempt> {
    story.attempts.iter().filter(|attempt| {
        attempt.outcome != "bounced"
            && attempt.outcome != "cancelled"
            && (attempt.flag.is_some() || attempt.status.is_none_or(|status| status >= 500))
    })
}

fn is_refused_by_budget(story: &Story) -> bool {
    let mut reasons = story
        .attempts
        .iter()
        .filter_map(|one| one.retry_refused.as_deref());
    reasons.any(|reason| reason == "budget")
}

fn storm(story: &Story) -> Cause {
    let failed = failed_attempts(story).count() as u64;
    let outcomes = grouped(failed_attempts(story).map(outcome));
    let mut refused = story
        .attempts
        .iter()
        .filter_map(|one| one.retry_refused.as_deref());
    let end = match refused.next_back() {
        Some("budget") => "the retry budget was exhausted".to_owned(),
        Some("attempts") => "all attempts were used up".to_owned(),
        Some(reason) => format!("no further retry: {reason}"),
        None => "no time was left for another".to_owned(),
    };
    let sentence = format!(
        "retries did not help: {} failed, {}; {end}",
        count(failed, "attempt"),
        list(&outcomes)
    );
    Cause::new(CauseKind::RetryStorm, sentence)
}

/// Counts equal outcomes that follow each other.
fn grouped(outcomes: impl Iterator<Item = String>) -> Vec<String> {
    let mut groups: Vec<(usize, String)> = Vec::new();
    for outcome in outcomes {
        match groups.last_mut() {
            Some((count, last)) if *last == outcome => *count += 1,
            _ => groups.push((1, outcome)),
        }
    }
    let text = |(count, outcome)| match count {
        1 => outcome,
        _ => format!("{count} × {outcome}"),
    };
    groups.into_iter().map(text).collect()
}

/// Parts of messages of errors before the handshake.
const BEFORE_TLS: [&str; 4] = ["os error", "timeout", "timed out", "removed before"];
/// Parts of messages of handshakes that the peer ends: with TLS 1.3 a client learns of it later.
const ALERTS: [&str; 3] = ["alert", "certificate", "handshake"];

/// Returns the cause of a failed handshake with an endpoint.
fn handshake(story: &Story) -> Option<Cause> {
    let answer = story.answer()?;
    let tls = answer.tls.as_deref()?;
    let error = error(story);
    let has = |parts: &[&str]| parts.iter().any(|part| error.contains(part));
    let failed = match &*story.flag {
        "UF" => !has(&BEFORE_TLS),
        _ => has(&ALERTS),
    };
    let (kind, what) = match tls {
        "mesh" => (CauseKind::MtlsRefusal, "mTLS"),
        _ => (CauseKind::TlsFailure, "the TLS handshake"),
    };
    let not = not_retried(story);
    let sentence = format!("{what} with {} failed: {error}{not}", answer.endpoint);
    failed.then(|| Cause::new(kind, sentence))
}

fn no_connection(story: &Story) -> Cause {
    if let Some(cause) = handshake(story) {
        return cause;
    }
    let endpoint = story.answer().map_or("the endpoint", |one| &one.endpoint);
    let sentence = format!(
        "no connection to {endpoint}: {}{}",
        error(story),
        not_retried(story)
    );
    Cause::new(CauseKind::ConnectFailure, sentence)
}

/// Says why a failed request was not retried.
fn not_retried(story: &Story) -> String {
    let reason = story.answer().and_then(|one| one.retry_refused.as_deref());
    match (failed_attempts(story).count(), reason) {
        (0 | 1, None) => String::new(),
        (0 | 1, Some(reason)) => format!("; not retried: {reason}"),
        (attempts, _) => format!("; all of {attempts} attempts failed so"),
    }
}

fn reset(story: &Story) -> Cause {
    if let Some(cause) = handshake(story) {
        return cause;
    }
    let endpoint = story.answer().map_or("the endpoint", |one| &one.endpoint);
    let after = duration(story.times.total_ms);
    let sentence = format!(
        "{endpoint} failed after {after}: {}{}",
        error(story),
        not_retried(story)
    );
    Cause::new(CauseKind::UpstreamReset, sentence)
}

fn timeout(story: &Story) -> Cause {
    let total = duration(story.times.total_ms);
    let doing = match story.answer() {
        None if story.times.queued_ms > 0.0 => "in the queue of the cluster".to_owned(),
        None if story.times.fault_ms > 0.0 => "in the delay of an injected fault".to_owned(),
        None => "before the request was sent to an endpoint".to_owned(),
        Some(attempt) if attempt.connected == Some(false) && attempt.connect_ms.is_some() => {
            format!("connecting to {}", attempt.endpoint)
        }
        Some(attempt) if attempt.connected == Some(false) => {
            format!(
                "waiting for the limit of connections of cluster `{}`",
                attempt.cluster
            )
        }
        Some(attempt) if story.times.first_byte_ms.is_some() => {
            format!("waiting for the rest of the body from {}", attempt.endpoint)
        }
        Some(attempt) => format!(
            "waiting for the first byte from {}{}",
            attempt.endpoint,
            queue(attempt)
        ),
    };
    let error = error(story);
    Cause::new(
        CauseKind::Timeout,
        format!("{error} after {total}, {doing}"),
    )
}

fn endpoint_error(story: &Story) -> Cause {
    let Some(answer) = story.answer() else {
        let sentence = format!("{} responds with status {}", route(story), status(story));
        return Cause::new(CauseKind::Other, sentence);
    };
    let status = match &answer.grpc_status {
        Some(name) => format!("gRPC status {name}"),
        None => format!("status {}", status(story)),
    };
    let after = duration(answer.took_ms);
    let sentence = format!(
        "{} itself answered with {status} after {after}{}",
        answer.endpoint,
        not_retried(story)
    );
    Cause::new(CauseKind::EndpointError, sentence)
}

fn refused_connection(story: &Story) -> Cause {
    let listener = &story.listener;
    let error = error(story);
    match &*story.flag {
        "denied" => denied(story),
        "mtls" => Cause::new(
            CauseKind::MtlsRefusal,
            format!(
                "mTLS refused: {} at listener `{listener}`: {error}",
                client(story)
            ),
        ),
        "tls" => Cause::new(
            CauseKind::TlsFailure,
            format!(
                "TLS handshake failed: {} at listener `{listener}`: {error}",
                story.client
            ),
        ),
        _ => Cause::new(
            CauseKind::Other,
            format!(
                "connection of {} to listener `{listener}` closed: {error}",
                story.client
            ),
        ),
    }
}

#[cfg(test)]
mod tests;
