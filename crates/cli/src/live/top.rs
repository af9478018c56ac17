//! `maglor top`: repeats `stat`; on a terminal as a full screen with keys, otherwise as a sequence of tables.

mod columns;
mod draw;
mod keys;
mod palette;
#[cfg(test)]
mod picture;
mod rows;
mod screen;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::cmp::Ordering;
use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use maglor_config::raw::TimeSpan;
use maglor_telemetry::command_line::output;
use serde::Serialize;
use tokio::sync::mpsc;

use self::state::{Sample, State};
use super::LiveError;
use super::access::{Pods, Target, Where};
use super::stat::{self, Asked, By, Called, Line};
use super::table::{self, Format, Row};
use super::traffic::{Observer, Traffic};

const EXAMPLES: &str = "\
Examples:
  Inbound requests of the workloads of this namespace:
    maglor top
  Calls between all services of the cluster:
    maglor top services -A
  Write three refreshes to a file:
    maglor top --count 3 > top.txt
  Record a minute, for a spreadsheet:
    maglor top services --every 1s --count 60 -o csv > top.csv

On a terminal, ? shows the keys: among others / filters, ← and → choose the column to sort by, q or Ctrl-C ends.
Otherwise, and with --count, tables are printed one after another. Signs: ✓ at least 99 % of the requests succeed,
! at least 95 %, ✗ less. NO_COLOR turns colours off.";

/// Minimum interval between two scrapes.
const SHORTEST: Duration = Duration::from_millis(100);
/// Maximum time until a screen shows its first rates.
const FIRST: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Object to aggregate by.
    #[arg(value_enum, default_value_t)]
    by: By,

    /// Only proxies of this pod or workload.
    #[arg(long, value_name = "POD|WORKLOAD")]
    of: Option<Target>,

    /// Refresh interval.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    every: TimeSpan,

    /// Exit after this many refreshes; prints them one after another.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Output format; JSON is one object per line and row, with the time.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    pods: Pods,

    #[command(flatten)]
    place: Where,
}

impl Options {
    fn every(&self) -> Duration {
        self.every.0.max(SHORTEST)
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    super::run(async {
        let proxies = options.place.proxies(&options.pods, options.of.as_ref());
        let mut observer = Observer::new(proxies.await?);
        // An error of the first scrape is printed as one line, even on a terminal.
        observer.look().await?;
        if stdout().is_terminal() && options.count.is_none() && options.output.is_table() {
            return screen(options, observer).await;
        }
        tokio::select! {
            done = print(options, observer) => done,
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })
}

async fn screen(options: &Options, mut observer: Observer) -> Result<(), LiveError> {
    let (sender, updates) = mpsc::channel(1);
    let source = async {
        let mut wait = options.every().min(FIRST);
        loop {
            tokio::time::sleep(wait).await;
            wait = options.every();
            let looked = observer.look().await;
            // The screen has ended, which also ends this task.
            let _ = sender.send(looked).await;
        }
    };
    let state = State::new(options.by, options.output == Format::Wide);
    let apply = |state: &mut State, looked: Result<Traffic, LiveError>, now| match looked {
        Ok(traffic) => state.update(sample(&traffic), now),
        Err(error) => state.failed(error.to_string()),
    };
    tokio::select! {
        done = screen::show(state, updates, apply) => done.map_err(LiveError::Terminal),
        () = source => Ok(()),
    }
}

fn sample(traffic: &Traffic) -> Sample {
    let time = Some(traffic.time);
    let silent = traffic.silent.iter();
    Sample {
        workloads: stat::asked(traffic, time).collect(),
        services: stat::called(traffic, time).collect(),
        silent: silent.map(|(_, error)| error.to_string()).collect(),
    }
}

async fn print(options: &Options, mut observer: Observer) -> Result<(), LiveError> {
    if options.output == Format::Csv {
        let header = match options.by {
            By::Workloads => table::csv_header::<Asked>(),
            By::Services => table::csv_header::<Called>(),
        };
        output::print(&format!("time,{header}"));
    }
    let mut count = 0;
    while options.count.is_none_or(|most| count < most) {
        tokio::time::sleep(options.every()).await;
        let traffic = observer.look().await?;
        let busiest_first = |lines: &mut Vec<Line>| {
            let busier = |a: &Line, b: &Line| b.rps.partial_cmp(&a.rps);
            lines.sort_by(|a, b| busier(a, b).unwrap_or(Ordering::Equal));
        };
        let time = Some(traffic.time);
        output::print(&match options.by {
            By::Workloads => {
                let mut lines = stat::asked(&traffic, time).collect();
                busiest_first(&mut lines);
                refresh(lines.into_iter().map(Asked), options.output)
            }
            By::Services => {
                let mut lines = stat::called(&traffic, time).collect();
                busiest_first(&mut lines);
                refresh(lines.into_iter().map(Called), options.output)
            }
        });
        for (name, error) in &traffic.silent {
            eprintln!("{name}: {error}");
        }
        if output::has_ended() {
            break;
        }
        count += 1;
    }
    Ok(())
}

/// A row and the time of its measurement.
#[derive(Serialize)]
struct Timed<'a, R> {
    time: &'a str,
    #[serde(flatten)]
    row: &'a R,
}

/// Formats the rows of a refresh: as a table and an empty line, or as records that contain the time.
fn refresh<R: Row>(rows: impl Iterator<Item = R>, format: Format) -> String {
    let rows: Vec<R> = rows.collect();
    let time = Timestamp::now().to_string();
    let timed = rows.iter().map(|row| Timed { time: &time, row });
    match format {
        Format::Table | Format::Wide => table::text(&rows, format) + "\n",
        Format::Csv => {
            let records = rows.iter().map(table::csv_record);
            records.map(|record| format!("{time},{record}")).collect()
        }
        Format::Json => timed.map(|one| table::json_line(&one)).collect(),
        Format::Yaml => {
            let documents = timed.map(|one| table::serialized(&one, format));
            documents.map(|one| format!("---\n{one}")).collect()
        }
    }
}
