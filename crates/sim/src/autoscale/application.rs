//! The application and its day: services that call each other in a tree, as µBench generates them, and
//! users whose number follows the clock.

use maglor_balance::Rng;

use super::fleet::Fleet;

/// A service.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Mean CPU of a request in seconds of one core; exponential.
    pub work: f64,
    /// Memory of a replica in MiB, the mean.
    pub memory_mib: f64,
    /// What it calls, and how probably.
    pub calls: Vec<(usize, f64)>,
}

/// Services; the first one takes the users' requests. A service calls only those behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// The services.
    pub services: Vec<Service>,
    /// How far the memory of a replica is off its mean at most, relative; each look finds another value.
    pub memory_varies: f64,
}

impl Application {
    /// As µBench's generator of service graphs: each service is attached to one before it, in
    /// proportion to how many are attached there already (Barabási and Albert). 1–5 ms of CPU a
    /// request, 45–95 MiB a replica, ±2 %, a call with probability 0.4–1.
    #[must_use]
    pub fn random(services: usize, seed: u64) -> Self {
        let mut rng = Rng::seed(seed);
        let mut all: Vec<Service> = Vec::new();
        let mut ends: Vec<usize> = vec![0];
        for index in 0..services.max(1) {
            if index > 0 {
                let at = rng.below(u32::try_from(ends.len()).unwrap_or(1)) as usize;
                let parent = ends.get(at).copied().unwrap_or(0);
                let probability = 0.4 + 0.6 * rng.unit();
                if let Some(parent) = all.get_mut(parent) {
                    parent.calls.push((index, probability));
                }
                ends.extend([parent, index]);
            }
            all.push(Service {
                work: 0.001 + 0.004 * rng.unit(),
                memory_mib: 45.0 + 50.0 * rng.unit(),
                calls: Vec::new(),
            });
        }
        Self {
            services: all,
            memory_varies: 0.02,
        }
    }

    /// Requests a second of each service when users make one.
    #[must_use]
    pub fn visit_ratios(&self) -> Vec<f64> {
        let mut visit_ratios = vec![0.0; self.services.len()];
        visit_ratios[0] = 1.0;
        for at in 0..visit_ratios.len() {
            for (to, probability) in &self.services[at].calls {
                visit_ratios[*to] += visit_ratios[at] * probability;
            }
        }
        visit_ratios
    }

    /// Memory of that one of so many replicas of a service that uses most, now.
    pub(super) fn memory(&self, service: &Service, replicas: u32, rng: &mut Rng) -> f64 {
        // The largest of so many uniform ones.
        let most = rng.unit().powf(1.0 / f64::from(replicas.max(1)));
        service.memory_mib * (1.0 + self.memory_varies * (2.0 * most - 1.0))
    }

    /// Calls: from, to, and how probably.
    pub(super) fn edges(&self) -> impl Iterator<Item = (usize, usize, f64)> {
        let services = self.services.iter().enumerate();
        services.flat_map(|(from, service)| {
            service
                .calls
                .iter()
                .map(move |(to, share)| (from, *to, *share))
        })
    }

    /// When each of the requests has ended, that arrive at such times.
    pub(super) fn run(&self, arrivals: &[f64], fleets: &mut [Fleet], rng: &mut Rng) -> Vec<f64> {
        let mut finished = arrivals.to_vec();
        let mut waiting: Vec<Vec<(f64, u32)>> = vec![Vec::new(); self.services.len()];
        waiting[0] = arrivals.iter().copied().zip(0..).collect();
        for (at, service) in self.services.iter().enumerate() {
            let mut arrived = std::mem::take(&mut waiting[at]);
            // Replicas do not end in the order in which they begin.
            arrived.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            for (time, request) in arrived {
                let work = -service.work * (1.0 - rng.unit()).ln();
                let end = fleets[at].serve(time, work, rng);
                let finish = &mut finished[request as usize];
                *finish = finish.max(end);
                for (to, probability) in &service.calls {
                    if rng.unit() < *probability {
                        waiting[*to].push((end, request));
                    }
                }
            }
        }
        finished
    }
}

/// How many requests users make, by the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Day {
    /// How long it is; the curve below spans it. 86400: a day.
    pub seconds: f64,
    /// Requests a second at its quietest and its busiest.
    pub rps: (f64, f64),
    /// Bursts: so often in it, half as much again for two minutes.
    pub bursts: u32,
}

impl Day {
    /// The rate at a time: a cosine from the quietest, at midnight, to the busiest, at noon.
    #[must_use]
    pub fn rate(&self, second: f64) -> f64 {
        let (least, most) = self.rps;
        let part = second / self.seconds;
        let wave = 0.5 - 0.5 * (2.0 * std::f64::consts::PI * part).cos();
        let burst = (0..self.bursts).any(|at| {
            let start = (f64::from(at) + 0.5) / f64::from(self.bursts) * self.seconds;
            (start..start + 120.0).contains(&second)
        });
        (least + (most - least) * wave) * if burst { 1.5 } else { 1.0 }
    }

    /// Poisson arrivals of a period; the rate is that of its middle, ±10 % at random.
    pub(super) fn arrivals(&self, from: f64, length: f64, rng: &mut Rng) -> Vec<f64> {
        let rate = self.rate(from + length / 2.0) * (0.9 + 0.2 * rng.unit());
        let mut arrivals = Vec::with_capacity((rate * length * 1.1) as usize);
        let mut time = from;
        loop {
            time -= (1.0 - rng.unit()).ln() / rate.max(1e-9);
            if time >= from + length {
                return arrivals;
            }
            arrivals.push(time);
        }
    }
}
