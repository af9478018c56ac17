//! The explanation of one request, for people: the cause in a sentence, then what each proxy has kept.

use maglor_telemetry::story::{Attempt, ClusterState, Explained, Story, duration};
use serde::Serialize;

use super::super::served::short;
use super::super::table::{Column, Format, Row, or_dash, text as table};

/// Formats an explanation. The first line is the cause.
pub(super) fn text(explained: &Explained, format: Format) -> String {
    let mut text = format!("{}\n", explained.sentence);
    for story in explained.stories.iter().map(|one| &one.story) {
        text.push('\n');
        text.push_str(&head(story));
        for (name, value) in facts(story) {
            text.push_str(&format!("  {name:<9}  {value}\n"));
        }
        let attempts: Vec<_> = story.attempts.iter().map(AttemptRow).collect();
        if !attempts.is_empty() {
            for line in table(&attempts, format).lines() {
                text.push_str(&format!("  {line}\n"));
            }
        }
    }
    text
}

/// Formats the first line of a proxy: `cart-0 (inbound): GET shop/cart → 503 UO, 230 ms`.
fn head(story: &Story) -> String {
    let proxy = story.proxy.as_deref().unwrap_or("proxy");
    let direction = match story.direction.as_str() {
        "inbound" | "outbound" => format!(" ({})", story.direction),
        _ => String::new(),
    };
    let flag = match story.flag.as_str() {
        "-" => String::new(),
        flag => format!(" {flag}"),
    };
    match &story.request {
        None => format!("{proxy}{direction}: connection of {}{flag}\n", story.client),
        Some(request) => format!(
            "{proxy}{direction}: {} {}{} → {}{flag}, {}\n",
            request.method,
            short(request.host.as_deref().unwrap_or_default()),
            request.target,
            request.status,
            duration(story.times.total_ms)
        ),
    }
}

fn facts(story: &Story) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("time", story.time.clone()),
        ("listener", story.listener.clone()),
        (
            "client",
            match &story.peer {
                Some(peer) => format!("{} {peer}", story.client),
                None => story.client.clone(),
            },
        ),
    ];
    if let Some(route) = &story.route {
        let host = &route.virtual_host;
        facts.push(("route", format!("{} ({host} {})", route.name, route.path)));
    }
    if let Some(rule) = &story.rule {
        facts.push(("rule", format!("{}: {}", rule.field, rule.name)));
    }
    if let Some(error) = &story.error {
        facts.push(("error", error.clone()));
    }
    if let Some(state) = &story.cluster {
        facts.push(("cluster", cluster(state)));
    }
    if let Some(first) = story.attempts.first() {
        facts.push((
            "policy",
            format!("{} of cluster {}", first.policy, first.cluster),
        ));
    }
    if story.request.is_some() {
        facts.push(("time went", times(story)));
    }
    facts
}

fn cluster(state: &ClusterState) -> String {
    let of = |limit: Option<u32>| limit.map_or_else(String::new, |limit| format!(" of {limit}"));
    let breaker = state.circuit_breaker.as_deref();
    let breaker = breaker.map_or_else(String::new, |phase| format!(", circuit breaker {phase}"));
    format!(
        "{}: {} of {} endpoints usable, {}{} requests in progress, {} of {} waiting{breaker}",
        state.name,
        state.usable,
        state.endpoints,
        state.requests,
        of(state.max_requests),
        state.waiting,
        state.max_pending_requests
    )
}

fn times(story: &Story) -> String {
    let times = &story.times;
    let answer = story.answer();
    let room = answer.and_then(|attempt| attempt.room_ms);
    let connect = answer.and_then(|attempt| attempt.connect_ms);
    let parts = [
        ("fault", Some(times.fault_ms).filter(|ms| *ms > 0.0)),
        ("queue", Some(times.queued_ms)),
        ("connection limit", room.filter(|ms| *ms >= 0.1)),
        ("connect", connect),
        ("request body after", times.upload_ms),
        ("first byte after", times.first_byte_ms),
        ("body", times.body_ms),
        ("client", times.client_ms),
    ];
    let parts = parts.into_iter();
    let parts: Vec<_> = parts
        .filter_map(|(name, ms)| Some(format!("{name} {}", duration(ms?))))
        .collect();
    parts.join(", ")
}

/// An attempt in a table.
#[derive(Serialize)]
struct AttemptRow<'a>(&'a Attempt);

