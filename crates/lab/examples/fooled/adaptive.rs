//! The adaptive concurrency limit: without queueing it must admit all requests in progress, and
//! under overload it must keep the queue short.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use maglor_balance::guard::concurrency::{ConcurrencyLimit, ConcurrencyParams};
use maglor_balance::{Rng, Time};

use crate::table::{head, row};

/// Mean time of a request without queue, in nanoseconds.
const SERVICE: f64 = 20e6;

#[derive(Clone, Copy)]
enum Law {
    Bimodal,
    Deterministic,
    Exponential,
    Lognormal,
}

const LAWS: [(Law, &str); 4] = [
    (Law::Exponential, "exponential"),
    (Law::Bimodal, "90 % × 2 ms, 10 % × 182 ms"),
    (Law::Lognormal, "lognormal, CV 2"),
    (Law::Deterministic, "deterministic"),
];

impl Law {
    fn draw(self, rng: &mut Rng) -> f64 {
        let unit = rng.unit();
        match self {
            Self::Bimodal if unit < 0.9 => 2e6,
            Self::Bimodal => 182e6,
            Self::Deterministic => SERVICE,
            Self::Exponential => -(1.0 - unit).ln() * SERVICE,
            Self::Lognormal => {
                let normal = (-2.0 * (1.0 - unit).ln()).sqrt();
                let normal = normal * (std::f64::consts::TAU * rng.unit()).cos();
                let variance = 5.0_f64.ln();
                (variance.sqrt() * normal - variance / 2.0).exp() * SERVICE
            }
        }
    }
}

pub(crate) fn print() {
    println!(
        "## Adaptive limit: windows of 100 ms in which it is not below the need, in percent\n"
    );
    println!(
        "Nothing queues; the need is the most requests that are in progress at once in the window, without any \
         limit. In brackets: requests turned away, in percent. 120 s.\n"
    );
    let rates = [100.0, 300.0, 1000.0, 3000.0, 10_000.0];
    let columns = rates.iter().map(|rate| format!("{rate}/s"));
    head(
        &std::iter::once("service".to_owned())
            .chain(columns)
            .collect::<Vec<_>>(),
    );
    for (law, name) in LAWS {
        let cell = |rate: &f64| {
            let seen = Fixture::new(law, *rate, None, 1).run(120.0);
            format!("{:.1} ({:.2})", seen.enough, seen.turned_away)
        };
        let cells = rates.iter().map(cell);
        row(&std::iter::once(name.to_owned())
            .chain(cells)
            .collect::<Vec<_>>());
    }
    println!("\n## Adaptive limit: overload\n");
    println!(
        "A service with so many places, first in, first out, is offered so much of its capacity for 60 s, 8 seeds: what it \
         answers in percent of its capacity, mean latency of what it answers, and the mean limit.\n"
    );
    head(
        &[
            "service",
            "places",
            "offered",
            "goodput",
            "latency, ms",
            "limit",
        ]
        .map(String::from),
    );
    for (law, name) in LAWS {
        for (places, offered) in [(4, 2.0), (40, 0.8), (40, 1.2), (40, 3.0), (200, 1.5)] {
            let rate = offered * f64::from(places) / SERVICE * 1e9;
            let seen = mean_of_runs(|seed| Fixture::new(law, rate, Some(places), seed).run(60.0));
            let cells = [
                name.to_owned(),
                places.to_string(),
                format!("{:.0} %", offered * 100.0),
                format!(
                    "{:.1} %",
                    100.0 * seen.answered / (f64::from(places) / SERVICE * 1e9)
                ),
                format!("{:.1}", seen.latency),
                format!("{:.0}", seen.limit),
            ];
            row(&cells);
        }
    }
    println!();
}

/// Seeds of the runs whose mean is shown: one run of four places varies by 1 %.
const SEEDS: u64 = 8;

