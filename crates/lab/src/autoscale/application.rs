//! The simulated application and its daily load: services that call each other in a tree, as µBench
//! generates them, and users whose number follows the clock.

use maglor_balance::Rng;

use super::fleet::Fleet;

/// A service.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Mean CPU of a request in seconds of one core; exponential.
    pub work: f64,
    /// Memory of a replica in MiB, the mean.
    pub memory_mib: f64,
    /// The called services, each with its probability.
    pub calls: Vec<(usize, f64)>,
}

/// The services; the first one receives the users' requests. A service calls only those after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// The services.
    pub services: Vec<Service>,
    /// The maximum relative deviation of a replica's memory from its mean; each measurement has
    /// another value.
    pub memory_varies: f64,
}

impl Application {
    /// Generates an application like µBench's generator of service graphs: each service is attached
    /// to one before it, in proportion to the number already attached there (Barabási and Albert).
    /// 1–5 ms of CPU a request, 45–95 MiB a replica, ±2 %, a call with probability 0.4–1.
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

    /// Returns the requests per second of each service when users make one.
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

    /// Returns the present memory of the replica that uses most, out of this number.
    pub(super) fn memory(&self, service: &Service, replicas: u32, rng: &mut Rng) -> f64 {
        // The maximum of uniform samples.
        let most = rng.unit().powf(1.0 / f64::from(replicas.max(1)));
        service.memory_mib * (1.0 + self.memory_varies * (2.0 * most - 1.0))
    }

    /// Returns the calls: caller, called service, and probability.
    pub(super) fn edges(&self) -> impl Iterator<Item = (usize, usize, f64)> {
        let services = self.services.iter().enumerate();
        services.flat_map(|(from, service)| {
            service
                .calls
                .iter()
                .map(move |(to, share)| (from, *to, *share))
        })
    }

    /// Returns the end times of requests with these arrival times.
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

/// The rate of users' requests over a day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Day {
    /// The length in seconds, which the curve below spans. 86400: a day.
    pub seconds: f64,
    /// The lowest and the highest rate in requests per second.
    pub rps: (f64, f64),
    /// The number of bursts, each with half as much load again for two minutes.
    pub bursts: u32,
}

impl Day {
    /// Returns the rate at a time: a cosine from the lowest, at midnight, to the highest, at noon.
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

    /// Draws Poisson arrivals of a period; the rate is that of its middle, ±10 % at random.
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
