//! Recommendations applied to a modelled cluster: urgent changes do not wait, others are sequenced; a change that made
//! it worse, or never came to be, goes back and rests; nothing of others is touched. `SEED` replays a run.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maglor_balance::{Rng, Time};
use maglor_service_graph::advise::{Advice, Advised, Health, Room, TrafficAdvice};
use maglor_service_graph::tune::{
    Begun, Change, Held, Params, Part, Rollout, Round, Seen, Settings, Stage, Tuning, View, Wait,
};
use support::{between, seed};

const PERIOD: Duration = Duration::from_secs(30);
/// More than a round can need.
const PLENTY: Room = Room {
    cpu_millis: 1_000_000,
    memory_mib: 1_000_000,
};

fn at(round: u64) -> Time {
    Time::ZERO + PERIOD * u32::try_from(round).unwrap()
}

fn advised<T>(value: T) -> Advised<T> {
    Advised {
        value,
        reason: "why".to_owned(),
    }
}

fn advice(name: &str, replicas: u32, cpu: u64, memory: u64) -> Advice {
    Advice {
        service: name.to_owned(),
        cpu_millis: Some(advised(cpu)),
        memory_mib: Some(advised(memory)),
        memory_limit_mib: None,
        replicas: Some(advised(replicas)),
        traffic: Some(TrafficAdvice {
            max_requests: advised(32),
            max_pending_requests: advised(16),
            queue_timeout: advised(Duration::from_secs(1)),
            max_connections: advised(64),
            max_idle_connections: advised(4),
            timeout: advised(Duration::from_secs(1)),
            slow_start: advised(Duration::from_secs(30)),
            retry: None,
            breaker: None,
        }),
        ..Advice::default()
    }
}

/// A service: its settings, its recommendations, its performance.
#[derive(Clone, Debug)]
struct Service {
    present: Settings,
    former: Settings,
    advice: Advice,
    traffic: bool,
    /// Rounds until its replicas are complete; None: never.
    takes: Option<u32>,
    left: Option<u32>,
    /// Replicas that never become available.
    broken: u32,
    health: Health,
    held: Held,
    rooms: Vec<Room>,
}

impl Service {
    fn new(name: &str, advice: Advice) -> (String, Self) {
        let present = Settings {
            replicas: 1,
            cpu_millis: 100,
            memory_mib: 100,
        };
        let service = Self {
            present,
            former: present,
            advice,
            traffic: true,
            takes: Some(2),
            left: Some(0),
            broken: 0,
            health: Health {
                calls: 3000.0,
                failures: 3.0,
                latency_ms: 20.0,
                p95_ms: 0.0,
            },
            held: Held::default(),
            rooms: vec![PLENTY],
        };
        (name.to_owned(), service)
    }

    fn apply(&mut self, change: Change) {
        let before = self.present;
        match change {
            Change::Replicas { from, to } => {
                assert_eq!(from, before.replicas);
                self.present.replicas = to;
            }
            Change::Requests {
                cpu_millis,
                memory_mib,
            } => (self.present.cpu_millis, self.present.memory_mib) = (cpu_millis, memory_mib),
            Change::Traffic => {
                self.traffic = true;
                return;
            }
        }
        (self.former, self.left) = (before, self.takes);
    }
}

struct Fixture {
    services: BTreeMap<String, Service>,
    calls: Vec<(String, String)>,
    apply: bool,
    tuning: Tuning,
}

fn params() -> Params {
    Params::default()
}

impl Fixture {
    fn new(services: impl IntoIterator<Item = (String, Service)>) -> Self {
        Self {
            services: services.into_iter().collect(),
            calls: Vec::new(),
            apply: true,
            tuning: Tuning::restored(params(), BTreeMap::new()),
        }
    }

