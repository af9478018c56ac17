//! `maglor-lab load`: sends requests to a URL and reports latencies, as a table, CSV and charts.
//!
//! [`options`] defines the command line, [`arrivals`] the times of an open loop, [`report`] prints the results.

mod arrivals;
pub(crate) mod options;
mod report;
#[cfg(test)]
mod tests;
mod tls;
#[cfg(test)]
mod tls_tests;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use maglor_telemetry::command_line::output;
use maglor_testkit::load_generator::Clock;
use maglor_testkit::load_generator::closed::{self, Users};
use maglor_testkit::load_generator::http::{Call, Client};
use maglor_testkit::load_generator::open::Open;
use maglor_testkit::load_generator::record::Record;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use self::arrivals::Arrivals;
use self::options::Options;
use self::report::Results;
use crate::commands::progress;

const EXAMPLES: &str = "\
Without --rate, users wait for each response before they send the next request, and latencies count from the send.
With --rate, requests are due at that rate whatever the responses, and latencies count from when a request was due:
a server that stalls delays all requests that are due meanwhile, and the report shows it.

The table has the requests that were due after the ramp. With --out, seconds.csv has a row for each second of the
run, with the ramp; latency.svg and rate.svg show it.

The exit code is 1 if no request succeeded.

Examples:
  Ten users without pauses, for half a minute:
    maglor-lab load http://127.0.0.1:8080/
  A thousand users who start within a minute, with two seconds between response and request:
    maglor-lab load http://127.0.0.1:8080/ --users 1000 --ramp-s 60 --think-ms 2000 --duration-s 300
  500 requests a second in random intervals, with files:
    maglor-lab load http://127.0.0.1:8080/ --rate 500 --arrivals poisson --out results
  A method of gRPC, with an empty message:
    maglor-lab load http://127.0.0.1:8080/grpc.health.v1.Health/Check --protocol grpc --rate 100
  Mutual TLS with a gateway:
    maglor-lab load https://shop.example.com:8443/ --ca ca.pem --certificate me.pem --key me-key.pem";

/// How long responses may still arrive after the last request.
const GRACE: Duration = Duration::from_secs(3);
/// The failure of requests without a response by then.
const UNANSWERED: &str = "no response at the end of the run";

/// An error of a run; failed requests are results.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{0}")]
    Options(String),
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match load(options) {
        Ok(results) => {
            output::print(&results.text(options.output));
            match results.succeeded() {
                0 => ExitCode::FAILURE,
                _ => ExitCode::SUCCESS,
            }
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn load(options: &Options) -> Result<Results, Error> {
    let call = Rc::new(options.call().map_err(Error::Options)?);
    if let Some(folder) = &options.out {
        std::fs::create_dir_all(folder).map_err(io_error(folder.display().to_string()))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(io_error("start the generator"))?;
    let results = LocalSet::new().block_on(&runtime, generate(options, &call))?;
    if let Some(folder) = &options.out {
        for (name, text) in results.files() {
            let path: PathBuf = folder.join(name);
            std::fs::write(&path, text).map_err(io_error(path.display().to_string()))?;
        }
    }
    Ok(results)
}

async fn generate(options: &Options, call: &Rc<Call>) -> Result<Results, Error> {
    let clients = |count: u32| {
        (0..count)
            .map(|_| Client::new(Rc::clone(call)))
            .collect::<Vec<_>>()
    };
    let began = Instant::now();
    let record = Rc::new(Record::new(began, options.ramp()));
    let bar = progress::seconds(options.length().as_secs());
    let showing = tokio::task::spawn_local(show(Rc::clone(&record), bar.clone()));
    match options.rate {
        Some(rate) => {
            let open = Open::start(clients(options.connections), &record);
            open_loop(options, open, rate, &record, began).await?;
            // The last second has a row, too, when its last response arrives before its end.
            sleep(options.length().saturating_sub(began.elapsed())).await;
        }
        None => {
            let users = Users {
                ramp: options.ramp(),
                think: options.think(),
            };
            let users = closed::start(clients(options.users), users, &record);
            sleep(options.length().saturating_sub(began.elapsed())).await;
            drop(users);
        }
    }
    showing.abort();
    bar.finish_and_clear();
    // Responses of an open loop that arrive later belong to its last second.
    let took = began.elapsed().min(options.length());
    Ok(Results::new(options, &record, took))
}

/// Sends the requests of an open loop, and waits for the last responses.
async fn open_loop(
    options: &Options,
    open: Open<Record>,
    rate: f64,
    record: &Rc<Record>,
    began: Instant,
) -> Result<(), Error> {
    let clock = Clock::new().map_err(io_error("start the clock"))?;
    let (ramp, length) = (options.ramp(), options.length());
    let mut planned = 0;
    let due = Arrivals::new(rate, ramp, options.arrivals, options.seed);
    let due = due.take_while(|due| *due < length);
    let due = due.inspect(|due| planned += u64::from(*due >= ramp));
    let due = due.map(|due| began + due);
    let sessions = open.pace(due, &clock).await;
    let mut sessions = sessions.map_err(io_error("wait for a request's time"))?;
    finish(&mut sessions).await;
    let failed: u64 = record.failures().values().sum();
    let ended = record.measured().count() + failed;
    if planned > ended {
        record.fail(UNANSWERED, planned - ended);
    }
    Ok(())
}

async fn finish(sessions: &mut JoinSet<()>) {
    let ended = async { while sessions.join_next().await.is_some() {} };
    let _ = timeout(GRACE, ended).await;
}

/// Shows the last second.
async fn show(record: Rc<Record>, bar: ProgressBar) {
    loop {
        sleep(Duration::from_secs(1)).await;
        let seconds = record.seconds(Instant::now());
        bar.set_position(seconds.len() as u64);
        if let Some(last) = seconds.last() {
            bar.set_message(format!(
                "{} requests/s, {} failed, p99 {:.1} ms",
                last.succeeded + last.failed,
                last.failed,
                last.p99_ms
            ));
        }
    }
}
