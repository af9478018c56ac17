//! `maglor sim`: runs the simulator, one scenario at a time, with JSON output.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use maglor_balance::SlowStart;
use maglor_balance::guard::breaker::BreakerParams;
use maglor_balance::guard::outlier::OutlierParams;
use maglor_sim::des::{
    Antagonist, Arrivals, Change, Discipline, Disturbance, Faults, Graph, Guards, LEAST_REQUESTS,
    Network, Nodes, Outcome, Proxies, Scenario, Service, simulate_all, threads,
};
use serde_json::{Value, json};

use maglor_terminal::output;

/// Errors are one line, so most values are read as strings and parsed here.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Options {
    /// Load balancing policy: random, round-robin, lor(choices=2), lor(choices=all), peak-ewma,
    /// a-lsq(choices=2,overhead=10), bounce(tries=3), ledger(group=40,fallback=bounce),
    /// join-idle-queue(boards=4,fallback=probe), probe(choices=2), prequal, subset(size=20).
    #[arg(long, value_name = "POLICY", default_value = "lor(choices=2)")]
    policy: String,

    /// Number of balancers, M; each sees only its own requests.
    #[arg(long, value_name = "M", default_value_t = 20)]
    balancers: u32,

    /// Number of servers, N.
    #[arg(long, value_name = "N", default_value_t = 40)]
    servers: u32,

    /// Load relative to the capacity of all servers, above 0 and below 1. With --discipline parallel: requests in
    /// progress per server of speed 1, up to 1000.
    #[arg(long, value_name = "R", default_value_t = 0.75)]
    rho: f64,

    /// Mean service time of a server of speed 1, Ts, in milliseconds.
    #[arg(long, value_name = "T", default_value_t = 20.0)]
    service_ms: f64,

    /// Arrival process: poisson; lognormal:CV, a stream for each balancer; lognormal:CV:shared, one bursty stream
    /// distributed at random.
    #[arg(long, value_name = "PROCESS", default_value = "poisson")]
    arrivals: String,

    /// Distribution of service times: exp, deterministic, lognormal:CV, or bimodal:SHARE:FACTOR
    /// (a share of the requests is longer by a factor).
    #[arg(long, value_name = "DISTRIBUTION", default_value = "exp")]
    service: String,

    /// Service discipline of a server: fifo, ps (processor sharing) or parallel (each request at full
    /// speed, without waiting).
    #[arg(long, value_name = "DISCIPLINE", default_value = "fifo")]
    discipline: String,

    /// Speeds of the servers, repeated in turn.
    #[arg(
        long,
        value_name = "SPEEDS",
        value_delimiter = ',',
        default_value = "1"
    )]
    speeds: Vec<f64>,

    /// Weights of the servers in balancers, repeated in turn.
    #[arg(
        long,
        value_name = "WEIGHTS",
        value_delimiter = ',',
        default_value = "1"
    )]
    weights: Vec<u32>,

    /// Number of nodes; servers and balancers are assigned to them in turn. Calls prefer their own node, as
    /// with `localFirst`, within an even share.
    #[arg(long, value_name = "COUNT")]
    nodes: Option<u32>,

    /// Relative numbers of balancers on the nodes: 4,1,1 puts two thirds of the calls on the first of three
    /// nodes [default: equal].
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', requires = "nodes")]
    node_callers: Vec<u32>,

    /// Maximum excess of a server over its fair share that keeps calls on their node, in percent.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 100.0 * Nodes::SLACK,
        requires = "nodes"
    )]
    node_slack: f64,

    /// Slow start: servers that return (--change MS:return:SERVER, --eject) start with a tenth of their
    /// share, which grows to the full share within MS milliseconds.
    #[arg(long, value_name = "MS")]
    slow_start_ms: Option<f64>,

    /// Interference: one server in ONE_IN runs at FACTOR of its speed for MS milliseconds, in turn, such as
    /// 5:0.5:1000.
    #[arg(long, value_name = "ONE_IN:FACTOR:MS")]
    antagonist: Option<String>,

    /// One-way delay of a policy's messages, in milliseconds. Requests take no time.
    #[arg(long, value_name = "X", default_value_t = 0.25)]
    delay_ms: f64,

    /// Share of a policy's messages that is lost.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    loss: f64,

    /// Additional share of servers' reports to ledgers that is lost, 0 to 1: asymmetric loss.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    report_loss: f64,

    /// Number of servers (the last ones) that neither report to a ledger nor answer audits.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    silent: u32,

    /// The silent servers start to report one after another, the last one after MS milliseconds.
    #[arg(long, value_name = "MS", requires = "silent")]
    rollout_ms: Option<f64>,

    /// Maximum delay, in milliseconds, until a balancer or ledger learns of servers that leave and return.
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    view_lag_ms: f64,

    /// Number of proxies between callers and servers, as in the paper's Proxy-Service.
    #[arg(long, value_name = "COUNT")]
    proxies: Option<u32>,

    /// Latency added by such a proxy, in milliseconds.
    #[arg(long, value_name = "X", default_value_t = 2.0, requires = "proxies")]
    proxy_ms: f64,

    /// Service graph: single, chain:COUNT or hub:COUNT (the paper's Fig. 7), each with N servers. M balancers call
    /// the first service; a service's servers balance over the next.
    #[arg(long, value_name = "GRAPH", default_value = "single")]
    graph: String,

    /// Event at MS milliseconds after the start; may be repeated. MS:leave:SERVER,
    /// MS:return:SERVER, MS:silent:SERVER, MS:reporting:SERVER (reports to ledgers end, begin),
    /// MS:ledger-dies:GROUP, MS:ledger-restarts:GROUP (without its state), MS:ledger-stalls:GROUP,
    /// MS:ledger-resumes:GROUP (with the messages that have arrived).
    #[arg(long = "change", value_name = "CHANGE")]
    changes: Vec<String>,

    /// Failures: the first SERVERS servers answer a SHARE of their requests with an error, after WORK of the time of
    /// a successful response, such as 4:0.3:1.
    #[arg(long, value_name = "SERVERS:SHARE:WORK")]
    faults: Option<String>,

    /// Status of these errors, 400 to 599.
    #[arg(long, value_name = "STATUS", default_value_t = Faults::STATUS)]
    fault_status: u16,

    /// Retries of failed requests at other servers, within the default budget.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    retries: u32,

    /// Eject failing servers, as outlier ejection does by default.
    #[arg(long)]
    eject: bool,

    /// Pause sending when most requests fail, as the circuit breaker does by default.
    #[arg(long)]
    breaker: bool,

    /// Maximum requests in flight for each balancer; excess ones fail immediately.
    #[arg(long, value_name = "COUNT")]
    max_requests: Option<u32>,

    /// Total requests over all runs, including warm-up.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    requests: u64,

    /// Independent runs, from which confidence intervals are computed.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    runs: u32,

    /// Random seed; the same seed produces the same numbers on any number of threads.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Report the mean latency for each interval of MS milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    timeline_ms: f64,

    /// Threads [default: one per processor].
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZeroUsize>,

    /// Report the simulation speed on standard error.
    #[arg(long)]
    timing: bool,
}