    /// Applies the result of a round, and advances the time.
    fn round(&mut self, round: u64) -> Round {
        let seen: Vec<Seen<'_>> = self
            .services
            .iter()
            .map(|(name, one)| Seen {
                name,
                present: one.present,
                advice: Some(&one.advice),
                traffic_differs: !one.traffic,
                shares_differ: None,
                rollout: match one.left {
                    Some(0) => Rollout {
                        updated: true,
                        unavailable: one.broken,
                    },
                    Some(_) => Rollout {
                        updated: false,
                        unavailable: 1,
                    },
                    None => Rollout {
                        updated: true,
                        unavailable: one.broken + 1,
                    },
                },
                health: one.health,
                held: one.held,
                rooms: one.rooms.clone(),
            })
            .collect();
        let view = View {
            services: &seen,
            calls: &self.calls,
            apply: self.apply,
        };
        let came = self.tuning.round(at(round), &view);
        for undone in &came.undone {
            let service = self.services.get_mut(&undone.service).unwrap();
            match undone.part {
                Part::Traffic => service.traffic = false,
                Part::Replicas => service.present.replicas = service.former.replicas,
                Part::Requests => {
                    let former = service.former;
                    service.present.cpu_millis = former.cpu_millis;
                    service.present.memory_mib = former.memory_mib;
                }
            }
            service.left = Some(2);
        }
        for Begun {
            service, change, ..
        } in &came.begun
        {
            self.services.get_mut(service).unwrap().apply(*change);
        }
        for service in self.services.values_mut() {
            service.left = service.left.map(|left| left.saturating_sub(1));
        }
        came
    }
}

fn wait(round: &Round, name: &str) -> Option<Wait> {
    round.waiting.get(name).map(|(_, why)| *why)
}

/// A change that makes replicas unready is not a rollout to wait for.
#[test]
fn what_takes_readiness_away_goes_back() {
    let mut service = Service::new("web", advice("web", 1, 100, 100));
    service.1.present.replicas = 3;
    let mut fixture = Fixture::new([service]);
    let begun = (0..).find(|round| !fixture.round(*round).begun.is_empty());
    let begun = begun.unwrap();
    // It is ready and evaluated; then the remaining replica is overloaded.
    let judged = (begun + 1..begun + 10).find(|round| {
        fixture.round(*round);
        let record = &fixture.tuning.records()[&("web".to_owned(), Part::Replicas)];
        record.stage == Stage::Judged
    });
    let web = fixture.services.get_mut("web").unwrap();
    web.health.failures = 2000.0;
    web.left = None;
    let limit = params().ready + params().trial.settle * params().trial.looks;
    let rounds = limit.as_secs() / PERIOD.as_secs() + 3;
    let judged = judged.unwrap();
    let undone = (judged + 1..judged + rounds).flat_map(|round| {
        let round = fixture.round(round);
        let web = fixture.services.get_mut("web").unwrap();
        if web.present.replicas == 1 {
            web.left = None;
        }
        round.undone
    });
    let undone: Vec<_> = undone.map(|one| (one.service, one.part)).collect();
    assert_eq!(undone, [("web".to_owned(), Part::Replicas)]);
    assert_eq!(fixture.services["web"].present.replicas, 3);
}

#[test]
fn more_replicas_wait_for_nothing() {
    let mut fixture = Fixture::new([
        Service::new("busy", advice("busy", 3, 100, 100)),
        Service::new("calm", advice("calm", 1, 300, 100)),
    ]);
    fixture.calls.push(("calm".into(), "busy".into()));
    let round = fixture.round(0);
    let change = Change::Replicas { from: 1, to: 3 };
    assert_eq!(round.begun.len(), 1);
    assert_eq!(
        (&*round.begun[0].service, round.begun[0].change),
        ("busy", change)
    );
    assert_eq!(wait(&round, "calm"), Some(Wait::Observing));
    // More replicas are needed: immediately after those are ready, and not before.
    fixture.services.get_mut("busy").unwrap().advice = advice("busy", 6, 100, 100);
    assert_eq!(wait(&fixture.round(1), "busy"), Some(Wait::OnTheWay));
    assert_eq!(
        fixture.round(2).begun[0].change,
        Change::Replicas { from: 3, to: 6 }
    );
}

