//! The command line of `distribution`.

use std::path::PathBuf;

use clap::Parser;

use crate::error::{Error, Result};

const CONTROLLER: &str = "maglor-controller";

const ABOUT: &str = "\
It starts a Kubernetes of its own (see docs/cluster.md; needs root) with simulated pods, the controller beside it, and
clients that ask as sidecars do. With the defaults it takes about ten minutes, most of them for the pods to come up.";

/// Measures how fast, and at which cost, changes of a big cluster reach its proxies.
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
    /// Pods that become ready, or stop being so, each second.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rate: u32,
    /// Seconds of changes.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub seconds: u32,
    /// The `maglor-controller` to measure, a release build [default: the one beside this program].
    #[arg(long, value_name = "FILE")]
    pub controller: Option<PathBuf>,
    /// Directory for the results [default: results/DATE-distribution beside this crate].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl Options {
    /// Which controller is measured.
    ///
    /// # Errors
    /// It is not there.
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

    /// The Services that a proxy calls: neighbours, so that each Service has about as many users as any other.
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
