//! The command line of `resilience`, and the durations of its experiments.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::peer::Subject;

/// Reproduce the experiments on failures, overload, retries and restarts with the real proxy.
#[derive(Debug, Clone, Parser)]
#[command(name = "resilience")]
pub struct Options {
    /// Short runs: for development, not for publication.
    #[arg(long)]
    pub quick: bool,
    /// Proxies to run: Maglor and Envoy.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Subject::Maglor, Subject::Envoy])]
    pub only: Vec<Subject>,
    /// maglor-proxy binary to run [default: it is built].
    #[arg(long)]
    pub maglor: Option<PathBuf>,
    /// Directory for the results [default: results/DATE-resilience in this crate].
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Experiments to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Experiment::ALL)]
    pub experiments: Vec<Experiment>,
    /// Random seed of arrivals and faults; all proxies get the same requests.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    /// Replicas that fail and delay; ejection and retries (Figs. 7 and 8 of the paper).
    Faults,
    /// 80–120 % of capacity with queues of several lengths (Fig. 9).
    Overload,
    /// All endpoints restarted one after another.
    Restart,
    /// A spike, and the retries that it causes (Fig. 10).
    Storm,
}

impl Experiment {
    /// All experiments in the order in which they are run.
    pub const ALL: [Self; 4] = [Self::Faults, Self::Overload, Self::Storm, Self::Restart];

    /// Returns the name in raw data.
    pub fn key(self) -> &'static str {
        match self {
            Self::Faults => "faults",
            Self::Overload => "overload",
            Self::Restart => "restart",
            Self::Storm => "storm",
        }
    }
}

impl Options {
    /// Returns one of two lengths, for quick and for whole runs.
    pub(super) fn seconds(&self, quick: u64, whole: u64) -> Duration {
        Duration::from_secs(if self.quick { quick } else { whole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults() {
        let options = Options::try_parse_from(["resilience"]).unwrap();
        assert_eq!(options.experiments, Experiment::ALL);
        assert_eq!(options.only, [Subject::Maglor, Subject::Envoy]);
        assert_eq!(options.seconds(1, 2), Duration::from_secs(2));
        let options = Options::try_parse_from(["resilience", "--experiments", "storm,restart"]);
        assert_eq!(options.unwrap().experiments.len(), 2);
    }
}
