//! Parses the `/metrics` page of a proxy, and computes the growth of its counters since the last page.

mod histogram;

use std::collections::HashMap;

pub use histogram::Histogram;

/// A sample, which is one line of the Prometheus text format.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The name of the metric.
    pub name: &'a str,
    labels: &'a str,
    /// The value of the metric; for counters and histograms, the growth.
    pub value: f64,
}

impl<'a> Sample<'a> {
    /// Parses a sample; `None` for comments and invalid lines.
    fn read(line: &'a str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
            None => (series, ""),
        };
        let value = value.parse().ok()?;
        Some(Self {
            name,
            labels,
            value,
        })
    }

    /// Returns the value of a label as written, without unescaping; `None` if there is no such label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        while let Some((key, quoted)) = rest.split_once("=\"") {
            let end = end_of_value(quoted)?;
            if key == name {
                return Some(&quoted[..end]);
            }
            rest = quoted[end + 1..].strip_prefix(',').unwrap_or_default();
        }
        None
    }
}

/// Returns the index of the closing quote; `None` if there is none.
fn end_of_value(quoted: &str) -> Option<usize> {
    let mut escaped = false;
    quoted.bytes().position(|byte| {
        let end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        end
    })
}

/// The last values of a process's counters, as seen by one observer.
#[derive(Debug, Default)]
pub struct Meter {
    last: HashMap<String, f64>,
}

impl Meter {
    /// Returns all samples of a page: gauges with their values, counters and histograms with their growth since the
    /// last page. A value that has decreased means that the process has restarted, so that all of it is growth.
    pub fn grown<'a>(&mut self, page: &'a str) -> Vec<Sample<'a>> {
        let mut samples = Vec::new();
        for line in page.lines() {
            let Some(mut sample) = Sample::read(line) else {
                continue;
            };
            let grows = ["_total", "_bucket", "_sum", "_count"];
            if grows.iter().any(|suffix| sample.name.ends_with(suffix)) {
                let series = format!("{}{{{}", sample.name, sample.labels);
                let value = sample.value;
                let last = self.last.insert(series, value).unwrap_or(0.0);
                sample.value = if value < last { value } else { value - last };
            }
            samples.push(sample);
        }
        samples
    }

    /// Forgets the last page, because the next one comes from another process.
    pub fn restart(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP maglor_upstream_retries_total Attempts after the first one.
maglor_upstream_retries_total{cluster=\"reviews\"} 3
maglor_upstream_request_duration_seconds_bucket{cluster=\"reviews\",le=\"+Inf\"} 7
process_resident_memory_bytes 5e6
nonsense
";

    #[test]
    fn samples_are_read() {
        let samples = Meter::default().grown(PAGE);
        assert_eq!(samples.len(), 3);
        assert_eq!(samples[0].name, "maglor_upstream_retries_total");
        assert_eq!(samples[0].label("cluster"), Some("reviews"));
        assert_eq!(samples[1].label("le"), Some("+Inf"));
        assert_eq!(samples[1].label("listener"), None);
        assert_eq!(samples[2].value, 5e6);
    }

    #[test]
    fn labels_may_hold_anything() {
        let line = r#"a_total{one="x,y=\"z\"",two="\\",three="}"} 1"#;
        let sample = Sample::read(line).unwrap();
        assert_eq!(sample.label("one"), Some(r#"x,y=\"z\""#));
        assert_eq!(sample.label("two"), Some(r"\\"));
        assert_eq!(sample.label("three"), Some("}"));
        assert_eq!(sample.label("y"), None);
        assert_eq!(Sample::read("a{b=\"").unwrap_or(sample).label("b"), None);
    }

    #[test]
    fn counters_are_counted_from_the_last_look() {
        let mut meter = Meter::default();
        let retries = |meter: &mut Meter, value: u32| {
            let page = PAGE.replace(" 3\n", &format!(" {value}\n"));
            let samples = meter.grown(&page);
            (samples[0].value, samples[2].value)
        };
        assert_eq!(retries(&mut meter, 3), (3.0, 5e6));
        assert_eq!(retries(&mut meter, 10), (7.0, 5e6), "a gauge stays");
        assert_eq!(retries(&mut meter, 2), (2.0, 5e6), "it was started anew");
        meter.restart();
        assert_eq!(retries(&mut meter, 5), (5.0, 5e6), "and again");
    }

    /// Pieces of lines in any order, with seed 7, are parsed or skipped, and never cause a panic.
    #[test]
    fn any_page_is_read() {
        let pieces = [
            "a_total", "{", "}", "le=", "\"", "\\", ",", " ", "1", "\n", "#", "ü", "=\"",
        ];
        let mut rng = maglor_balance::Rng::seed(7);
        for _ in 0..2000 {
            let page: String = (0..rng.below(12))
                .map(|_| pieces[rng.below(13) as usize])
                .collect();
            for sample in Meter::default().grown(&page) {
                let _ = (sample.label("le"), sample.label(""));
            }
        }
    }
}
