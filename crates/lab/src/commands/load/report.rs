//! The results of a run as text and files.

use std::time::{Duration, Instant};

use maglor_lab::chart::{self, Figure, Point, Series};
use maglor_testkit::load_generator::record::{Record, Second};
use serde_json::{Value, json};

use super::options::Options;
use crate::commands::format::{self, Format};

/// The numbers of requests.
const COUNTS: [&str; 2] = ["requests", "failed"];
/// Successful requests per second, and their latencies.
const COLUMNS: [&str; 7] = [
    "requests_per_s",
    "mean_ms",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "p999_ms",
    "max_ms",
];

/// The results.
#[derive(Debug)]
pub(super) struct Results {
    url: String,
    succeeded: u64,
    failures: Vec<(String, u64)>,
    seconds: Vec<Second>,
    /// The values of [`COUNTS`].
    counts: [u64; COUNTS.len()],
    /// The values of [`COLUMNS`]; there are no latencies without a success.
    values: [Option<f64>; COLUMNS.len()],
}

impl Results {
    pub(super) fn new(options: &Options, record: &Record, took: Duration) -> Self {
        let measured = took.saturating_sub(options.ramp()).as_secs_f64();
        let now = Instant::now();
        let latencies = record.measured();
        let succeeded = latencies.count();
        let failures: Vec<_> = record.failures().into_iter().collect();
        let failed: u64 = failures.iter().map(|(_, count)| count).sum();
        let latency = |ms: f64| (succeeded > 0).then_some(ms);
        let quantile = |quantile| latency(latencies.quantile(quantile));
        let values = [
            Some(succeeded as f64 / measured.max(f64::MIN_POSITIVE)),
            latency(latencies.mean()),
            quantile(0.5),
            quantile(0.9),
            quantile(0.99),
            quantile(0.999),
            latency(latencies.max()),
        ];
        Self {
            url: options.url.to_string(),
            succeeded,
            failures,
            seconds: record.seconds(now),
            counts: [succeeded + failed, failed],
            values,
        }
    }

    pub(super) fn succeeded(&self) -> u64 {
        self.succeeded
    }

    pub(super) fn text(&self, format: Format) -> String {
        match format {
            Format::Csv => format::csv(&columns(), &[self.row("")]),
            Format::Json => {
                let counts = self.counts.iter().map(|count| json!(count));
                let values = self.values.iter().map(|value| json!(value));
                let names = columns().into_iter().map(str::to_owned);
                let mut result: serde_json::Map<String, Value> =
                    names.zip(counts.chain(values)).collect();
                result.insert("url".into(), json!(self.url));
                let failures = self.failures.iter().cloned();
                result.insert("failures".into(), failures.collect());
                format::json(vec![result.into()])
            }
            Format::Table => {
                let mut text = format::table(&columns(), &[self.row("–")]);
                for (kind, count) in &self.failures {
                    text += &format!("failed: {count} × {kind}\n");
                }
                text
            }
        }
    }

    /// The cells of the only row; `none` is written where there is no value.
    fn row(&self, none: &str) -> Vec<String> {
        let counts = self.counts.iter().map(u64::to_string);
        let values = self.values.iter().map(|value| cell(*value, none));
        counts.chain(values).collect()
    }

    /// The files of `--out`: names and contents.
    pub(super) fn files(&self) -> [(&'static str, String); 3] {
        let latency = |pick: fn(&Second) -> f64| {
            move |second: &Second| {
                // A second without a success has no latency.
                if second.succeeded > 0 {
                    pick(second)
                } else {
                    f64::NAN
                }
            }
        };
        let latencies = vec![
            self.line("p50", latency(|second| second.p50_ms)),
            self.line("p99", latency(|second| second.p99_ms)),
            self.line("max", latency(|second| second.max_ms)),
        ];
        let rates = vec![
            self.line("succeeded", |second| second.succeeded as f64),
            self.line("failed", |second| second.failed as f64),
        ];
        [
            ("seconds.csv", self.csv()),
            (
                "latency.svg",
                self.chart("latency", "latency, ms", latencies),
            ),
            ("rate.svg", self.chart("rate", "requests per second", rates)),
        ]
    }

    fn csv(&self) -> String {
        let columns = [
            "second",
            "succeeded",
            "failed",
            "p50_ms",
            "p99_ms",
            "max_ms",
        ];
        let row = |(at, second): (usize, &Second)| {
            let latencies = [second.p50_ms, second.p99_ms, second.max_ms];
            let mut row = vec![(at + 1).to_string()];
            row.extend([second.succeeded, second.failed].map(|count| count.to_string()));
            let latency = |ms| (second.succeeded > 0).then_some(ms);
            row.extend(latencies.map(|ms| cell(latency(ms), "")));
            row
        };
        let rows: Vec<_> = self.seconds.iter().enumerate().map(row).collect();
        format::csv(&columns, &rows)
    }

    fn line(&self, name: &str, value: impl Fn(&Second) -> f64) -> Series {
        let points = self.seconds.iter().enumerate();
        let points = points.map(|(at, second)| Point::exact((at + 1) as f64, value(second)));
        Series {
            points: points.filter(|point| point.y.is_finite()).collect(),
            ..Series::new(name)
        }
    }

    fn chart(&self, id: &str, y_label: &str, series: Vec<Series>) -> String {
        chart::svg(&Figure {
            id: id.into(),
            title: self.url.clone(),
            x_label: "second of the run".into(),
            y_label: y_label.into(),
            x_log: false,
            y_log: false,
            caption: Vec::new(),
            stamp: None,
            series,
        })
    }
}

fn columns() -> Vec<&'static str> {
    COUNTS.into_iter().chain(COLUMNS).collect()
}

fn cell(value: Option<f64>, none: &str) -> String {
    value.map_or_else(|| none.to_owned(), |value| format!("{value:.3}"))
}
