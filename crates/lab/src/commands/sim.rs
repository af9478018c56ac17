//! `maglor-lab sim`: runs the simulator, with a simulation for each combination of listed parameters.
//!
//! [`options`] defines the command line, [`scenario`] converts it to scenarios, and [`report`] prints the results.

pub(crate) mod options;
mod report;
mod scenario;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use maglor_lab::des::{Outcome, simulate_all, threads};
use maglor_telemetry::command_line::output;

use self::options::Options;
use crate::commands::progress;

const EXAMPLES: &str = "\
Options marked as a list take several values, and every combination is simulated: 1,20,200, or a range
FROM:TO:STEP. -o table and -o csv have a line for each simulation.

The JSON output has mean_ms with ci95_ms (half the width of the 95 % confidence interval), p50_ms,
p99_ms, messages_per_request, and the parameters, including the seed. Further fields:
  shares           each server's share of the attempts, in the second half of each run
  node_shares      with --nodes: of the attempts from each node, the share of each node's servers
  good_mean_ms     mean latency of successful responses
  timeline_ms      with --timeline-ms: mean latency by interval
  fallback_share   requests decided by the policy's fallback (timeout)
  busy_while_idle  requests sent to a busy server while another one was idle
  drift            mean of the last third over that of the third before; far above 1: unstable
  steady           false: the runs are too short for this load, and the mean is underestimated by more
                   than its interval; also reported on standard error
  failed           failed requests; errors count in latencies
  discarded        requests of the warm-up, determined by the MSER-5 rule and not counted

Examples:
  Compare least outstanding requests with a ledger, for one balancer to 200:
    maglor-lab sim --policy 'lor(choices=2)' --policy 'ledger(group=40)' --balancers 1,20,200 -o table
  A curve over the load:
    maglor-lab sim --rho 0.1:0.9:0.1 -o csv > load.csv
  The paper's Proxy-Service, two instances:
    maglor-lab sim --balancers 100 --proxies 2
  Heavy-tailed work on servers of two speeds, one message in a hundred lost:
    maglor-lab sim --policy bounce --service lognormal:3 --speeds 1,2 --loss 0.01
  A chain of four services with ten replicas each:
    maglor-lab sim --graph chain:4 --servers 10 --balancers 1
  Four failing servers, with retries and ejection:
    maglor-lab sim --faults 4:0.3:1 --retries 2 --eject
  A server that fails immediately, and may attract requests:
    maglor-lab sim --policy 'ledger(group=40)' --rho 0.5 --faults 1:1:0.01
  Weights without queueing, at ten requests in progress:
    maglor-lab sim --policy 'ledger(group=40)' --servers 2 --weights 99,1 --discipline parallel --rho 5
  Three nodes, two thirds of the calls from the first one, local first:
    maglor-lab sim --policy 'ledger(group=40)' --nodes 3 --node-callers 4,1,1 --node-slack 0
  A server that returns, with a share that grows within ten seconds:
    maglor-lab sim --policy 'ledger(group=40)' --change 1000:leave:3 --change 2000:return:3 --slow-start-ms 10000
  Half of the servers start to report to the ledger within twenty seconds:
    maglor-lab sim --policy 'ledger(group=40)' --silent 20 --rollout-ms 20000 --timeline-ms 1000
  Measure the simulation speed:
    maglor-lab sim --requests 20000000 --timing > /dev/null";

/// Prints the results; an error is one line.
pub(crate) fn run(options: &Options) -> ExitCode {
    match simulate(options) {
        Ok(text) => {
            output::print(&text);
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn simulate(options: &Options) -> Result<String, String> {
    let scenarios = options.scenarios()?;
    let threads = options.threads.unwrap_or_else(threads);
    let began = Instant::now();
    let runs = scenarios.iter().map(|one| u64::from(one.runs)).sum();
    let bar = progress::bar(runs);
    let outcomes = simulate_all(&scenarios, threads, &|done, _| {
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let outcomes = outcomes.map_err(|error| error.to_string())?;
    if options.timing {
        report_speed(&outcomes, began.elapsed(), threads.get());
    }
    report_unsteady(&outcomes);
    Ok(report::text(&scenarios, &outcomes, options.output))
}

fn report_speed(outcomes: &[Outcome], took: Duration, threads: usize) {
    let simulated: u64 = outcomes.iter().map(|outcome| outcome.simulated).sum();
    let seconds = took.as_secs_f64();
    let speed = simulated as f64 / seconds / 1e6;
    eprintln!("{simulated} requests in {seconds:.2} s on {threads} threads: {speed:.1} million/s");
}

fn report_unsteady(outcomes: &[Outcome]) {
    let unsteady = outcomes
        .iter()
        .filter(|outcome| !outcome.is_steady())
        .count();
    let which = match (unsteady, outcomes.len()) {
        (0, _) => return,
        (_, 1) => String::new(),
        (count, all) => format!(" in {count} of {all} simulations"),
    };
    eprintln!(
        "note: not steady{which}: latency was still growing at the end of the runs and is underestimated; increase \
         --requests"
    );
}
