use super::*;
use crate::guard::GrpcStatus;
use crate::guard::retry_budget::BudgetParams;

const POST: Request = Request {
    idempotent: false,
    attempt: 1,
    deadline: None,
};
const GET: Request = Request {
    idempotent: true,
    ..POST
};

/// The inputs of a decision, which the tests modify.
struct Case {
    policy: RetryPolicy,
    request: Request,
    budget: Arc<Budget>,
    replayable: bool,
    elsewhere: bool,
    attempts: Attempts,
    rng: Rng,
}

impl Case {
    fn new(conditions: &[Condition], request: Request) -> Self {
        Self {
            policy: RetryPolicy {
                conditions: Conditions::of(conditions),
                ..RetryPolicy::default()
            },
            request,
            budget: Arc::new(Budget::new(BudgetParams::default())),
            replayable: true,
            elsewhere: true,
            attempts: Attempts::new(),
            rng: Rng::seed(1),
        }
    }

    fn decide(&mut self, outcome: Outcome) -> Result<(Duration, bool), GiveUp> {
        let context = Context {
            policy: &self.policy,
            request: self.request,
            budget: &self.budget,
            active: 1,
            replayable: self.replayable,
            elsewhere: self.elsewhere,
            now: Time::ZERO,
        };
        match self.attempts.after(&outcome, &context, &mut self.rng) {
            Decision::Retry { after, permit } => Ok((after, permit.is_none())),
            Decision::GiveUp(reason) => Err(reason),
        }
    }

    fn hedge(&mut self, attempts: u32) -> Result<(), GiveUp> {
        let context = Context {
            policy: &self.policy,
            request: self.request,
            budget: &self.budget,
            active: 1,
            replayable: self.replayable,
            elsewhere: self.elsewhere,
            now: Time::ZERO,
        };
        let hedge = HedgePolicy {
            delay: None,
            attempts,
        };
        self.attempts.hedge(&hedge, &context).map(drop)
    }
}

fn failed(failure: Failure) -> Outcome {
    Outcome::Failure(failure)
}

fn status(status: u16) -> Outcome {
    Outcome::Answer(Answer::status(status))
}

#[test]
fn what_is_not_wanted_is_not_retried() {
    let mut case = Case::new(&[Condition::GatewayError], GET);
    assert_eq!(case.decide(status(200)), Err(GiveUp::NotRetriable));
    assert_eq!(case.decide(status(500)), Err(GiveUp::NotRetriable));
    assert!(case.decide(status(503)).is_ok());
    case.policy = RetryPolicy::off();
    assert_eq!(case.decide(failed(Failure::Connect)), Err(GiveUp::Off));
    assert!(!GiveUp::Off.is_suppressed() && GiveUp::Budget.is_suppressed());
}

#[test]
fn the_default_is_safe_for_any_request() {
    for request in [GET, POST] {
        let mut case = Case::new(&[], request);
        case.policy = RetryPolicy::default();
        for failure in [
            Failure::Connect,
            Failure::Refused,
            Failure::Unsent,
            Failure::Busy,
        ] {
            assert_eq!(case.decide(failed(failure)), Ok((Duration::ZERO, true)));
        }
        for outcome in [failed(Failure::Reset), status(503), status(500)] {
            assert_eq!(case.decide(outcome), Err(GiveUp::NotRetriable));
        }
        let stale = case.decide(failed(Failure::Stale));
        let expected = match request.idempotent {
            true => Ok((Duration::ZERO, true)),
            false => Err(GiveUp::NotIdempotent),
        };
        assert_eq!(stale, expected);
    }
}

#[test]
fn what_was_seen_is_repeated_only_where_that_is_harmless() {
    let mut case = Case::new(&[Condition::FiveXx, Condition::Unavailable], POST);
    assert_eq!(case.decide(status(500)), Err(GiveUp::NotIdempotent));
    assert_eq!(
        case.decide(failed(Failure::Reset)),
        Err(GiveUp::NotIdempotent)
    );
    let unavailable = Outcome::Answer(Answer::grpc(GrpcStatus::UNAVAILABLE));
    assert!(case.decide(unavailable).is_ok(), "the operator listed it");
    case.policy.non_idempotent = true;
    assert!(case.decide(status(500)).is_ok());
}

#[test]
fn attempts_are_counted_and_free_ones_bounded() {
    let mut case = Case::new(&[Condition::FiveXx], GET);
    assert_eq!(case.attempts.count(), 1);
    assert!(case.decide(status(500)).is_ok());
    assert!(case.decide(status(500)).is_ok());
    assert_eq!(case.attempts.count(), 3);
    assert_eq!(case.decide(status(500)), Err(GiveUp::Attempts));
    for _ in 0..FREE_RETRIES {
        assert!(case.decide(failed(Failure::Connect)).is_ok());
    }
    assert_eq!(case.decide(failed(Failure::Connect)), Err(GiveUp::Attempts));
    assert_eq!(case.attempts.count(), 3 + FREE_RETRIES);
}