/// A replica that fails for any reason is waited for as long as a start takes, but not longer; and the
/// change is not rolled back because of it.
#[test]
fn a_change_does_not_wait_for_a_replica_that_fails() {
    let (name, mut service) = Service::new("web", advice("web", 4, 100, 100));
    service.present.replicas = 3;
    service.broken = 1;
    let mut fixture = Fixture::new([(name, service)]);
    let ready = params().ready.as_secs() / PERIOD.as_secs();
    for round in 0..ready {
        assert_eq!(wait(&fixture.round(round), "web"), Some(Wait::OnTheWay));
    }
    let change = Change::Replicas { from: 3, to: 4 };
    assert_eq!(fixture.round(ready).begun[0].change, change);
    let limit = params().ready + params().trial.length + params().trial.settle * 8;
    let rounds = limit.as_secs() / PERIOD.as_secs();
    let undone = (ready + 1..ready + rounds).flat_map(|round| fixture.round(round).undone);
    assert_eq!(undone.collect::<Vec<_>>(), []);
    let record = &fixture.tuning.records()[&("web".to_owned(), Part::Replicas)];
    assert_eq!((record.stage, record.unavailable), (Stage::Kept, 1));
}

/// One more that fails is the change's.
#[test]
fn a_change_is_blamed_for_one_more_replica_that_fails() {
    let (name, mut service) = Service::new("web", advice("web", 4, 100, 100));
    service.present.replicas = 3;
    service.broken = 1;
    service.takes = None;
    let mut fixture = Fixture::new([(name, service)]);
    let begun = (0..).find(|round| !fixture.round(*round).begun.is_empty());
    let limit = params().ready.as_secs() / PERIOD.as_secs() + 2;
    let begun = begun.unwrap();
    let undone = (begun + 1..=begun + limit).flat_map(|round| fixture.round(round).undone);
    let undone: Vec<_> = undone.map(|one| (one.service, one.part)).collect();
    assert_eq!(undone, [("web".to_owned(), Part::Replicas)]);
}

#[test]
fn nothing_is_done_where_it_is_only_asked() {
    let mut fixture = Fixture::new([Service::new("web", advice("web", 3, 300, 300))]);
    fixture.apply = false;
    for round in 0..100 {
        let came = fixture.round(round);
        assert_eq!((came.begun.len(), came.undone.len()), (0, 0));
        assert_eq!(came.waiting["web"], (Part::Replicas, Wait::Advised));
    }
}

#[test]
fn what_is_others_is_left_alone() {
    let (name, mut web) = Service::new("web", advice("web", 3, 300, 300));
    let all = Held {
        replicas: true,
        cpu: true,
        memory: true,
        traffic: true,
    };
    (web.held, web.traffic) = (all, false);
    let mut fixture = Fixture::new([(name, web)]);
    for round in 0..100 {
        assert_eq!(fixture.round(round), Round::default());
    }
    // An autoscaler manages replicas by CPU: memory is still ours.
    fixture.services.get_mut("web").unwrap().held.memory = false;
    let change = Change::Requests {
        cpu_millis: 100,
        memory_mib: 300,
    };
    assert_eq!(fixture.round(100).begun[0].change, change);
}

#[test]
fn a_little_is_no_reason_to_replace_replicas() {
    let mut fixture = Fixture::new([Service::new("web", advice("web", 1, 110, 90))]);
    for round in 0..100 {
        assert_eq!(fixture.round(round), Round::default());
    }
    fixture.services.get_mut("web").unwrap().advice = advice("web", 1, 111, 90);
    assert_eq!(fixture.round(100).begun.len(), 1);
}

