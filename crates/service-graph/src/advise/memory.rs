//! Memory usage: the peak and the median, with hysteresis.

use maglor_balance::Time;

use super::histogram::Histogram;
use super::hold::{Band, Hold};
use super::params::Resources;

/// The memory usage of a replica, or of one of its containers, in MiB.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    used: Histogram,
    peak: Hold,
    usual: Hold,
}

impl Memory {
    pub(super) fn new(resources: &Resources) -> Self {
        Self {
            used: Histogram::new(resources.memory_half_life),
            peak: Hold::default(),
            usual: Hold::default(),
        }
    }

    /// Adds a sample of the present usage.
    pub(super) fn add(&mut self, now: Time, used: f64, resources: &Resources) {
        self.used.add(now, used);
        let up_and_down = resources.memory_band;
        self.peak.follow(now, self.used.quantile(1.0), up_and_down);
        let band = Band {
            down: up_and_down.up,
            ..up_and_down
        };
        self.usual.follow(now, self.used.quantile(0.5), band);
    }

    /// Returns the peak usage; `None` without samples.
    pub(super) fn peak(&self) -> Option<f64> {
        self.peak.known().filter(|peak| *peak > 0.0)
    }

    /// Returns the median usage, whose distance from the peak indicates how much memory usage varies; `None` without
    /// samples.
    pub(super) fn usual(&self) -> Option<f64> {
        let peak = self.peak()?;
        let usual = self.usual.known().filter(|usual| *usual > 0.0);
        Some(usual.unwrap_or(peak).min(peak))
    }
}
