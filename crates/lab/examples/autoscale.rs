//! A day of 30 services under Algorithm 2 and under a HorizontalPodAutoscaler, at equal p95:
//!
//! ```text
//! cargo run -p maglor-lab --example autoscale -- [SECONDS [SEEDS [VARIES]]]
//! ```
//!
//! Each seed is another application with other requests. Algorithm 2 runs at several ceilings of utilization,
//! the autoscaler at its default target with several resource requests of replicas. Each of these is compared
//! with the run of Algorithm 2 with least memory whose 95th percentile is not above the autoscaler's. `VARIES` is
//! the relative deviation of a replica's memory from its mean, 0.02 by default.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use maglor_lab::autoscale::{Advised, Application, Day, Hpa, Outcome, Size, run};
use maglor_service_graph::advise::Params;

const SERVICES: usize = 30;
/// Tested ceilings of utilization, those with most memory last.
const CEILINGS: [f64; 10] = [0.8, 0.75, 0.7, 0.65, 0.6, 0.5, 0.4, 0.35, 0.3, 0.15];
/// The utilization target of the autoscaler.
const TARGET: f64 = 0.7;
const CORE: f64 = 1000.0;
/// The memory request in the template of a replica, in MiB.
const MEMORY: f64 = 128.0;

/// The scaler.
#[derive(Clone, Copy)]
enum Way {
    /// Algorithm 2 at a ceiling.
    Advised(f64),
    /// The autoscaler; all replicas request this CPU, in thousandths of a core.
    Each(f64),
    /// The autoscaler; replicas request their usage at noon plus the usual margins.
    Known,
}

const AUTOSCALED: [Way; 4] = [
    Way::Each(250.0),
    Way::Each(500.0),
    Way::Each(CORE),
    Way::Known,
];

impl Way {
    fn name(self) -> String {
        match self {
            Self::Advised(ceiling) => format!("Algorithm 2 at {ceiling}"),
            Self::Each(cpu) => format!("HPA 70 %, {cpu}m, 128 MiB each"),
            Self::Known => "HPA 70 %, known peak of each".to_owned(),
        }
    }

    fn run(self, application: &Application, day: &Day, seed: u64) -> Outcome {
        let template = |cpu_millis| Size {
            cpu_millis,
            memory_mib: MEMORY,
            cpu_limit_millis: CORE,
        };
        let mut hpa = Hpa::new(TARGET);
        match self {
            Self::Advised(ceiling) => {
                let mut params = Params::default();
                params.scaling.utilization = Some(ceiling);
                let mut advised = Advised::new(application, params);
                run(application, day, |_| template(CORE), &mut advised, seed)
            }
            Self::Each(cpu) => run(application, day, |_| template(cpu), &mut hpa, seed),
            Self::Known => {
                let visit_ratios = application.visit_ratios();
                let known = |at: usize| {
                    let service = &application.services[at];
                    let peak = visit_ratios[at] * day.rps.1 * service.work * CORE;
                    Size {
                        cpu_millis: (peak / TARGET).clamp(25.0, CORE),
                        memory_mib: service.memory_mib * 1.2,
                        cpu_limit_millis: CORE,
                    }
                };
                run(application, day, known, &mut hpa, seed)
            }
        }
    }
}

/// An application and the outcomes, in the order of [`ways`].
struct Scenario {
    seed: u64,
    application: Application,
    outcomes: Vec<Outcome>,
}

fn ways() -> impl Iterator<Item = Way> {
    CEILINGS.into_iter().map(Way::Advised).chain(AUTOSCALED)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|text| text.parse::<f64>().ok());
    let day = Day {
        seconds: number().unwrap_or(86_400.0),
        rps: (200.0, 1000.0),
        bursts: 6,
    };
    let seeds = number().map_or(1, |seeds| seeds as u64);
    let varies = number().unwrap_or(0.02);
    let scenario = |seed| {
        let mut application = Application::random(SERVICES, seed);
        application.memory_varies = varies;
        Scenario {
            seed,
            application,
            outcomes: Vec::new(),
        }
    };
    let mut scenarios: Vec<Scenario> = (1..=seeds.max(1)).map(scenario).collect();
    simulate(&mut scenarios, &day);
    for scenario in &scenarios {
        table(scenario, &day);
    }
    for (at, way) in AUTOSCALED.into_iter().enumerate() {
        compare(&scenarios, way, CEILINGS.len() + at);
    }
}