#[test]
fn there_are_no_more_than_nodes_have_room_for() {
    let (name, mut web) = Service::new("web", advice("web", 8, 100, 100));
    let room = |cpu_millis| Room {
        cpu_millis,
        memory_mib: 1000,
    };
    // Together they have room for three, each for one.
    web.rooms = vec![room(150), room(150)];
    let mut fixture = Fixture::new([(name, web)]);
    assert_eq!(
        fixture.round(0).begun[0].change,
        Change::Replicas { from: 1, to: 3 }
    );
    fixture.services.get_mut("web").unwrap().rooms = vec![room(99), room(50)];
    assert_eq!(wait(&fixture.round(10), "web"), Some(Wait::NoRoom));
    // A rollout has one more for a while.
    fixture.services.get_mut("web").unwrap().advice = advice("web", 3, 200, 100);
    let waits = (11..200).map(|round| wait(&fixture.round(round), "web"));
    assert!(waits.into_iter().all(|why| why == Some(Wait::NoRoom)));
}

#[test]
fn what_is_worse_goes_back_and_rests_longer_each_time() {
    let (name, mut web) = Service::new("web", advice("web", 1, 30, 100));
    web.takes = Some(1);
    let mut fixture = Fixture::new([(name, web)]);
    let (mut begun, mut undone) = (Vec::new(), Vec::new());
    for round in 0..2000 {
        let came = fixture.round(round);
        begun.extend(came.begun.iter().map(|_| round));
        for one in &came.undone {
            assert!(one.reason.contains("response times"), "{}", one.reason);
            undone.push(round);
        }
        let web = fixture.services.get_mut("web").unwrap();
        web.health.latency_ms = if web.present.cpu_millis == 30 {
            80.0
        } else {
            20.0
        };
    }
    assert!(undone.len() >= 4, "{undone:?}");
    let rests: Vec<u64> = begun
        .iter()
        .skip(1)
        .zip(&undone)
        .map(|(next, back)| next - back)
        .collect();
    // Half an hour, an hour, two hours.
    assert_eq!(rests[..3], [60, 120, 240], "{begun:?} {undone:?}");
    let record = &fixture.tuning.records()[&("web".to_owned(), Part::Requests)];
    assert!(record.trial.failed() >= 4);
    assert_eq!(fixture.services["web"].present.cpu_millis, 100);
}

#[test]
fn what_is_never_ready_goes_back() {
    let (name, mut web) = Service::new("web", advice("web", 4, 100, 100));
    web.takes = None;
    let mut fixture = Fixture::new([(name, web)]);
    assert_eq!(fixture.round(0).begun.len(), 1);
    let undone: Vec<_> = (1..20)
        .flat_map(|round| fixture.round(round).undone)
        .collect();
    assert_eq!(undone.len(), 1);
    assert_eq!(undone[0].reason, "not all replicas were ready after 180 s");
    assert_eq!(fixture.services["web"].present.replicas, 1);
    assert_eq!(wait(&fixture.round(20), "web"), Some(Wait::Resting));
}

/// A change that could not be written is proposed again until it is.
#[test]
fn what_could_not_be_taken_back_is_taken_back_later() {
    let (name, mut web) = Service::new("web", advice("web", 4, 100, 100));
    web.takes = None;
    let mut fixture = Fixture::new([(name, web)]);
    let mut said = 0;
    for round in 0..20 {
        let undone = fixture.round(round).undone.len();
        said += undone;
        if undone > 0 && said < 3 {
            fixture.tuning.pending("web", Part::Replicas);
        }
    }
    assert_eq!(said, 3);
    let record = &fixture.tuning.records()[&("web".to_owned(), Part::Replicas)];
    assert_eq!((record.stage, record.trial.failed()), (Stage::TakenBack, 1));
}

#[test]
fn one_that_is_judged_has_neighbours_that_wait() {
    let mut fixture =
        Fixture::new(["a", "b", "c"].map(|name| Service::new(name, advice(name, 1, 100, 100))));
    for service in fixture.services.values_mut() {
        service.traffic = false;
    }
    fixture.calls.push(("a".into(), "b".into()));
    let mut begun = Vec::new();
    for round in 0..200 {
        let came = fixture.round(round);
        begun.extend(came.begun.iter().map(|one| (one.service.clone(), round)));
    }
    let rounds: BTreeMap<_, _> = begun.iter().cloned().collect();
    assert_eq!((rounds.len(), begun.len()), (3, 3), "{begun:?}");
    assert_eq!(rounds["a"], 20, "ten minutes are observed");
    assert_eq!(rounds["c"], 20, "it calls no service");
    assert!(
        rounds["b"] >= 20 + 20,
        "a is judged for ten minutes: {rounds:?}"
    );
}

