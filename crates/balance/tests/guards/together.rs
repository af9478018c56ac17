//! Guards with the rest: ejections reach the view, and a storm of retries does not outlive its cause.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::guard::Percent;
use maglor_balance::guard::outlier::{Detector, Event, Monitor, OutlierParams, Sample, Watched};
use maglor_balance::guard::retry::{
    Answer, Attempts, BackOff, Condition, Conditions, Context, Decision, Failure, Outcome, Request,
    RetryPolicy,
};
use maglor_balance::guard::retry_budget::{Budget, BudgetParams, RetryPermit};
use maglor_balance::{Balancer, PickCtx, PolicySpec, Rng, SlowStart, Time, ViewParams};

use crate::at;
use crate::support::{counts_with, equal};

/// Handles the detector's events like the owner of a cluster.
#[test]
fn an_ejected_endpoint_gets_nothing_and_returns_slowly() {
    let (mut endpoints, mut rng) = (equal(4), Rng::seed(7));
    let params = ViewParams {
        slow_start: Some(SlowStart::default()),
        ..ViewParams::default()
    };
    let mut detector = Detector::new(OutlierParams::default(), at(0));
    let monitors: Vec<_> = (0..4).map(|_| Arc::new(Monitor::new())).collect();
    let watched = monitors.iter().enumerate().map(|(id, monitor)| Watched {
        id: id as u64,
        monitor: Arc::clone(monitor),
    });
    let _ = detector.set_endpoints(watched, at(0));
    let spec: PolicySpec = "random".parse().unwrap();
    let before = Balancer::build(&spec, endpoints.clone(), &params, at(60_000)).unwrap();
    let share = |balancer: &Balancer, now: Time, rng: &mut Rng| {
        counts_with(balancer, &PickCtx::new(now), 8000, rng)[2] as f64 / 8000.0
    };

    let found = (0..5).find_map(|_| monitors[2].record(Sample::GatewayError, detector.params()));
    let event = detector.found(2, found.unwrap(), at(60_000), &mut rng);
    let Some(Event::Ejected { id: 2, time, .. }) = event else {
        panic!("{event:?}");
    };
    assert!(endpoints[2].stats.set_ejected(true));
    let without = before.rebuild(endpoints.clone(), &params, at(60_000));
    assert_eq!(without.view().available(), 3);
    assert_eq!(share(&without, at(60_001), &mut rng), 0.0);

    let end = at(60_000) + time;
    assert_eq!(detector.tick(end, &mut rng), [Event::Probe { id: 2 }]);
    let event = detector.probed(2, true, end);
    assert!(matches!(event, Some(Event::Returned { id: 2, .. })));
    assert!(endpoints[2].stats.set_ejected(false));
    endpoints[2].added_at = end;
    let after = without.rebuild(endpoints, &params, end);
    // f/(3 + f) with f = 0.1, 0.5 and 1 of the ramp of 30 s.
    for (seconds, exact) in [(0, 0.032), (15, 0.143), (30, 0.25)] {
        let got = share(&after, end + Duration::from_secs(seconds), &mut rng);
        assert!((got - exact).abs() < 0.025, "{got} for {exact}");
    }
}

/// A server that processes 100 requests a second sequentially, with a queue of 50. It is
/// unaware that no client waits longer than a quarter of a second: later work is wasted, and
/// retries of it make the queue longer (the paper's Fig. 10, with its ten retries).
struct Storm {
    budget: Arc<Budget>,
    policy: RetryPolicy,
    rng: Rng,
    /// When the server has processed its queue.
    free_at: Time,
    /// Attempts to begin: time, number, request.
    due: BinaryHeap<Reverse<(Time, usize)>>,
    requests: Vec<Pending>,
    attempts: u32,
    /// Requests that were answered in time, by second of their arrival.
    good: Vec<u32>,
}

struct Pending {
    second: usize,
    attempts: Attempts,
    permit: Option<RetryPermit>,
}

const SERVICE: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_millis(250);
const QUEUE: u32 = 50;

