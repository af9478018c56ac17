//! The measurements: each part measures every proxy in turn, round after round.

mod footprint;
mod load;
mod memory;
mod record;
mod startup;

use crate::error::{Error, Result};
use crate::options::{Options, Part};
use crate::peer::{Origin, Peer};

pub(crate) use record::{Phase, Record, Results, metric};

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
        for part in [Part::Startup, Part::Memory, Part::Footprint, Part::Load] {
            if self.options.parts.contains(&part) {
                match part {
                    Part::Footprint => footprint::run(self, results)?,
                    Part::Load => load::run(self, results)?,
                    Part::Memory => memory::run(self, results)?,
                    Part::Startup => startup::run(self, results)?,
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
