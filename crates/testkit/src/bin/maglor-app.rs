//! `maglor-app`: an emulated application from a work model of µBench. For development only.

use std::process::ExitCode;

use clap::Parser;
use maglor_testkit::app;

const EXAMPLE: &str = "\
Example:
  A service of two instances, 20 ms of exponential work each, that calls another one through a proxy:
    workmodel.json   {\"s0\": {\"replicas\": 2,
                             \"internal_service\": {\"queue\": {\"service_time\": 0.02}},
                             \"external_services\": [{\"seq_len\": 1, \"services\": [\"s1\"]}]},
                      \"s1\": {\"internal_service\": {\"queue\": {\"service_time\": 0.01, \"workers\": 4}}}}
    deployment.json  {\"instances\": [
                       {\"host\": \"s0\", \"listen\": \"127.0.0.1:9000\", \"outbound\": \"127.0.0.1:15001\"},
                       {\"host\": \"s0\", \"listen\": \"127.0.0.1:9001\", \"outbound\": \"127.0.0.1:15001\"},
                       {\"host\": \"s1\", \"listen\": \"127.0.0.1:9002\"}]}
    maglor-app --workmodel workmodel.json --deployment deployment.json --control 127.0.0.1:9100
    curl 127.0.0.1:9000/api/v1; curl 127.0.0.1:9100/counts
    curl -X PUT 127.0.0.1:9100/faults -d '{\"instance\": 2, \"fault\": {\"status_share\": 0.3, \"status\": 503}}'

It prints `ready` on standard output, and serves until it is stopped.";

/// Run emulated services that take time but no CPU.
#[derive(Debug, Parser)]
#[command(name = "maglor-app", version, after_help = EXAMPLE)]
struct Arguments {
    #[command(flatten)]
    options: app::Options,
}

fn main() -> ExitCode {
    match app::run(&Arguments::parse().options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
