//! Measures the effect of failures, overload, retries and restarts behind a proxy.
//!
//! The modules, in the order of a run: `options` the command line, `stage` one run of one case
//! behind one proxy, the four experiments (`faults`, `overload`, `storm`, `restart`), and `report`,
//! which writes the results. Client (`client`) and endpoints (`replica`) share one thread; the
//! proxy (`subject`) has a separate processor.
//!
//! The experiments are those of the paper on traffic management by communication graphs, §4.2.

mod arrivals;
mod client;
mod faults;
mod model;
mod options;
mod overload;
mod replica;
mod report;
mod restart;
mod stage;
mod storm;
mod subject;
mod window;

pub use options::{Experiment, Options};

use crate::error::{Doing, Error, Result};
use crate::http::block_on;
use crate::measure::Cpus;
use crate::peer::{self, Subject};
use crate::report::Machine;
use crate::sys;
use report::Report;
use stage::Stage;

/// Runs the experiments, writes and prints the results; returns whether all bars were reached.
///
/// # Errors
/// An experiment cannot be run, or its results cannot be written.
pub fn run(options: &Options) -> Result<bool> {
    let able = [Subject::Envoy, Subject::Maglor];
    if let Some(other) = options.only.iter().find(|one| !able.contains(one)) {
        return Err(Error::protocol(format!("{other} has no part in this")));
    }
    let cpus = Cpus::share(&sys::allowed_cpus())?;
    peer::sweep();
    let locate = |subject: &Subject| peer::locate(*subject, options.maglor.as_deref());
    let peers = options
        .only
        .iter()
        .map(locate)
        .collect::<Result<Vec<_>>>()?;
    sys::raise_file_limit().doing("raise the limit of open files")?;
    let machine = Machine::look(&peers);
    sys::pin(cpus.load).doing("pin the harness")?;
    let mut report = Report::new(options, &machine)?;
    let stage = Stage {
        options: options.clone(),
        peers,
        cpu: cpus.proxy,
    };
    block_on(all(&stage, &mut report))?;
    report.finish(&machine)
}

async fn all(stage: &Stage, report: &mut Report) -> Result<()> {
    for experiment in Experiment::ALL {
        if !stage.options.experiments.contains(&experiment) {
            continue;
        }
        let findings = match experiment {
            Experiment::Faults => faults::run(stage, report).await?,
            Experiment::Overload => overload::run(stage, report).await?,
            Experiment::Restart => restart::run(stage, report).await?,
            Experiment::Storm => storm::run(stage, report).await?,
        };
        report.folder.add(findings)?;
    }
    Ok(())
}
