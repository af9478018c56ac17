use super::*;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn pass(breaker: &Breaker, now: Time) -> Option<Pass> {
    match breaker.enter(now).0 {
        Entry::Passed(pass) => Some(pass),
        Entry::Rejected(_) => None,
    }
}

/// Sends a request with this result; returns the change of state.
fn send(breaker: &Breaker, success: bool, now: Time, rng: &mut Rng) -> Option<Phase> {
    let pass = pass(breaker, now).expect("it passes");
    let transition = breaker.record(pass, success, now, rng);
    transition.map(|transition| transition.to)
}

/// Lets requests fail until the breaker is open; returns the end of its open interval.
fn open(breaker: &Breaker, now: Time, rng: &mut Rng) -> Time {
    for _ in 0..100 {
        let pass = pass(breaker, now).expect("it is closed");
        if let Some(opened) = breaker.record(pass, false, now, rng) {
            assert_eq!(opened.to, Phase::Open);
            return now + opened.open_for;
        }
    }
    panic!("it does not open");
}

#[test]
fn failures_in_a_row_open_it() {
    let (breaker, mut rng) = (Breaker::new(BreakerParams::default()), Rng::seed(1));
    for _ in 0..3 {
        for _ in 0..4 {
            assert_eq!(send(&breaker, false, at(0), &mut rng), None);
        }
        assert_eq!(send(&breaker, true, at(0), &mut rng), None);
    }
    for _ in 0..4 {
        assert_eq!(send(&breaker, false, at(0), &mut rng), None);
    }
    assert_eq!(send(&breaker, false, at(0), &mut rng), Some(Phase::Open));
    let (Entry::Rejected(wait), None) = breaker.enter(at(100)) else {
        panic!("it is open");
    };
    let range = Duration::from_millis(800)..=Duration::from_millis(1000);
    assert!(range.contains(&wait), "{wait:?}");
}

#[test]
fn too_large_a_part_opens_it() {
    let params = BreakerParams {
        consecutive_failures: 0,
        ..BreakerParams::default()
    };
    let (breaker, mut rng) = (Breaker::new(params), Rng::seed(2));
    for i in 0..10 {
        assert_eq!(send(&breaker, true, at(i), &mut rng), None);
    }
    for i in 0..9 {
        assert_eq!(send(&breaker, false, at(i), &mut rng), None, "{i}");
    }
    // In the next stretch it starts again.
    assert_eq!(send(&breaker, false, at(10_001), &mut rng), None);
    for i in 0..18 {
        assert_eq!(send(&breaker, false, at(10_002), &mut rng), None, "{i}");
    }
    let last = send(&breaker, false, at(10_003), &mut rng);
    assert_eq!(last, Some(Phase::Open), "20 of 20");
}

#[test]
fn probes_close_it_or_open_it_again() {
    let (breaker, mut rng) = (Breaker::new(BreakerParams::default()), Rng::seed(3));
    let until = open(&breaker, at(0), &mut rng);
    let (entry, transition) = breaker.enter(until);
    assert_eq!(transition.map(|t| t.to), Some(Phase::HalfOpen));
    let Entry::Passed(first) = entry else {
        panic!("the first probe passes");
    };
    assert!(first.is_probe());
    let second = pass(&breaker, until).expect("a second probe");
    let third = pass(&breaker, until).expect("a third probe");
    assert!(pass(&breaker, until).is_none(), "not more at once");
    breaker.abandon(&third);
    let third = pass(&breaker, until).expect("the place is free again");
    assert_eq!(breaker.record(first, true, until, &mut rng), None);
    assert_eq!(breaker.record(second, true, until, &mut rng), None);
    let closed = breaker.record(third, true, until, &mut rng);
    assert_eq!(closed.map(|t| t.to), Some(Phase::Closed));

    let until = open(&breaker, until, &mut rng);
    let probe = pass(&breaker, until).expect("a probe");
    let opened = breaker
        .record(probe, false, until, &mut rng)
        .expect("it opens");
    assert_eq!(opened.to, Phase::Open);
    assert!(
        opened.open_for > Duration::from_millis(1700),
        "about doubled"
    );
}

