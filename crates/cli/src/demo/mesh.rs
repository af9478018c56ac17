//! `maglor demo`: an application of four services on one machine, a real proxy beside each replica.
//!
//! Read in this order: [`plan`] the application and the stages, [`fault`] the faults; [`members`]
//! and [`configuration`] the proxies' credentials and configurations, [`manifests`] and
//! [`control_plane`] what they discover, [`process`] and [`sidecar`] their processes,
//! [`application`] the servers beside them, [`fleet`] all of it together; [`load`] the requests,
//! [`intruders`] the intrusion attempts, [`stages`] the execution of the plan; [`flow`] and
//! [`record`] the statistics, [`screen`] and [`report`] the output.
//!
//! Applications, users and the screen share one thread of this process; only the proxies are
//! processes. Everything ends with its owner, so that nothing is left however the demo ends.

mod application;
mod configuration;
mod control_plane;
mod fault;
mod fleet;
mod flow;
mod intruders;
mod load;
mod manifests;
mod members;
mod plan;
mod process;
mod prompt;
mod record;
mod report;
mod screen;
mod services;
mod sidecar;
mod stages;
mod watch;

use std::io;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use maglor_balance::PolicySpec;
use maglor_identity::SpiffeError;
use maglor_telemetry::command_line::output;
use tokio::runtime::{Builder, LocalOptions};

use self::fault::At;
use self::fleet::Fleet;
use self::plan::{Plan, PlanError};
use self::report::Report;
use self::screen::Screen;
use self::services::Replicas;
use super::stop::Stop;

pub(super) const EXAMPLES: &str = concat!(
    "\
Examples:
  Run the four stages for a minute:
    maglor demo --for 60
  Kill two replicas of reviews, and restart one:
    maglor demo --fault reviews-1:kill@4 --fault reviews-2:kill@6 --fault reviews-1:heal@10
  Use more replicas, and a policy based on true queues:
    maglor demo --replicas reviews=6 --policy 'bounce(tries=3)'
  See each request in Jaeger, which waits for spans on port 4317:
    maglor demo --for 60 --collector 127.0.0.1:4317
  Compare policies of one proxy with a slow server:
    maglor demo balancing

Commands on a terminal while it runs:
",
    prompt::commands!(),
    "

It also runs in the background: `maglor demo &`.",
);

#[derive(Debug, clap::Args)]
// The name of the group would otherwise be that of the command's own options.
#[group(skip)]
pub(super) struct Options {
    /// Duration of the load.
    #[arg(
        long = "for",
        value_name = "SECONDS",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=3600),
    )]
    seconds: u64,

    /// Mean requests per second at the ingress; each causes three more inside the mesh.
    #[arg(
        long,
        value_name = "REQUESTS",
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=5000),
    )]
    rate: u32,

    /// Load balancing policy of the proxies: lor(choices=2), lor(choices=all), peak-ewma,
    /// bounce(tries=3), ledger(group=40,fallback=bounce), a-lsq(choices=2,overhead=10), and others.
    #[arg(long, value_name = "POLICY", default_value = "lor(choices=2)")]
    policy: PolicySpec,

    /// Number of replicas of a service, 1-16; may be repeated [default: productpage=2, details=2, reviews=3,
    /// ratings=2].
    #[arg(long, value_name = "SERVICE=N")]
    replicas: Vec<Replicas>,

    /// Inject a fault at a time after the start, instead of the four stages: slow, errors, kill or heal; may be
    /// repeated.
    #[arg(long = "fault", value_name = "SERVICE-N:KIND@SECONDS")]
    faults: Vec<At>,

    /// `HOST:PORT` of an OpenTelemetry collector, such as Jaeger at 127.0.0.1:4317, for the spans of all requests.
    #[arg(long, value_name = "HOST:PORT")]
    collector: Option<String>,

    /// Output format; JSON is the summary only.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Path of maglor-proxy [default: in the directory of this program, or in PATH].
    #[arg(long, value_name = "FILE")]
    proxy: Option<PathBuf>,

    /// Path of maglor-controller, for discovery and the page [default: in the directory of this program, or in PATH; if
    /// it is in neither, the proxies' files have everything, and there is no page].
    #[arg(long, value_name = "FILE")]
    controller: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Format {
    Json,
    Text,
}

/// Errors of the demo.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Config(#[from] maglor_config::Errors),
    #[error("the controller exited before it was ready ({status}): {said}")]
    ControllerEnded { status: ExitStatus, said: String },
    #[error("the controller was not ready within {0:?}")]
    ControllerNotReady(Duration),
    #[error("the proxy of {name} exited before it was ready ({status}): {said}")]
    Ended {
        name: String,
        status: ExitStatus,
        said: String,
    },
    #[error("certificates: {0}")]
    Identity(#[from] maglor_identity::Error),
    #[error("the demo's names are invalid, please report this: {0}")]
    Name(SpiffeError),
    #[error(
        "maglor-proxy is neither in the directory of this program nor in PATH; build it (cargo build --release -p maglor-proxy) or set --proxy"
    )]
    NoProgram,
    #[error("{flag} {}: no such file", path.display())]
    NoSuchProgram { flag: &'static str, path: PathBuf },
    #[error("the proxy of {0} was not ready within {1:?}")]
    NotReady(String, Duration),
    #[error("{0}")]
    Plan(#[from] PlanError),
    #[error("cannot start {}: {source}", program.display())]
    Start { program: PathBuf, source: io::Error },
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

/// Runs the demo; succeeds if all expected requests succeeded and no intrusion did.
pub(super) fn run(options: &Options) -> ExitCode {
    match show(options) {
        Ok(report) => {
            output::print(&match options.format {
                Format::Json => report.json(),
                Format::Text => report.text(),
            });
            match report.is_success() {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            eprintln!("maglor demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts everything and runs the demo; everything has ended when it returns.
fn show(options: &Options) -> Result<Report, Error> {
    let length = Duration::from_secs(options.seconds);
    let plan = Plan::new(length, &options.replicas, &options.faults)?;
    let program = sidecar::find(options.proxy.as_deref())?;
    let controller = match &options.controller {
        Some(passed) => Some(sidecar::existing("--controller", passed)?),
        None => sidecar::beside(control_plane::PROGRAM),
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(Error::system("start a runtime"))?;
    runtime.block_on(async {
        let stop = Stop::on_signals().map_err(Error::system("wait for signals"))?;
        let silent = options.format == Format::Json;
        let rate = f64::from(options.rate);
        let mut screen = Screen::new(length, silent);
        let collector = options.collector.as_deref();
        let controller = controller.as_deref();
        let mut fleet =
            Fleet::start(program, controller, &plan, &options.policy, collector).await?;
        if !silent {
            output::print(&plan.introduction(rate, &fleet.ingress, fleet.page()));
        }
        let record = stages::run(&plan, rate, &mut fleet, &mut screen, &stop).await?;
        let policy = options.policy.to_string();
        Ok(Report::new(policy, record, &fleet))
    })
}
