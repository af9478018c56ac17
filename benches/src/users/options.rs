//! The command line of `users`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use super::Way;

const ABOUT: &str = "\
Starts its own Kubernetes of two nodes (see docs/cluster.md; needs root), in which the application runs once for each
way. A round takes about five minutes a way with the defaults, the start about four.";

/// Put users on Istio's Bookinfo, behind plain Kubernetes, in a mesh of Maglor and in one of Istio.
#[derive(Debug, Clone, Parser)]
#[command(name = "users", after_help = ABOUT)]
pub struct Options {
    /// The application: `samples/bookinfo` in a checkout of Istio.
    #[arg(long, value_name = "FOLDER")]
    pub app: PathBuf,
    /// Folder with the images that the application names, in archives (`*.tar`) of `docker save`.
    #[arg(long, value_name = "FOLDER")]
    pub images: PathBuf,
    /// Istio, to measure it, too: folder with `install.yaml` and archives of its images (`images/*.tar`).
    #[arg(long, value_name = "FOLDER")]
    pub istio: Option<PathBuf>,
    /// Ways to measure [default: plain and maglor, and istio if it is given].
    #[arg(long, value_name = "WAY[,WAY…]", value_enum, value_delimiter = ',')]
    pub ways: Vec<Way>,
    /// Numbers of users, one after another.
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', default_values_t = [1000, 3000, 5000],
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub users: Vec<u32>,
    /// Pause of a user between a response and the next request, in seconds: 1000 users then send at most 100 requests
    /// a second.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub think_s: u64,
    /// Seconds in which all users start; they are not measured.
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub ramp_s: u64,
    /// Measured seconds.
    #[arg(long, value_name = "S", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Number of rounds.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Folder with maglor, maglor-controller and maglor-proxy [default: they are built].
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// Cargo profile for building them.
    #[arg(long, value_name = "NAME", default_value = "release")]
    pub profile: String,
    /// Directory for the results [default: results/DATE-users in this crate].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl Options {
    /// Returns the ways in the order of their tables.
    pub(super) fn ways(&self) -> Vec<Way> {
        let usual = |way: &Way| *way != Way::Istio || self.istio.is_some();
        let wanted = |way: &Way| match self.ways.is_empty() {
            true => usual(way),
            false => self.ways.contains(way),
        };
        Way::ALL.into_iter().filter(wanted).collect()
    }

    pub(super) fn ramp(&self) -> Duration {
        Duration::from_secs(self.ramp_s)
    }

    pub(super) fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    pub(super) fn think(&self) -> Duration {
        Duration::from_secs(self.think_s)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn ways(arguments: &[&str]) -> Vec<Way> {
        let line = ["users", "--app", "a", "--images", "i"];
        let line = line.iter().chain(arguments);
        Options::try_parse_from(line).unwrap().ways()
    }

    #[test]
    fn istio_is_measured_when_it_is_given() {
        Options::command().debug_assert();
        assert_eq!(ways(&[]), [Way::Plain, Way::Maglor]);
        assert_eq!(ways(&["--istio", "x"]), Way::ALL);
        assert_eq!(ways(&["--ways", "maglor,plain"]), [Way::Plain, Way::Maglor]);
    }
}
