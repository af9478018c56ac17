//! Tests the breaker against a model of its states, and that it always closes again.

use std::time::Duration;

use maglor_balance::guard::Percent;
use maglor_balance::guard::breaker::{Breaker, BreakerParams, Entry, Pass, Phase, Transition};
use maglor_balance::{Rng, Time};
use proptest::prelude::*;

use crate::support::check;

#[derive(Clone, Debug)]
enum Step {
    Abandon(usize),
    Enter(u8),
    Record(usize, bool),
    Wait(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => any::<usize>().prop_map(Step::Abandon),
        3 => (1_u8..6).prop_map(Step::Enter),
        6 => (any::<usize>(), prop::bool::weighted(0.4)).prop_map(|(i, ok)| Step::Record(i, ok)),
        3 => (0_u16..2000).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..150)
}

fn any_params() -> impl Strategy<Value = BreakerParams> {
    (1_u32..6, 1_u32..4, 1_u32..4, 1_u64..2000, 1_u64..20).prop_map(
        |(consecutive_failures, half_open_requests, success_threshold, base, times)| {
            BreakerParams {
                consecutive_failures,
                // The model covers only consecutive failures.
                failure_percent: Percent::NONE,
                base_open: Duration::from_millis(base),
                max_open: Duration::from_millis(base * times),
                half_open_requests,
                success_threshold,
                ..BreakerParams::default()
            }
        },
    )
}

/// The states with plain numbers; how long it is open is the breaker's own business.
struct Model {
    params: BreakerParams,
    phase: Phase,
    /// The number of passes granted in this state.
    streak: u32,
    probes: u32,
    succeeded: u32,
    half_open_since: Time,
    until: Time,
    /// Which of the passes that are out count.
    current: Vec<bool>,
}

impl Model {
    fn change(&mut self, to: Phase) {
        self.phase = to;
        (self.streak, self.probes, self.succeeded) = (0, 0, 0);
        self.current.fill(false);
    }

    /// Whether a request passes, and whether that half-opens it.
    fn enter(&mut self, now: Time) -> (bool, bool) {
        let wakes = self.phase == Phase::Open && now >= self.until;
        if wakes {
            self.change(Phase::HalfOpen);
            self.half_open_since = now;
        }
        let passes = match self.phase {
            Phase::Closed => true,
            Phase::Open => false,
            Phase::HalfOpen => {
                if now.saturating_since(self.half_open_since) > self.params.max_open {
                    (self.half_open_since, self.probes) = (now, 0);
                }
                self.probes < self.params.half_open_requests
            }
        };
        if passes {
            self.probes += u32::from(self.phase == Phase::HalfOpen);
            self.current.push(true);
        }
        (passes, wakes)
    }

    /// The state that a result leads to, if it is another one.
    fn record(&mut self, which: usize, ok: bool) -> Option<Phase> {
        if !self.current.swap_remove(which) {
            return None;
        }
        match (self.phase, ok) {
            (Phase::Closed, true) => {
                self.streak = 0;
                None
            }
            (Phase::Closed, false) => {
                self.streak += 1;
                (self.streak >= self.params.consecutive_failures).then_some(Phase::Open)
            }
            (Phase::HalfOpen, true) => {
                self.probes = self.probes.saturating_sub(1);
                self.succeeded += 1;
                (self.succeeded >= self.params.success_threshold).then_some(Phase::Closed)
            }
            (Phase::HalfOpen, false) => Some(Phase::Open),
            (Phase::Open, _) => panic!("no pass of an open breaker is current"),
        }
    }
}

fn check_interval(transition: &Transition, params: &BreakerParams) {
    if transition.to == Phase::Open {
        let (low, high) = (params.base_open.mul_f64(0.9), params.max_open.mul_f64(1.1));
        let slack = Duration::from_nanos(2);
        assert!(transition.open_for + slack >= low, "{transition:?}");
        assert!(transition.open_for <= high + slack, "{transition:?}");
    } else {
        assert_eq!(transition.open_for, Duration::ZERO);
    }
}

