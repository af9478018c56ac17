//! Distributions of random times. All have mean 1 and are scaled where they are used.

use std::fmt;
use std::str::FromStr;

use maglor_balance::Rng;

/// The distribution of the work of a request; its mean is the scenario's service time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// Some requests are longer than the others.
    Bimodal {
        /// Their share, between 0 and 1.
        share: f64,
        /// The factor by which they are longer, above 0.
        factor: f64,
    },
    /// Constant.
    Deterministic,
    /// Memoryless.
    Exponential,
    /// Heavy-tailed.
    Lognormal {
        /// Coefficient of variation, above 0.
        cv: f64,
    },
}

impl Service {
    /// Returns the squared coefficient of variation, the C² of the Pollaczek–Khinchine formula.
    #[must_use]
    pub fn squared_variation(self) -> f64 {
        match self {
            Self::Bimodal { share, factor } => {
                let short = short(share, factor);
                let second = (1.0 - share) * short.powi(2) + share * (factor * short).powi(2);
                second - 1.0
            }
            Self::Deterministic => 0.0,
            Self::Exponential => 1.0,
            Self::Lognormal { cv } => cv * cv,
        }
    }
}

/// Returns the length of the shorter kind for which the mean is 1.
fn short(share: f64, factor: f64) -> f64 {
    1.0 / (1.0 - share + share * factor)
}

/// A sampler of a distribution with mean 1.
#[derive(Clone, Debug)]
pub(super) enum Sampler {
    Bimodal { share: f64, short: f64, long: f64 },
    Deterministic,
    Exponential,
    Lognormal { mu: f64, sigma: f64, normal: Normal },
}

impl Sampler {
    pub(super) fn exponential() -> Self {
        Self::Exponential
    }

    pub(super) fn lognormal(cv: f64) -> Self {
        let variance = (cv * cv).ln_1p();
        Self::Lognormal {
            mu: -variance / 2.0,
            sigma: variance.sqrt(),
            normal: Normal::default(),
        }
    }

    #[inline]
    pub(super) fn draw(&mut self, rng: &mut Rng) -> f64 {
        match self {
            Self::Bimodal { share, short, long } => {
                if rng.unit() < *share {
                    *long
                } else {
                    *short
                }
            }
            Self::Deterministic => 1.0,
            // 1 − u is above 0, so the negative of its logarithm is finite.
            Self::Exponential => -(1.0 - rng.unit()).ln(),
            Self::Lognormal { mu, sigma, normal } => (*mu + *sigma * normal.draw(rng)).exp(),
        }
    }
}

impl From<Service> for Sampler {
    fn from(service: Service) -> Self {
        match service {
            Service::Bimodal { share, factor } => {
                let short = short(share, factor);
                Self::Bimodal {
                    share,
                    short,
                    long: factor * short,
                }
            }
            Service::Deterministic => Self::Deterministic,
            Service::Exponential => Self::Exponential,
            Service::Lognormal { cv } => Self::lognormal(cv),
        }
    }
}

/// Standard normal numbers by Marsaglia's polar method, which yields them in pairs.
#[derive(Clone, Debug, Default)]
pub(super) struct Normal {
    spare: Option<f64>,
}

impl Normal {
    fn draw(&mut self, rng: &mut Rng) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * rng.unit() - 1.0, 2.0 * rng.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let scale = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(y * scale);
                return x * scale;
            }
        }
    }
}

/// The accepted notation, for messages.
const FORMS: &str = "exp, deterministic, lognormal:CV or bimodal:SHARE:FACTOR";

impl FromStr for Service {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}` is no distribution of service times; write {FORMS}");
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let numbers: Result<Vec<f64>, _> = parts.map(str::parse).collect();
        let numbers = numbers.map_err(|_| refuse())?;
        let service = match (name, &*numbers) {
            ("exp" | "exponential", []) => Self::Exponential,
            ("det" | "deterministic", []) => Self::Deterministic,
            ("lognormal", [cv]) if positive(*cv) => Self::Lognormal { cv: *cv },
            ("bimodal", [share, factor]) if (0.0..=1.0).contains(share) && positive(*factor) => {
                Self::Bimodal {
                    share: *share,
                    factor: *factor,
                }
            }
            _ => return Err(refuse()),
        };
        Ok(service)
    }
}

/// Returns whether a number is above 0 and small enough for exact sums.
pub(super) fn positive(x: f64) -> bool {
    x > 0.0 && x <= 1000.0
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bimodal { share, factor } => write!(f, "bimodal:{share}:{factor}"),
            Self::Deterministic => f.write_str("deterministic"),
            Self::Exponential => f.write_str("exp"),
            Self::Lognormal { cv } => write!(f, "lognormal:{cv}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_one_and_variations_as_stated() {
        for text in ["exp", "deterministic", "lognormal:2", "bimodal:0.1:10"] {
            let service: Service = text.parse().unwrap();
            assert_eq!(service.to_string(), text);
            let mut sampler = Sampler::from(service);
            let mut rng = Rng::seed(11);
            let n = 2_000_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..n {
                let x = sampler.draw(&mut rng);
                sum += x;
                squares += x * x;
            }
            let mean = sum / f64::from(n);
            let variation = squares / f64::from(n) / (mean * mean) - 1.0;
            let exact = service.squared_variation();
            assert!((mean - 1.0).abs() < 0.01, "{text}: mean {mean}");
            assert!(
                (variation - exact).abs() < 0.05 * exact + 1e-9,
                "{text}: {variation} for {exact}"
            );
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_is_accepted() {
        for text in [
            "",
            "exp:1",
            "lognormal",
            "lognormal:0",
            "lognormal:x",
            "bimodal:2:3",
        ] {
            let error = text.parse::<Service>().unwrap_err();
            assert!(error.contains("lognormal:CV"), "{error}");
        }
    }
}
