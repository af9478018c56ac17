//! The command line of a simulation.

use std::num::NonZeroUsize;

use maglor_lab::des::{Faults, Nodes};

use crate::commands::format::Format;
use crate::commands::list::List;

/// Errors are one line, so most values are read as strings and parsed here.
#[derive(Debug, clap::Args)]
#[command(after_help = super::EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Options {
    /// Load balancing policy: random, round-robin, lor(choices=2), lor(choices=all), peak-ewma,
    /// a-lsq(choices=2,overhead=10), bounce(tries=3), ledger(group=40,fallback=bounce),
    /// probe(choices=2), subset(size=20); for comparison only: join-idle-queue(boards=4,fallback=probe), prequal. May
    /// be repeated, to compare several.
    #[arg(
        long = "policy",
        value_name = "POLICY",
        default_value = "lor(choices=2)"
    )]
    pub(super) policies: Vec<String>,

    /// Number of balancers, M; each sees only its own requests. A list.
    #[arg(long, value_name = "M", default_value = "20")]
    pub(super) balancers: List<u32>,

    /// Number of servers, N. A list.
    #[arg(long, value_name = "N", default_value = "40")]
    pub(super) servers: List<u32>,

    /// Load relative to the capacity of all servers, above 0 and below 1. With --discipline parallel: requests in
    /// progress per server of speed 1, up to 1000. A list.
    #[arg(long, value_name = "R", default_value = "0.75")]
    pub(super) rho: List<f64>,

    /// Mean service time of a server of speed 1, Ts, in milliseconds. A list.
    #[arg(long, value_name = "T", default_value = "20")]
    pub(super) service_ms: List<f64>,

    /// Arrival process: poisson; lognormal:CV, a stream for each balancer; lognormal:CV:shared, one bursty stream
    /// distributed at random.
    #[arg(long, value_name = "PROCESS", default_value = "poisson")]
    pub(super) arrivals: String,

    /// Distribution of service times: exp, deterministic, lognormal:CV, or bimodal:SHARE:FACTOR
    /// (a share of the requests is longer by a factor).
    #[arg(long, value_name = "DISTRIBUTION", default_value = "exp")]
    pub(super) service: String,

    /// Service discipline of a server: fifo, ps (processor sharing) or parallel (each request at full
    /// speed, without waiting).
    #[arg(long, value_name = "DISCIPLINE", default_value = "fifo")]
    pub(super) discipline: String,

    /// Speeds of the servers, repeated in turn.
    #[arg(
        long,
        value_name = "SPEEDS",
        value_delimiter = ',',
        default_value = "1"
    )]
    pub(super) speeds: Vec<f64>,

    /// Weights of the servers in balancers, repeated in turn.
    #[arg(
        long,
        value_name = "WEIGHTS",
        value_delimiter = ',',
        default_value = "1"
    )]
    pub(super) weights: Vec<u32>,

    /// Number of nodes; servers and balancers are assigned to them in turn. Calls prefer their own node, as
    /// with `localFirst`, within an even share.
    #[arg(long, value_name = "COUNT")]
    pub(super) nodes: Option<u32>,

    /// Relative numbers of balancers on the nodes: 4,1,1 puts two thirds of the calls on the first of three
    /// nodes [default: equal].
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', requires = "nodes")]
    pub(super) node_callers: Vec<u32>,

    /// Maximum excess of a server over its fair share that keeps calls on their node, in percent.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 100.0 * Nodes::SLACK,
        requires = "nodes"
    )]
    pub(super) node_slack: f64,

    /// Slow start: servers that return (--change MS:return:SERVER, --eject) start with a tenth of their
    /// share, which grows to the full share within MS milliseconds.
    #[arg(long, value_name = "MS")]
    pub(super) slow_start_ms: Option<f64>,

    /// Interference: one server in ONE_IN runs at FACTOR of its speed for MS milliseconds, in turn, such as
    /// 5:0.5:1000.
    #[arg(long, value_name = "ONE_IN:FACTOR:MS")]
    pub(super) antagonist: Option<String>,

    /// One-way delay of a policy's messages, in milliseconds. Requests take no time. A list.
    #[arg(long, value_name = "X", default_value = "0.25")]
    pub(super) delay_ms: List<f64>,

    /// Share of a policy's messages that is lost. A list.
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub(super) loss: List<f64>,

    /// Additional share of servers' reports to ledgers that is lost, 0 to 1: asymmetric loss. A list.
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub(super) report_loss: List<f64>,

    /// Number of servers (the last ones) that neither report to a ledger nor answer audits. A list.
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub(super) silent: List<u32>,

    /// The silent servers start to report one after another, the last one after MS milliseconds.
    #[arg(long, value_name = "MS", requires = "silent")]
    pub(super) rollout_ms: Option<f64>,

    /// Maximum delay, in milliseconds, until a balancer or ledger learns of servers that leave and return.
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    pub(super) view_lag_ms: f64,

    /// Number of proxies between callers and servers, as in the paper's Proxy-Service. A list.
    #[arg(long, value_name = "COUNT")]
    pub(super) proxies: Option<List<u32>>,

    /// Latency added by such a proxy, in milliseconds.
    #[arg(long, value_name = "X", default_value_t = 2.0, requires = "proxies")]
    pub(super) proxy_ms: f64,

    /// Service graph: single, chain:COUNT or hub:COUNT (the paper's Fig. 7), each with N servers. M balancers call
    /// the first service; a service's servers balance over the next.
    #[arg(long, value_name = "GRAPH", default_value = "single")]
    pub(super) graph: String,

    /// Event at MS milliseconds after the start; may be repeated. MS:leave:SERVER,
    /// MS:return:SERVER, MS:silent:SERVER, MS:reporting:SERVER (reports to ledgers end, begin),
    /// MS:ledger-dies:GROUP, MS:ledger-restarts:GROUP (without its state), MS:ledger-stalls:GROUP,
    /// MS:ledger-resumes:GROUP (with the messages that have arrived).
    #[arg(long = "change", value_name = "CHANGE")]
    pub(super) changes: Vec<String>,

    /// Failures: the first SERVERS servers answer a SHARE of their requests with an error, after WORK of the time of
    /// a successful response, such as 4:0.3:1.
    #[arg(long, value_name = "SERVERS:SHARE:WORK")]
    pub(super) faults: Option<String>,

    /// Status of these errors, 400 to 599.
    #[arg(long, value_name = "STATUS", default_value_t = Faults::STATUS)]
    pub(super) fault_status: u16,

    /// Retries of failed requests at other servers, within the default budget.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(super) retries: u32,

    /// Eject failing servers, as outlier ejection does by default.
    #[arg(long)]
    pub(super) eject: bool,

    /// Pause sending when most requests fail, as the circuit breaker does by default.
    #[arg(long)]
    pub(super) breaker: bool,

    /// Maximum requests in flight for each balancer; excess ones fail immediately.
    #[arg(long, value_name = "COUNT")]
    pub(super) max_requests: Option<u32>,

    /// Total requests of a simulation over all its runs, including warm-up.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    pub(super) requests: u64,

    /// Independent runs, from which confidence intervals are computed.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(super) runs: u32,

    /// Random seed; the same seed produces the same numbers on any number of threads. A list.
    #[arg(long, value_name = "S", default_value = "1")]
    pub(super) seed: List<u64>,

    /// Report the mean latency for each interval of MS milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    pub(super) timeline_ms: f64,

    /// Threads [default: one per processor].
    #[arg(long, value_name = "COUNT")]
    pub(super) threads: Option<NonZeroUsize>,

    /// Report the simulation speed on standard error.
    #[arg(long)]
    pub(super) timing: bool,

    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Json)]
    pub(super) output: Format,
}
