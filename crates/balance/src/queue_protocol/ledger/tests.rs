use super::*;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn member(bits: u64, weight: u32) -> Member {
    Member::new(Name::from_bits(bits), weight)
}

fn names(n: u64) -> impl Iterator<Item = Member> {
    (1..=n).map(|i| member(i, 1))
}

fn report(in_flight: u32, latest: Option<Ticket>) -> Report {
    Report {
        in_flight,
        latest,
        pace: Duration::from_millis(20),
        age: None,
    }
}

/// Requests `n` referrals.
fn refer(ledger: &mut Ledger, n: usize, now: Time, rng: &mut Rng) -> Vec<Referral> {
    (0..n)
        .map(|_| ledger.ask(now, rng).0.expect("it has members"))
        .collect()
}

#[test]
fn referrals_go_to_the_least_loaded_and_count_at_once() {
    let mut rng = Rng::seed(1);
    let mut ledger = Ledger::new(names(4), None, 9);
    let mut servers: Vec<u64> = refer(&mut ledger, 4, at(0), &mut rng)
        .iter()
        .map(|r| r.server.to_bits())
        .collect();
    servers.sort_unstable();
    assert_eq!(servers, [1, 2, 3, 4], "each once before any twice");
    // Server 3 reports that it is idle again and has seen its referral.
    let ticket = Ticket {
        epoch: 9,
        number: 1,
    };
    ledger.report(Name::from_bits(3), &report(0, Some(ticket)), at(1));
    let next = refer(&mut ledger, 1, at(1), &mut rng)[0];
    assert_eq!((next.server.to_bits(), next.ticket.unwrap().number), (3, 2));
}

#[test]
fn weights_divide_the_load() {
    let mut rng = Rng::seed(2);
    let mut ledger = Ledger::new([member(1, 3), member(2, 1)], None, 1);
    let referred = refer(&mut ledger, 40, at(0), &mut rng);
    let heavy = referred.iter().filter(|r| r.server.to_bits() == 1).count();
    assert!((29..=31).contains(&heavy), "{heavy}");
}

#[test]
fn a_lost_referral_is_forgotten_with_the_next_report() {
    let mut rng = Rng::seed(3);
    let mut ledger = Ledger::new(names(1), None, 5);
    let sent = refer(&mut ledger, 3, at(0), &mut rng);
    assert_eq!(ledger.estimated_load(sent[0].server), Some(3));
    // The second never arrived; the server has the first and the third and ends the first.
    ledger.report(sent[0].server, &report(1, sent[2].ticket), at(2));
    assert_eq!(ledger.estimated_load(sent[0].server), Some(1));
    // The third was lost, but it is long ago.
    let more = refer(&mut ledger, 1, at(3), &mut rng)[0];
    ledger.report(more.server, &report(0, sent[2].ticket), at(10));
    assert_eq!(
        ledger.estimated_load(more.server),
        Some(1),
        "may be on its way"
    );
    ledger.report(more.server, &report(0, sent[2].ticket), at(100));
    assert_eq!(ledger.estimated_load(more.server), Some(0));
}

#[test]
fn foreign_traffic_is_seen_and_old_epochs_are_not_counted() {
    let mut rng = Rng::seed(4);
    let mut ledger = Ledger::new(names(2), None, 7);
    let old = Ticket {
        epoch: 6,
        number: 40,
    };
    ledger.report(Name::from_bits(1), &report(5, Some(old)), at(50));
    assert_eq!(ledger.estimated_load(Name::from_bits(1)), Some(5));
    for referral in refer(&mut ledger, 5, at(50), &mut rng) {
        assert_eq!(referral.server.to_bits(), 2);
    }
    ledger.report(Name::from_bits(99), &report(5, None), at(50));
    assert_eq!(ledger.estimated_load(Name::from_bits(99)), None);
}

