//! The summary: a table, or the same as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::fleet::Fleet;
use super::flow::Flow;
use super::intruders::Attempt;
use super::plan::INTRUSIONS;
use super::record::{Record, Stage};
use crate::demo::latencies::millis;

/// All results; times are in milliseconds, shares in percent.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    policy: String,
    /// Whether everything worked as expected: see [`Report::verdict`].
    success: bool,
    /// Whether it was stopped early.
    ended_early: bool,
    stages: Vec<StageReport>,
    intruders: Vec<Attempt>,
    proxies: Proxies,
    /// With a collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    spans: Option<Spans>,
}

/// What became of the spans, until the last scrape.
#[derive(Debug, Serialize)]
struct Spans {
    exported: f64,
    dropped: f64,
}

#[derive(Debug, Serialize)]
struct StageReport {
    title: String,
    seconds: f64,
    requests: u64,
    requests_per_second: f64,
    failures: u64,
    success_percent: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    edges: Vec<EdgeReport>,
    reasons: Vec<String>,
}

#[derive(Debug, Serialize)]
struct EdgeReport {
    edge: String,
    requests: f64,
    requests_per_second: f64,
    /// The failed attempts; most of them were retried.
    failed_attempts: f64,
    retries: f64,
    ejections: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    handshakes: f64,
    mutual_tls_percent: Option<f64>,
}

/// The cost of the proxies.
#[derive(Debug, Serialize)]
struct Proxies {
    count: usize,
    mean_pss_mb: f64,
    largest_pss_mb: f64,
    /// Of all proxies together, for one request of a user.
    cpu_us_per_page: Option<f64>,
    /// Of one proxy, for one request that it handles.
    cpu_us_per_request: Option<f64>,
}

fn in_millis(time: Option<Duration>) -> Option<f64> {
    time.map(|time| (time.as_secs_f64() * 1e5).round() / 1e2)
}

impl StageReport {
    fn new(stage: Stage) -> Self {
        let seconds = stage.took.as_secs_f64().max(f64::EPSILON);
        let [p50, p99] = stage.pages.latencies.percentiles([50, 99]);
        let edges = stage.flows.edges.iter();
        Self {
            seconds,
            requests: stage.pages.count(),
            requests_per_second: stage.pages.count() as f64 / seconds,
            failures: stage.pages.failures,
            success_percent: stage.pages.success(),
            p50_ms: in_millis(p50),
            p99_ms: in_millis(p99),
            edges: edges
                .map(|(edge, flow)| EdgeReport::new(edge.to_string(), flow, seconds))
                .collect(),
            reasons: stage.reasons,
            title: stage.title,
        }
    }
}

impl EdgeReport {
    fn new(edge: String, flow: &Flow, seconds: f64) -> Self {
        Self {
            edge,
            requests: flow.requests(),
            requests_per_second: flow.requests() / seconds,
            failed_attempts: flow.failed_attempts,
            retries: flow.retries,
            ejections: flow.ejections,
            p50_ms: in_millis(flow.percentile(50.0)),
            p99_ms: in_millis(flow.percentile(99.0)),
            handshakes: flow.handshakes,
            mutual_tls_percent: flow.mutual_tls(),
        }
    }
}

impl Proxies {
    fn new(record: &Record, fleet: &Fleet) -> Self {
        let memory: Vec<_> = fleet.proxies().map(|proxy| proxy.memory / 1e6).collect();
        let stages = record.stages.iter();
        let (cpu, handled, pages) = stages.fold((0.0, 0.0, 0), |(cpu, handled, pages), stage| {
            let flows = &stage.flows;
            (
                cpu + flows.cpu,
                handled + flows.handled,
                pages + stage.pages.count(),
            )
        });
        let each = |count: f64| (count > 0.0).then(|| (cpu / count * 1e6).round());
        Self {
            count: memory.len(),
            mean_pss_mb: memory.iter().sum::<f64>() / memory.len().max(1) as f64,
            largest_pss_mb: memory.iter().copied().fold(0.0, f64::max),
            cpu_us_per_page: each(pages as f64),
            cpu_us_per_request: each(handled),
        }
    }
}

impl Spans {
    fn new(record: &Record) -> Self {
        let spans = record.stages.iter().map(|stage| stage.flows.spans);
        let (exported, dropped) = spans.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Self { exported, dropped }
    }
}