/// Runs all of them, on all processors.
fn simulate(scenarios: &mut [Scenario], day: &Day) {
    let tasks: Vec<(usize, Way)> = (0..scenarios.len())
        .flat_map(|scenario| ways().map(move |way| (scenario, way)))
        .collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((scenario, way)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Scenario {
                        seed, application, ..
                    } = &scenarios[*scenario];
                    let outcome = way.run(application, day, *seed);
                    let at = ways().position(|one| one.name() == way.name());
                    if let Ok(mut done) = done.lock() {
                        done.push((*scenario, at, outcome));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(scenario, at, _)| (*scenario, *at));
    for (scenario, _, outcome) in done {
        scenarios[scenario].outcomes.push(outcome);
    }
}

fn table(scenario: &Scenario, day: &Day) {
    let all: f64 = scenario.application.visit_ratios().iter().sum();
    println!(
        "{SERVICES} services, {all:.1} calls a request, {:.0}-{:.0} requests/s, {:.0} s, memory ±{:.0} %, seed {}",
        day.rps.0,
        day.rps.1,
        day.seconds,
        scenario.application.memory_varies * 100.0,
        scenario.seed
    );
    println!(
        "{:<30} {:>7} {:>7} {:>8} {:>8} {:>7} {:>7} {:>7} {:>6} {:>6} {:>6}",
        "who",
        "CPU",
        "used",
        "memory",
        "replicas",
        "mean",
        "p95",
        "p99",
        "above",
        "memory",
        "changes"
    );
    for (way, outcome) in ways().zip(&scenario.outcomes) {
        println!(
            "{:<30} {:>6.0}m {:>6.0}m {:>5.0}MiB {:>8.1} {:>5.1}ms {:>5.1}ms {:>5.1}ms {:>5.2}% {:>5.2}% {:>6.1}",
            way.name(),
            outcome.cpu_millis,
            outcome.cpu_used_millis,
            outcome.memory_mib,
            outcome.replicas,
            outcome.mean_ms,
            outcome.p95_ms,
            outcome.p99_ms,
            outcome.above_request * 100.0,
            outcome.above_memory * 100.0,
            outcome.changes,
        );
    }
    println!();
}

/// Prints the savings compared with one variant of the autoscaler, for each seed and in the mean.
fn compare(scenarios: &[Scenario], way: Way, at: usize) {
    println!("beside {}", way.name());
    let saved = |before: f64, after: f64| (1.0 - after / before) * 100.0;
    let (mut cpu, mut memory, mut equal) = (0.0, 0.0, 0.0);
    for scenario in scenarios {
        let autoscaled = &scenario.outcomes[at];
        let advised = CEILINGS.iter().zip(&scenario.outcomes);
        let no_slower = advised.filter(|(_, one)| one.p95_ms <= autoscaled.p95_ms);
        let smallest = no_slower.min_by(|(_, a), (_, b)| a.memory_mib.total_cmp(&b.memory_mib));
        let Some((ceiling, one)) = smallest else {
            println!("  seed {}: no ceiling comes to its p95", scenario.seed);
            continue;
        };
        let less = saved(autoscaled.cpu_millis, one.cpu_millis);
        let smaller = saved(autoscaled.memory_mib, one.memory_mib);
        println!(
            "  seed {}: Algorithm 2 at {ceiling}: {less:.1} % of CPU, {smaller:.1} % of memory saved, \
             p95 {:.1} of {:.1} ms, p99 {:.1} of {:.1} ms",
            scenario.seed, one.p95_ms, autoscaled.p95_ms, one.p99_ms, autoscaled.p99_ms
        );
        (cpu, memory, equal) = (cpu + less, memory + smaller, equal + 1.0);
    }
    if equal > 0.0 {
        println!(
            "  mean: {:.1} % of CPU, {:.1} % of memory",
            cpu / equal,
            memory / equal
        );
    }
}