impl Storm {
    fn new(budget: BudgetParams, interval: Duration) -> Self {
        let back_off = BackOff {
            base_interval: interval,
            max_interval: interval,
        };
        let policy = RetryPolicy {
            attempts: 10,
            conditions: Conditions::of(&[Condition::FiveXx]),
            back_off,
            ..RetryPolicy::default()
        };
        Self {
            budget: Arc::new(Budget::new(budget)),
            policy,
            rng: Rng::seed(5),
            free_at: Time::ZERO,
            due: BinaryHeap::new(),
            requests: Vec::new(),
            attempts: 0,
            good: vec![0; 40],
        }
    }

    /// 70 requests a second for 40 s, but 250 in seconds 10–14.
    fn run(&mut self) {
        for second in 0..40_usize {
            let rate = if (10..15).contains(&second) { 250 } else { 70 };
            for _ in 0..rate {
                let within = Duration::from_secs_f64(self.rng.unit());
                let arrival = at(1000 * second as u64) + within;
                self.due.push(Reverse((arrival, self.requests.len())));
                self.requests.push(Pending {
                    second,
                    attempts: Attempts::new(),
                    permit: None,
                });
            }
        }
        while let Some(Reverse((now, which))) = self.due.pop() {
            self.attempt(which, now);
        }
    }

    fn attempt(&mut self, which: usize, now: Time) {
        self.attempts += 1;
        if self.requests[which].attempts.count() == 1 {
            self.budget.request(now);
        }
        let backlog = self.free_at.saturating_since(now);
        let waiting = (backlog.as_secs_f64() / SERVICE.as_secs_f64()).ceil() as u32;
        if waiting >= QUEUE {
            return self.failed(which, Outcome::Answer(Answer::status(503)), now);
        }
        self.free_at = self.free_at.max(now) + SERVICE;
        if self.free_at.saturating_since(now) > PATIENCE {
            let timeout = Outcome::Failure(Failure::PerTryTimeout);
            return self.failed(which, timeout, now + PATIENCE);
        }
        let request = &mut self.requests[which];
        request.permit = None;
        self.good[request.second] += 1;
    }

    fn failed(&mut self, which: usize, outcome: Outcome, now: Time) {
        let request = &mut self.requests[which];
        request.permit = None;
        let context = Context {
            policy: &self.policy,
            request: Request {
                idempotent: true,
                attempt: 1,
                deadline: None,
            },
            budget: &self.budget,
            active: 1000,
            replayable: true,
            elsewhere: false,
            now,
        };
        match request.attempts.after(&outcome, &context, &mut self.rng) {
            Decision::GiveUp(_) => {}
            Decision::Retry { after, permit } => {
                request.permit = permit;
                self.due.push(Reverse((now + after, which)));
            }
        }
    }

    /// Attempts for each request, and the goodput of seconds, 0–1.
    fn result(&self, seconds: std::ops::Range<usize>) -> (f64, f64) {
        let good: u32 = self.good[seconds.clone()].iter().sum();
        let all = 70.0 * seconds.len() as f64;
        let attempts = f64::from(self.attempts) / self.requests.len() as f64;
        (attempts, f64::from(good) / all)
    }
}

#[test]
fn a_storm_ends_with_its_cause() {
    let boundless = BudgetParams {
        percent: Percent::ALL,
        min_concurrency: u32::MAX,
        min_per_second: 100_000,
        ..BudgetParams::default()
    };
    for interval in [2, 5].map(Duration::from_secs) {
        let mut with = Storm::new(BudgetParams::default(), interval);
        with.run();
        let (attempts, before) = with.result(0..10);
        // The abandoned requests in the server's queue take it 3 s, at 100 a second with 84 arriving.
        let (_, after) = with.result(19..40);
        assert!(attempts <= 1.25, "{attempts}");
        assert!(before == 1.0 && after == 1.0, "{before}, {after}");

        let mut without = Storm::new(boundless, interval);
        without.run();
        let (attempts, _) = without.result(0..10);
        let (_, after) = without.result(19..29);
        assert!(attempts > 2.0, "{attempts}");
        assert!(after < 0.1, "{after}");
    }
}