impl Report {
    pub(super) fn new(policy: String, record: Record, fleet: &Fleet) -> Self {
        let proxies = Proxies::new(&record, fleet);
        let spans = fleet.is_traced.then(|| Spans::new(&record));
        let stages = record.stages.into_iter().map(StageReport::new);
        let mut report = Self {
            policy,
            success: false,
            ended_early: record.ended_early,
            stages: stages.collect(),
            intruders: record.attempts,
            proxies,
            spans,
        };
        report.success = report.verdict().is_none();
        report
    }

    pub(super) fn is_success(&self) -> bool {
        self.success
    }

    /// Returns the unexpected result, if any: a request that failed without a fault, an accepted or
    /// uncounted intrusion, a request without caller identity.
    fn verdict(&self) -> Option<String> {
        let healthy = self.stages.first()?;
        if healthy.failures > 0 {
            let (failures, reasons) = (healthy.failures, healthy.reasons.join("; "));
            return Some(format!(
                "{failures} requests failed while all replicas were healthy: {reasons}"
            ));
        }
        let let_in = |attempt: &&Attempt| !(attempt.refused && attempt.counted);
        if let Some(attempt) = self.intruders.iter().find(let_in) {
            return Some(format!("not rejected and counted: {}", attempt.who));
        }
        let mut edges = self.stages.iter().flat_map(|stage| &stage.edges);
        let unproved = |edge: &&EdgeReport| edge.mutual_tls_percent.is_some_and(|all| all < 100.0);
        let edge = edges.find(unproved)?;
        Some(format!("requests without caller identity: {}", edge.edge))
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Returns the tables at the end.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "\nunder {}\n\n{:<30} {:>8} {:>6} {:>9} {:>10} {:>10} {:>7} {:>7} {:>6}\n",
            self.policy,
            "stage, edge",
            "requests",
            "req/s",
            "success",
            "p50",
            "p99",
            "retries",
            "ejected",
            "mTLS"
        );
        for stage in &self.stages {
            stage.write(&mut text);
        }
        if !self.intruders.is_empty() {
            text.push_str("\nintrusion attempts\n");
        }
        for attempt in &self.intruders {
            let _ = writeln!(
                text,
                "  {}: {}{} ({}: {})",
                attempt.who,
                if attempt.refused { "" } else { "ACCEPTED: " },
                attempt.got,
                attempt.counter,
                if attempt.counted {
                    "counted"
                } else {
                    "NOT counted"
                },
            );
        }
        self.proxies.write(&mut text);
        if let Some(Spans { exported, dropped }) = &self.spans {
            let _ = writeln!(
                text,
                "Spans: {exported} accepted by the collector, {dropped} dropped."
            );
        }
        let _ = writeln!(text, "\n{}", self.conclusion());
        text
    }

    /// Returns what was seen, in one sentence.
    fn conclusion(&self) -> String {
        let requests: u64 = self.stages.iter().map(|stage| stage.requests).sum();
        let failures: u64 = self.stages.iter().map(|stage| stage.failures).sum();
        let early = if self.ended_early {
            "Ended early. "
        } else {
            ""
        };
        let served = format!(
            "{early}{} of {requests} requests succeeded",
            requests - failures
        );
        // The first stage is without faults.
        let titles = self.stages.iter().skip(1).map(|stage| stage.title.as_str());
        let faults: Vec<_> = titles.filter(|title| *title != INTRUSIONS).collect();
        let meanwhile = match faults.is_empty() {
            true => String::new(),
            false => format!(" in spite of these faults: {}", faults.join("; ")),
        };
        let rejected = self
            .intruders
            .iter()
            .filter(|attempt| attempt.refused)
            .count();
        let intruders = match self.intruders.len() {
            0 => String::new(),
            count => format!("; {rejected} of {count} intrusion attempts were rejected"),
        };
        match self.verdict() {
            None => format!("{served}{meanwhile}{intruders}."),
            Some(wrong) => format!("WRONG: {wrong}. {served}{meanwhile}{intruders}."),
        }
    }
}

