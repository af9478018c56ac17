//! Whole applications behind real proxies, compared with the simulator and with Envoy.
//!
//! The modules, in the order of execution: `options` the command line, `plan` the addresses,
//! `fleet` the processes (their `configuration`), `load` the generator and its `users`, `stage` one
//! case, `calibrate` the harness's own error, the experiments (`balance`, `graphs`, `shop`,
//! `hashing`, `counter`), `report`. `redirected` changes a plan for linkerd2-proxy.
//!
//! The application is that of `maglor_testkit::app`: its servers wait, and compute nothing.

mod balance;
mod calibrate;
mod configuration;
mod counter;
mod fleet;
mod graphs;
mod hashing;
pub(crate) mod load;
mod options;
mod plan;
mod point;
mod redirected;
mod report;
mod shape;
mod shop;
mod stage;
mod users;

pub use options::{Cli, Experiment, Options, Role};

use crate::error::{Doing, Error, Result};
use crate::http::block_on;
use crate::measure::Cpus;
use crate::peer::{self, Subject};
use crate::redirection::Redirection;
use crate::report::Machine;
use crate::sys;
use counter::{Linkerd, Rivals};
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
        Some(Role::LinkerdControl(options)) => crate::linkerd::run(options).map(|()| true),
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
    let counter = options.experiments.contains(&Experiment::Counter);
    let rivals = counter.then(|| rivals(options)).transpose()?;
    block_on(all(&stage, &mut report, rivals.as_ref()))?;
    report.finish(&machine, options)
}

/// Finds the sidecars of `counter`, and moves this process behind a redirection if one of them needs it.
fn rivals(options: &Options) -> Result<Rivals> {
    // First: a new network namespace has no network to install it from.
    let envoy = peer::locate(Subject::Envoy, None)?;
    let Some(path) = options.linkerd.as_deref() else {
        let linkerd = None;
        return Ok(Rivals { envoy, linkerd });
    };
    let peer = peer::locate(Subject::Linkerd, Some(path))?;
    let linkerd = match Redirection::enter() {
        Ok(redirection) => Linkerd::Behind(redirection, peer),
        Err(error) => {
            let reason = format!("{} was left out: {error}", Subject::Linkerd);
            eprintln!("skipped: {reason}");
            Linkerd::LeftOut(reason)
        }
    };
    let linkerd = Some(linkerd);
    Ok(Rivals { envoy, linkerd })
}

async fn all(stage: &Stage, report: &mut Report, rivals: Option<&Rivals>) -> Result<()> {
    // The counter has no queues that could be off.
    if stage.options.experiments != [Experiment::Counter] {
        let findings = calibrate::run(stage, report).await?;
        report.folder.add(findings)?;
    }
    for experiment in Experiment::ALL {
        if !stage.options.experiments.contains(&experiment) {
            continue;
        }
        let findings = match experiment {
            Experiment::Balance => balance::run(stage, report).await?,
            Experiment::Counter => match rivals {
                Some(rivals) => counter::run(stage, report, rivals).await?,
                None => continue,
            },
            Experiment::Graphs => graphs::run(stage, report).await?,
            Experiment::Shop => shop::run(stage, report).await?,
            Experiment::Hashing => hashing::run(stage, report).await?,
            Experiment::ShopPublished => shop::configurations::run(stage, report).await?,
        };
        report.folder.add(findings)?;
    }
    Ok(())
}
