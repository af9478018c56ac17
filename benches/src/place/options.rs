//! The command line of `place`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use super::Way;

const ABOUT: &str = "\
Starts its own Kubernetes of three nodes (see docs/cluster.md; needs root), with the mesh. A round takes
about ten minutes with the defaults.";

/// Measure four placements of Bookinfo under load, on three nodes with delays between them.
#[derive(Debug, Clone, Parser)]
#[command(name = "place", after_help = ABOUT)]
pub struct Options {
    /// Delays between nodes, one way, in milliseconds, each at most 1000.
    #[arg(long = "delays", value_name = "MS[,MS…]", value_delimiter = ',', default_values_t = [1, 5, 10],
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub delays_ms: Vec<u64>,
    /// Placements to measure; the others are compared with the default one.
    #[arg(long, value_name = "WAY[,WAY…]", value_enum, value_delimiter = ',', default_values_t = Way::ALL)]
    pub ways: Vec<Way>,
    /// Number of rounds.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Client requests per second; each causes four calls within the mesh.
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pub rate: u32,
    /// Duration of each measurement, in seconds.
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=3600))]
    pub seconds: u64,
    /// Folder with maglor, maglor-app, maglor-controller and maglor-proxy [default: they are built].
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// Cargo profile for building them.
    #[arg(long, value_name = "NAME", default_value = "release")]
    pub profile: String,
    /// Random seed of arrivals and of the placement search.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Directory for the results [default: results/DATE-place in this crate].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl Options {
    /// Returns the delays, in order.
    pub(super) fn delays(&self) -> impl Iterator<Item = Duration> {
        self.delays_ms.iter().map(|ms| Duration::from_millis(*ms))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
        let options = Options::try_parse_from(["place", "--delays", "1,20"]).unwrap();
        assert!(options.delays().eq([1, 20].map(Duration::from_millis)));
        assert!(Options::try_parse_from(["place", "--delays", "0"]).is_err());
    }
}
