//! Decisions in several steps: the queries of collaborative policies, and that every decision ends correctly
//! even if messages are lost, late, rejected or unknown.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use maglor_balance::queue_protocol::{
    Admission, Answer, Decision, Inbound, Ledger, Load, Member, Name, Question, Referral, Step,
    Ticket,
};
use maglor_balance::{Balancer, Index, Locality, LocalityWeights, PickCtx, Rng, Time, ViewParams};
use support::{SPECS, balancer, balancer_with, equal, key, seed};

fn at(ms: u64) -> PickCtx<'static> {
    PickCtx::new(Time::from_nanos(ms * 1_000_000))
}

fn load(in_flight: u32) -> Answer {
    Answer::Load(Load {
        in_flight,
        latency: Duration::ZERO,
    })
}

fn sent(step: &Step) -> (Index, Admission) {
    match step {
        Step::Send { to, admission, .. } => (*to, *admission),
        other => panic!("{other:?}"),
    }
}

fn asked(step: &Step) -> Vec<Index> {
    match step {
        Step::Ask { to, timeout, .. } => {
            assert!(*timeout >= Duration::from_millis(1));
            to.to_vec()
        }
        other => panic!("{other:?}"),
    }
}

/// Plays all other parts, at random and unkindly, until the request is at a server.
fn drive(b: &Balancer, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
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
                    let own =
                        Name::of(&b.view().endpoints()[rng.below(5) as usize % b.view().len()].key);
                    let names = [None, Some(unknown), Some(own)];
                    let name = names[rng.below(3) as usize];
                    let second = names[rng.below(3) as usize];
                    let ticket = (rng.below(2) > 0).then_some(Ticket {
                        epoch: 1,
                        number: 1,
                    });
                    let answer = match question {
                        Question::Load => load(rng.below(5)),
                        Question::Referral | Question::ReferralAmong(_) => {
                            Answer::Referral(name.map(|server| Referral {
                                server,
                                ticket,
                                second,
                            }))
                        }
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
    let mut rng = Rng::seed(seed(41));
    for spec in SPECS {
        let endpoints = equal(9);
        endpoints[2].stats.set_healthy(false);
        let b = balancer(spec, endpoints);
        for round in 0..500 {
            let attempted = [Index::new(round % 9), Index::new(7)];
            let ctx = at(round as u64).excluding(&attempted);
            let index = drive(&b, &ctx, &mut rng).unwrap();
            assert!(b.view().is_usable(index), "{spec}");
            assert!(!attempted.contains(&index), "{spec}");
        }
        let b = balancer(spec, Vec::new());
        assert_eq!(drive(&b, &at(0), &mut rng), None, "{spec}");
        let b = balancer(spec, equal(1));
        let attempted = [Index::new(0)];
        let again = drive(&b, &at(0).excluding(&attempted), &mut rng);
        assert_eq!(
            again,
            Some(Index::new(0)),
            "{spec}: repeating beats giving up"
        );
    }
}

#[test]
fn bounce_asks_for_an_idle_server_then_for_one_no_busier_than_the_best() {
    let mut rng = Rng::seed(seed(42));
    let b = balancer("bounce(tries=3)", equal(10));
    let mut decision = Decision::new();
    let (first, limit) = sent(&b.begin(&mut decision, &at(0), &mut rng));
    assert_eq!(limit, Admission::AtMost(0));
    let (second, limit) = sent(&b.refused(&mut decision, (first, 4), &at(0), &mut rng));
    assert_eq!(limit, Admission::AtMost(0));
    let (third, limit) = sent(&b.refused(&mut decision, (second, 2), &at(0), &mut rng));
    assert_eq!(
        limit,
        Admission::AtMost(2),
        "as busy is better than a way back"
    );
    assert!(first != second && second != third && first != third);
    let last = sent(&b.refused(&mut decision, (third, 3), &at(0), &mut rng));
    assert_eq!(last, (second, Admission::Always));
}

#[test]
fn bounce_stops_when_there_is_no_server_left_to_ask() {
    let mut rng = Rng::seed(seed(43));
    let b = balancer("bounce(tries=16)", equal(2));
    let mut decision = Decision::new();
    let (first, _) = sent(&b.begin(&mut decision, &at(0), &mut rng));
    let (second, _) = sent(&b.refused(&mut decision, (first, 1), &at(0), &mut rng));
    let last = sent(&b.refused(&mut decision, (second, 5), &at(0), &mut rng));
    assert_eq!(last, (first, Admission::Always));
    let b = balancer("bounce(tries=1)", equal(2));
    let only = sent(&b.begin(&mut decision, &at(0), &mut rng));
    assert_eq!(only.1, Admission::Always);
}

#[test]
fn bounce_does_not_ask_twice_where_it_has_no_choice() {
    let mut rng = Rng::seed(seed(48));
    let mut decision = Decision::new();
    let b = balancer("bounce(tries=3)", equal(1));
    let only = sent(&b.begin(&mut decision, &at(0), &mut rng));
    assert_eq!(only, (Index::new(0), Admission::Always));

    // The last of two is the last attempt, whatever the number of attempts: also with one more that is
    // down, and on a retry.
    let mut endpoints = equal(4);
    endpoints[3].stats.set_healthy(false);
    endpoints.swap(0, 3);
    let b = balancer("bounce(tries=3)", endpoints);
    let attempted = [Index::new(1)];
    let ctx = at(0).excluding(&attempted);
    let (first, limit) = sent(&b.begin(&mut decision, &ctx, &mut rng));
    assert_eq!(limit, Admission::AtMost(0));
    let (second, limit) = sent(&b.refused(&mut decision, (first, 4), &ctx, &mut rng));
    assert_eq!(limit, Admission::AtMost(4));
    let last = sent(&b.refused(&mut decision, (second, 5), &ctx, &mut rng));
    assert_eq!(last, (first, Admission::Always));
}

#[test]
fn a_ledger_of_one_server_is_not_asked() {
    let mut rng = Rng::seed(seed(49));
    let b = balancer("ledger(group=1)", equal(3));
    let mut decision = Decision::new();
    for _ in 0..20 {
        let (_, admission) = sent(&b.begin(&mut decision, &at(0), &mut rng));
        assert_eq!(admission, Admission::Always);
    }
}

/// Returns the server of a request if all servers have requests in flight except the idle `spare`.
fn settle(b: &Balancer, spare: &[usize], rng: &mut Rng) -> usize {
    let in_flight = |index: Index| u32::from(!spare.contains(&index.get()));
    let mut decision = Decision::new();
    let mut step = b.begin(&mut decision, &at(0), rng);
    loop {
        step = match step {
            Step::Send { to, admission, .. } => match admission {
                Admission::AtMost(0) if in_flight(to) > 0 => {
                    b.refused(&mut decision, (to, in_flight(to)), &at(0), rng)
                }
                _ => return to.get(),
            },
            Step::Ask { to, .. } => {
                let mut last = Step::Wait;
                for from in to {
                    let answer = (from, load(in_flight(from)));
                    last = b.answered(&mut decision, answer, &at(0), rng);
                }
                last
            }
            other => panic!("{other:?}"),
        };
    }
}

#[test]
fn candidates_that_are_compared_are_of_one_level_and_locality() {
    let mut rng = Rng::seed(seed(50));
    for spec in ["bounce(tries=3)", "probe(choices=3)"] {
        // The lower level is idle, but the upper one takes all traffic.
        let mut endpoints = equal(5);
        for endpoint in &mut endpoints[2..] {
            endpoint.priority = 1;
        }
        let b = balancer(spec, endpoints);
        for _ in 0..200 {
            assert!(settle(&b, &[2, 3, 4], &mut rng) < 2, "{spec}");
        }
        // The far locality is idle, but has a tenth of the traffic.
        let [near, far] = ["near", "far"].map(|zone| Locality::new("eu", zone, ""));
        let weights: LocalityWeights = [(near.clone(), 9), (far.clone(), 1)].into_iter().collect();
        let params = ViewParams {
            locality_weights: Some(weights),
            ..ViewParams::default()
        };
        let mut endpoints = equal(8);
        for (i, endpoint) in endpoints.iter_mut().enumerate() {
            endpoint.locality = Some(if i < 4 { near.clone() } else { far.clone() });
        }
        let b = balancer_with(spec, endpoints, &params);
        let away = (0..4000).filter(|_| settle(&b, &[4, 5, 6, 7], &mut rng) >= 4);
        let share = away.count() as f64 / 4000.0;
        assert!((share - 0.1).abs() < 0.03, "{spec}: {share}");
    }
}

#[test]
fn probe_takes_the_least_loaded_of_those_that_answer() {
    let mut rng = Rng::seed(seed(44));
    let b = balancer("probe(choices=3)", equal(10));
    let mut decision = Decision::new();
    let to = asked(&b.begin(&mut decision, &at(0), &mut rng));
    assert_eq!(to.len(), 3);
    let first = b.answered(&mut decision, (to[0], load(3)), &at(1), &mut rng);
    assert_eq!(first, Step::Wait);
    b.answered(&mut decision, (to[1], load(1)), &at(1), &mut rng);
    let step = b.answered(&mut decision, (to[2], load(2)), &at(1), &mut rng);
    assert_eq!(sent(&step), (to[1], Admission::Always));

    let to = asked(&b.begin(&mut decision, &at(2), &mut rng));
    b.answered(&mut decision, (to[2], load(9)), &at(3), &mut rng);
    let step = b.timed_out(&mut decision, &at(9), &mut rng);
    assert_eq!(sent(&step).0, to[2], "better one answer than none");
    assert!(decision.has_fallen_back());
}

#[test]
fn a_ledger_is_shunned_after_three_silences_and_its_group_is_kept() {
    let mut rng = Rng::seed(seed(45));
    let b = balancer("ledger(group=5,fallback=bounce)", equal(10));
    let groups = b.spec().groups(b.view()).unwrap();
    let dead = groups.host(0).unwrap();
    let mut decision = Decision::new();
    let mut shunned = 0;
    for _ in 0..200 {
        match b.begin(&mut decision, &at(1), &mut rng) {
            Step::Ask { to, .. } if to[0] == dead => {
                let (to, limit) = sent(&b.timed_out(&mut decision, &at(1), &mut rng));
                assert!(groups.members(0).contains(&to), "its group has its share");
                assert_eq!(limit, Admission::AtMost(0));
            }
            Step::Ask { .. } => {}
            step => {
                shunned += 1;
                assert!(groups.members(0).contains(&sent(&step).0));
            }
        }
    }
    let share = groups.members(0).len() as f64 / 10.0;
    let expected = 197.0 * share;
    assert!(
        f64::from(shunned) > 0.6 * expected,
        "{shunned} of about {expected}"
    );
    // Some time later one request detects that it is available again.
    let alive = (0..200).any(|_| match b.begin(&mut decision, &at(400), &mut rng) {
        Step::Ask { to, .. } if to[0] == dead => {
            let answer = (dead, Answer::Referral(None));
            b.answered(&mut decision, answer, &at(401), &mut rng);
            true
        }
        _ => false,
    });
    assert!(alive);
    for _ in 0..100 {
        asked(&b.begin(&mut decision, &at(402), &mut rng));
    }
}

#[test]
fn what_is_known_of_hosts_outlives_a_change_of_endpoints() {
    let mut rng = Rng::seed(seed(51));
    let params = ViewParams::default();
    let b = balancer("ledger(group=40)", equal(10));
    let host = |b: &Balancer| {
        let groups = b.spec().groups(b.view()).unwrap();
        let host = groups.host(0).unwrap();
        Arc::clone(&b.view().endpoint(host).unwrap().key)
    };
    let mut decision = Decision::new();
    for _ in 0..20 {
        if let Step::Ask { .. } = b.begin(&mut decision, &at(1), &mut rng) {
            b.timed_out(&mut decision, &at(1), &mut rng);
        }
    }
    let asks = |b: &Balancer, ms: u64, rng: &mut Rng| {
        let step = b.begin(&mut Decision::new(), &at(ms), rng);
        matches!(step, Step::Ask { .. })
    };
    assert!(!asks(&b, 2, &mut rng), "it is left alone");
    // Health changes; an endpoint joins that does not become the host; the group gets another size.
    let after = |spec: &str, n: usize| {
        let spec = spec.parse().unwrap();
        Balancer::build_after(&spec, Some(&b), equal(n), &params, Time::ZERO).unwrap()
    };
    let mut joined = (11..40).map(|n| after("ledger(group=40)", n));
    let joined = joined.rfind(|one| host(one) == host(&b)).unwrap();
    let refreshed = b.rebuild(Arc::clone(b.view().endpoints()), &params, Time::ZERO);
    for known in [&joined, &refreshed, &after("ledger(group=39)", 10)] {
        assert!(!asks(known, 3, &mut rng), "it is still left alone");
    }
    let strange = balancer("ledger(group=40)", equal(10));
    assert!(asks(&strange, 3, &mut rng), "nothing is known");
    // All of them share the result of one.
    let (mut decision, ctx) = (Decision::new(), at(400));
    let to = asked(&joined.begin(&mut decision, &ctx, &mut rng));
    joined.answered(
        &mut decision,
        (to[0], Answer::Referral(None)),
        &ctx,
        &mut rng,
    );
    assert!((0..5).all(|_| asks(&b, 401, &mut rng)), "it has answered");
}

#[test]
fn a_ledger_and_inbound_proxies_keep_the_true_count_through_losses() {
    let mut rng = Rng::seed(seed(46));
    let names: Vec<Name> = (0..8).map(|i| Name::of(&key(i))).collect();
    let mut ledger = Ledger::new(names.iter().map(|name| Member::new(*name, 1)), None, 3);
    let inbounds: Vec<_> = names.iter().map(|_| Arc::new(Inbound::new())).collect();
    let mut held: Vec<(usize, _)> = Vec::new();
    let mut now = 0;
    for _ in 0..20_000 {
        now += u64::from(rng.below(2));
        let time = Time::from_nanos(now * 1_000_000);
        if rng.below(2) == 0 && held.len() < 30 {
            let (referral, audit) = ledger.ask(time, &mut rng);
            if let Some(audit) = audit {
                let server = names.iter().position(|name| *name == audit.0).unwrap();
                ledger.report(audit.0, &inbounds[server].report(), time);
            }
            // One referral in ten is lost, and one request in ten comes without.
            let referral = referral.unwrap();
            let server = names.iter().position(|n| *n == referral.server).unwrap();
            let (server, ticket) = match rng.below(10) {
                0 => continue,
                1 => (rng.below(8) as usize, None),
                _ => (server, referral.ticket),
            };
            held.push((
                server,
                inbounds[server]
                    .admit(Admission::Always, ticket, time)
                    .unwrap(),
            ));
        } else if !held.is_empty() {
            let (server, admitted) = held.swap_remove(rng.below(held.len() as u32) as usize);
            let report = admitted.finish(time).unwrap();
            // One report in ten is lost.
            if rng.below(10) > 0 {
                ledger.report(names[server], &report, time);
            }
        }
    }
    // Let every server report once more, long after the last referral: the estimates are exact.
    let later = Time::from_nanos((now + 1000) * 1_000_000);
    for (name, inbound) in names.iter().zip(&inbounds) {
        ledger.report(*name, &inbound.report(), later);
        assert_eq!(ledger.estimated_load(*name), Some(inbound.in_flight()));
    }
}

#[test]
fn what_servers_say_reaches_the_statistics() {
    let b = balancer("a-lsq", equal(10));
    for (i, in_flight) in [3, 4, 0, 5].into_iter().enumerate() {
        let server = Index::new(i);
        let load = Load {
            in_flight,
            ..Load::default()
        };
        b.record_load(server, &load, at(1).now);
        let stats = &b.view().endpoint(server).unwrap().stats;
        assert_eq!(stats.estimated_load(), in_flight);
    }
}
