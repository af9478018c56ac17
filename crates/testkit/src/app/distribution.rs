//! Distributions of service times.

use std::f64::consts::TAU;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use maglor_balance::Rng;

/// The shape of a distribution with mean 1, in the notation of `maglor-lab sim --service`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// A share of the requests is longer by a factor.
    Bimodal {
        /// The share, above 0 and below 1.
        share: f64,
        /// The factor, above 0.
        factor: f64,
    },
    /// Constant.
    Deterministic,
    /// Memoryless.
    Exponential,
    /// Heavy-tailed.
    Lognormal {
        /// Coefficient of variation, above 0, at most 100.
        cv: f64,
    },
}

const FORMS: &str = "exp, deterministic, lognormal:CV or bimodal:SHARE:FACTOR";

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, numbers) = text.split_once(':').unwrap_or((text, ""));
        let numbers = numbers.split(':').filter(|part| !part.is_empty());
        let numbers: Result<Vec<f64>, _> = numbers.map(str::parse).collect();
        let shape = match (name, numbers.as_deref()) {
            ("deterministic", Ok([])) => Self::Deterministic,
            ("exp" | "exponential", Ok([])) => Self::Exponential,
            ("lognormal", Ok(&[cv])) if cv > 0.0 && cv <= 100.0 => Self::Lognormal { cv },
            ("bimodal", Ok(&[share, factor]))
                if share > 0.0 && share < 1.0 && factor > 0.0 && factor <= 1e6 =>
            {
                Self::Bimodal { share, factor }
            }
            _ => return Err(format!("`{text}` is not a distribution; write {FORMS}")),
        };
        Ok(shape)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bimodal { share, factor } => write!(f, "bimodal:{share}:{factor}"),
            Self::Deterministic => f.write_str("deterministic"),
            Self::Exponential => f.write_str("exp"),
            Self::Lognormal { cv } => write!(f, "lognormal:{cv}"),
        }
    }
}

impl Shape {
    /// Draws a number with mean 1, not below 0.
    fn draw(self, rng: &mut Rng) -> f64 {
        match self {
            Self::Bimodal { share, factor } => {
                let short = 1.0 / (1.0 - share + share * factor);
                if rng.unit() < share {
                    factor * short
                } else {
                    short
                }
            }
            Self::Deterministic => 1.0,
            Self::Exponential => exponential(rng),
            Self::Lognormal { cv } => {
                let variance = (cv * cv).ln_1p();
                // Box and Muller's transform; its second number is discarded.
                let normal = (2.0 * exponential(rng)).sqrt() * (TAU * rng.unit()).cos();
                (variance.sqrt() * normal - variance / 2.0).exp()
            }
        }
    }
}

fn exponential(rng: &mut Rng) -> f64 {
    // 1 − u is above 0, so its logarithm is finite.
    -(1.0 - rng.unit()).ln()
}

/// The cost of a request to an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// The mean; 0 to one hour.
    pub mean: Duration,
    /// The distribution.
    pub shape: Shape,
}

impl Work {
    /// The maximum cost of a single request, so that no draw blocks a queue for good.
    const LONGEST: Duration = Duration::from_secs(24 * 3600);

    /// Draws the cost of one request.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> Duration {
        let seconds = self.mean.as_secs_f64() * self.shape.draw(rng);
        Duration::try_from_secs_f64(seconds).map_or(Self::LONGEST, |one| one.min(Self::LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed;

    #[test]
    fn means_and_variations_are_those_of_the_name() {
        let mut rng = Rng::seed(seed());
        // Squared coefficients of variation; the lognormal's own is slow to settle, so a small one.
        for (text, variation) in [
            ("deterministic", 0.0),
            ("exp", 1.0),
            ("lognormal:0.5", 0.25),
            ("bimodal:0.1:10", 0.1 * 0.9 * (9.0 / 1.9_f64).powi(2)),
        ] {
            let shape: Shape = text.parse().unwrap();
            assert_eq!(shape.to_string(), text);
            let mean = Duration::from_millis(20);
            let work = Work { mean, shape };
            let draws: Vec<_> = (0..200_000)
                .map(|_| work.draw(&mut rng).as_secs_f64() / 0.020)
                .collect();
            let n = draws.len() as f64;
            let mean = draws.iter().sum::<f64>() / n;
            let square = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            assert!((mean - 1.0).abs() < 0.02, "{text}: mean {mean}");
            assert!(
                (square - variation).abs() < 0.06 * variation + 1e-9,
                "{text}: {square}"
            );
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_forms() {
        for text in [
            "",
            "exp:1",
            "lognormal",
            "lognormal:-1",
            "bimodal:2:3",
            "gamma",
            "lognormal:nan",
        ] {
            let error = text.parse::<Shape>().unwrap_err();
            assert!(error.contains(FORMS), "{error}");
        }
    }
}