fn mean_of_runs(run: impl Fn(u64) -> Seen) -> Seen {
    let runs: Vec<_> = (1..=SEEDS).map(run).collect();
    let mean = |of: fn(&Seen) -> f64| runs.iter().map(of).sum::<f64>() / SEEDS as f64;
    Seen {
        enough: mean(|seen| seen.enough),
        turned_away: mean(|seen| seen.turned_away),
        answered: mean(|seen| seen.answered),
        latency: mean(|seen| seen.latency),
        limit: mean(|seen| seen.limit),
    }
}

/// One proxy in front of a service.
struct Fixture {
    law: Law,
    rate: f64,
    places: Option<u32>,
    limit: ConcurrencyLimit,
    /// End times of served requests, with their start times.
    served: BinaryHeap<Reverse<(u64, u64)>>,
    waiting: VecDeque<u64>,
    /// End times of the requests that would be in progress without a limit.
    free: BinaryHeap<Reverse<u64>>,
    rng: Rng,
}

#[derive(Default)]
struct Seen {
    enough: f64,
    turned_away: f64,
    answered: f64,
    latency: f64,
    limit: f64,
}

impl Fixture {
    fn new(law: Law, rate: f64, places: Option<u32>, seed: u64) -> Self {
        Self {
            law,
            rate,
            places,
            limit: ConcurrencyLimit::new(ConcurrencyParams::default()),
            served: BinaryHeap::new(),
            waiting: VecDeque::new(),
            free: BinaryHeap::new(),
            rng: Rng::seed(seed),
        }
    }

    fn run(&mut self, seconds: f64) -> Seen {
        let (mut now, mut window_end) = (0.0, 100e6);
        let (mut need, mut least) = (0_usize, self.limit.limit());
        let (mut windows, mut enough, mut limits) = (0.0, 0.0, 0.0);
        let (mut all, mut away, mut good, mut sum) = (0.0, 0.0, 0.0, 0.0);
        while now < seconds * 1e9 {
            now -= (1.0 - self.rng.unit()).ln() / self.rate * 1e9;
            let at = now as u64;
            for latency in self.end_until(at) {
                good += 1.0;
                sum += latency;
            }
            least = least.min(self.limit.limit());
            while now >= window_end {
                windows += 1.0;
                enough += f64::from(u8::from(least as usize >= need));
                limits += f64::from(self.limit.limit());
                (need, least) = (self.free.len(), self.limit.limit());
                window_end += 100e6;
            }
            let work = self.law.draw(&mut self.rng) as u64;
            self.free.push(Reverse(at + work));
            need = need.max(self.free.len());
            all += 1.0;
            let active = (self.served.len() + self.waiting.len()) as u32;
            if active >= self.limit.limit() {
                away += 1.0;
            } else if self
                .places
                .is_none_or(|places| (self.served.len() as u32) < places)
            {
                self.served.push(Reverse((at + work, at)));
            } else {
                self.waiting.push_back(at);
            }
        }
        Seen {
            enough: 100.0 * enough / windows,
            turned_away: 100.0 * away / all,
            answered: good / seconds,
            latency: sum / good / 1e6,
            limit: limits / windows,
        }
    }

    /// Removes finished requests; returns latencies in nanoseconds.
    fn end_until(&mut self, now: u64) -> Vec<f64> {
        while self.free.peek().is_some_and(|end| end.0 <= now) {
            self.free.pop();
        }
        let mut latencies = Vec::new();
        while let Some(Reverse((end, began))) = self.served.peek().copied() {
            if end > now {
                break;
            }
            let active = (self.served.len() + self.waiting.len()) as u32;
            self.served.pop();
            let latency = end - began;
            latencies.push(latency as f64);
            let risen = self.limit.sample(
                Duration::from_nanos(latency),
                active,
                Time::from_nanos(end),
                &mut self.rng,
            );
            // Rejected requests are not retried.
            let _ = risen;
            if let Some(began) = self.waiting.pop_front() {
                let work = self.law.draw(&mut self.rng) as u64;
                self.served.push(Reverse((end + work, began)));
            }
        }
        latencies
    }
}
