//! Decisions about retries, over random outcomes: bounds that hold for every request.

use std::sync::Arc;
use std::time::Duration;

use maglor_balance::guard::GrpcStatus;
use maglor_balance::guard::retry::{
    Answer, Attempts, Condition, Conditions, Context, Decision, FREE_RETRIES, Failure, GiveUp,
    Outcome, Pushback, Request, RetryPolicy,
};
use maglor_balance::guard::retry_budget::{Budget, BudgetParams};
use maglor_balance::{Rng, Time};
use proptest::prelude::*;

use crate::at;
use crate::support::check;

fn any_outcome() -> impl Strategy<Value = Outcome> {
    let failure = prop::sample::select(vec![
        Failure::Busy,
        Failure::Connect,
        Failure::PerTryTimeout,
        Failure::Refused,
        Failure::Reset,
        Failure::Stale,
        Failure::Unsent,
    ]);
    let pushback = prop_oneof![
        Just(Pushback::Never),
        (0_u64..10_000).prop_map(|ms| Pushback::After(Duration::from_millis(ms))),
    ];
    let answer = (
        prop::sample::select(vec![200_u16, 404, 409, 429, 500, 502, 503]),
        prop::option::of(0_u32..17),
        any::<bool>(),
        prop::bool::weighted(0.1),
        prop::option::of(0_u64..10),
        prop::option::of(pushback),
    );
    let answer = answer.prop_map(
        |(status, grpc, header, overloaded, after, pushback)| Answer {
            status,
            grpc: grpc.map(GrpcStatus::new),
            retriable_header: header,
            overloaded,
            retry_after: after.map(Duration::from_secs),
            pushback,
        },
    );
    prop_oneof![
        failure.prop_map(Outcome::Failure),
        answer.prop_map(Outcome::Answer),
    ]
}

fn any_policy() -> impl Strategy<Value = RetryPolicy> {
    let conditions = prop::sample::subsequence(Condition::ALL.to_vec(), 0..=Condition::ALL.len());
    (0_u32..6, conditions, any::<bool>()).prop_map(|(attempts, conditions, non_idempotent)| {
        RetryPolicy {
            attempts,
            conditions: Conditions::of(&conditions),
            status_codes: Box::new([429]),
            non_idempotent,
            ..RetryPolicy::default()
        }
    })
}

#[test]
fn no_request_gets_more_than_its_due() {
    let outcomes = proptest::collection::vec((any_outcome(), any::<[bool; 2]>()), 1..40);
    let request = (any::<bool>(), 1_u32..3, prop::option::of(0_u64..2000));
    let strategy = (any_policy(), request, outcomes, any::<u64>());
    check(85, &strategy, |(policy, request, outcomes, seed)| {
        let (idempotent, attempt, deadline) = request;
        let request = Request {
            idempotent,
            attempt,
            deadline: deadline.map(at),
        };
        let budget = Arc::new(Budget::new(BudgetParams::default()));
        let (mut attempts, mut rng, mut held) = (Attempts::new(), Rng::seed(seed), Vec::new());
        let (mut counted, mut free, mut now) = (0, 0, Time::ZERO);
        for (outcome, [replayable, elsewhere]) in outcomes {
            let context = Context {
                policy: &policy,
                request,
                budget: &budget,
                active: 5,
                replayable,
                elsewhere,
                now,
            };
            let unseen = matches!(outcome, Outcome::Failure(failure) if failure.is_unseen());
            match attempts.after(&outcome, &context, &mut rng) {
                Decision::GiveUp(reason) => {
                    let good = matches!(outcome, Outcome::Answer(answer)
                        if answer.status == 200 && answer.grpc.is_none() && !answer.retriable_header);
                    assert!(!good || !reason.is_suppressed(), "{reason:?}");
                    assert!(policy.attempts > 0 || reason == GiveUp::Off);
                }
                Decision::Retry { after, permit } => {
                    assert!(replayable && policy.covers(&outcome));
                    assert!(deadline.is_none_or(|end| now + after < at(end)));
                    // 250 ms of back-off, or half more than the longest `Retry-After`.
                    assert!(after <= policy.max_retry_after.mul_f64(1.5));
                    let listed = matches!(outcome, Outcome::Answer(a) if a.grpc.is_some());
                    assert!(unseen || idempotent || policy.non_idempotent || listed);
                    match permit {
                        Some(permit) => {
                            assert_eq!(attempt, 1, "the client does not retry itself");
                            held.push(permit);
                            counted += 1;
                        }
                        None => free += 1,
                    }
                    now = now + after;
                }
            }
            assert!(counted <= policy.attempts && free <= FREE_RETRIES);
            assert_eq!(attempts.count(), 1 + counted + free);
            assert_eq!(budget.in_progress() as usize, held.len());
        }
    });
}
