//! `maglor demo balancing`: the real proxy in front of real servers, under a load that
//! distinguishes policies.
//!
//! Read in this order: [`plan`] the policies and the load, [`servers`] and [`proxy`] the processes,
//! [`load`] the requests, [`tally`] the statistics, [`screen`] the output.
//!
//! The arrival time of each request and its amount of work, which it carries, are drawn from a fixed
//! seed: every policy gets exactly the same requests at the same times.

mod load;
mod plan;
mod proxy;
mod screen;
mod servers;
mod tally;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use maglor_balance::PolicySpec;
use maglor_telemetry::command_line::output;
use tokio::runtime::{Builder, LocalOptions};

use self::load::Stage;
use self::plan::Plan;
use self::proxy::Proxy;
use self::screen::Screen;
use self::servers::Servers;
use super::stop::Stop;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Duration of the demo, over all policies.
    #[arg(
        long = "for",
        value_name = "SECONDS",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=3600),
    )]
    seconds: u64,

    /// Policy to compare with the baselines: lor(choices=2), lor(choices=all), peak-ewma,
    /// maglev(table_size=65537), ring-hash(min=1024).
    #[arg(long, value_name = "POLICY", default_value = "lor(choices=2)")]
    policy: PolicySpec,

    /// Number of servers; the last one is slow.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(2..=64),
    )]
    servers: u16,
}

/// Errors of the demo.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the demo's configuration is invalid, please report this:\n{0}")]
    Config(#[from] maglor_config::Errors),
    #[error("the proxy was not ready within {0:?}")]
    NotReady(Duration),
    #[error("the proxy: {0}")]
    Proxy(#[from] maglor_proxy::RunError),
    #[error("the proxy panicked")]
    ProxyPanicked,
    #[error("{path}: invalid ready file: {found}")]
    ReadyFile { path: PathBuf, found: String },
    #[error("cannot {doing}: {source}")]
    System {
        doing: &'static str,
        source: io::Error,
    },
}

impl Error {
    fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }
}

/// Runs the demo; succeeds if every request succeeded.
pub(crate) fn run(options: &Options) -> ExitCode {
    let plan = Plan::new(&options.policy, options.servers, options.seconds);
    match show(&plan) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("maglor demo balancing: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts everything, runs the demo, and stops everything in reverse order.
fn show(plan: &Plan) -> Result<bool, Error> {
    let servers = Servers::start(&plan.service_times())?;
    let proxy = Proxy::start(&plan.configuration(&servers.addresses))?;
    let listener = proxy.listener(0);
    output::print(&plan.introduction(&servers.addresses, listener, proxy.admin));
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(Error::system("start a runtime"))?;
    let tallies = runtime.block_on(async {
        let stop = Stop::on_signals().map_err(Error::system("wait for signals"))?;
        let stage = Stage {
            plan,
            servers: &servers.addresses,
            proxy: &proxy,
            stop: Rc::new(stop),
        };
        let mut screen = Screen::new(plan);
        let mut tallies = Vec::new();
        for index in 0..plan.policies.len() {
            if !stage.stop.requested() {
                tallies.push(stage.drive(index, &mut screen).await);
            }
        }
        Ok::<_, Error>(tallies)
    })?;
    drop(runtime);
    proxy.stop()?;
    output::print(&screen::summary(plan, &tallies));
    Ok(tallies.iter().all(|tally| tally.failures() == 0))
}