impl StageReport {
    fn write(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "{:<30} {:>8} {:>6.0} {:>7.2} % {} {}",
            self.title,
            self.requests,
            self.requests_per_second,
            self.success_percent,
            shown(self.p50_ms),
            shown(self.p99_ms),
        );
        for edge in &self.edges {
            let attempts = edge.requests + edge.retries;
            let success = match attempts > 0.0 {
                true => format!("{:>7.2} %", (1.0 - edge.failed_attempts / attempts) * 100.0),
                false => format!("{:>9}", "-"),
            };
            let mutual = edge.mutual_tls_percent;
            let mutual = mutual.map_or("-".into(), |percent| format!("{percent:.0} %"));
            let _ = writeln!(
                text,
                "  {:<28} {:>8.0} {:>6.0} {success} {} {} {:>7.0} {:>7.0} {mutual:>6}",
                edge.edge,
                edge.requests,
                edge.requests_per_second,
                shown(edge.p50_ms),
                shown(edge.p99_ms),
                edge.retries,
                edge.ejections,
            );
        }
        for reason in &self.reasons {
            let _ = writeln!(text, "  failed: {reason}");
        }
    }
}

impl Proxies {
    fn write(&self, text: &mut String) {
        let micros =
            |micros: Option<f64>| micros.map_or("-".into(), |micros| format!("{micros:.0} µs"));
        let _ = writeln!(
            text,
            "\n{} proxies: PSS {:.1} MB on average, {:.1} MB at most; CPU {} a request and proxy, {} a page.\n\
             Success of an edge is that of attempts; failed attempts were retried. Latencies of edges are interpolated from histograms.",
            self.count,
            self.mean_pss_mb,
            self.largest_pss_mb,
            micros(self.cpu_us_per_request),
            micros(self.cpu_us_per_page),
        );
    }
}

fn shown(ms: Option<f64>) -> String {
    millis(ms.map(|ms| Duration::from_secs_f64(ms / 1e3)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::client::Failure;

    fn report(failures: u64) -> Report {
        let mut record = Record::new();
        record.begin("healthy".into());
        for millis in 1..=100 {
            record.page(0, Ok(Duration::from_millis(millis)));
        }
        for _ in 0..failures {
            record.page(0, Err(&Failure::Timeout));
        }
        record.begin("ratings-1 killed".into());
        record.page(1, Err(&Failure::Timeout));
        record.end();
        let stages = record.stages.into_iter().map(StageReport::new).collect();
        Report {
            policy: "lor(choices=2)".into(),
            success: false,
            ended_early: false,
            stages,
            intruders: Vec::new(),
            proxies: Proxies {
                count: 10,
                mean_pss_mb: 5.0,
                largest_pss_mb: 5.5,
                cpu_us_per_page: Some(400.0),
                cpu_us_per_request: None,
            },
            spans: Some(Spans {
                exported: 700.0,
                dropped: 2.0,
            }),
        }
    }

    #[test]
    fn only_what_fails_while_all_is_well_is_wrong() {
        assert_eq!(report(0).verdict(), None);
        let wrong = report(2).verdict().unwrap();
        assert_eq!(
            wrong,
            "2 requests failed while all replicas were healthy: timeout after 15s"
        );
    }

    #[test]
    fn the_end_says_what_was_seen() {
        let conclusion = report(0).conclusion();
        assert_eq!(
            conclusion,
            "100 of 101 requests succeeded in spite of these faults: ratings-1 killed."
        );
        let wrong = report(2).conclusion();
        assert!(wrong.starts_with("WRONG: 2 requests failed"), "{wrong}");
    }

    #[test]
    fn accepted_intrusions_are_reported() {
        let mut report = report(0);
        report.intruders.push(Attempt {
            who: "plain-text client",
            got: "response received".into(),
            refused: false,
            counter: "plaintext",
            counted: false,
        });
        assert_eq!(
            report.verdict().unwrap(),
            "not rejected and counted: plain-text client"
        );
        let text = report.text();
        assert!(
            text.contains("ACCEPTED: response received (plaintext: NOT counted)"),
            "{text}"
        );
    }

    #[test]
    fn requests_without_identity_are_reported() {
        let mut report = report(0);
        report.stages[0].edges[3].mutual_tls_percent = Some(99.9);
        let wrong = report.verdict().unwrap();
        assert_eq!(wrong, "requests without caller identity: reviews → ratings");
    }

    #[test]
    fn tables_and_json_say_the_same() {
        let report = report(0);
        let text = report.text();
        for part in [
            "   50.0 ms    99.0 ms",
            "100.00 %",
            "failed: timeout",
            "400 µs a page",
            "Spans: 700 accepted by the collector, 2 dropped",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["stages"][0]["p99_ms"], 99.0);
        assert_eq!(json["stages"][1]["failures"], 1);
    }
}
