use maglor_balance::Rng;

use super::*;

const EVERY: Duration = Duration::from_secs(10);
const ALL: [Choice; 3] = [Choice::Bounce, Choice::Ledger, Choice::ProxyService];

fn situation(balancers: u32, servers: u32, rho: f64) -> Situation {
    Situation {
        balancers,
        servers,
        rho,
        service_time: Duration::from_millis(20),
        round_trip: Duration::from_micros(500),
        speed_variation: 0.0,
        proxies: 1,
        proxy_penalty: Duration::from_millis(1),
    }
}

/// Returns the observations of a service that conforms to the rule, with relative errors of λ and r.
fn seen(situation: &Situation, choice: Choice, errors: (f64, f64)) -> Telemetry {
    Telemetry {
        balancers: situation.balancers,
        servers: situation.servers,
        rps: situation.rps() * errors.0,
        latency: situation.predict(choice).mul_f64(errors.1),
        choice,
        round_trip: situation.round_trip,
        speed_variation: situation.speed_variation,
        proxies: situation.proxies,
        proxy_penalty: situation.proxy_penalty,
    }
}

/// A service that is evaluated every ten seconds.
struct Service {
    governor: Governor,
    budget: Budget,
    rng: Rng,
    now: Time,
    possible: Vec<Choice>,
    /// The maximum relative error of observations, in both directions.
    noise: f64,
    /// The unknown factor by which `lor` of the service is slower.
    hidden: f64,
}

impl Service {
    fn new(noise: f64, seed: u64) -> Self {
        Self {
            governor: Governor::new(Limits::default(), Choice::Local),
            budget: Budget::new(100, Duration::from_secs(3600)),
            rng: Rng::seed(seed),
            now: Time::ZERO,
            possible: ALL.to_vec(),
            noise,
            hidden: 1.0,
        }
    }

    /// Returns the changes within a time under a constant load.
    fn goes_on(&mut self, situation: &Situation, time: Duration) -> Vec<Change> {
        let end = self.now + time;
        let mut changes = Vec::new();
        while self.now < end {
            let mut error = || 1.0 + self.noise * (2.0 * self.rng.unit() - 1.0);
            let errors = (error(), error());
            let choice = self.governor.current();
            let mut telemetry = seen(situation, choice, errors);
            if choice != Choice::Local {
                telemetry.latency = telemetry.latency.mul_f64(self.hidden);
            }
            let looked = self
                .governor
                .look(self.now, &telemetry, &self.possible, &mut self.budget);
            changes.extend(looked);
            self.now = self.now + EVERY;
        }
        changes
    }
}

const HOUR: Duration = Duration::from_secs(3600);

fn words(changes: &[Change]) -> Vec<(Choice, Reason)> {
    changes.iter().map(|one| (one.to, one.reason)).collect()
}

#[test]
fn it_follows_a_schedule_of_loads() {
    let mut service = Service::new(0.2, 1);
    let calm = service.goes_on(&situation(20, 40, 0.1), HOUR);
    assert_eq!(calm, [], "no queueing");
    let busy = service.goes_on(&situation(20, 40, 0.75), HOUR);
    assert_eq!(words(&busy), [(Choice::Ledger, Reason::Gain)]);
    let predicted = busy[0].predicted.as_secs_f64();
    assert!((predicted - 0.0211).abs() < 0.002, "{predicted}");
    let idle = service.goes_on(&situation(1, 40, 0.02), HOUR);
    assert_eq!(words(&idle), [(Choice::Local, Reason::Idle)]);
    let again = service.goes_on(&situation(20, 40, 0.8), HOUR);
    assert_eq!(words(&again), [(Choice::Ledger, Reason::Gain)]);
}

#[test]
fn proxies_are_the_choice_where_nothing_else_is_possible() {
    let mut service = Service::new(0.2, 2);
    service.possible = vec![Choice::ProxyService];
    let busy = service.goes_on(&situation(20, 40, 0.75), HOUR);
    assert_eq!(words(&busy), [(Choice::ProxyService, Reason::Gain)]);
    let view = service.governor.view().unwrap();
    let gain = 1.0 - view.measured.as_secs_f64() / view.local.as_secs_f64();
    assert!((gain - 0.39).abs() < 0.05, "{view:?}");
}

