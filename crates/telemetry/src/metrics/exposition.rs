//! The two text formats of Prometheus: which one a client gets, and how families are written in it.
//!
//! OpenMetrics differs from the older format in the name of a family (without `_total` and `_info`), units, exemplars,
//! and its last line.

mod negotiation;

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

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
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
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

    fn word(&self, format: Format) -> &'static str {
        match self.kind {
            Type::Counter => "counter",
            Type::Gauge if format == Format::OpenMetrics && self.name.ends_with(INFO) => "info",
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
pub(crate) struct Page {
    format: Format,
    text: String,
}

impl Page {
    pub(crate) fn new(format: Format) -> Self {
        Self {
            format,
            text: String::with_capacity(16 * 1024),
        }
    }

    /// Begins a family. Its header is written with the first sample, since a family without samples is not shown.
    pub(crate) fn family<'a>(&'a mut self, header: Header<'a>) -> FamilyWriter<'a> {
        FamilyWriter {
            page: self,
            header,
            is_begun: false,
        }
    }

    pub(crate) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// The writer of the samples of one family.
#[derive(Debug)]
pub(crate) struct FamilyWriter<'a> {
    page: &'a mut Page,
    header: Header<'a>,
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
        self.sample("", labels, None, value);
        self.page.text.push('\n');
    }

    /// Writes the bucket with this upper bound, and its exemplar.
    pub(crate) fn bucket<'l>(
        &mut self,
        labels: impl Labels<'l>,
        bound: f64,
        count: u64,
        exemplar: Option<&Exemplar>,
    ) {
        let mut text = String::new();
        match self.page.format {
            _ if bound == f64::INFINITY => text.push_str("+Inf"),
            // OpenMetrics has one form for each number: with a fraction.
            Format::OpenMetrics => push(&mut text, format_args!("{bound:?}")),
            Format::Text => push(&mut text, format_args!("{bound}")),
        }
        self.sample("_bucket", labels, Some(&text), Value::Count(count));
        if let Some(exemplar) = exemplar.filter(|_| self.page.format == Format::OpenMetrics) {
            push(&mut self.page.text, format_args!(" # {exemplar}"));
        }
        self.page.text.push('\n');
    }

    /// Writes the sum and the count of a histogram.
    pub(crate) fn totals<'l>(&mut self, labels: impl Labels<'l>, sum: f64, count: u64) {
        self.sample("_sum", labels.clone(), None, Value::Number(sum));
        self.page.text.push('\n');
        self.sample("_count", labels, None, Value::Count(count));
        self.page.text.push('\n');
    }

    fn sample<'l>(
        &mut self,
        suffix: &str,
        labels: impl Labels<'l>,
        bound: Option<&str>,
        value: Value,
    ) {
        self.begin();
        let text = &mut self.page.text;
        text.push_str(self.header.name);
        text.push_str(suffix);
        let mut separator = '{';
        let mut label = |name: &str, value: &str, text: &mut String| {
            text.push(std::mem::replace(&mut separator, ','));
            text.push_str(name);
            text.push_str("=\"");
            escape(value, true, text);
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

    fn begin(&mut self) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        let (header, format) = (&self.header, self.page.format);
        let text = &mut self.page.text;
        let name = match format {
            Format::OpenMetrics => header.base(),
            Format::Text => header.name,
        };
        push(text, format_args!("# HELP {name} "));
        escape(header.help, format == Format::OpenMetrics, text);
        let kind = header.word(format);
        push(text, format_args!("\n# TYPE {name} {kind}\n"));
        if format == Format::OpenMetrics
            && let Some(unit) = header.unit()
        {
            push(text, format_args!("# UNIT {name} {unit}\n"));
        }
    }
}

/// Names and values of labels.
pub(crate) trait Labels<'l>: Iterator<Item = (&'l str, &'l str)> + Clone {}

impl<'l, I: Iterator<Item = (&'l str, &'l str)> + Clone> Labels<'l> for I {}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("a string can always be written to");
}

/// Appends a text in which backslashes and line breaks are escaped, and quotes on request.
fn escape(from: &str, quotes: bool, to: &mut String) {
    for character in from.chars() {
        match character {
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '"' if quotes => to.push_str("\\\""),
            other => to.push(other),
        }
    }
}
