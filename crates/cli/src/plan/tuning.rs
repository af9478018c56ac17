//! `maglor plan tuning`: recommends settings for each service from observations, with reasons.

mod emit;
mod settings;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use maglor_service_graph::advise::{Advice, Advisor, Params, Snapshot};
use maglor_service_graph::file;
use maglor_telemetry::command_line::output;
use thiserror::Error;

use crate::input::{self, InputError};
use crate::live::table::{self, Format};

const EXAMPLES: &str = "\
The file has one or several snapshots of observations, in order of time:
    snapshots:
    - at: 2026-11-21T12:00:00Z                     # or seconds; absent: 60 s after the one before
      services:
      - {name: shop/web,  replicas: 1, cpu_millis: 500, memory_mib: 256,   # requested, per replica
         cpu_used_millis: 130, memory_used_mib: 90}                        # mean; the most
      - {name: shop/cart, replicas: 2, cpu_millis: 500, memory_mib: 256, cpu_limit_millis: 1000,
         cpu_used_millis: 640, memory_used_mib: 70}
      edges:
      - {from: shop/web, to: shop/cart, rps: 120, latency_ms: 3.5, failures: 2.4}
      splits:                                      # traffic splits of routes
      - {service: shop/cart, port: 80, versions: [
         {name: cart-v1, weight: 90, replicas: 2, rps: 108, latency_ms: 3.6, failures: 0.1},
         {name: cart-v2, weight: 10, replicas: 1, rps: 12, latency_ms: 3.1, failures: 0}]}
      room: {cpu_millis: 4000, memory_mib: 4096}   # free capacity of the nodes; absent: no limit
  optional for a service: containers: [{name: app, cpu_used_millis: 90, memory_used_mib: 60}, …] (usage of each
  container), memory_limit_mib, pending, rps (all its requests), autoscaled: true (a HorizontalPodAutoscaler manages
  its replicas: they and CPU are not tuned); for an edge: p99_ms, deadline_ms (the caller's deadline). A file with
  only services and edges is one snapshot.

Examples:
  Recommend settings for the mesh of a cluster, with reasons:
    maglor graph --since 2026-11-21T12:00:00Z -o json > day.json
    maglor plan tuning --observed day.json
  Print only differences from the policies in force:
    kubectl get trafficpolicies -A -o yaml > now.yaml
    maglor plan tuning --observed day.json --current now.yaml
  Print resources, with reasons as comments:
    maglor plan tuning --observed day.json --emit maglor > advice.yaml
    maglor plan tuning --observed day.json --emit istio > advice.yaml
  Use the paper's rule (more than 50 requests in 30 s) and another failure threshold:
    maglor plan tuning --observed day.json --utilization none --error-rate 0.05

Nothing is applied. The exit code is 2 if a file is invalid; the error names the line. Algorithm:
docs/generated.md.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Options {
    /// Observations (YAML or JSON); `-` is standard input.
    #[arg(long, value_name = "FILE")]
    observed: PathBuf,

    /// Output: a table, Maglor resources, or Istio resources.
    #[arg(long, value_name = "WHAT", default_value = "table")]
    emit: Emit,

    /// TrafficPolicies in force (YAML); only differences from these policies are printed.
    #[arg(long, value_name = "FILE")]
    current: Option<PathBuf>,

    /// Namespace of services whose names have no namespace.
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: String,

    /// Mean response time above which a service counts as slow, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    latency_ms: u64,

    /// Failure rate above which retries and circuit breakers are recommended, 0-0.5.
    #[arg(long, value_name = "SHARE", default_value = "0.01", value_parser = |text: &str| within(text, 0.0, 0.5))]
    error_rate: f64,

    /// Requests within 30 s above which a further replica may be needed.
    #[arg(long, value_name = "COUNT", default_value = "50", value_parser = |text: &str| within(text, 0.001, 1e9))]
    requests: f64,

    /// Minimum CPU utilization for an additional replica, 0.05-1; `none`: decide by load alone, as the paper in docs/generated.md does.
    #[arg(long, value_name = "SHARE", default_value = "0.7", value_parser = utilization)]
    utilization: Utilization,

    /// Maximum replicas of a service.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_replicas: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Emit {
    /// TrafficPolicies, and patches of Deployments.
    Maglor,
    /// DestinationRules and VirtualServices, and patches of Deployments.
    Istio,
    /// A table.
    Table,
    /// The table as JSON.
    Json,
}

#[derive(Clone, Copy, Debug)]
struct Utilization(Option<f64>);

#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("{file}: {error}")]
    Current {
        file: String,
        error: settings::CurrentError,
    },
    #[error("{0}: no observations: the file contains no service")]
    Nothing(String),
    #[error("the recommendation for {service} is invalid: {error}")]
    Refused {
        service: String,
        error: maglor_controller::crd::SpecError,
    },
}

