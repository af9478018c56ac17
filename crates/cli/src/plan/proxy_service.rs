//! `maglor plan proxy-service`: determines offline whether proxies in front of a service are worthwhile, and prints
//! the resources to apply.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use maglor_balance::PolicySpec;
use maglor_config::Flags;
use maglor_telemetry::command_line::output;
use serde_json::Value;

mod answer;
mod workload;

use crate::input::read_text;
use answer::Answer;
use workload::{Service, Services, WorkloadError};

const EXAMPLES: &str = "\
M balancers (the callers' sidecars) send requests to N servers. Each sees only its own requests, so
least outstanding requests balances worse as M grows. The decision rule (docs/model.md) compares:
  local          lor(choices=2) in each sidecar, the default
  bounce, ledger policies based on true queues in the sidecars: no further hop, some messages
  proxy-service  a few proxies in front of the service, which see all of its requests

The workload file lists several services; missing fields are those of the options:
    services:
    - {name: web, namespace: shop, balancers: 30, servers: 40, rho: 0.75, service_ms: 20}
    - {name: cart, namespace: shop, balancers: 2, servers: 4, rho: 0.2, service_ms: 5}

Examples:
  Compare the choices for 40 servers and 20 sidecars:
    maglor plan proxy-service --balancers 20 --servers 40 --rho 0.75 --service-ms 20
  The same if the callers have no sidecars:
    maglor plan proxy-service --balancers 20 --servers 40 --rho 0.75 --service-ms 20 --without-sidecars
  Apply the recommendations for all services of a file:
    maglor plan proxy-service --workload services.yaml --format manifests | kubectl apply -f -

JSON fields: mean_ms of each choice, fastest first; recommended; and gain, the predicted saving as a
share of the current latency. Nothing is recommended below --least-gain.";

const CONFIG: &str = "\
Examples:
  Configure a proxy for three servers, without Kubernetes:
    maglor plan proxy-service config --listen 0.0.0.0:8080 --upstream 10.0.0.1:8080 \\
      --upstream 10.0.0.2:8080 --upstream 10.0.0.3:8080 > maglor.yaml
    maglor-proxy --config maglor.yaml

Callers must then use the proxy's address.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true, args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    other: Option<Other>,

    #[command(flatten)]
    decision: Decision,
}

#[derive(Debug, Subcommand)]
enum Other {
    /// Print the configuration of a Proxy-Service proxy without Kubernetes.
    Config(ConfigOptions),
}

#[derive(Debug, clap::Args)]
struct Decision {
    /// Several services (YAML or JSON); `-` is standard input.
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,

    #[command(flatten)]
    service: Service,

    /// Assume callers without sidecars: compare only `local` and `proxy-service`.
    #[arg(long)]
    without_sidecars: bool,

    /// Minimum share of the latency that a recommendation must save.
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    least_gain: f64,

    /// Output format.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Json)]
    format: Format,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// One object, or for a workload file a list of objects.
    Json,
    /// The resources to apply, as YAML.
    Manifests,
    /// A readable summary.
    Table,
}

#[derive(Debug, clap::Args)]
#[command(after_help = CONFIG)]
struct ConfigOptions {
    /// Address to listen on.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:8080")]
    listen: std::net::SocketAddr,

    /// Server: ADDR:PORT[,weight=N]; may be repeated.
    #[arg(long, value_name = "ADDR[,weight=N]", required = true)]
    upstream: Vec<String>,

    /// Load balancing policy.
    #[arg(long, value_name = "POLICY", default_value = "lor(choices=2)")]
    policy: PolicySpec,

    /// Address of the admin server.
    #[arg(long, value_name = "ADDR")]
    admin: Option<std::net::SocketAddr>,
}

/// Prints the result. The exit code is 2 if the input is invalid.
pub(crate) fn run(options: &Options) -> ExitCode {
    let (command, printed) = match &options.other {
        None => {
            let printed = options.decision.print();
            ("proxy-service", printed.map_err(|error| error.to_string()))
        }
        Some(Other::Config(config)) => ("proxy-service config", config.config()),
    };
    match printed {
        Ok(text) => {
            output::print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("maglor plan {command}: {error}");
            ExitCode::from(2)
        }
    }
}

impl Decision {
    fn print(&self) -> Result<String, WorkloadError> {
        if !(0.0..1.0).contains(&self.least_gain) {
            return Err(WorkloadError::LeastGain(self.least_gain));
        }
        let several = self.workload.as_deref();
        self.service.check_names()?;
        let answers = match several {
            Some(path) => self.answers(path)?,
            None => vec![self.answer(&self.service)?],
        };
        Ok(match self.format {
            Format::Json => {
                let mut all: Vec<Value> = answers.iter().map(Answer::json).collect();
                let value = match (several, all.len()) {
                    (None, 1) => all.remove(0),
                    _ => Value::Array(all),
                };
                format!("{value:#}\n")
            }
            Format::Manifests => answers.iter().map(Answer::manifests).collect(),
            Format::Table => answer::table(&answers),
        })
    }

    fn answer(&self, service: &Service) -> Result<Answer, WorkloadError> {
        Answer::of(service, !self.without_sidecars, self.least_gain)
    }

    /// Returns a result for each service of a file.
    fn answers(&self, path: &Path) -> Result<Vec<Answer>, WorkloadError> {
        let file = path.display().to_string();
        let text = read_text(path).map_err(|error| WorkloadError::Read {
            file: file.clone(),
            error,
        })?;
        let services = Services::parse(&text, &file, self.service.namespace.as_deref())?;
        let services = services.into_iter().enumerate();
        let answer = |(at, service): (usize, Service)| {
            let answer = self.answer(&service.or(&self.service));
            answer.map_err(|error| error.of_service(&file, &text, at))
        };
        services.map(answer).collect()
    }
}

impl ConfigOptions {
    fn config(&self) -> Result<String, String> {
        let policy = self.policy.to_string();
        let flags = Flags {
            listen: self.listen.into(),
            upstreams: &self.upstream,
            policy: Some(&policy),
            admin: self.admin,
            workers: 1,
        };
        let loaded = flags.load().map_err(|errors| errors.to_string())?;
        Ok(loaded.yaml.to_string())
    }
}