/// A new leader after a crash does what would have been done.
#[test]
fn another_goes_on_with_what_was_written_down() {
    let (name, mut web) = Service::new("web", advice("web", 1, 30, 100));
    web.takes = Some(1);
    let mut fixture = Fixture::new([(name, web)]);
    let mut undone = 0;
    for round in 0..60 {
        let came = fixture.round(round);
        undone += came.undone.len();
        let web = fixture.services.get_mut("web").unwrap();
        web.health.latency_ms = if web.present.cpu_millis == 30 {
            80.0
        } else {
            20.0
        };
        if round > 21 {
            let records = fixture.tuning.records().iter();
            let records = records.map(|(of, record)| (of.clone(), record.clone()));
            fixture.tuning = Tuning::restored(params(), records.collect());
        }
    }
    assert_eq!(undone, 1);
    let record = &fixture.tuning.records()[&("web".to_owned(), Part::Requests)];
    assert_eq!((record.stage, record.trial.failed()), (Stage::TakenBack, 1));
}

/// Random applications: never more than B changes a round, replicas of one service at a time are replaced, nothing
/// but more replicas comes soon after a change or before a service is known, and in the end all is as advised.
#[test]
fn all_comes_to_what_is_advised_step_by_step() {
    let (first, runs) = (seed(1), 40);
    for run in 0..runs {
        let mut rng = Rng::seed(first + run);
        let count = between(&mut rng, 1, 12);
        let services = (0..count).map(|index| {
            let name = format!("s{index}");
            let advice = advice(
                &name,
                between(&mut rng, 1, 5),
                u64::from(between(&mut rng, 20, 400)),
                u64::from(between(&mut rng, 20, 400)),
            );
            let (name, mut service) = Service::new(&name, advice);
            service.present.replicas = between(&mut rng, 1, 5);
            service.traffic = rng.below(2) == 0;
            service.takes = Some(between(&mut rng, 1, 5));
            (name, service)
        });
        let mut fixture = Fixture::new(services.collect::<Vec<_>>());
        for _ in 0..count {
            let (from, to) = (rng.below(count), rng.below(count));
            fixture.calls.push((format!("s{from}"), format!("s{to}")));
        }
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        for round in 0..2000 {
            let came = fixture.round(round);
            assert!(came.begun.len() <= 2 && came.undone.is_empty());
            for one in &came.begun {
                let urgent = matches!(one.change, Change::Replicas { from, to } if to > from);
                let before = last.insert(one.service.clone(), round);
                assert!(urgent || round >= 20, "seed {}: {one:?}", first + run);
                let rested = before.is_none_or(|before| round - before >= 20);
                assert!(urgent || rested, "seed {}: {one:?}", first + run);
            }
            let records = fixture.tuning.records().iter();
            let replaced: BTreeSet<_> = records
                .filter(|((_, part), record)| {
                    *part == Part::Requests && record.stage == Stage::Changing
                })
                .map(|((name, _), _)| name)
                .collect();
            assert!(replaced.len() <= 1, "seed {}: {replaced:?}", first + run);
        }
        for (name, service) in &fixture.services {
            let wanted = &service.advice;
            let near =
                |value: u64, wanted: u64| value.abs_diff(wanted) as f64 <= 0.1 * value as f64;
            let present = service.present;
            assert_eq!(
                present.replicas,
                wanted.replicas.as_ref().unwrap().value,
                "{name}"
            );
            assert!(
                near(
                    present.cpu_millis,
                    wanted.cpu_millis.as_ref().unwrap().value
                ),
                "{name}"
            );
            assert!(
                near(
                    present.memory_mib,
                    wanted.memory_mib.as_ref().unwrap().value
                ),
                "{name}"
            );
            assert!(service.traffic, "{name}");
        }
    }
}