/// Prints the recommendations. The exit code is 2 if the input is invalid.
pub(crate) fn run(options: &Options) -> ExitCode {
    match options.print() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("maglor plan tuning: {failure}");
            ExitCode::from(2)
        }
    }
}

impl Options {
    fn print(&self) -> Result<(), Failure> {
        let snapshots = input::read(&self.observed, file::snapshots)?;
        if snapshots.iter().all(|(_, one)| one.services.is_empty()) {
            return Err(Failure::Nothing(self.observed.display().to_string()));
        }
        let mut advisor = Advisor::new(self.params());
        for (at, snapshot) in &snapshots {
            advisor.observe(*at, snapshot);
        }
        let advice = advisor.advise();
        for one in &advice {
            check(one)?;
        }
        let last = snapshots.last().map(|(_, snapshot)| snapshot.clone());
        self.show(&advice, &last.unwrap_or_default())
    }

    fn show(&self, advice: &[Advice], last: &Snapshot) -> Result<(), Failure> {
        let current = match &self.current {
            None => None,
            Some(path) => {
                let read = settings::Current::read(&input::text(path)?, &self.namespace);
                Some(read.map_err(|error| Failure::Current {
                    file: path.display().to_string(),
                    error,
                })?)
            }
        };
        let of = |one: &Advice| settings::rows(one, last, current.as_ref(), &self.namespace);
        let rows: Vec<settings::Setting> = advice.iter().flat_map(of).collect();
        let changed =
            |service: &str| current.is_none() || rows.iter().any(|row| row.service == service);
        let advice: Vec<&Advice> = advice.iter().filter(|one| changed(&one.service)).collect();
        match self.emit {
            Emit::Table => {
                let rows = settings::each_reason_once(&rows);
                table::show(&rows, Format::Table, "nothing would change");
            }
            Emit::Json => table::show(&rows, Format::Json, ""),
            Emit::Maglor => output::print(&emit::maglor(&advice, &rows, &self.namespace)),
            Emit::Istio => output::print(&emit::istio(&advice, &rows, &self.namespace)),
        }
        Ok(())
    }

    fn params(&self) -> Params {
        let mut params = Params::default();
        params.thresholds.latency = Duration::from_millis(self.latency_ms);
        params.thresholds.error_rate = self.error_rate;
        params.thresholds.requests = self.requests;
        params.scaling.utilization = self.utilization.0;
        params.scaling.most = self.max_replicas;
        params
    }
}

/// Validates recommendations like any other policy.
fn check(advice: &Advice) -> Result<(), Failure> {
    let Some(traffic) = &advice.traffic else {
        return Ok(());
    };
    let (cluster, route) = (
        maglor_controller::recommended_policy::cluster(traffic),
        maglor_controller::recommended_policy::route(traffic),
    );
    let checked = maglor_controller::crd::check::blocks(Some(&cluster), Some(&route));
    checked.map_err(|error| Failure::Refused {
        service: advice.service.clone(),
        error,
    })
}

/// Returns a service's namespace and name. The graph of a cluster has names of the form `NAMESPACE/NAME`.
fn split<'a>(service: &'a str, namespace: &'a str) -> (&'a str, &'a str) {
    service.split_once('/').unwrap_or((namespace, service))
}

fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("must be a number from {least} to {most}"))
}

fn utilization(text: &str) -> Result<Utilization, String> {
    match text {
        "none" => Ok(Utilization(None)),
        text => match within(text, 0.05, 1.0) {
            Ok(share) => Ok(Utilization(Some(share))),
            Err(why) => Err(format!("{why}, or none")),
        },
    }
}
