//! The two text formats of Prometheus: which one a client gets, and how families are written in it.
//!
//! OpenMetrics differs from the older format in the name of a family (without `_total` and `_info`), units, exemplars,
//! and its last line.

mod negotiation;

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use prometheus::{TextEncoder, proto};

use super::exemplar::Exemplar;

/// A format of the page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The Prometheus text format 0.0.4.
    Text,
}

impl Format {
    fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => prometheus::TEXT_FORMAT,
        }
    }
}

/// All metrics as the body of a response, in the format that the client prefers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exposition {
    content_type: &'static str,
    is_compressed: bool,
    /// The body.
    pub body: Vec<u8>,
}

impl Exposition {
    /// Returns names and values of the response's headers.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let encoding = self.is_compressed.then_some(("content-encoding", "gzip"));
        let others = [
            ("content-type", self.content_type),
            ("vary", "accept, accept-encoding"),
        ];
        others.into_iter().chain(encoding)
    }

    /// Encodes what `write` writes, for these values of `accept` and `accept-encoding`; they are empty if a request has
    /// none.
    pub(crate) fn negotiated(accept: &str, encodings: &str, write: impl FnOnce(&mut Page)) -> Self {
        let format = negotiation::format(accept);
        let mut page = Page::new(format);
        write(&mut page);
        let text = page.finish();
        let compressed = negotiation::accepts_gzip(encodings).then(|| gzip(&text));
        Self {
            content_type: format.content_type(),
            is_compressed: compressed.is_some(),
            body: compressed.unwrap_or_else(|| text.into_bytes()),
        }
    }
}

/// Compresses at the quickest level, since the text is repetitive and the page is made on a thread that has other work.
fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    encoder
        .write_all(text.as_bytes())
        .and_then(|()| encoder.finish())
        .expect("writing to memory does not fail")
}

/// The type of a family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Type {
    Counter,
    Gauge,
    Histogram,
}

/// The name, help text and type of a family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'a> {
    pub(crate) name: &'a str,
    pub(crate) help: &'a str,
    pub(crate) kind: Type,
}

/// The suffix of gauges with constant 1 that hold information in labels.
const INFO: &str = "_info";
const TOTAL: &str = "_total";
/// The units that names of metrics may end with.
const UNITS: [&str; 3] = ["bytes", "ratio", "seconds"];

impl<'a> Header<'a> {
    /// Returns the name of the family in OpenMetrics: no other family may have it.
    pub(crate) fn base(&self) -> &'a str {
        let suffix = match self.kind {
            Type::Counter => TOTAL,
            Type::Gauge => INFO,
            Type::Histogram => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }

    /// Returns the name of its type in OpenMetrics.
    fn word(&self) -> &'static str {
        match self.kind {
            Type::Counter => "counter",
            Type::Gauge if self.name.ends_with(INFO) => "info",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        }
    }

    fn unit(&self) -> Option<&'static str> {
        let ends = |unit: &&&str| {
            let rest = self.base().strip_suffix(**unit);
            rest.is_some_and(|rest| rest.ends_with('_'))
        };
        UNITS.iter().find(ends).copied()
    }
}

/// A page under construction.
#[derive(Debug)]
pub(crate) enum Page {
    /// Written here: the `prometheus` crate has no encoder for OpenMetrics.
    OpenMetrics(String),
    /// Encoded by the `prometheus` crate.
    Text(Vec<proto::MetricFamily>),
}

impl Page {
    pub(crate) fn new(format: Format) -> Self {
        match format {
            Format::OpenMetrics => Self::OpenMetrics(String::with_capacity(16 * 1024)),
            Format::Text => Self::Text(Vec::new()),
        }
    }

    /// Begins a family. Its header is written with the first sample, since a family without samples is not shown.
    pub(crate) fn family<'a>(&'a mut self, header: Header<'a>) -> FamilyWriter<'a> {
        FamilyWriter {
            page: self,
            header,
            buckets: Vec::new(),
            is_begun: false,
        }
    }

    pub(crate) fn finish(self) -> String {
        match self {
            Self::OpenMetrics(text) => text + "# EOF\n",
            Self::Text(families) => {
                let mut text = String::new();
                TextEncoder::new().encode_utf8(&families, &mut text).expect(
                    "families have names and samples, and a string can always be written to",
                );
                text
            }
        }
    }
}

/// The writer of the samples of one family.
#[derive(Debug)]
pub(crate) struct FamilyWriter<'a> {
    page: &'a mut Page,
    header: Header<'a>,
    /// The buckets of the current series, in the older format.
    buckets: Vec<proto::Bucket>,
    is_begun: bool,
}

/// A value of a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    Count(u64),
    Number(f64),
}