impl Row for AttemptRow<'_> {
    const COLUMNS: &'static [Column] = &[
        Column::number("ATTEMPT"),
        Column::text("ENDPOINT"),
        Column::number("IN FLIGHT"),
        Column::text("OTHERS HAD"),
        Column::number("BEGAN"),
        Column::text("CONNECTION"),
        Column::number("TOOK"),
        Column::text("END"),
        Column::text("NOT RETRIED"),
        Column::text("CANDIDATES").wide(),
    ];

    fn cells(&self) -> Vec<String> {
        let Self(attempt) = self;
        let others = attempt.candidates.iter().skip(1);
        let others: Vec<_> = others.map(|one| one.in_flight.to_string()).collect();
        let all = attempt.candidates.iter();
        let all: Vec<_> = all
            .map(|one| format!("{} {}", one.endpoint, one.in_flight))
            .collect();
        vec![
            attempt.number.to_string(),
            attempt.endpoint.clone(),
            attempt.in_flight.to_string(),
            or_dash((!others.is_empty()).then(|| others.join(" "))),
            duration(attempt.began_ms),
            match (attempt.connected, attempt.connect_ms) {
                (None, _) => "reused".to_owned(),
                (Some(true), Some(ms)) => format!("new, {}", duration(ms)),
                (Some(_), _) => "not opened".to_owned(),
            },
            duration(attempt.took_ms),
            end(attempt),
            or_dash(attempt.retry_refused.as_deref()),
            all.join(", "),
        ]
    }
}

fn end(attempt: &Attempt) -> String {
    let call = attempt.grpc_status.as_deref();
    let call = call.map_or_else(String::new, |status| format!(" {status}"));
    match (&*attempt.outcome, attempt.status, &attempt.flag) {
        ("bounced", ..) => "bounced: the endpoint was busy".to_owned(),
        (_, _, Some(flag)) => {
            let error = attempt.error.as_deref().unwrap_or_default();
            format!("{flag} {error}")
        }
        (_, Some(status), None) => format!("{status}{call}"),
        (_, None, None) => "cancelled: another was faster, or the client left".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use maglor_telemetry::story::{Candidate, Request, Route, StoryDetails, Times};

    use super::*;

    #[test]
    fn an_explanation_begins_with_its_cause() {
        let story = Story {
            proxy: Some("web-0".into()),
            time: "2026-11-27T01:02:03.004Z".into(),
            listener: "outbound".into(),
            direction: "outbound".into(),
            client: "127.0.0.1:4000".into(),
            flag: "UC".into(),
            request: Some(Request {
                method: "GET".into(),
                target: "/api".into(),
                host: Some("cart.shop.svc.cluster.local".into()),
                status: 502,
                ..Request::default()
            }),
            route: Some(Route {
                virtual_host: "cart".into(),
                name: "cart/0".into(),
                path: "/*".into(),
            }),
            attempts: vec![Attempt {
                number: 1,
                cluster: "cart".into(),
                policy: "lor".into(),
                endpoint: "10.0.0.7:80".into(),
                in_flight: 14,
                candidates: [("10.0.0.7:80", 14), ("10.0.0.8:80", 2)]
                    .map(|(endpoint, in_flight)| Candidate {
                        endpoint: endpoint.into(),
                        in_flight,
                    })
                    .into(),
                took_ms: 230.0,
                flag: Some("UC".into()),
                error: Some("closed".into()),
                outcome: "error".into(),
                ..Attempt::default()
            }],
            times: Times {
                total_ms: 230.0,
                ..Times::default()
            },
            ..Story::default()
        };
        let explained = Explained {
            cause: "upstream-reset",
            sentence: "10.0.0.7:80 failed".to_owned(),
            stories: vec![StoryDetails {
                spent: Vec::new(),
                story,
            }],
        };
        let text = text(&explained, Format::Table);
        assert_eq!(
            text,
            "10.0.0.7:80 failed\n\
             \n\
             web-0 (outbound): GET cart.shop/api → 502 UC, 230 ms\n\
             \x20 time       2026-11-27T01:02:03.004Z\n\
             \x20 listener   outbound\n\
             \x20 client     127.0.0.1:4000\n\
             \x20 route      cart/0 (cart /*)\n\
             \x20 policy     lor of cluster cart\n\
             \x20 time went  queue 0.0 ms\n\
             \x20 ATTEMPT  ENDPOINT     IN FLIGHT  OTHERS HAD   BEGAN  CONNECTION    TOOK  END        NOT RETRIED\n\
             \x20       1  10.0.0.7:80         14  2           0.0 ms  reused      230 ms  UC closed  -\n"
        );
    }
}