#[test]
fn going_back_to_local_is_no_trial() {
    // If the hop through a proxy takes half of a service time, its removal alone is a gain.
    let quick = Situation {
        service_time: Duration::from_millis(2),
        ..situation(2, 40, 0.1)
    };
    // Nor is `bounce` worth it, which is better than the proxy but hardly than `lor`.
    for possible in [ALL.to_vec(), vec![Choice::ProxyService]] {
        let mut service = Service::new(0.05, 4);
        service.possible = possible;
        service.governor = Governor::new(Limits::default(), Choice::ProxyService);
        let changes = service.goes_on(&quick, 8 * HOUR);
        assert_eq!(words(&changes), [(Choice::Local, Reason::Idle)]);
    }
}

#[test]
fn it_never_flaps_under_noise() {
    let (seed, mut most) = (7, 0);
    for round in 0..300 {
        let mut rng = Rng::seed(seed + round);
        let balancers = 1 + rng.below(100);
        let servers = 1 + rng.below(100);
        let situation = Situation {
            round_trip: Duration::from_micros(u64::from(rng.below(20_000))),
            speed_variation: 0.3 * rng.unit(),
            ..situation(balancers, servers, 0.05 + 0.9 * rng.unit())
        };
        let mut service = Service::new(0.2, round);
        let changes = service.goes_on(&situation, 12 * HOUR);
        most = most.max(changes.len());
        assert!(changes.len() <= 1, "{round}: {situation:?} {changes:?}");
        let back = changes.iter().any(|change| change.reason != Reason::Gain);
        assert!(!back, "{situation:?} {changes:?}");
    }
    assert_eq!(most, 1, "none of them was changed");
}

#[test]
fn changes_that_do_not_help_are_reverted_and_not_retried_soon() {
    let mut service = Service::new(0.1, 3);
    service.possible = vec![Choice::ProxyService];
    service.hidden = 2.0;
    let busy = situation(20, 40, 0.75);
    let changes = service.goes_on(&busy, HOUR);
    let attempted = [
        (Choice::ProxyService, Reason::Gain),
        (Choice::Local, Reason::NoHelp),
    ];
    assert_eq!(words(&changes), attempted);
    assert_eq!(service.goes_on(&busy, 4 * HOUR), []);
    service.hidden = 1.0;
    assert_eq!(words(&service.goes_on(&busy, 3 * HOUR)), attempted[..1]);
}

/// A slowdown caused by fewer servers is not attributed to the change.
#[test]
fn servers_that_go_are_no_failure() {
    let mut service = Service::new(0.0, 6);
    service.possible = vec![Choice::ProxyService];
    let before = situation(20, 40, 0.55);
    let inserted = service.goes_on(&before, Duration::from_secs(300));
    assert_eq!(words(&inserted), [(Choice::ProxyService, Reason::Gain)]);
    // The same requests, and fewer servers of the same speed.
    let after = Situation {
        servers: 24,
        ..before
    };
    let after = after.at_rate(before.rps());
    assert_eq!(service.goes_on(&after, HOUR), []);
}

#[test]
fn changes_of_all_are_limited() {
    let mut budget = Budget::new(2, HOUR);
    let at = |minutes: u64| Time::ZERO + Duration::from_secs(60 * minutes);
    let taken = [0, 10, 20, 59, 60, 61, 70].map(|minutes| budget.take(at(minutes)));
    assert_eq!(taken, [true, true, false, false, true, false, true]);
    let mut service = Service::new(0.0, 4);
    service.budget = Budget::new(0, HOUR);
    assert_eq!(service.goes_on(&situation(20, 40, 0.75), HOUR), []);
}

#[test]
fn without_requests_nothing_is_known() {
    let mut service = Service::new(0.0, 5);
    let nothing = Telemetry {
        rps: 0.0,
        ..seen(&situation(20, 40, 0.75), Choice::Local, (1.0, 1.0))
    };
    let Service {
        governor, budget, ..
    } = &mut service;
    assert_eq!(governor.look(Time::ZERO, &nothing, &ALL, budget), None);
    assert_eq!(governor.view(), None);
}