#[test]
fn it_does_what_the_model_does() {
    let strategy = (any_params(), steps(), any::<u64>());
    check(88, &strategy, |(params, steps, seed)| {
        let (breaker, mut rng, mut now) = (Breaker::new(params), Rng::seed(seed), Time::ZERO);
        let mut passes: Vec<Pass> = Vec::new();
        let mut model = Model {
            params,
            phase: Phase::Closed,
            streak: 0,
            probes: 0,
            succeeded: 0,
            half_open_since: Time::ZERO,
            until: Time::ZERO,
            current: Vec::new(),
        };
        for step in steps {
            match step {
                Step::Wait(millis) => now = now + Duration::from_millis(u64::from(millis)),
                Step::Enter(count) => {
                    for _ in 0..count {
                        let (expected, wakes) = model.enter(now);
                        let (entry, transition) = breaker.enter(now);
                        assert_eq!(transition.is_some(), wakes);
                        match entry {
                            Entry::Passed(pass) => {
                                assert!(expected);
                                assert_eq!(pass.is_probe(), model.phase == Phase::HalfOpen);
                                passes.push(pass);
                            }
                            Entry::Rejected(wait) => {
                                assert!(!expected && wait > Duration::ZERO);
                            }
                        }
                    }
                }
                Step::Record(which, ok) if !passes.is_empty() => {
                    let which = which % passes.len();
                    let expected = model.record(which, ok);
                    let got = breaker.record(passes.swap_remove(which), ok, now, &mut rng);
                    assert_eq!(got.map(|transition| transition.to), expected);
                    if let Some(transition) = got {
                        check_interval(&transition, &params);
                        model.change(transition.to);
                        model.until = now + transition.open_for;
                    }
                }
                Step::Abandon(which) if !passes.is_empty() => {
                    let which = which % passes.len();
                    breaker.abandon(&passes.swap_remove(which));
                    if model.current.swap_remove(which) && model.phase == Phase::HalfOpen {
                        model.probes = model.probes.saturating_sub(1);
                    }
                }
                Step::Record(..) | Step::Abandon(_) => {}
            }
            assert_eq!(breaker.phase(), model.phase);
        }
    });
}

/// After any past, a cluster that answers well again closes it: within the longest interval, and as
/// long as half-open waits for silent probes.
#[test]
fn it_closes_again() {
    let strategy = (any_params(), steps(), any::<u64>());
    check(89, &strategy, |(params, steps, seed)| {
        let (breaker, mut rng, mut now) = (Breaker::new(params), Rng::seed(seed), Time::ZERO);
        let mut passes: Vec<Pass> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(millis) => now = now + Duration::from_millis(u64::from(millis)),
                Step::Enter(_) => {
                    if let (Entry::Passed(pass), _) = breaker.enter(now) {
                        passes.push(pass);
                    }
                }
                Step::Record(which, _) if !passes.is_empty() => {
                    let pass = passes.swap_remove(which % passes.len());
                    let _ = breaker.record(pass, false, now, &mut rng);
                }
                Step::Record(..) | Step::Abandon(_) => {}
            }
        }
        // Requests that are still in progress are never reported.
        let deadline = now + params.max_open.mul_f64(2.2) + Duration::from_millis(20);
        while breaker.phase() != Phase::Closed {
            assert!(now <= deadline, "{:?}", breaker.phase());
            if let (Entry::Passed(pass), _) = breaker.enter(now) {
                let _ = breaker.record(pass, true, now, &mut rng);
            }
            now = now + Duration::from_millis(1);
        }
    });
}

#[test]
fn threads_share_one_breaker() {
    let params = BreakerParams {
        base_open: Duration::from_nanos(1),
        max_open: Duration::from_millis(1),
        ..BreakerParams::default()
    };
    let breaker = Breaker::new(params);
    let work = |thread: u64| {
        let breaker = &breaker;
        move || {
            let mut rng = Rng::seed(thread);
            for i in 0..5000_u64 {
                let now = Time::from_nanos(i * 1000);
                if let (Entry::Passed(pass), _) = breaker.enter(now) {
                    let ok = rng.below(3) > 0;
                    if let Some(transition) = breaker.record(pass, ok, now, &mut rng) {
                        check_interval(&transition, &params);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(work(thread));
        }
    });
    // However it ended, it works: successes close it.
    let mut rng = Rng::seed(9);
    let mut now = Time::from_nanos(1_000_000_000);
    for _ in 0..10 {
        if let (Entry::Passed(pass), _) = breaker.enter(now) {
            let _ = breaker.record(pass, true, now, &mut rng);
        }
        now = now + Duration::from_secs(1);
    }
    assert_eq!(breaker.phase(), Phase::Closed);
}
