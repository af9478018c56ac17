use super::super::{Candidate, EndpointState, Request, Route, Rule, Times};
use super::*;

fn story(flag: &str, status: u16) -> Story {
    Story {
        id: "r-1".into(),
        listener: "web".into(),
        client: "10.0.0.9:4000".into(),
        flag: flag.into(),
        request: Some(Request {
            method: "GET".into(),
            target: "/cart".into(),
            host: Some("shop".into()),
            status,
            response_bytes: 0,
        }),
        route: Some(Route {
            virtual_host: "*".into(),
            name: "cart".into(),
            path: "/*".into(),
        }),
        times: Times {
            total_ms: 230.0,
            ..Times::default()
        },
        ..Story::default()
    }
}

fn attempt(number: u32) -> Attempt {
    Attempt {
        number,
        cluster: "backend".into(),
        policy: "lor".into(),
        endpoint: format!("10.0.0.{number}:80"),
        in_flight: 14,
        candidates: [14, 2, 3]
            .iter()
            .map(|&in_flight| Candidate {
                endpoint: "10.0.0.8:80".into(),
                in_flight,
            })
            .collect(),
        candidates_total: 3,
        outcome: "status".into(),
        ..Attempt::default()
    }
}

#[track_caller]
fn assert_cause(story: &Story, kind: CauseKind, sentence: &str) {
    let cause = explain(story);
    assert_eq!((cause.kind, &*cause.sentence), (kind, sentence));
}

fn answered(took: f64) -> Story {
    let mut story = story("-", 200);
    story.attempts = vec![Attempt {
        answered: true,
        status: Some(200),
        took_ms: took,
        ..attempt(7)
    }];
    story.times.first_byte_ms = Some(took);
    story
}

#[test]
fn a_slow_endpoint_is_named_with_the_queues_that_the_policy_saw() {
    assert_cause(
        &answered(212.0),
        CauseKind::SlowEndpoint,
        "slow: 212 of 230 ms were spent waiting for the first byte from 10.0.0.7:80, which had 14 other requests \
         in flight; the other candidates had 2 and 3",
    );
}

#[test]
fn the_longest_part_of_a_slow_request_is_its_cause() {
    let mut one = answered(10.0);
    one.times.body_ms = Some(215.0);
    assert_cause(
        &one,
        CauseKind::SlowBody,
        "slow: 215 of 230 ms were spent waiting for the rest of the body from 10.0.0.7:80",
    );
    one.times.client_ms = Some(216.0);
    assert_eq!(explain(&one).kind, CauseKind::SlowClient);
    one.times.queued_ms = 217.0;
    assert_cause(
        &one,
        CauseKind::QueueWait,
        "slow: 217 of 230 ms were spent in the queue of cluster `backend`",
    );
    one.times.fault_ms = 218.0;
    assert_eq!(explain(&one).kind, CauseKind::FaultInjected);
    let mut one = answered(220.0);
    one.attempts[0].connect_ms = Some(200.0);
    assert_eq!(explain(&one).kind, CauseKind::SlowConnect);
    one.attempts[0].connect_ms = None;
    one.attempts[0].room_ms = Some(200.0);
    assert_eq!(explain(&one).kind, CauseKind::ConnectionLimit);
    one.attempts[0].room_ms = None;
    one.times.upload_ms = Some(219.0);
    assert_eq!(explain(&one).kind, CauseKind::SlowUpload);
    one.times.upload_ms = None;
    one.attempts[0].began_ms = 190.0;
    one.attempts.insert(
        0,
        Attempt {
            status: Some(503),
            ..attempt(1)
        },
    );
    assert_cause(
        &one,
        CauseKind::RetryStorm,
        "slow: 190 of 230 ms were spent in 1 failed attempt before the one that answered: 10.0.0.1:80 (503)",
    );
}

#[test]
fn used_up_retries_are_a_storm() {
    let mut one = story("-", 503);
    one.attempts = (1..4)
        .map(|number| Attempt {
            status: Some(503),
            answered: number == 3,
            retry_refused: (number == 3).then(|| "attempts".to_owned()),
            ..attempt(number)
        })
        .collect();
    assert_cause(
        &one,
        CauseKind::RetryStorm,
        "retries did not help: 3 attempts failed, 10.0.0.1:80 (503), 10.0.0.2:80 (503) and 10.0.0.3:80 (503); \
         all attempts were used up",
    );
    one.attempts.truncate(1);
    one.attempts[0].retry_refused = Some("budget".into());
    assert_cause(
        &one,
        CauseKind::RetryStorm,
        "retries did not help: 1 attempt failed, 10.0.0.1:80 (503); the retry budget was exhausted",
    );
}

#[test]
fn guards_of_the_cluster_are_distinguished() {
    let mut one = story("UO", 503);
    one.cluster = Some(ClusterState {
        name: "backend".into(),
        requests: 10,
        max_requests: Some(10),
        waiting: 5,
        max_pending_requests: 5,
        ..ClusterState::default()
    });
    for (reason, kind) in [
        ("breaker-open", CauseKind::CircuitBreaker),
        ("queue-timeout", CauseKind::QueueWait),
        ("endpoints-full", CauseKind::QueueFull),
    ] {
        one.reason = Some(reason.into());
        assert_eq!(explain(&one).kind, kind);
    }
    one.reason = Some("queue-full".into());
    assert_cause(
        &one,
        CauseKind::QueueFull,
        "the queue of cluster `backend` was full; 10 of 10 requests in progress, 5 of 5 waiting",
    );
}