impl FamilyWriter<'_> {
    /// Writes a sample whose name is that of the family.
    pub(crate) fn push<'l>(&mut self, labels: impl Labels<'l>, value: Value) {
        self.begin();
        match self.page {
            Page::OpenMetrics(text) => {
                sample(text, (self.header.name, ""), labels, None, value);
                text.push('\n');
            }
            Page::Text(families) => {
                let number = match value {
                    Value::Count(count) => count as f64,
                    Value::Number(number) => number,
                };
                let mut metric = metric(labels);
                if self.header.kind == Type::Counter {
                    let mut counter = proto::Counter::default();
                    counter.set_value(number);
                    metric.set_counter(counter);
                } else {
                    let mut gauge = proto::Gauge::default();
                    gauge.set_value(number);
                    metric.set_gauge(gauge);
                }
                add(families, metric);
            }
        }
    }

    /// Writes the bucket with this upper bound, and its exemplar.
    pub(crate) fn bucket<'l>(
        &mut self,
        labels: impl Labels<'l>,
        bound: f64,
        count: u64,
        exemplar: Option<&Exemplar>,
    ) {
        self.begin();
        match self.page {
            Page::OpenMetrics(text) => {
                // One form for each number: with a fraction.
                let bound = match bound == f64::INFINITY {
                    true => "+Inf".to_owned(),
                    false => format!("{bound:?}"),
                };
                let name = (self.header.name, "_bucket");
                sample(text, name, labels, Some(&bound), Value::Count(count));
                if let Some(exemplar) = exemplar {
                    push(text, format_args!(" # {exemplar}"));
                }
                text.push('\n');
            }
            // The encoder adds the last one.
            Page::Text(_) if bound == f64::INFINITY => {}
            Page::Text(_) => {
                let mut bucket = proto::Bucket::default();
                bucket.set_upper_bound(bound);
                bucket.set_cumulative_count(count);
                self.buckets.push(bucket);
            }
        }
    }

    /// Writes the sum and the count of a histogram.
    pub(crate) fn totals<'l>(&mut self, labels: impl Labels<'l>, sum: f64, count: u64) {
        self.begin();
        match self.page {
            Page::OpenMetrics(text) => {
                let name = self.header.name;
                sample(
                    text,
                    (name, "_sum"),
                    labels.clone(),
                    None,
                    Value::Number(sum),
                );
                text.push('\n');
                sample(text, (name, "_count"), labels, None, Value::Count(count));
                text.push('\n');
            }
            Page::Text(families) => {
                let mut histogram = proto::Histogram::default();
                histogram.set_bucket(std::mem::take(&mut self.buckets));
                histogram.set_sample_sum(sum);
                histogram.set_sample_count(count);
                let mut metric = metric(labels);
                metric.set_histogram(histogram);
                add(families, metric);
            }
        }
    }

    fn begin(&mut self) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        let header = &self.header;
        match self.page {
            Page::OpenMetrics(text) => {
                let name = header.base();
                push(text, format_args!("# HELP {name} "));
                escape(header.help, text);
                push(text, format_args!("\n# TYPE {name} {}\n", header.word()));
                if let Some(unit) = header.unit() {
                    push(text, format_args!("# UNIT {name} {unit}\n"));
                }
            }
            Page::Text(families) => {
                let mut family = proto::MetricFamily::default();
                family.set_name(header.name.to_owned());
                family.set_help(header.help.to_owned());
                family.set_field_type(match header.kind {
                    Type::Counter => proto::MetricType::COUNTER,
                    Type::Gauge => proto::MetricType::GAUGE,
                    Type::Histogram => proto::MetricType::HISTOGRAM,
                });
                families.push(family);
            }
        }
    }
}

/// Adds a sample to the family that was begun last.
fn add(families: &mut [proto::MetricFamily], metric: proto::Metric) {
    if let Some(family) = families.last_mut() {
        family.mut_metric().push(metric);
    }
}

fn metric<'l>(labels: impl Labels<'l>) -> proto::Metric {
    let pair = |(name, value): (&str, &str)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value.to_owned());
        pair
    };
    proto::Metric::from_label(labels.map(pair).collect())
}

/// Writes a sample in OpenMetrics' format, without the end of its line. `name` is the family's and a suffix.
fn sample<'l>(
    text: &mut String,
    (name, suffix): (&str, &str),
    labels: impl Labels<'l>,
    bound: Option<&str>,
    value: Value,
) {
    text.push_str(name);
    text.push_str(suffix);
    let mut separator = '{';
    let mut label = |name: &str, value: &str, text: &mut String| {
        text.push(std::mem::replace(&mut separator, ','));
        text.push_str(name);
        text.push_str("=\"");
        escape(value, text);
        text.push('"');
    };
    for (name, value) in labels {
        label(name, value, text);
    }
    if let Some(bound) = bound {
        label("le", bound, text);
    }
    if separator == ',' {
        text.push('}');
    }
    match value {
        Value::Count(count) => push(text, format_args!(" {count}")),
        Value::Number(number) if number == f64::INFINITY => text.push_str(" +Inf"),
        Value::Number(number) if number == f64::NEG_INFINITY => text.push_str(" -Inf"),
        Value::Number(number) => push(text, format_args!(" {number}")),
    }
}

/// Names and values of labels.
pub(crate) trait Labels<'l>: Iterator<Item = (&'l str, &'l str)> + Clone {}

impl<'l, I: Iterator<Item = (&'l str, &'l str)> + Clone> Labels<'l> for I {}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("a string can always be written to");
}

/// Appends a text in which backslashes, line breaks and quotes are escaped.
fn escape(from: &str, to: &mut String) {
    for character in from.chars() {
        match character {
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '"' => to.push_str("\\\""),
            other => to.push(other),
        }
    }
}
