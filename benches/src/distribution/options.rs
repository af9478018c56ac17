//! The command line of `distribution`.

use std::path::PathBuf;

use clap::Parser;

use crate::error::{Error, Result};

const CONTROLLER: &str = "maglor-controller";

const ABOUT: &str = "\
Starts its own Kubernetes (see docs/cluster.md; needs root) with simulated pods, a controller, and
clients that subscribe like sidecars. With the defaults it takes about 15 minutes, 5 of them for the start of the pods.";

/// Measure how fast, and at which cost, changes of a large cluster reach its proxies.
#[derive(Debug, Clone, Parser)]
#[command(name = "distribution", after_help = ABOUT)]
pub struct Options {
    /// Services.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub services: u32,
    /// Pods of each Service.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub endpoints: u32,
    /// Connected proxies.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub proxies: u32,
    /// Services that each proxy calls.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub uses: u32,
    /// Pods that become ready or unready per second; several rates are measured in turn.
    #[arg(long = "rate", value_name = "N[,N…]", value_delimiter = ',', default_values_t = [10, 20, 50],
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rates: Vec<u32>,
    /// Objects to change; several kinds are measured in turn.
    #[arg(long, value_name = "pods|slices", value_enum, value_delimiter = ',', default_values_t = Through::ALL)]
    pub through: Vec<Through>,
    /// Duration of the changes at each rate, in seconds.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub seconds: u32,
    /// `maglor-controller` to measure, a release build [default: in the directory of this program].
    #[arg(long, value_name = "FILE")]
    pub controller: Option<PathBuf>,
    /// Directory for the results [default: results/DATE-distribution in this crate].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// The objects that change.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Through {
    /// The statuses of pods, as kubelets write them. Kubernetes' own controller makes changes of EndpointSlices of
    /// them.
    Pods,
    /// The EndpointSlices themselves, of Services without selectors: what the mesh's controller reads.
    Slices,
}

impl Through {
    const ALL: [Self; 2] = [Self::Pods, Self::Slices];

    /// Returns the name in tables.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Slices => "slices",
        }
    }
}

impl Options {
    /// Returns the measurements in their order: slices taken over from Kubernetes no longer follow
    /// pods.
    pub(super) fn series(&self) -> impl Iterator<Item = (Through, u32)> {
        let wanted = |through: &Through| self.through.contains(through);
        let through = Through::ALL.into_iter().filter(wanted);
        through.flat_map(|through| self.rates.iter().map(move |rate| (through, *rate)))
    }

    /// Returns the measured controller's program.
    pub(super) fn controller(&self) -> Result<PathBuf> {
        let beside = || Some(std::env::current_exe().ok()?.with_file_name(CONTROLLER));
        let found = self.controller.clone().or_else(beside);
        found
            .filter(|path| path.is_file())
            .ok_or_else(|| Error::Missing {
                program: CONTROLLER.into(),
                remedy: format!("cargo build --release -p {CONTROLLER}"),
            })
    }

    /// Returns the Services that a proxy calls: neighbours, so that each Service has about as many
    /// users as any other.
    pub(super) fn used_by(&self, proxy: u32) -> Vec<u32> {
        let first = proxy * self.uses;
        let uses = self.uses.min(self.services);
        (first..first + uses)
            .map(|one| one % self.services)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_service_is_used() {
        Options::command().debug_assert();
        let options = Options::try_parse_from(["distribution"]).unwrap();
        let mut users = vec![0; 1000];
        for proxy in 0..options.proxies {
            for service in options.used_by(proxy) {
                users[service as usize] += 1;
            }
        }
        assert!(users.iter().all(|users| [2, 3].contains(users)));
    }
}