#[test]
fn free_retries_draw_on_no_budget_and_wait_only_for_the_same_endpoint() {
    let mut case = Case::new(&[Condition::FiveXx], GET);
    let nothing = BudgetParams {
        min_concurrency: 0,
        percent: crate::guard::Percent::NONE,
        ..BudgetParams::default()
    };
    case.budget = Arc::new(Budget::new(nothing));
    assert_eq!(case.decide(status(500)), Err(GiveUp::Budget));
    assert_eq!(
        case.decide(failed(Failure::Refused)),
        Ok((Duration::ZERO, true))
    );
    case.elsewhere = false;
    let (after, free) = case.decide(failed(Failure::Refused)).unwrap();
    assert!(free && !after.is_zero() && after < Duration::from_millis(50));
}

#[test]
fn a_retry_of_the_client_is_not_multiplied() {
    let mut case = Case::new(&[Condition::FiveXx], GET);
    case.request.attempt = 2;
    assert_eq!(case.decide(status(500)), Err(GiveUp::Chain));
    assert!(
        case.decide(failed(Failure::Connect)).is_ok(),
        "it adds no load"
    );
    assert_eq!(case.hedge(1), Err(GiveUp::Chain));
}

/// Returns the number of attempts at the end of a chain of hops if all attempts fail there.
fn attempts_at_the_end(hops: u32, attempt: u32) -> u32 {
    if hops == 0 {
        return 1;
    }
    let mut case = Case::new(&[Condition::FiveXx], GET);
    case.request.attempt = attempt;
    let mut total = 0;
    loop {
        total += attempts_at_the_end(hops - 1, case.attempts.announced(&case.request));
        if case.decide(status(500)).is_err() {
            return total;
        }
    }
}

#[test]
fn chains_grow_by_addition() {
    for hops in 1..6 {
        assert_eq!(attempts_at_the_end(hops, 1), 1 + 2 * hops);
    }
}

#[test]
fn bodies_and_deadlines_limit() {
    let mut case = Case::new(&[Condition::FiveXx], GET);
    case.replayable = false;
    assert_eq!(case.decide(status(500)), Err(GiveUp::Body));
    assert_eq!(case.decide(failed(Failure::Connect)), Err(GiveUp::Body));
    case.replayable = true;
    case.request.deadline = Some(Time::from_nanos(1));
    assert_eq!(case.decide(status(500)), Err(GiveUp::Deadline));
    case.request.deadline = Some(Time::from_nanos(25_000_000));
    assert!(case.decide(status(500)).is_ok());
}

#[test]
fn servers_are_listened_to() {
    let mut case = Case::new(&[Condition::FiveXx], GET);
    let answer = Answer::status(503);
    let with = |retry_after: u64| {
        Outcome::Answer(Answer {
            retry_after: Some(Duration::from_secs(retry_after)),
            ..answer
        })
    };
    let (after, _) = case.decide(with(1)).unwrap();
    let range = Duration::from_secs(1)..Duration::from_millis(1500);
    assert!(range.contains(&after), "{after:?}");
    assert!(case.decide(with(0)).unwrap().0 < Duration::from_millis(50));
    assert_eq!(case.decide(with(6)), Err(GiveUp::Pushback));
    let overloaded = Answer {
        overloaded: true,
        ..answer
    };
    assert_eq!(
        case.decide(Outcome::Answer(overloaded)),
        Err(GiveUp::Pushback)
    );
    for (pushback, expected) in [
        (Pushback::Never, Err(GiveUp::Pushback)),
        (
            Pushback::After(Duration::from_secs(9)),
            Err(GiveUp::Pushback),
        ),
        (
            Pushback::After(Duration::from_millis(7)),
            Ok((Duration::from_millis(7), false)),
        ),
    ] {
        let mut case = Case::new(&[Condition::FiveXx], GET);
        let answer = Answer {
            pushback: Some(pushback),
            ..answer
        };
        assert_eq!(case.decide(Outcome::Answer(answer)), expected);
    }
}

#[test]
fn hedging_asks_for_what_a_retry_asks_for() {
    let mut case = Case::new(&[Condition::FiveXx], POST);
    assert_eq!(case.hedge(1), Err(GiveUp::NotIdempotent));
    case.request = GET;
    case.elsewhere = false;
    assert_eq!(case.hedge(1), Err(GiveUp::NoOtherEndpoint));
    case.elsewhere = true;
    case.replayable = false;
    assert_eq!(case.hedge(1), Err(GiveUp::Body));
    case.replayable = true;
    assert_eq!(case.hedge(1), Ok(()));
    assert_eq!(
        (case.hedge(1), case.attempts.count()),
        (Err(GiveUp::Attempts), 2)
    );
}

#[test]
fn permits_are_what_is_in_progress() {
    let budget = Arc::new(Budget::new(BudgetParams::default()));
    let case = Case::new(&[Condition::FiveXx], GET);
    let context = Context {
        policy: &case.policy,
        request: GET,
        budget: &budget,
        active: 10,
        replayable: true,
        elsewhere: true,
        now: Time::ZERO,
    };
    let mut rng = Rng::seed(3);
    let retry = || Attempts::new().after(&status(500), &context, &mut Rng::seed(3));
    let mut held = vec![retry(), retry(), retry()];
    assert_eq!(budget.in_progress(), 3);
    let over = Attempts::new().after(&status(500), &context, &mut rng);
    assert!(matches!(over, Decision::GiveUp(GiveUp::Budget)));
    held.pop();
    assert_eq!(budget.in_progress(), 2);
}
