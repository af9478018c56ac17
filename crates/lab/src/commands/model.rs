//! `maglor-lab model`: prints latencies predicted by theory, without a simulation.

use std::process::ExitCode;

use maglor_lab::model::{Error, System};
use maglor_telemetry::command_line::output;
use serde::Serialize;

use crate::commands::format::{self, Format};

/// The meaning of the columns, for `--help`.
pub(crate) const EXPLANATION: &str = "\
M independent balancers send Poisson streams of requests to N equal servers. A balancer draws d
servers at random and uses the one with the fewest of its own outstanding requests. Service times
are exponential, or of any distribution with processor sharing.

  mean_ms       the paper's model (Eq. 3-8), which replaces the requests of other balancers by their
                mean; it overestimates, most with about ten balancers
  corrected_ms  exact for many servers; with --servers for that number, which is higher for few
                servers, because they are more often all busy at once
  random_ms     random choice: the limit of both for many balancers (Theorem 1)

Examples:
  Mean latency at the paper's parameters:
    maglor-lab model --choices 2 --balancers 20 --rho 0.75 --service-ms 20
  Least outstanding requests with more balancers, for 40 servers, as a table:
    maglor-lab model --balancers 1,2,5,10,20,50,100,200 --rho 0.75 --service-ms 20 --servers 40 -o table
  Compare one to five choices:
    maglor-lab model --choices 1,2,3,5 --balancers 1,20 --rho 0.9 --service-ms 8 -o csv

Lists for several options produce every combination. Derivation: docs/model.md.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXPLANATION)]
pub(crate) struct Options {
    /// Servers that a balancer draws for a request, d; a comma-separated list.
    #[arg(
        long,
        value_name = "D",
        value_delimiter = ',',
        default_value = "2",
        allow_negative_numbers = true
    )]
    choices: Vec<i64>,

    /// Number of balancers, M; a comma-separated list.
    #[arg(
        long,
        value_name = "M",
        value_delimiter = ',',
        default_value = "20",
        allow_negative_numbers = true
    )]
    balancers: Vec<i64>,

    /// Utilization of the servers, above 0 and below 1; a comma-separated list.
    #[arg(
        long,
        value_name = "RHO",
        value_delimiter = ',',
        default_value = "0.75",
        allow_negative_numbers = true
    )]
    rho: Vec<f64>,

    /// Mean service time in milliseconds.
    #[arg(
        long,
        value_name = "MS",
        default_value = "20",
        allow_negative_numbers = true
    )]
    service_ms: f64,

    /// Number of servers, N, for corrected_ms [default: the limit of many servers].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    servers: Option<i64>,

    /// Output format.
    #[arg(short, long, alias = "format", value_name = "FORMAT", value_enum, default_value_t = Format::Json)]
    output: Format,
}

/// One line of the result; field names are part of the interface.
#[derive(Debug, Serialize)]
struct Row {
    choices: u32,
    balancers: u32,
    rho: f64,
    service_ms: f64,
    servers: Option<u32>,
    mean_ms: f64,
    corrected_ms: f64,
    random_ms: f64,
}

const COLUMNS: [&str; 8] = [
    "choices",
    "balancers",
    "rho",
    "service_ms",
    "servers",
    "mean_ms",
    "corrected_ms",
    "random_ms",
];

/// Eleven days; latencies of a thousand times that are still finite.
const MOST_MS: f64 = 1e9;

/// Prints the result; exit code 2 if a parameter is out of the model's range.
pub(crate) fn run(options: &Options) -> ExitCode {
    match options.rows() {
        Ok(rows) => {
            output::print(&text(&rows, options.output));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("maglor-lab model: {error}");
            ExitCode::from(2)
        }
    }
}

impl Options {
    fn rows(&self) -> Result<Vec<Row>, Error> {
        if !(self.service_ms > 0.0 && self.service_ms <= MOST_MS) {
            return Err(Error::OutOfRange {
                parameter: "service-ms",
                value: self.service_ms.to_string(),
                valid: "above 0 and at most 10^9, in milliseconds",
            });
        }
        let servers = self.servers.map(|n| count("servers (N)", n)).transpose()?;
        let mut rows = Vec::new();
        for rho in &self.rho {
            for choices in &self.choices {
                for balancers in &self.balancers {
                    let balancers = count("balancers (M)", *balancers)?;
                    let choices = count("choices (d)", *choices)?;
                    rows.push(self.row(choices, balancers, *rho, servers)?);
                }
            }
        }
        Ok(rows)
    }

    fn row(
        &self,
        choices: u32,
        balancers: u32,
        rho: f64,
        servers: Option<u32>,
    ) -> Result<Row, Error> {
        let system = System::new(balancers, choices, rho)?;
        let corrected = match servers {
            Some(servers) => system.corrected_for(servers)?,
            None => system.corrected()?,
        };
        let ms = |latency: f64| significant(latency * self.service_ms);
        Ok(Row {
            choices,
            balancers,
            rho,
            service_ms: self.service_ms,
            servers,
            mean_ms: ms(system.paper().latency),
            corrected_ms: ms(corrected),
            random_ms: ms(system.random()),
        })
    }
}

/// Converts a count for the model's own validation; negative ones are rejected here.
fn count(parameter: &'static str, value: i64) -> Result<u32, Error> {
    u32::try_from(value).map_err(|_| Error::OutOfRange {
        parameter,
        value: value.to_string(),
        valid: "1 to 1000000",
    })
}

/// Rounds to seven digits: more than the precision of any of the models.
fn significant(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}

/// Prints the rows in a format.
fn text(rows: &[Row], format: Format) -> String {
    let cells = || rows.iter().map(|row| row.cells().to_vec());
    match format {
        Format::Csv => format::csv(&COLUMNS, &cells().collect::<Vec<_>>()),
        Format::Json => json(rows),
        Format::Table => {
            let rounded = |(row, mut cells): (&Row, Vec<String>)| {
                if row.servers.is_none() {
                    "many".clone_into(&mut cells[4]);
                }
                for (cell, value) in cells[5..].iter_mut().zip(row.latencies()) {
                    *cell = format!("{value:.2}");
                }
                cells
            };
            let rows: Vec<_> = rows.iter().zip(cells()).map(rounded).collect();
            format::table(&COLUMNS, &rows)
        }
    }
}

fn json(rows: &[Row]) -> String {
    let text = match rows {
        [row] => serde_json::to_string_pretty(row),
        rows => serde_json::to_string_pretty(rows),
    };
    text.map(|text| text + "\n")
        .expect("numbers and names can be written as JSON")
}

impl Row {
    fn latencies(&self) -> [f64; 3] {
        [self.mean_ms, self.corrected_ms, self.random_ms]
    }

    fn cells(&self) -> [String; 8] {
        let servers = self.servers.map(|servers| servers.to_string());
        [
            self.choices.to_string(),
            self.balancers.to_string(),
            self.rho.to_string(),
            self.service_ms.to_string(),
            servers.unwrap_or_default(),
            self.mean_ms.to_string(),
            self.corrected_ms.to_string(),
            self.random_ms.to_string(),
        ]
    }
}
