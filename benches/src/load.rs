//! The load generator: one thread, one task a connection, every response checked.
//!
//! Closed loop: latency from the send to the last byte. Open loop: latency from the moment the
//! request was **due**, so a stalled proxy cannot hide behind a stalled generator. The processor
//! time of the watched processes is read at the borders of the measured window, and divided by the
//! responses completed between the same two moments.

mod closed;
mod connection;
mod hold;
mod open;
mod shared;

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::http;
use crate::scenario::Protocol;

pub use hold::run as hold;

/// The request and its destination.
#[derive(Debug, Clone, clap::Args)]
pub struct Target {
    /// The proxy, or the origin itself.
    #[arg(long)]
    pub target: SocketAddr,
    /// Downstream protocol.
    #[arg(long, value_enum)]
    pub protocol: Protocol,
    /// Bytes of the requested body.
    #[arg(long)]
    pub body: usize,
    /// Connections to open.
    #[arg(long)]
    pub connections: usize,
    /// Whether each request waits a second for its answer, after the first one of each connection.
    #[arg(long)]
    pub waiting: bool,
}

/// One run of the generator.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The request and its destination.
    #[command(flatten)]
    pub target: Target,
    /// Requests a second (open loop); without it the loop is closed.
    #[arg(long)]
    pub rate: Option<u32>,
    /// Milliseconds of load that are not measured.
    #[arg(long)]
    pub warmup_ms: u64,
    /// Milliseconds of load that are measured.
    #[arg(long)]
    pub measure_ms: u64,
    /// Processes whose processor time is read.
    #[arg(long, value_delimiter = ',')]
    pub watch: Vec<u32>,
}

impl Options {
    fn warmup(&self) -> Duration {
        Duration::from_millis(self.warmup_ms)
    }

    fn measure(&self) -> Duration {
        Duration::from_millis(self.measure_ms)
    }
}

/// The result of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Answers completed in the window.
    pub requests: u64,
    /// Wrong or missing answers, over the whole run.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
    /// Length of the window.
    pub seconds: f64,
    /// Processor time of the watched processes in the window.
    pub cpu_run_ns: u64,
    /// Time that they waited for a processor.
    pub cpu_wait_ns: u64,
    /// Processor time by the coarse clock that also counts ended threads.
    pub cpu_ticks_ns: u64,
    /// Latency percentiles, µs.
    pub p50_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// Largest.
    pub max_us: f64,
}

impl Report {
    /// Checks that no response was wrong or missing.
    ///
    /// # Errors
    /// Their number, and the first of them.
    pub(crate) fn complete(&self) -> Result<()> {
        if self.errors == 0 {
            return Ok(());
        }
        let first = self.first_error.as_deref().unwrap_or_default();
        let text = format!("{} errors, first: {first}", self.errors);
        Err(Error::protocol(text))
    }
}

/// Generates the load and prints the [`Report`] as one line of JSON.
///
/// # Errors
/// The connections cannot be opened, or a watched process is gone.
pub fn run(options: &Options) -> Result<()> {
    let report = http::block_on(async {
        match options.rate {
            Some(rate) => open::run(options, rate).await,
            None => closed::run(options).await,
        }
    })?;
    let line = serde_json::to_string(&report).map_err(std::io::Error::from);
    use std::io::Write as _;
    writeln!(std::io::stdout(), "{}", line.doing("encode the report")?).doing("print the report")
}
