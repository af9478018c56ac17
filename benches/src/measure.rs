//! The measurements: each part measures every proxy in turn, round after round.

mod cpu_limit;
mod footprint;
mod load;
mod memory;
mod record;
mod startup;

use std::time::Duration;

use crate::error::{Error, Result};
use crate::options::{Options, Part};
use crate::peer::{Origin, Peer};

pub(crate) use record::{CpuLimit, Phase, Record, Results, metric};

/// From the start, and from the end of traffic, until a proxy counts as idle: Maglor releases pages that only its start
/// needed within a second.
const SETTLE: Duration = Duration::from_secs(2);
/// From the end of a load until memory counts as that after it.
const AFTER: Duration = Duration::from_secs(10);
/// The time of a generator beyond warm-up and window: connecting, and late responses.
const SLACK: Duration = Duration::from_secs(20);

/// The assignment of processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cpus {
    /// The processor of the proxy under test, alone.
    pub proxy: usize,
    /// The processor of the generator, and of the harness.
    pub load: usize,
    /// The processor of the origin: that of the generator, unless there are spare ones.
    pub origin: usize,
}

impl Cpus {
    /// Assigns the allowed processors.
    pub(crate) fn share(allowed: &[usize]) -> Result<Self> {
        match *allowed {
            [] | [_] => Err(Error::protocol("a comparison needs two processors")),
            [proxy, load] | [proxy, load, _] => Ok(Self {
                proxy,
                load,
                origin: load,
            }),
            [proxy, load, origin, ..] => Ok(Self {
                proxy,
                load,
                origin,
            }),
        }
    }
}

/// The environment of all parts.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The options.
    pub options: Options,
    /// The proxies, in the order of a round.
    pub peers: Vec<Peer>,
    /// The processors.
    pub cpus: Cpus,
    /// The server behind all proxies.
    pub origin: Origin,
    /// The reason why a requested proxy does not take part.
    pub left_out: Option<String>,
}

impl Bench {
    /// Runs the requested parts; failures are recorded in `results`.
    pub(crate) fn run(&self, results: &mut Results) -> Result<()> {
        for part in [
            Part::Startup,
            Part::Memory,
            Part::Footprint,
            Part::Load,
            Part::Waiting,
            Part::CpuLimit,
        ] {
            if self.options.parts.contains(&part) {
                match part {
                    Part::CpuLimit => cpu_limit::run(self, results)?,
                    Part::Footprint => footprint::run(self, results)?,
                    Part::Load => load::run(self, &self.options.scenarios(), results)?,
                    Part::Memory => memory::run(self, results)?,
                    Part::Startup => startup::run(self, results)?,
                    Part::Waiting => load::run(self, &self.options.waiting(), results)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_shared_out() {
        assert!(Cpus::share(&[3]).is_err());
        assert_eq!(
            Cpus::share(&[0, 1]).unwrap(),
            Cpus {
                proxy: 0,
                load: 1,
                origin: 1
            }
        );
        assert_eq!(
            Cpus::share(&[0, 1, 2, 3]).unwrap(),
            Cpus {
                proxy: 0,
                load: 1,
                origin: 2
            }
        );
    }
}
