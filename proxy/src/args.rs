//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use maglor_config::raw::{NotationError, Size};
use maglor_config::{Config, Errors, Loaded};
use maglor_proxy::Options;
use maglor_telemetry::logs::{self, Format};

mod init;

const EXAMPLES: &str = "\
Examples:
  Balance two servers:
    maglor-proxy --listen 127.0.0.1:8080 --upstream 127.0.0.1:9001 --upstream 127.0.0.1:9002,weight=2

  The same with another policy, metrics and two threads:
    maglor-proxy --listen [::]:8080 --upstream app.internal:80 --policy 'maglev(table_size=65537)' \\
                 --admin 127.0.0.1:9901 --workers 2

  From a file, which is watched and reloaded when it changes (or on SIGHUP):
    maglor-proxy --config maglor.yaml

  Only look whether a file is right; print what the flags above would be as a file:
    maglor-proxy --check --config maglor.yaml
    maglor-proxy --print-config --listen 127.0.0.1:8080 --upstream 127.0.0.1:9001

  As a sidecar: redirect the connections of a pod to it (see maglor-proxy init --help):
    maglor-proxy init --inbound-port 15006 --outbound-port 15001 --proxy-uid 2102

Signals: TERM and INT drain and end; HUP reloads; USR1 reopens the access log.";

/// A small reverse proxy and sidecar: HTTP/1.1, HTTP/2, gRPC, WebSocket, TCP and TLS.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Configuration file (YAML); docs/configuration.md describes it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "upstream", "policy", "admin", "workers"])]
    config: Option<PathBuf>,

    /// Address to listen on; port 0 lets the system choose.
    #[arg(
        long,
        value_name = "ADDR",
        required_unless_present = "config",
        requires = "upstream"
    )]
    listen: Option<SocketAddr>,

    /// A server to forward to, by address or name: ADDR:PORT[,weight=N]. Repeat for more.
    #[arg(long, value_name = "ADDR[,weight=N]", requires = "listen")]
    upstream: Vec<String>,

    /// How a server is chosen: random, round-robin, lor(choices=2), lor(choices=all), peak-ewma,
    /// maglev(table_size=65537), ring-hash(min=1024). [default: lor(choices=2)]
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,

    /// Address of the admin server: metrics, readiness, configuration, drain.
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,

    /// Threads that serve connections. [default: 1]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,

    /// Memory to stay within, as in 32MiB, over that of the configuration; above it requests are
    /// answered with 503.
    #[arg(long, value_name = "SIZE", value_parser = memory_budget)]
    memory_budget: Option<u64>,

    /// Check the configuration, print what is wrong with it, and end.
    #[arg(long)]
    check: bool,

    /// Print the configuration as YAML and end.
    #[arg(long)]
    print_config: bool,

    /// Format of the proxy's own log on standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,

    /// Level of the proxy's own log, over that of the configuration: error, warn, info, debug,
    /// trace, or target=level,...
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,

    /// Write the bound addresses to this file (JSON) once requests are taken.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

fn memory_budget(text: &str) -> Result<u64, String> {
    let size: Size = text
        .parse()
        .map_err(|error: NotationError| error.to_string())?;
    let range = Config::LEAST_MEMORY_BUDGET..=Config::MOST_MEMORY_BUDGET;
    if range.contains(&size.0) {
        return Ok(size.0);
    }
    let (least, most) = (Size(*range.start()), Size(*range.end()));
    Err(format!("{size} is not in the range {least} to {most}"))
}

/// What else the binary does.
#[derive(Debug, Subcommand)]
enum Command {
    Init(init::InitArgs),
}

impl Args {
    pub(crate) fn run(mut self) -> ExitCode {
        if let Some(Command::Init(init)) = self.command.take() {
            return init.run();
        }
        let loaded = match self.load() {
            Ok(loaded) => loaded,
            Err(errors) => {
                eprintln!("{errors}");
                return ExitCode::from(2);
            }
        };
        for warning in &loaded.warnings {
            eprintln!("{warning}");
        }
        if self.print_config {
            print!("{}", loaded.yaml);
            return ExitCode::SUCCESS;
        }
        if self.check {
            println!("{}: configuration is valid", self.place());
            return ExitCode::SUCCESS;
        }
        self.serve(loaded)
    }

    fn place(&self) -> String {
        self.config
            .as_ref()
            .map_or_else(|| "flags".into(), |file| file.display().to_string())
    }

    fn load(&self) -> Result<Loaded, Errors> {
        if let Some(file) = &self.config {
            return maglor_config::load(file);
        }
        // clap has made sure that it is there.
        let listen = self.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        let policy = self.policy.as_deref();
        Config::from_flags(
            listen,
            &self.upstream,
            policy,
            self.admin,
            self.workers.unwrap_or(1),
        )
    }

    fn serve(self, loaded: Loaded) -> ExitCode {
        let level = self
            .log_level
            .unwrap_or_else(|| loaded.config.log_level.to_string());
        let format = if self.log_format == "json" {
            Format::Json
        } else {
            Format::Text
        };
        let log = match logs::init(&level, format) {
            Ok(log) => log,
            Err(error) => {
                eprintln!("--log-level: {error}");
                return ExitCode::from(2);
            }
        };
        let options = Options {
            file: self.config,
            ready_file: self.ready_file,
            memory_budget: self.memory_budget,
            log: Some(log),
        };
        match maglor_proxy::run(loaded, options, std::future::pending()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("maglor-proxy: {error}");
                ExitCode::FAILURE
            }
        }
    }
}
