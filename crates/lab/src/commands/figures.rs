//! `maglor-lab figures`: draws all figures of theory and simulation, as SVG, PNG and CSV.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use maglor_lab::chart::{self, Figure, PngError};
use maglor_lab::des::{ScenarioError, simulate_all, threads};
use maglor_lab::figures::{Effort, Study, studies};
use maglor_telemetry::command_line::output;

use crate::commands::progress;

/// The description of the figures for `--help`.
const EXPLANATION: &str = "\
Figures of the paper, by their numbers there:
  3a 3b 3c      latency of lor over balancers, load and choices: models and simulation
  4             the same under bursts
  7-hub 7-chain applications of four services
  9             recovery by collaborating policies
Further figures of the policies:
  mean-* p99-* messages-*   policies over 1 to 1000 balancers, 40 and 200 servers, three loads
  messages-load heterogeneity loss delay service

Each becomes ID.svg, ID.png and ID.csv. Whiskers are 95 % confidence intervals. The same seed produces
the same numbers on any number of threads.

Examples:
  Draw all figures as a preview, in about a minute:
    maglor-lab figures --out /tmp/figures --quick
  Draw one figure with narrow intervals:
    maglor-lab figures --out /tmp/figures --only 9";

#[derive(Debug, clap::Args)]
#[command(after_help = EXPLANATION)]
pub(crate) struct Options {
    /// Output directory; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Simulate less: a preview with wider intervals, in about a minute on two cores. The pictures are marked.
    #[arg(long)]
    quick: bool,

    /// Only figures whose name starts with this; may be repeated.
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
}

/// An error of creating figures.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("no figure starts with {0}; maglor-lab figures --help lists them")]
    Nothing(String),
    #[error("figure {id}: {source}")]
    Png { id: String, source: PngError },
    #[error("invalid scenario of a figure, please report this: {0}")]
    Scenario(#[from] ScenarioError),
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
}

/// Simulates, draws and writes; an error is one line.
pub(crate) fn run(options: &Options) -> ExitCode {
    match options.make() {
        Ok(summary) => {
            output::print(&summary);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("maglor-lab figures: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn make(&self) -> Result<String, Error> {
        let began = Instant::now();
        let studies = self.studies()?;
        // An unwritable folder is detected before minutes of simulation, not after.
        write(&self.out, || fs::create_dir_all(&self.out))?;
        let probe = self.out.join(".maglor-figures");
        write(&probe, || {
            fs::write(&probe, "").and_then(|()| fs::remove_file(&probe))
        })?;
        let scenarios: Vec<_> = studies
            .iter()
            .flat_map(|study| study.scenarios().to_vec())
            .collect();
        let seeds: Vec<_> = scenarios.iter().map(|scenario| scenario.seed).collect();
        let runs = scenarios
            .iter()
            .map(|scenario| u64::from(scenario.runs))
            .sum();
        let bar = progress::bar(runs);
        let outcomes = simulate_all(&scenarios, threads(), &|done, _| {
            bar.set_position(done as u64);
        })?;
        bar.finish_and_clear();
        let mut rest = &outcomes[..];
        let mut count = 0;
        for study in &studies {
            let (own, others) = rest.split_at(study.scenarios().len());
            rest = others;
            let figures = study.draw(own);
            for figure in figures.iter().filter(|figure| self.wants(&figure.id)) {
                self.write(figure)?;
                count += 1;
            }
        }
        Ok(summary(&self.out, count, &seeds, began.elapsed()))
    }

    /// Returns the simulations that the selected figures need.
    fn studies(&self) -> Result<Vec<Study>, Error> {
        let effort = if self.quick {
            Effort::Quick
        } else {
            Effort::Full
        };
        let mut studies = studies(effort);
        let ids = |study: &Study| study.ids().map(str::to_owned).collect::<Vec<_>>();
        let known: Vec<_> = studies.iter().flat_map(ids).collect();
        let unknown = |only: &&String| !known.iter().any(|id| id.starts_with(*only));
        if let Some(only) = self.only.iter().find(unknown) {
            return Err(Error::Nothing(only.clone()));
        }
        studies.retain(|study| study.ids().any(|id| self.wants(id)));
        Ok(studies)
    }

    fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| id.starts_with(only))
    }

    fn write(&self, figure: &Figure) -> Result<(), Error> {
        let png = chart::png(figure).map_err(|source| Error::Png {
            id: figure.id.clone(),
            source,
        })?;
        for (extension, content) in [
            ("svg", chart::svg(figure).into_bytes()),
            ("png", png),
            ("csv", chart::csv(figure).into_bytes()),
        ] {
            let path = self.out.join(format!("{}.{extension}", figure.id));
            write(&path, || fs::write(&path, content))?;
        }
        Ok(())
    }
}

fn write(path: &Path, action: impl FnOnce() -> io::Result<()>) -> Result<(), Error> {
    action().map_err(|source| Error::Write {
        path: path.to_owned(),
        source,
    })
}

fn summary(out: &Path, count: usize, seeds: &[u64], took: Duration) -> String {
    let mut seeds = seeds.to_vec();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds: Vec<_> = seeds.iter().map(u64::to_string).collect();
    format!(
        "{count} figure{} in {}, seed {}, {:.0} s\n",
        if count == 1 { "" } else { "s" },
        out.display(),
        seeds.join(", "),
        took.as_secs_f64()
    )
}