const EXAMPLES: &str = "\
The output is JSON: mean_ms with ci95_ms (half the width of the 95 % confidence interval), p50_ms,
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
  Compare one balancer, 20 balancers, and 20 with a ledger:
    maglor sim --policy 'lor(choices=2)' --balancers 1
    maglor sim --policy 'lor(choices=2)' --balancers 20
    maglor sim --policy 'ledger(group=40)' --balancers 20
  The paper's Proxy-Service, two instances:
    maglor sim --balancers 100 --proxies 2
  Heavy-tailed work on servers of two speeds, one message in a hundred lost:
    maglor sim --policy bounce --service lognormal:3 --speeds 1,2 --loss 0.01
  A chain of four services with ten replicas each:
    maglor sim --graph chain:4 --servers 10 --balancers 1
  Four failing servers, with retries and ejection:
    maglor sim --faults 4:0.3:1 --retries 2 --eject
  A server that fails immediately, and may attract requests:
    maglor sim --policy 'ledger(group=40)' --rho 0.5 --faults 1:1:0.01
  Weights without queueing, at ten requests in progress:
    maglor sim --policy 'ledger(group=40)' --servers 2 --weights 99,1 --discipline parallel --rho 5
  Three nodes, two thirds of the calls from the first one, local first:
    maglor sim --policy 'ledger(group=40)' --nodes 3 --node-callers 4,1,1 --node-slack 0
  A server that returns, with a share that grows within ten seconds:
    maglor sim --policy 'ledger(group=40)' --change 1000:leave:3 --change 2000:return:3 --slow-start-ms 10000
  Half of the servers start to report to the ledger within twenty seconds:
    maglor sim --policy 'ledger(group=40)' --silent 20 --rollout-ms 20000 --timeline-ms 1000
  Measure the simulation speed:
    maglor sim --requests 20000000 --timing > /dev/null";

