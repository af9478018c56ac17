//! Whole applications behind real proxies, compared with the simulator and with Envoy.
//!
//! The modules, in the order of execution: `options` the command line, `plan` the addresses,
//! `fleet` the processes (their `configuration`), `load` the generator and its `users`, `stage` one
//! case, `calibrate` the harness's own error, the experiments (`balance`, `graphs`, `shop`,
//! `counter`), `report`.
//!
//! The application is that of `maglor_testkit::app`: its servers wait, and compute nothing.

mod balance;
mod calibrate;
mod configuration;
mod counter;
mod fleet;
mod graphs;
pub(crate) mod load;
mod options;
mod plan;
mod point;
mod report;
mod shop;
mod stage;
mod users;

pub use options::{Cli, Experiment, Options, Role};

use crate::error::{Doing, Error, Result};
use crate::http::block_on;
use crate::measure::Cpus;
use crate::peer::{self, Subject};
use crate::report::Machine;
use crate::sys;
use fleet::Places;
use report::Report;
use stage::Stage;

/// Runs the requested experiments; returns whether all bars were reached.
///
/// # Errors
/// An experiment cannot be made, or its results cannot be written.
pub fn run(cli: &Cli) -> Result<bool> {
    match &cli.role {
        Some(Role::App(options)) => {
            let served = maglor_testkit::app::run(options);
            served.map(|()| true).map_err(|error| Error::Command {
                command: "app".into(),
                detail: error.to_string(),
            })
        }
        Some(Role::Forward(options)) => crate::forward::run(options).map(|()| true),
        None => experiments(&cli.options),
    }
}

fn experiments(options: &Options) -> Result<bool> {
    let allowed = sys::allowed_cpus();
    let cpus = Cpus::share(&allowed)?;
    peer::sweep();
    let maglor = peer::locate(Subject::Maglor, options.maglor.as_deref())?;
    sys::raise_file_limit().doing("raise the limit of open files")?;
    let machine = Machine::look(std::slice::from_ref(&maglor));
    let mut report = Report::new(options, &machine)?;
    let stage = Stage {
        options: options.clone(),
        maglor,
        places: Places {
            app: vec![cpus.load],
            proxies: vec![cpus.proxy],
        },
    };
    eprintln!("seed {}", options.seed);
    sys::pin_to(&stage.places.app).doing("pin the harness")?;
    block_on(all(&stage, &mut report))?;
    report.finish(&machine, options)
}

async fn all(stage: &Stage, report: &mut Report) -> Result<()> {
    let findings = calibrate::run(stage, report).await?;
    report.folder.add(findings)?;
    for experiment in Experiment::ALL {
        if !stage.options.experiments.contains(&experiment) {
            continue;
        }
        let findings = match experiment {
            Experiment::Balance => balance::run(stage, report).await?,
            Experiment::Counter => {
                let envoy = peer::locate(Subject::Envoy, None)?;
                counter::run(stage, report, &envoy).await?
            }
            Experiment::Graphs => graphs::run(stage, report).await?,
            Experiment::Shop => shop::run(stage, report).await?,
        };
        report.folder.add(findings)?;
    }
    Ok(())
}