#[test]
fn a_silent_server_is_audited_now_and_then() {
    let mut rng = Rng::seed(5);
    let mut ledger = Ledger::new(names(2), None, 1);
    let first = refer(&mut ledger, 2, at(0), &mut rng);
    assert_eq!(ledger.ask(at(50), &mut rng).1, None, "not long enough");
    let audited: Vec<_> = (0..4)
        .filter_map(|_| ledger.ask(at(1000), &mut rng).1)
        .collect();
    assert!(audited.len() <= 2, "each at most once: {audited:?}");
    // The answer of the audit is a report like any other.
    ledger.report(first[0].server, &report(0, first[0].ticket), at(1030));
    assert_eq!(ledger.estimated_load(first[0].server), Some(0));
}

#[test]
fn audits_begin_at_the_pace_of_the_first_report() {
    let mut rng = Rng::seed(4);
    let mut ledger = Ledger::new(names(3), None, 1);
    refer(&mut ledger, 3, at(0), &mut rng);
    // An average that began at zero would be 0.3 ms, and the others would be audited after 1.2 ms.
    ledger.report(Name::from_bits(1), &report(0, None), at(20));
    assert_eq!(ledger.ask(at(79), &mut rng).1, None);
    assert!(ledger.ask(at(81), &mut rng).1.is_some(), "four times 20 ms");
    // A server without a successful response has no pace.
    let unknown = Report {
        pace: Duration::ZERO,
        ..report(0, None)
    };
    for _ in 0..200 {
        ledger.report(Name::from_bits(1), &unknown, at(82));
    }
    assert_eq!(ledger.silence(), Duration::from_millis(80));
}

#[test]
fn equals_are_distinguished_by_clear_speed_only() {
    let mut rng = Rng::seed(6);
    let mut ledger = Ledger::new(names(3), None, 1);
    let ended = |ledger: &mut Ledger, server, in_flight, ms| {
        let report = Report {
            in_flight,
            latest: None,
            pace: Duration::from_millis(ms),
            age: None,
        };
        ledger.report(Name::from_bits(server), &report, at(0));
    };
    for of in 0..200 {
        for (server, ms) in [(1, 20), (2, 18), (3, 10)] {
            // Two requests, one after the other.
            ended(&mut ledger, server, 1, ms);
            ended(&mut ledger, server, 0, ms);
        }
        if of == 10 {
            let first = |_| refer(&mut ledger.clone(), 1, at(1), &mut rng)[0].server;
            let third = (0..300).map(first).filter(|name| name.to_bits() == 3);
            assert!(
                (60..140).contains(&third.count()),
                "few samples show nothing"
            );
        }
    }
    let mut order: Vec<u64> = Vec::new();
    for _ in 0..200 {
        let mut fresh = ledger.clone();
        order.push(refer(&mut fresh, 1, at(1), &mut rng)[0].server.to_bits());
    }
    assert!(order.iter().all(|&server| server == 3));
    let mut second = [0; 4];
    for _ in 0..400 {
        let mut fresh = ledger.clone();
        let referred = refer(&mut fresh, 2, at(1), &mut rng);
        second[referred[1].server.to_bits() as usize] += 1;
    }
    assert!(second[1] > 130 && second[2] > 130, "{second:?}");
}

/// An average that is too high, and is not corrected because the server gets no requests, does not decide forever.
#[test]
fn what_was_slow_long_ago_is_used_again() {
    let mut rng = Rng::seed(61);
    let mut ledger = Ledger::new(names(2), None, 1);
    let end = |ledger: &mut Ledger, server, latest, now| {
        let report = Report {
            in_flight: 0,
            latest,
            pace: Duration::from_millis(20 * server),
            age: None,
        };
        ledger.report(Name::from_bits(server), &report, now);
    };
    for number in 0..400 {
        let ticket = Some(Ticket { epoch: 2, number });
        for server in [1, 2] {
            end(&mut ledger, server, ticket, at(40 * u64::from(number)));
        }
    }
    let mut slow = 0;
    let mut used_at = None;
    for ms in (0..).step_by(20).take(20_000) {
        let now = at(16_000 + ms);
        let referral = refer(&mut ledger, 1, now, &mut rng)[0];
        let server = referral.server.to_bits();
        if server == 2 {
            slow += 1;
            used_at = used_at.or(Some(ms));
        }
        end(&mut ledger, server, referral.ticket, now);
    }
    // 256 samples lose their weight, e⁻¹ of it in 1024 services of 20 to 30 ms.
    let used_at = used_at.unwrap();
    assert!((20_000..100_000).contains(&used_at), "{used_at}");
    assert!((100..2000).contains(&slow), "{slow} of 20000");
}

