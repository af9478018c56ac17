//! Reads a proxy's `/metrics`, and how much its counters have grown since the last look.

use std::collections::HashMap;

/// One line of the Prometheus text format.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    labels: &'a str,
    pub(super) value: f64,
}

impl<'a> Sample<'a> {
    /// A sample, or `None` for comments and what has another form.
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

    /// A label's value. Those that are asked for here are names from our own configuration and
    /// numbers: without quotes, commas and backslashes.
    pub(super) fn label(&self, name: &str) -> Option<&'a str> {
        let pairs = self.labels.split(',');
        let mut values = pairs.filter_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            (key == name).then(|| value.trim_matches('"'))
        });
        values.next()
    }
}

/// What a process has counted so far, as seen by one observer.
#[derive(Debug, Default)]
pub(super) struct Meter {
    last: HashMap<String, f64>,
}

impl Meter {
    /// All samples of a page: gauges as they are, everything that only grows by how much it has
    /// grown since the last page. A smaller value is a process that has started anew, so all of it
    /// is growth.
    pub(super) fn grown<'a>(&mut self, page: &'a str) -> Vec<Sample<'a>> {
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

    /// The process has ended: the next page is of another one.
    pub(super) fn restart(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP maglor_upstream_retries_total Tries after a first one.
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
}
