//! The results of a system by each model.

use super::paper::Paper;
use super::system::{Error, System, check_count};
use super::{classic, finite, many_servers, paper};

impl System {
    /// Solves the paper's model, Eq. 3–8.
    pub fn paper(&self) -> Paper {
        paper::solve(self)
    }

    /// Returns the mean latency in the limit of many servers, in mean service times: the exact
    /// limit of the paper's approximation.
    pub fn corrected(&self) -> Result<f64, Error> {
        let requests = many_servers::requests(self).ok_or_else(|| self.not_converged())?;
        Ok(requests / self.utilisation)
    }

    /// Returns the mean latency with `servers` (N), in mean service times. With few servers the
    /// fluctuations of one balancer affect all of them, and latency is higher than in the limit.
    pub fn corrected_for(&self, servers: u32) -> Result<f64, Error> {
        check_count("servers (N)", servers)?;
        finite::latency(self, servers).ok_or_else(|| self.not_converged())
    }

    /// Returns the mean latency with random choice, in mean service times: the limit of many
    /// balancers (Theorem 1, Eq. 9).
    pub fn random(&self) -> f64 {
        classic::mm1(self.utilisation)
    }
}
