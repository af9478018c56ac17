//! The policies that exist for comparison only: their decisions end correctly even if messages are lost, late or
//! unknown, and what servers report decides.

use std::time::Duration;

use maglor_balance::queue_protocol::{
    Admission, Answer, Decision, Load, Name, Question, Referral, Step,
};
use maglor_balance::{Balancer, Endpoint, Index, PickCtx, Rng, Time, ViewParams};
use maglor_lab::comparison::Compared;

const POLICIES: [&str; 4] = [
    "join-idle-queue",
    "join-idle-queue(boards=1,fallback=bounce)",
    "join-idle-queue(boards=3,fallback=lor)",
    "prequal",
];

fn at(ms: u64) -> PickCtx<'static> {
    PickCtx::new(Time::from_nanos(ms * 1_000_000))
}

fn endpoints(count: usize) -> Vec<Endpoint> {
    let endpoint = |at| Endpoint::new(format!("10.0.0.{at}:8080"));
    (0..count).map(endpoint).collect()
}

fn balancer(policy: &str, endpoints: Vec<Endpoint>) -> Balancer<Compared> {
    let policy: Compared = policy.parse().unwrap();
    Balancer::build(&policy, endpoints, &ViewParams::default(), Time::ZERO).unwrap()
}

fn named(server: Option<Name>) -> Answer {
    Answer::Referral(server.map(|server| Referral {
        server,
        ticket: None,
        second: None,
    }))
}

/// Plays all other parts, at random and unkindly, until the request is at a server.
fn drive(b: &Balancer<Compared>, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
    let mut decision = Decision::new();
    let mut step = b.begin(&mut decision, ctx, rng);
    let mut waiting = Vec::new();
    for _ in 0..100 {
        step = match step {
            Step::Fail => return None,
            Step::Send { to, admission, .. } => match admission {
                Admission::AtMost(limit) if rng.below(3) > 0 => {
                    let refusal = (to, limit + 1 + rng.below(3));
                    b.refused(&mut decision, refusal, ctx, rng)
                }
                _ => return Some(to),
            },
            Step::Ask { to, question, .. } => {
                waiting = to.iter().map(|to| (*to, question)).collect();
                Step::Wait
            }
            Step::Wait => match waiting.pop() {
                Some((from, question)) if rng.below(3) > 0 => {
                    let unknown = Name::from_bits(rng.next_u64());
                    let own = rng.below(b.view().len() as u32) as usize;
                    let own = Name::of(&b.view().endpoints()[own].key);
                    let name = [None, Some(unknown), Some(own)][rng.below(3) as usize];
                    let answer = match question {
                        Question::Load => Answer::Load(Load {
                            in_flight: rng.below(5),
                            ..Load::default()
                        }),
                        Question::Referral | Question::ReferralAmong(_) => named(name),
                    };
                    b.answered(&mut decision, (from, answer), ctx, rng)
                }
                _ => b.timed_out(&mut decision, ctx, rng),
            },
        };
    }
    panic!("{}: a decision does not end", b.spec());
}

#[test]
fn every_decision_ends_at_a_usable_endpoint_that_was_not_attempted() {
    let mut rng = Rng::seed(41);
    for policy in POLICIES {
        let endpoints = endpoints(9);
        endpoints[2].stats.set_healthy(false);
        let b = balancer(policy, endpoints);
        for round in 0..2000 {
            let attempted = [Index::new(round % 9), Index::new(7)];
            let ctx = at(round as u64).excluding(&attempted);
            let index = drive(&b, &ctx, &mut rng).unwrap();
            assert!(b.view().is_usable(index), "{policy}");
            assert!(!attempted.contains(&index), "{policy}: {index:?}");
            for asked in b.asides(&ctx, &mut rng) {
                let load = Load {
                    in_flight: rng.below(5),
                    ..Load::default()
                };
                b.record_load(asked, &load, ctx.now);
            }
        }
        let rebuilt = b.rebuild(Vec::new(), &ViewParams::default(), Time::ZERO);
        assert_eq!(
            drive(&rebuilt, &at(1), &mut rng),
            None,
            "{policy}: no endpoint"
        );
    }
}

#[test]
fn a_board_names_the_server_and_an_empty_one_leaves_it_to_the_fallback() {
    let mut rng = Rng::seed(42);
    let b = balancer("join-idle-queue(boards=1)", endpoints(10));
    let mut decision = Decision::new();
    let Step::Ask { to, question, .. } = b.begin(&mut decision, &at(1), &mut rng) else {
        panic!("the board is queried");
    };
    assert_eq!((to.len(), question), (1, Question::Referral));
    let idle = Name::of("10.0.0.6:8080");
    let answer = (to[0], named(Some(idle)));
    let step = b.answered(&mut decision, answer, &at(2), &mut rng);
    assert_eq!(step, Step::send(Some(Index::new(6))));

    b.begin(&mut decision, &at(3), &mut rng);
    let step = b.answered(&mut decision, (to[0], named(None)), &at(4), &mut rng);
    assert!(decision.has_fallen_back());
    let Step::Ask { to, question, .. } = step else {
        panic!("two servers are probed: {step:?}");
    };
    assert_eq!((to.len(), question), (2, Question::Load));
}

#[test]
fn a_host_that_does_not_answer_is_not_queried_for_a_while() {
    let mut rng = Rng::seed(43);
    let b = balancer("join-idle-queue(boards=1,fallback=lor)", endpoints(10));
    let mut queried = 0;
    for round in 0..20 {
        let mut decision = Decision::new();
        if let Step::Ask { .. } = b.begin(&mut decision, &at(10 * round), &mut rng) {
            queried += 1;
            b.timed_out(&mut decision, &at(10 * round + 5), &mut rng);
        }
    }
    assert_eq!(queried, 3);
    // A changed view keeps what is known about the host.
    let b = b.rebuild(endpoints(10), &ViewParams::default(), Time::ZERO);
    let step = b.begin(&mut Decision::new(), &at(201), &mut rng);
    assert!(matches!(step, Step::Send { .. }), "{step:?}");
}

#[test]
fn prequal_takes_the_cold_server_with_the_least_latency() {
    let mut rng = Rng::seed(47);
    let b = balancer("prequal", endpoints(10));
    let mut idle = Index::new(0);
    for (i, in_flight) in [3, 4, 0, 5].into_iter().enumerate() {
        assert_eq!(b.asides(&at(1), &mut rng).len(), 3);
        let server = Index::new(i);
        let load = Load {
            in_flight,
            latency: Duration::from_millis(u64::from(in_flight) + 1),
        };
        b.record_load(server, &load, at(1).now);
        if in_flight == 0 {
            idle = server;
        }
    }
    let step = b.begin(&mut Decision::new(), &at(2), &mut rng);
    assert_eq!(step, Step::send(Some(idle)));
}