#[test]
fn rules_are_named() {
    let mut one = story("RL", 429);
    one.rule = Some(Rule {
        field: "rate_limit".into(),
        name: "route `cart` (5 requests per 1s)".into(),
    });
    assert_cause(
        &one,
        CauseKind::RateLimited,
        "rate limited: the limit of route `cart` (5 requests per 1s) was exceeded",
    );
    let mut one = story("RBAC", 403);
    one.rule = Some(Rule {
        field: "authorization".into(),
        name: "no-admin".into(),
    });
    assert_cause(
        &one,
        CauseKind::AuthorizationDenied,
        "denied by authorization of listener `web`, rule `no-admin`: GET /cart from 10.0.0.9:4000 (without an \
         identity)",
    );
    assert_eq!(explain(&story("FI", 418)).kind, CauseKind::FaultInjected);
    assert_cause(
        &story("NR", 404),
        CauseKind::NoRoute,
        "no route: listener `web` has none for host `shop` and path `/cart`",
    );
}

#[test]
fn endpoints_that_cannot_be_used_are_counted_by_state() {
    let mut one = story("UH", 503);
    let each = [true, false, false].map(|healthy| EndpointState {
        healthy,
        ejected: healthy,
        ..EndpointState::default()
    });
    one.cluster = Some(ClusterState {
        name: "backend".into(),
        endpoints: 3,
        each: each.into(),
        ..ClusterState::default()
    });
    assert_cause(
        &one,
        CauseKind::NoHealthyEndpoint,
        "no healthy endpoint: cluster `backend` has 3 endpoints, 0 usable: 2 unhealthy and 1 ejected",
    );
}

#[test]
fn failures_of_the_endpoint_are_distinguished() {
    let mut one = story("UF", 503);
    one.attempts = vec![Attempt {
        flag: Some("UF".into()),
        ..attempt(1)
    }];
    one.error = Some("connect failed: Connection refused".into());
    assert_eq!(explain(&one).kind, CauseKind::ConnectFailure);
    one.error = Some("connect failed: the peer's certificate is expired".into());
    one.attempts[0].tls = Some("names".into());
    assert_eq!(explain(&one).kind, CauseKind::TlsFailure);
    one.attempts[0].tls = Some("mesh".into());
    assert_eq!(explain(&one).kind, CauseKind::MtlsRefusal);
    one.error = Some("connect failed: Connection refused (os error 111)".into());
    assert_eq!(explain(&one).kind, CauseKind::ConnectFailure);
    one.flag = "UC".into();
    assert_eq!(explain(&one).kind, CauseKind::UpstreamReset);
    one.flag = "UT".into();
    one.error = Some("request timeout".into());
    assert_cause(
        &one,
        CauseKind::Timeout,
        "request timeout after 230 ms, waiting for the first byte from 10.0.0.1:80, which had 14 other requests in \
         flight; the other candidates had 2 and 3",
    );
    one.flag = "DC".into();
    assert_eq!(explain(&one).kind, CauseKind::ClientGone);
    one.flag = "-".into();
    one.attempts[0] = Attempt {
        status: Some(503),
        answered: true,
        took_ms: 3.0,
        ..attempt(1)
    };
    assert_cause(
        &one,
        CauseKind::EndpointError,
        "10.0.0.1:80 itself answered with status 503 after 3.0 ms",
    );
}

#[test]
fn connections_without_a_request_have_a_cause() {
    let mut one = Story {
        request: None,
        error: Some("peer sent no certificates".into()),
        ..story("mtls", 0)
    };
    assert_cause(
        &one,
        CauseKind::MtlsRefusal,
        "mTLS refused: 10.0.0.9:4000 (without an identity) at listener `web`: peer sent no certificates",
    );
    for (flag, kind) in [
        ("denied", CauseKind::AuthorizationDenied),
        ("tls", CauseKind::TlsFailure),
        ("no_chain", CauseKind::Other),
    ] {
        one.flag = flag.into();
        assert_eq!(explain(&one).kind, kind);
    }
}

#[test]
fn every_kind_has_a_name() {
    let mut names: Vec<_> = CauseKind::ALL.iter().map(|(kind, _)| kind.name()).collect();
    assert!(names.is_sorted());
    names.dedup();
    assert_eq!(names.len(), CauseKind::ALL.len());
}

#[test]
fn the_documentation_has_every_cause() {
    let text = include_str!("../../../../../docs/why.md");
    let (_, rest) = text.split_once("<!-- causes -->").unwrap();
    let (table, _) = rest.split_once("<!-- end -->").unwrap();
    let cells = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut documented: Vec<_> = cells.collect();
    documented.sort_unstable();
    let names: Vec<_> = CauseKind::ALL.iter().map(|(_, name)| *name).collect();
    assert_eq!(documented, names);
}

/// A story of any proxy, with any text in it, has a cause.
#[test]
fn an_empty_story_is_explained() {
    for flag in [
        "", "-", "UO", "UH", "UT", "UF", "UC", "RL", "RBAC", "FI", "DC", "NR", "DPE",
    ] {
        let mut one = story(flag, 503);
        one.route = None;
        assert!(!explain(&one).sentence.is_empty());
        one.request = None;
        assert!(!explain(&one).sentence.is_empty());
    }
}
