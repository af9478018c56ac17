//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, ArgGroup, Parser, Subcommand};
use maglor_config::suggest;
use maglor_config::{Address, Config, Errors, Loaded};

use self::running::RunningArgs;

mod advice;
mod failure;
mod gateway;
mod init;
mod member;
mod running;
mod service;
mod sidecar;
mod wait;

const EXAMPLES: &str = "\
Examples:
  Balance two servers:
    maglor-proxy --listen 127.0.0.1:8080 --upstream 127.0.0.1:9001 --upstream 127.0.0.1:9002,weight=2

  The same with another policy, metrics and two threads:
    maglor-proxy --listen [::]:8080 --upstream app.internal:80 --policy 'maglev(table_size=65537)' \\
                 --admin 127.0.0.1:9901 --workers 2

  From a file, which is watched and reloaded when it changes (or on SIGHUP):
    maglor-proxy --config maglor.yaml

  Validate a file; print the flags above as a file:
    maglor-proxy --check --config maglor.yaml
    maglor-proxy --print-config --listen 127.0.0.1:8080 --upstream 127.0.0.1:9001

  As a sidecar, configured by the control plane: redirect the connections of a pod, and run
  (see maglor-proxy init --help and maglor-proxy sidecar --help):
    maglor-proxy init --inbound-port 15006 --outbound-port 15001 --proxy-uid 2102
    maglor-proxy sidecar

  In front of a service of the mesh, configured by the control plane (see maglor-proxy service --help):
    maglor-proxy service --forward 8080=http/web-target.shop.svc.cluster.local:80

  As the proxy of a Gateway (see maglor-proxy gateway --help):
    maglor-proxy gateway

Signals: TERM and INT drain and exit; HUP reloads; USR1 reopens the access log.";

/// A small reverse proxy and sidecar: HTTP/1.1, HTTP/2, gRPC, WebSocket, TCP and TLS.
#[derive(Debug, Parser)]
#[command(
    version,
    disable_version_flag = true,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    group(ArgGroup::new("what").args(["config", "file", "listen"]).required(true))
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Configuration file (YAML); docs/configuration.md describes it.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["listen", "upstream", "policy", "admin", "workers"])]
    config: Option<PathBuf>,

    /// Configuration file; the same as --config.
    #[arg(value_name = "FILE", conflicts_with_all = ["config", "listen", "upstream", "policy", "admin", "workers"])]
    file: Option<PathBuf>,

    /// Address to listen on: ADDR:PORT, or a port for all IPv4 addresses; port 0 lets the system choose. Or a Unix
    /// socket: unix:/PATH, unix:@NAME.
    #[arg(long, value_name = "ADDR", requires = "upstream", value_parser = listening)]
    listen: Option<Address>,

    /// Server to forward to, by address, name or Unix socket: ADDR:PORT[,weight=N], unix:/PATH[,weight=N]. May be
    /// repeated.
    #[arg(long, value_name = "ADDR[,weight=N]", requires = "listen")]
    upstream: Vec<String>,

    /// Load-balancing policy: random, round-robin, lor(choices=2), lor(choices=all), peak-ewma,
    /// maglev(table_size=65537), ring-hash(min=1024). [default: lor(choices=2)]
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,

    /// Address of the admin server: metrics, readiness, configuration, drain. ADDR:PORT, or a port on 127.0.0.1.
    #[arg(long, value_name = "ADDR", value_parser = admin)]
    admin: Option<SocketAddr>,

    /// Threads that serve connections. [default: 1]
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<usize>,

    /// Print version.
    #[arg(short = 'V', long = "version", visible_short_alias = 'v', action = ArgAction::Version)]
    _version: Option<bool>,

    #[command(flatten)]
    running: RunningArgs,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
enum Command {
    Gateway(Box<gateway::GatewayArgs>),
    Init(init::InitArgs),
    Service(Box<service::ServiceArgs>),
    Sidecar(Box<sidecar::SidecarArgs>),
    Wait(wait::WaitArgs),
}

/// Parses a listening address. `8080` and `:8080` mean all IPv4 addresses, as in other proxies.
fn listening(text: &str) -> Result<Address, String> {
    if text.starts_with("unix:") {
        return text.parse();
    }
    address(text, [0, 0, 0, 0]).map(Address::Ip)
}

/// Parses the admin address. A bare port means the loopback address, since the admin server has no
/// authentication.
fn admin(text: &str) -> Result<SocketAddr, String> {
    address(text, [127, 0, 0, 1])
}

fn address(text: &str, default: [u8; 4]) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse() {
        return Ok(SocketAddr::from((default, port)));
    }
    text.parse()
        .map_err(|_| match suggest::listen_address(text) {
            Some(address) => format!("write `{address}`"),
            None => "write an IP address and a port, as in 127.0.0.1:8080, or a port, 0 to 65535"
                .to_owned(),
        })
}

fn workers(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| "write a number of threads, 1 to 256, as in 2".to_owned())
}

/// Parses the command line. Exits the process after `--help` and `--version`, and on an invalid command line.
pub(crate) fn parse() -> Args {
    let words: Vec<OsString> = std::env::args_os().collect();
    let advice = match advice::command(&words) {
        Some(advice) => advice,
        None => match Args::try_parse_from(&words) {
            Ok(args) => return args,
            Err(error) => match advice::of(&error, &words) {
                Some(advice) => advice,
                None => error.exit(),
            },
        },
    };
    eprint!("{advice}");
    std::process::exit(2)
}

impl Args {
    pub(crate) fn run(mut self) -> ExitCode {
        match self.command.take() {
            Some(Command::Gateway(gateway)) => gateway.run(),
            Some(Command::Init(init)) => init.run(),
            Some(Command::Service(service)) => service.run(),
            Some(Command::Sidecar(sidecar)) => sidecar.run(),
            Some(Command::Wait(wait)) => wait.run(),
            None => {
                self.config = self.config.or(self.file.take());
                let loaded = self.load();
                self.running.run(loaded, self.config)
            }
        }
    }

    fn load(&self) -> Result<Loaded, Errors> {
        if let Some(file) = &self.config {
            return maglor_config::load(file);
        }
        // clap guarantees that the flag is present here.
        let loopback = || SocketAddr::from(([127, 0, 0, 1], 0)).into();
        let listen = self.listen.clone().unwrap_or_else(loopback);
        let policy = self.policy.as_deref();
        Config::from_flags(
            listen,
            &self.upstream,
            policy,
            self.admin,
            self.workers.unwrap_or(1),
        )
    }
}