#[test]
fn late_results_count_for_nothing() {
    let (breaker, mut rng) = (Breaker::new(BreakerParams::default()), Rng::seed(4));
    let late: Vec<Pass> = (0..20).filter_map(|_| pass(&breaker, at(0))).collect();
    let mut until = open(&breaker, at(0), &mut rng);
    for _ in 0..3 {
        let probe = pass(&breaker, until).expect("a probe");
        assert!(probe.is_probe());
        let _ = breaker.record(probe, true, until, &mut rng);
    }
    assert_eq!(breaker.phase(), Phase::Closed);
    for pass in late {
        assert_eq!(breaker.record(pass, false, until, &mut rng), None);
    }
    assert_eq!(breaker.phase(), Phase::Closed);
    // Nor do those of an earlier round of probes.
    until = open(&breaker, until, &mut rng);
    let (slow, quick) = (pass(&breaker, until), pass(&breaker, until));
    let opened = breaker.record(quick.expect("a probe"), false, until, &mut rng);
    until = until + opened.expect("it opens").open_for;
    let fresh = pass(&breaker, until).expect("a probe");
    assert_eq!(
        breaker.record(slow.expect("a probe"), false, until, &mut rng),
        None
    );
    assert_eq!(breaker.phase(), Phase::HalfOpen);
    let _ = breaker.record(fresh, true, until, &mut rng);
}

#[test]
fn silent_probes_do_not_block_it() {
    let (breaker, mut rng) = (Breaker::new(BreakerParams::default()), Rng::seed(5));
    let until = open(&breaker, at(0), &mut rng);
    let silent: Vec<_> = (0..3).filter_map(|_| pass(&breaker, until)).collect();
    assert_eq!(silent.len(), 3);
    assert!(pass(&breaker, until + Duration::from_secs(29)).is_none());
    assert!(pass(&breaker, until + Duration::from_secs(31)).is_some());
}

/// Simulates outages of a fixed length, this far apart. Returns, once the breaker has adapted, how long after the end
/// of an outage the first probe passes, and how many probes fail.
fn outages(length: Duration, apart: Duration, rng: &mut Rng) -> (Duration, u32) {
    let breaker = Breaker::new(BreakerParams::default());
    let (mut now, mut result) = (at(0), (Duration::ZERO, 0));
    for _ in 0..12 {
        let end = now + length;
        let mut until = open(&breaker, now, rng);
        let mut failed = 0;
        while until < end {
            let probe = pass(&breaker, until).expect("a probe");
            let opened = breaker.record(probe, false, until, rng).expect("it opens");
            until = until + opened.open_for;
            failed += 1;
        }
        for _ in 0..3 {
            let probe = pass(&breaker, until).expect("a probe");
            let _ = breaker.record(probe, true, until, rng);
        }
        assert_eq!(breaker.phase(), Phase::Closed);
        result = (until.saturating_since(end), failed);
        now = until + apart;
    }
    result
}

#[test]
fn the_open_interval_learns_how_long_outages_are() {
    let mut rng = Rng::seed(6);
    let soon = Duration::from_secs(2);
    let (late, failed) = outages(Duration::from_secs(30), soon, &mut rng);
    // With intervals of 1, 2, 4, 8 … it would be 4 failed probes.
    assert!(failed <= 2, "{failed}");
    assert!(late < Duration::from_secs(31), "{late:?}");
    let (late, failed) = outages(Duration::from_millis(500), soon, &mut rng);
    assert_eq!(failed, 0);
    assert!(late <= Duration::from_millis(650), "{late:?}");
    // Long after an outage the state is as before it.
    let (_, failed) = outages(Duration::from_secs(30), Duration::from_secs(3600), &mut rng);
    assert!(failed >= 4, "{failed}");
}