/// Reports that proxies repeat, because messages may be lost, do not count as further requests.
#[test]
fn repeated_reports_are_no_samples() {
    let mut ledger = Ledger::new(names(1), None, 1);
    ledger.report(Name::from_bits(1), &report(0, None), at(0));
    let known = format!("{:?}", ledger.entries[0].pace);
    for ms in 1..100 {
        ledger.report(Name::from_bits(1), &report(0, None), at(1000 * ms));
    }
    assert_eq!(format!("{:?}", ledger.entries[0].pace), known);
}

#[test]
fn members_that_stay_keep_their_counts() {
    let mut rng = Rng::seed(7);
    let mut ledger = Ledger::new(names(2), None, 1);
    refer(&mut ledger, 4, at(0), &mut rng);
    ledger.set_members([member(2, 1), member(8, 1)], None);
    assert_eq!(ledger.estimated_load(Name::from_bits(1)), None);
    assert_eq!(ledger.estimated_load(Name::from_bits(2)), Some(2));
    assert_eq!(ledger.estimated_load(Name::from_bits(8)), Some(0));
    ledger.set_members([], None);
    assert_eq!(ledger.ask(at(1), &mut rng), (None, None));
}

#[test]
fn a_server_that_does_not_report_loses_its_place_until_it_does() {
    let mut rng = Rng::seed(8);
    let mut ledger = Ledger::new(names(4), None, 1);
    // Servers 1 to 3 end a request immediately, server 4 does not report.
    let mut turns = Vec::new();
    for ms in 0..4000 {
        let (referral, _) = ledger.ask(at(ms), &mut rng);
        let referral = referral.unwrap();
        let server = referral.server.to_bits();
        if server != 4 {
            assert!(referral.ticket.is_some());
            ledger.report(referral.server, &report(0, referral.ticket), at(ms));
        } else if referral.ticket.is_none() {
            turns.push(ms);
        }
    }
    // Four services of silence, and three audits of 50 ms.
    assert!((190..400).contains(&turns[0]), "{}", turns[0]);
    let share = turns.len() as f64 / (4000 - turns[0]) as f64;
    assert!(
        (share - 0.25).abs() < 0.03,
        "its share, and no more: {share}"
    );
    ledger.report(Name::from_bits(4), &report(0, None), at(4000));
    let again = refer(&mut ledger, 4, at(4000), &mut rng);
    assert!(again.iter().all(|referral| referral.ticket.is_some()));
    assert!(again.iter().any(|referral| referral.server.to_bits() == 4));
}

#[test]
fn where_most_do_not_report_they_are_compared_with_each_other() {
    let mut rng = Rng::seed(9);
    // So many of eight report.
    for reporting in 1..8_u64 {
        let mut ledger = Ledger::new(names(8), None, 1);
        let reports = |name: Name| name.to_bits() <= reporting;
        let (mut turns, mut pairs) = (0, 0);
        for ms in 0..6000 {
            let (referral, _) = ledger.ask(at(ms), &mut rng);
            let referral = referral.unwrap();
            if reports(referral.server) {
                assert_eq!(referral.second, None);
                ledger.report(referral.server, &report(0, referral.ticket), at(ms));
            } else if referral.ticket.is_none() && ms > 3000 {
                turns += 1;
                pairs += u32::from(referral.second.is_some());
                let second = referral.second.filter(|second| !reports(*second));
                assert_eq!(second, referral.second, "one that reports");
                assert_ne!(referral.second, Some(referral.server));
            }
        }
        assert!(turns > 200, "{reporting}: {turns}");
        // A single server has no peers.
        let expected = if reporting < 4 { turns } else { 0 };
        assert_eq!(pairs, expected, "{reporting}");
    }
}

