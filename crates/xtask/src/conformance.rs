//! `cargo xtask conformance`: protocol suites and endurance against the real proxy binary.
//!
//! Each suite starts its own proxy and servers on loopback, runs its cases, and writes a section in
//! `benches/results/<date>-conformance/summary.md` and the raw output.
//!
//! # Layout
//!
//! - [`h2spec`], [`grpc`], [`websocket`]: third-party suites, and a few cases of our own.
//! - [`xds`]: third-party control planes and clients, with our controller and our proxy.
//! - [`bulk`], [`reload`], [`drain`]: behaviour under load; [`load`] generates it.
//! - [`client`]: HTTP clients; [`setup`]: proxies; [`tools`]: third-party programs, cached by
//!   version; [`report`]: the results.

mod bulk;
mod client;
mod drain;
mod grpc;
mod h2spec;
mod load;
mod reload;
mod report;
mod setup;
mod tools;
mod websocket;
mod xds;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};

use self::report::Report;

/// Test HTTP/2, gRPC, WebSocket, bulk transfer, reload, drain and xDS against the real programs.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Suites to run.
    #[arg(value_enum, default_value = "all")]
    suite: Suite,

    /// Proxy binary [default: built with `--profile quick`].
    #[arg(long, value_name = "PATH")]
    proxy: Option<PathBuf>,

    /// Controller binary, for the suite `xds` [default: built with `--profile quick`].
    #[arg(long, value_name = "PATH")]
    controller: Option<PathBuf>,

    /// Directory for the results. Default: `benches/results/<date>-conformance`.
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,

    /// Number of proxies that the drain suite stops.
    #[arg(long, value_name = "N", default_value_t = 20)]
    drains: u32,

    /// Number of configuration changes of the reload suite.
    #[arg(long, value_name = "N", default_value_t = 100)]
    reloads: u32,

    /// Size of each transfer of the bulk suite, in MiB.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    mebibytes: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Suite {
    All,
    Bulk,
    Drain,
    Grpc,
    H2spec,
    Reload,
    Websocket,
    Xds,
}

/// The environment of a suite.
#[derive(Debug)]
struct Bench {
    /// The path of the proxy's binary.
    proxy: PathBuf,
    /// The path of the controller's binary, if set.
    controller: Option<PathBuf>,
    /// The folder of the workspace.
    root: PathBuf,
    drains: u32,
    reloads: u32,
    bytes: u64,
}

type Run = fn(&Bench, &mut Report) -> anyhow::Result<()>;

/// The suites in the order of their execution and in the report.
const SUITES: &[(Suite, &str, Run)] = &[
    (Suite::H2spec, "h2spec", h2spec::run),
    (Suite::Grpc, "grpc", grpc::run),
    (Suite::Websocket, "websocket", websocket::run),
    (Suite::Xds, "xds", xds::run),
    (Suite::Bulk, "bulk", bulk::run),
    (Suite::Reload, "reload", reload::run),
    (Suite::Drain, "drain", drain::run),
];

/// Runs the selected suites.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let root = tools::workspace()?;
    let found = |path: &PathBuf| {
        let found = path.canonicalize();
        found.with_context(|| path.display().to_string())
    };
    let proxy = match &arguments.proxy {
        Some(path) => found(path)?,
        None => tools::build(&root, "maglor-proxy")?,
    };
    let folder = arguments.results.clone();
    let folder = folder.unwrap_or_else(|| report::default_folder(&root));
    let mut report = Report::new(folder)?;
    let bench = Bench {
        proxy,
        controller: arguments.controller.as_ref().map(found).transpose()?,
        root,
        drains: arguments.drains,
        reloads: arguments.reloads,
        bytes: arguments.mebibytes << 20,
    };
    for &(suite, name, run) in SUITES {
        if arguments.suite != Suite::All && arguments.suite != suite {
            continue;
        }
        report.begin(name);
        if let Err(error) = run(&bench, &mut report) {
            report.fail("suite", format!("could not run: {error:#}"));
        }
        report.end()?;
    }
    let names: Vec<_> = SUITES.iter().map(|&(_, name, _)| name).collect();
    let failed = report.summarize(&names)?;
    ensure!(failed == 0, "{failed} cases failed");
    Ok(())
}
