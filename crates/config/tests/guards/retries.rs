//! `retry`, `retry_budget` and `limits.max_retries`: which requests are retried, when, and how often.

use std::sync::Arc;
use std::time::Duration;

use maglor_balance::Rng;
use maglor_balance::guard::retry::{
    Answer, Attempts, Context, Decision, Failure, Outcome, Request, RetryPolicy,
};
use maglor_balance::guard::retry_budget::Budget;
use maglor_config::{Filter, RouteAction};

use crate::{at, cluster, config};

fn policy(settings: &str) -> RetryPolicy {
    let config = config("", &format!("retry: {{{settings}}}"), "");
    let Filter::Http(http) = &config.listeners[0].filter_chains[0].filter else {
        panic!("the chain is HTTP");
    };
    let RouteAction::Forward(forward) = &http.routes.virtual_hosts[0].routes[0].action else {
        panic!("the route forwards");
    };
    forward.retry.policy.clone()
}

/// The pause before another try after such an outcome; `None`: there is none.
fn retried(policy: &RetryPolicy, outcome: &Outcome, idempotent: bool) -> Option<Duration> {
    let budget = Arc::new(Budget::new(cluster("").retry_budget));
    let context = Context {
        policy,
        request: Request {
            idempotent,
            attempt: 1,
            deadline: None,
        },
        budget: &budget,
        active: 1,
        replayable: true,
        elsewhere: false,
        now: at(1),
    };
    match Attempts::new().after(outcome, &context, &mut Rng::seed(1)) {
        Decision::Retry { after, .. } => Some(after),
        Decision::GiveUp(_) => None,
    }
}

#[test]
fn outcomes_are_retried_as_configured() {
    let answer = |status| Outcome::Answer(Answer::status(status));
    let codes = policy("retry_on: retriable-status-codes, retriable_status_codes: [409]");
    assert!(retried(&codes, &answer(409), true).is_some());
    assert!(retried(&codes, &answer(410), true).is_none());
    // Whether an application has seen it is unknown.
    let reset = Outcome::Failure(Failure::Reset);
    let once = policy("retry_on: reset");
    assert!(retried(&once, &reset, true).is_some() && retried(&once, &reset, false).is_none());
    let again = policy("retry_on: reset, non_idempotent: true");
    assert!(retried(&again, &reset, false).is_some());
    let off = policy("retry_on: reset, attempts: 0");
    assert!(retried(&off, &reset, true).is_none());
    let busy = Outcome::Answer(Answer {
        retry_after: Some(Duration::from_secs(3)),
        ..Answer::status(503)
    });
    let patient = policy("retry_on: 5xx");
    assert!(retried(&patient, &busy, true) >= Some(Duration::from_secs(3)));
    let impatient = policy("retry_on: 5xx, max_retry_after: 2s");
    assert!(retried(&impatient, &busy, true).is_none());
}

#[test]
fn pauses_grow_from_the_base_to_the_longest() {
    let ceilings = |settings: &str| {
        let back_off = policy(&format!("back_off: {{{settings}}}")).back_off;
        [1, 2, 9].map(|number| back_off.ceiling(number).as_millis())
    };
    assert_eq!(ceilings("base_interval: 40ms"), [40, 80, 400]);
    assert_eq!(
        ceilings("base_interval: 40ms, max_interval: 60ms"),
        [40, 60, 60]
    );
}

/// Retries that are granted together after this many requests; `held`: all are in progress together.
fn granted(settings: &str, requests: u32, held: bool) -> usize {
    let budget = Arc::new(Budget::new(cluster(settings).retry_budget));
    (0..requests).for_each(|_| budget.request(at(1)));
    let mut permits = Vec::new();
    let retry = |_: &u32| {
        let permit = budget.retry(0, Duration::ZERO, at(1));
        let granted = permit.is_some();
        permits.extend(permit.filter(|_| held));
        granted
    };
    (0..2000).filter(retry).count()
}

#[test]
fn a_budget_grants_as_many_retries_as_configured() {
    // Of 1000 requests within the interval.
    let percent = |percent: u32| {
        let settings = format!("retry_budget: {{min_per_second: 0, percent: {percent}}}");
        granted(&settings, 1000, false)
    };
    assert_eq!([percent(10), percent(50)], [100, 500]);
    // However few there are: a second's, for each second of the interval.
    for (settings, expected) in [
        ("min_per_second: 1", 10),
        ("min_per_second: 5", 50),
        ("min_per_second: 5, interval: 2s", 10),
    ] {
        let settings = format!("retry_budget: {{percent: 1, {settings}}}");
        assert_eq!(granted(&settings, 0, false), expected, "{settings}");
    }
    // 0 % alone allows none; with one minimum, that number is granted.
    for (settings, expected) in [
        ("percent: 0", 0),
        ("percent: 0, min_concurrency: 0", 0),
        ("percent: 0, min_per_second: 5", 50),
        ("percent: 0, min_concurrency: 1", 30),
        ("percent: 0, min_concurrency: 1, min_per_second: 1", 10),
    ] {
        let settings = format!("retry_budget: {{{settings}}}");
        assert_eq!(granted(&settings, 0, false), expected, "{settings}");
    }
    for (settings, expected) in [
        ("retry_budget: {min_concurrency: 1, min_per_second: 100}", 1),
        ("retry_budget: {min_concurrency: 7, min_per_second: 100}", 7),
        (
            "retry_budget: {min_concurrency: 7, min_per_second: 100}, limits: {max_retries: 2}",
            2,
        ),
    ] {
        assert_eq!(granted(settings, 0, true), expected, "{settings}");
    }
}