/// Returns the share of server 4 while no request waits. At 10 s, the server is new and has the age `new_ms`. Each
/// report contains the age from `says`, if there is one. The host has seen all servers for `host_ms`, except for those
/// that have joined since.
fn share_of_the_new(new_ms: u64, host_ms: u64, says: impl Fn(u64) -> Option<u64>) -> f64 {
    let ramp = SlowStart {
        window: Duration::from_secs(10),
        ..SlowStart::default()
    };
    let joined = |bits: u64| if bits == 4 { 10_000 - new_ms } else { 0 };
    let members = (1..=4).map(|bits| Member {
        joined: at(joined(bits).max(10_000 - host_ms)),
        ..member(bits, 1)
    });
    let mut ledger = Ledger::new(members, Some(ramp), 1);
    let mut rng = Rng::seed(62);
    let (mut new, requests) = (0_u32, 40_000);
    for number in 0..requests {
        let referral = refer(&mut ledger, 1, at(10_000), &mut rng)[0];
        let server = referral.server.to_bits();
        new += u32::from(server == 4 && number >= requests / 2);
        let report = Report {
            age: says(server).map(Duration::from_millis),
            ..report(0, referral.ticket)
        };
        ledger.report(referral.server, &report, at(10_000));
    }
    f64::from(new) / f64::from(requests / 2)
}

#[test]
fn a_host_that_has_just_started_takes_ages_from_reports() {
    // Old servers have been there for an hour, longer than the host's clock goes back.
    let of = |new_ms: u64| move |server| Some(if server == 4 { new_ms } else { 3_600_000 });
    let ramped = |age: f64| age / (3.0 + age);
    for (new_ms, host_ms, factor) in [
        // The host has been there for long, or has seen it joining.
        (3000, 10_000, 0.3),
        (3000, 5000, 0.3),
        // It is younger than the server, or it is the new server.
        (3000, 1000, 0.3),
        (3000, 3000, 0.3),
        (500, 0, 0.1),
        (10_000, 1000, 1.0),
    ] {
        let share = share_of_the_new(new_ms, host_ms, of(new_ms));
        let (wanted, noise) = (ramped(factor), 0.011);
        assert!(
            (share - wanted).abs() < noise,
            "{new_ms} {host_ms}: {share}"
        );
    }
}

#[test]
fn without_a_word_of_ages_what_the_host_has_seen_counts() {
    let share = |new_ms, host_ms| share_of_the_new(new_ms, host_ms, |_| None);
    assert!((share(3000, 10_000) - 0.3 / 3.3).abs() < 0.01);
    assert!((share(3000, 1000) - 0.25).abs() < 0.013, "it knows none");
    // A server of an older version counts as old as the others, because no report contains its age.
    let some = share_of_the_new(3000, 1000, |server| (server != 4).then_some(60_000));
    assert!((some - 0.25).abs() < 0.013, "{some}");
}

#[test]
fn a_server_that_returns_ramps_whatever_age_it_reported_before() {
    let ramp = SlowStart {
        window: Duration::from_secs(10),
        ..SlowStart::default()
    };
    let mut ledger = Ledger::new(names(2), Some(ramp.clone()), 1);
    let old = Report {
        age: Some(Duration::from_secs(60)),
        ..report(0, None)
    };
    (1..=2).for_each(|bits| ledger.report(Name::from_bits(bits), &old, at(0)));
    let back = Member {
        joined: at(20_000),
        ..member(2, 1)
    };
    ledger.set_members([member(1, 1), back], Some(ramp));
    let mut rng = Rng::seed(63);
    let of_two = |_| {
        let referred = refer(&mut ledger.clone(), 1, at(21_000), &mut rng);
        usize::from(referred[0].server.to_bits() == 2)
    };
    let count: usize = (0..4000).map(of_two).sum();
    assert!((count as f64 / 4000.0 - 0.1 / 1.1).abs() < 0.02, "{count}");
}
