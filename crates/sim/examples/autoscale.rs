//! A day of 30 services under Algorithm 2 and under a HorizontalPodAutoscaler, at equal p95:
//!
//! ```text
//! cargo run -p maglor-sim --example autoscale -- [SECONDS [SEED]]
//! ```
//!
//! Algorithm 2 runs at several ceilings of utilization, the autoscaler at its usual target with several
//! ways of choosing what replicas request. Beside each of them stands the run of Algorithm 2 with least memory
//! whose 95th percentile is not above the autoscaler's.

use maglor_mcg::advise::Params;
use maglor_sim::autoscale::{Advised, Application, Day, Hpa, Outcome, Size, run};

const SERVICES: usize = 30;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok());
    let seed = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let application = Application::random(SERVICES, seed);
    let day = Day {
        seconds: seconds.unwrap_or(86_400.0),
        rps: (200.0, 1000.0),
        bursts: 6,
    };
    let visits = application.visits();
    let all: f64 = visits.iter().sum();
    println!(
        "{SERVICES} services, {all:.1} visits a request, {:.0}-{:.0} requests/s, {:.0} s, seed {seed}",
        day.rps.0, day.rps.1, day.seconds
    );
    println!(
        "{:<26} {:>7} {:>7} {:>8} {:>8} {:>7} {:>7} {:>7} {:>6} {:>6}",
        "who", "CPU", "used", "memory", "replicas", "mean", "p95", "p99", "above", "changes"
    );
    // What is used at noon, in thousandths of a core.
    let peak = |at: usize| visits[at] * day.rps.1 * application.services[at].work * 1e3;
    let uniform = |cpu: f64, memory: f64, limit: f64| Size {
        cpu_millis: cpu,
        memory_mib: memory,
        cpu_limit_millis: limit,
    };
    let tuned = |at: usize| {
        let cpu = (peak(at) / 0.7).clamp(25.0, 1000.0);
        uniform(cpu, application.services[at].memory_mib * 1.2, 1000.0)
    };
    let template = uniform(1000.0, 128.0, 1000.0);
    let mut advised = Vec::new();
    for utilization in [0.75, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3, 0.2] {
        let mut params = Params::default();
        params.scaling.utilization = Some(utilization);
        let mut scaler = Advised::new(&application, params);
        let outcome = run(&application, &day, |_| template, &mut scaler, seed);
        show(&format!("Algorithm 2 at {utilization}"), &outcome);
        advised.push((utilization, outcome));
    }
    let sizes: [(&str, &dyn Fn(usize) -> Size); 4] = [
        ("250m, 128 MiB each", &|_| uniform(250.0, 128.0, 1000.0)),
        ("500m, 128 MiB each", &|_| uniform(500.0, 128.0, 1000.0)),
        ("1000m, 128 MiB each", &|_| template),
        ("known peak of each", &tuned),
    ];
    for (name, size) in sizes {
        let autoscaled = run(&application, &day, size, &mut Hpa::new(0.7), seed);
        show(&format!("HPA 70 %, {name}"), &autoscaled);
        compare(&autoscaled, &advised);
    }
}

fn compare(autoscaled: &Outcome, advised: &[(f64, Outcome)]) {
    let equal = advised
        .iter()
        .filter(|(_, outcome)| outcome.p95_ms <= autoscaled.p95_ms);
    let smallest = equal.min_by(|(_, a), (_, b)| a.memory_mib.total_cmp(&b.memory_mib));
    let Some((utilization, outcome)) = smallest else {
        println!("  no ceiling comes to its p95");
        return;
    };
    let saved = |before: f64, after: f64| (1.0 - after / before) * 100.0;
    println!(
        "  Algorithm 2 at {utilization}: {:.1} % of CPU, {:.1} % of memory saved, p95 {:.1} of {:.1} ms",
        saved(autoscaled.cpu_millis, outcome.cpu_millis),
        saved(autoscaled.memory_mib, outcome.memory_mib),
        outcome.p95_ms,
        autoscaled.p95_ms
    );
}

fn show(who: &str, outcome: &Outcome) {
    println!(
        "{who:<26} {:>6.0}m {:>6.0}m {:>5.0}MiB {:>8.1} {:>5.1}ms {:>5.1}ms {:>5.1}ms {:>5.2}% {:>6.1}",
        outcome.cpu_millis,
        outcome.cpu_used_millis,
        outcome.memory_mib,
        outcome.replicas,
        outcome.mean_ms,
        outcome.p95_ms,
        outcome.p99_ms,
        outcome.above_request * 100.0,
        outcome.changes,
    );
}