/// Prints the result; an error is one line.
pub(crate) fn run(options: &Options) -> ExitCode {
    match simulate(options) {
        Ok(json) => {
            output::print(&format!("{json:#}\n"));
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn simulate(options: &Options) -> Result<Value, String> {
    let scenario = options.scenario()?;
    let threads = options.threads.unwrap_or_else(threads);
    let began = Instant::now();
    let outcomes = simulate_all(std::slice::from_ref(&scenario), threads, &|_, _| {});
    let outcome = outcomes.map_err(|error| error.to_string())?.remove(0);
    if options.timing {
        let seconds = began.elapsed().as_secs_f64();
        eprintln!(
            "{} requests in {seconds:.2} s on {threads} threads: {:.1} million/s",
            outcome.simulated,
            outcome.simulated as f64 / seconds / 1e6
        );
    }
    if !outcome.is_steady() {
        eprintln!(
            "note: not steady: latency was still growing at the end of the runs and is underestimated; increase --requests"
        );
    }
    Ok(report(&scenario, &outcome))
}

impl Options {
    fn scenario(&self) -> Result<Scenario, String> {
        let runs = u64::from(self.runs.max(1));
        if self.requests / runs < LEAST_REQUESTS {
            return Err(format!(
                "--requests {}: {runs} runs need at least {}",
                self.requests,
                LEAST_REQUESTS * runs
            ));
        }
        let parse_all = |texts: &[String]| texts.iter().map(|text| text.parse()).collect();
        let disturbances: Result<Vec<Disturbance>, String> = parse_all(&self.changes);
        let disturbances = disturbances?.into_iter().chain(self.rollout()?);
        let policy = self.policy.parse().map_err(|e| format!("{e}"));
        let slow_start = self.slow_start_ms.map(|window| {
            Ok::<_, String>(SlowStart {
                window: millis("--slow-start-ms", window)?,
                ..SlowStart::default()
            })
        });
        let antagonist: Option<Antagonist> = self
            .antagonist
            .as_ref()
            .map(|text| text.parse())
            .transpose()?;
        let proxies = match self.proxies {
            None => None,
            Some(instances) => Some(Proxies {
                instances,
                penalty: millis("--proxy-ms", self.proxy_ms)?,
            }),
        };
        Ok(Scenario {
            policy: policy?,
            balancers: self.balancers,
            servers: self.servers,
            rho: self.rho,
            service_time: millis("--service-ms", self.service_ms)?,
            arrivals: self.arrivals.parse::<Arrivals>()?,
            service: self.service.parse::<Service>()?,
            discipline: self.discipline.parse::<Discipline>()?,
            speeds: self.speeds.clone(),
            weights: self.weights.clone(),
            nodes: self.nodes()?,
            slow_start: slow_start.transpose()?,
            network: Network {
                delay: millis("--delay-ms", self.delay_ms)?,
                loss: self.loss,
                report_loss: self.report_loss,
            },
            graph: self.graph.parse::<Graph>()?,
            proxies,
            antagonist,
            disturbances: disturbances.collect(),
            view_lag: millis("--view-lag-ms", self.view_lag_ms)?,
            silent: self.silent,
            faults: self.faults()?,
            guards: self.guards(),
            requests: self.requests / runs,
            runs: self.runs,
            timeline: millis("--timeline-ms", self.timeline_ms)?,
            seed: self.seed,
        })
    }
}

impl Options {
    fn faults(&self) -> Result<Option<Faults>, String> {
        let Some(text) = &self.faults else {
            return Ok(None);
        };
        let faults: Faults = text.parse()?;
        Ok(Some(Faults {
            status: self.fault_status,
            ..faults
        }))
    }

    fn nodes(&self) -> Result<Option<Nodes>, String> {
        let Some(count) = self.nodes else {
            return Ok(None);
        };
        // Checked before a list of this length is allocated.
        if count > self.servers {
            return Err(format!(
                "--nodes {count}: there are {} servers",
                self.servers
            ));
        }
        let mut nodes = Nodes::even(count);
        nodes.slack = self.node_slack / 100.0;
        if !self.node_callers.is_empty() {
            let given = self.node_callers.len();
            if given != count as usize {
                return Err(format!("--node-callers: {given} counts for {count} nodes"));
            }
            nodes.callers.clone_from(&self.node_callers);
        }
        Ok(Some(nodes))
    }

    /// Returns when each of the silent servers starts to report.
    fn rollout(&self) -> Result<Vec<Disturbance>, String> {
        let Some(lasts) = self.rollout_ms else {
            return Ok(Vec::new());
        };
        let lasts = millis("--rollout-ms", lasts)?;
        let first = self.servers.saturating_sub(self.silent);
        let begins = |at: u32| Disturbance {
            at: lasts.mul_f64(f64::from(at + 1) / f64::from(self.silent)),
            change: Change::Reporting(first + at),
        };
        Ok((0..self.silent).map(begins).collect())
    }

    fn guards(&self) -> Guards {
        let base = if self.retries > 0 {
            Guards::retrying(self.retries)
        } else {
            Guards::default()
        };
        Guards {
            ejection: self.eject.then(OutlierParams::default),
            breaker: self.breaker.then(BreakerParams::default),
            max_requests: self.max_requests,
            ..base
        }
    }
}

/// Rounds a share, since further digits are noise.
fn six_digits(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

/// Returns for the attempts from each node the shares of the nodes' servers.
fn node_shares(outcome: &Outcome) -> Vec<Vec<f64>> {
    let row = |counts: &Vec<u64>| {
        let all = counts.iter().sum::<u64>().max(1) as f64;
        let share = |count: &u64| six_digits(*count as f64 / all);
        counts.iter().map(share).collect()
    };
    outcome.attempts_by_node.iter().map(row).collect()
}

fn millis(option: &str, value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value / 1000.0)
        .map_err(|_| format!("{option} {value}: not a time in milliseconds"))
}

fn report(scenario: &Scenario, outcome: &Outcome) -> Value {
    let round = |value: f64| (value * 1e4).round() / 1e4;
    json!({
        "policy": scenario.policy.to_string(),
        "balancers": scenario.balancers,
        "servers": scenario.servers,
        "rho": scenario.rho,
        "service_ms": scenario.service_time.as_secs_f64() * 1000.0,
        "arrivals": scenario.arrivals.to_string(),
        "service": scenario.service.to_string(),
        "discipline": scenario.discipline.to_string(),
        "graph": scenario.graph.to_string(),
        "speeds": scenario.speeds,
        "weights": scenario.weights,
        "node_callers": scenario.nodes.as_ref().map(|nodes| &nodes.callers),
        "delay_ms": scenario.network.delay.as_secs_f64() * 1000.0,
        "loss": scenario.network.loss,
        "report_loss": scenario.network.report_loss,
        "silent": scenario.silent,
        "proxies": scenario.proxies.map(|proxies| proxies.instances),
        "seed": scenario.seed,
        "runs": scenario.runs,
        "requests": outcome.requests,
        "discarded": outcome.discarded,
        "failed": outcome.failed,
        "mean_ms": round(outcome.mean_ms.value),
        "ci95_ms": round(outcome.mean_ms.half_width),
        "good_mean_ms": round(outcome.good_mean_ms.value),
        "p50_ms": round(outcome.p50_ms.value),
        "p50_ci95_ms": round(outcome.p50_ms.half_width),
        "p99_ms": round(outcome.p99_ms.value),
        "p99_ci95_ms": round(outcome.p99_ms.half_width),
        "messages_per_request": round(outcome.messages_per_request.value),
        "fallback_share": round(outcome.fallback_share.value),
        "retries_per_request": round(outcome.retries_per_request.value),
        "ejections": outcome.ejections,
        "busy_while_idle": round(outcome.busy_while_idle.value),
        "drift": round(outcome.drift.value),
        "steady": outcome.is_steady(),
        "shares": outcome.shares.iter().map(|share| six_digits(*share)).collect::<Vec<_>>(),
        "node_shares": node_shares(outcome),
        "timeline_ms": outcome.timeline_ms.iter().map(|mean| round(*mean)).collect::<Vec<_>>(),
    })
}
