//! Scalers over a simulated day, shortened: properties of both that do not depend on the numbers.

use maglor_lab::autoscale::{Advised, Application, Day, Hpa, Size, run};
use maglor_service_graph::advise::Params;

const SIZE: Size = Size {
    cpu_millis: 1000.0,
    memory_mib: 128.0,
    cpu_limit_millis: 1000.0,
};

fn day() -> Day {
    Day {
        seconds: 7200.0,
        rps: (20.0, 200.0),
        bursts: 2,
    }
}

/// Both follow the load, both get the same requests, and Algorithm 2 requests less CPU and
/// memory than replicas of one size do.
#[test]
fn both_follow_the_load() {
    let application = Application::random(12, 7);
    let mut hpa = Hpa::new(0.7);
    let autoscaled = run(&application, &day(), |_| SIZE, &mut hpa, 7);
    let mut advised = Advised::new(&application, Params::default());
    let advised = run(&application, &day(), |_| SIZE, &mut advised, 7);
    println!("{autoscaled:#?}\n{advised:#?}");
    for outcome in [&autoscaled, &advised] {
        assert!(outcome.requests > 500_000, "{outcome:?}");
        assert!(outcome.p95_ms < 150.0, "{outcome:?}");
        assert!(outcome.cpu_millis > outcome.cpu_used_millis, "{outcome:?}");
    }
    let used = autoscaled.cpu_used_millis / advised.cpu_used_millis;
    assert!((0.98..1.02).contains(&used), "{used}");
    assert!(advised.cpu_millis < autoscaled.cpu_millis);
    assert!(advised.memory_mib < autoscaled.memory_mib);
    assert!(advised.above_request < 0.1, "{advised:?}");
    // A burst is answered as soon as an autoscaler does; no memory is short.
    assert!(advised.p99_ms <= autoscaled.p99_ms, "{advised:?}");
    assert!(advised.above_memory <= 0.0, "{advised:?}");
}

/// The same seed produces the same day.
#[test]
fn days_are_reproducible() {
    let application = Application::random(5, 3);
    let once = || run(&application, &day(), |_| SIZE, &mut Hpa::new(0.7), 3);
    assert_eq!(once(), once());
}

/// One service, one replica: M/M/1, whose response times are exponential.
#[test]
fn a_replica_is_a_fifo_server() {
    let mut application = Application::random(1, 1);
    application.services[0].work = 0.01;
    let flat = Day {
        seconds: 7200.0,
        rps: (50.0, 50.0),
        bursts: 0,
    };
    let mut hpa = Hpa::new(0.7);
    hpa.replicas = (1, 1);
    let outcome = run(&application, &flat, |_| SIZE, &mut hpa, 5);
    // The rate of a period is off by up to 10 %: E[1 / (100 − λ)] is 20.07 ms.
    assert!((19.0..21.2).contains(&outcome.mean_ms), "{outcome:?}");
    assert!((57.0..64.0).contains(&outcome.p95_ms), "{outcome:?}");
    assert!(
        (490.0..510.0).contains(&outcome.cpu_used_millis),
        "{outcome:?}"
    );
}
