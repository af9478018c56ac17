//! The arrival process: when requests arrive, and at which balancer.

use std::fmt;
use std::str::FromStr;

use maglor_balance::Rng;

use super::distribution::{Sampler, positive};
use super::tournament::Tournament;

/// The arrival process. Balancers are equal: each gets the same share of the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Each balancer has a stream of its own with lognormal gaps.
    Lognormal {
        /// Coefficient of variation of the gaps, above 0.
        cv: f64,
    },
    /// Independent of each other: Poisson streams.
    Poisson,
    /// One stream with lognormal gaps, distributed among the balancers at random: bursts of the
    /// users that reach all balancers at once.
    SharedLognormal {
        /// Coefficient of variation of the gaps, above 0.
        cv: f64,
    },
}

/// The accepted notation, for messages.
const FORMS: &str = "poisson, lognormal:CV or lognormal:CV:shared";

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let cv = parts
            .get(1)
            .and_then(|cv| cv.parse().ok())
            .filter(|cv| positive(*cv));
        match (&*parts, cv) {
            (["poisson"], _) => Ok(Self::Poisson),
            (["lognormal", _], Some(cv)) => Ok(Self::Lognormal { cv }),
            (["lognormal", _, "shared"], Some(cv)) => Ok(Self::SharedLognormal { cv }),
            _ => Err(format!("`{text}` is no arrival process; write {FORMS}")),
        }
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lognormal { cv } => write!(f, "lognormal:{cv}"),
            Self::Poisson => f.write_str("poisson"),
            Self::SharedLognormal { cv } => write!(f, "lognormal:{cv}:shared"),
        }
    }
}

/// The running process.
#[derive(Debug)]
pub(super) struct Source {
    gaps: Sampler,
    /// The mean gap of one stream in nanoseconds.
    mean: f64,
    streams: Streams,
}

#[derive(Debug)]
enum Streams {
    /// A clock for each balancer.
    Each(Tournament),
    /// One clock for all; the union of Poisson streams is a Poisson stream.
    One { next: u64, balancers: u32 },
}

impl Source {
    /// Creates the arrivals for `balancers` balancers at a total of `rate` requests per nanosecond.
    pub(super) fn new(arrivals: Arrivals, balancers: u32, rate: f64, rng: &mut Rng) -> Self {
        let each = matches!(arrivals, Arrivals::Lognormal { .. });
        let gaps = match arrivals {
            Arrivals::Poisson => Sampler::exponential(),
            Arrivals::Lognormal { cv } | Arrivals::SharedLognormal { cv } => Sampler::lognormal(cv),
        };
        let mut source = Self {
            gaps,
            mean: if each { f64::from(balancers) } else { 1.0 } / rate,
            streams: Streams::One { next: 0, balancers },
        };
        if each {
            let mut clocks = Tournament::new(balancers as usize);
            for balancer in 0..balancers {
                // Streams do not begin synchronously.
                let first = rng.unit() * source.mean;
                clocks.set(balancer, first as u64);
            }
            source.streams = Streams::Each(clocks);
        } else {
            let first = source.gap(rng);
            source.streams = Streams::One {
                next: first,
                balancers,
            };
        }
        source
    }

    /// Returns the time of the next request.
    #[inline]
    pub(super) fn next_at(&self) -> u64 {
        match &self.streams {
            Streams::Each(clocks) => clocks.first().0,
            Streams::One { next, .. } => *next,
        }
    }

    /// Returns the balancer of that request, and advances to the next one.
    #[inline]
    pub(super) fn take(&mut self, rng: &mut Rng) -> u32 {
        let gap = self.gap(rng);
        match &mut self.streams {
            Streams::Each(clocks) => {
                let (at, balancer) = clocks.first();
                clocks.set(balancer, at + gap);
                balancer
            }
            Streams::One { next, balancers } => {
                *next += gap;
                rng.below(*balancers)
            }
        }
    }

    #[inline]
    fn gap(&mut self, rng: &mut Rng) -> u64 {
        (self.gaps.draw(rng) * self.mean).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_has_the_rate_it_should_have() {
        for text in ["poisson", "lognormal:2", "lognormal:2:shared"] {
            let arrivals: Arrivals = text.parse().unwrap();
            assert_eq!(arrivals.to_string(), text);
            let mut rng = Rng::seed(5);
            let mut source = Source::new(arrivals, 8, 1e-5, &mut rng);
            let mut counts = [0_u32; 8];
            let n = 400_000;
            for _ in 0..n {
                counts[source.take(&mut rng) as usize] += 1;
            }
            let rate = f64::from(n) / source.next_at() as f64;
            assert!((rate / 1e-5 - 1.0).abs() < 0.02, "{text}: {rate}");
            assert!(
                counts.iter().all(|c| c.abs_diff(50_000) < 2500),
                "{text}: {counts:?}"
            );
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_is_accepted() {
        for text in ["", "exp", "lognormal", "lognormal:-1", "lognormal:2:each"] {
            let error = text.parse::<Arrivals>().unwrap_err();
            assert!(error.contains("poisson"), "{error}");
        }
    }
}
