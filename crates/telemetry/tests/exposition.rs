//! The text that a scrape gets, read back by a parser of the format written for this test.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use maglor_telemetry::metrics::Exemplar;
use maglor_telemetry::trace_context::TraceId;
use maglor_telemetry::{Buckets, Registry};

/// A sample: name, labels, value.
#[derive(Debug, PartialEq)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

#[derive(Debug, Default)]
struct Exposition {
    help: BTreeMap<String, String>,
    types: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

impl Exposition {
    fn parse(text: &str) -> Self {
        let mut parsed = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                let old = parsed.help.insert(name.into(), unescape(help));
                assert_eq!(old, None, "HELP twice: {line}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                let old = parsed.types.insert(name.into(), kind.into());
                assert_eq!(old, None, "TYPE twice: {line}");
            } else {
                parsed.samples.push(sample(line));
            }
        }
        parsed
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        self.samples
            .iter()
            .find(|sample| sample.name == name && sample.labels == labels)
            .unwrap_or_else(|| panic!("no {name} {labels:?} in {self:#?}"))
            .value
    }
}

fn sample(line: &str) -> Sample {
    let name_end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.trim_start_matches(',').split_once("=\"").unwrap();
            let mut escaped = false;
            let end = after
                .find(|c| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                })
                .unwrap();
            labels.insert(label.into(), unescape(&after[..end]));
            rest = &after[end + 1..];
        }
        rest = &rest[1..];
    }
    Sample {
        name: name.into(),
        labels,
        value: rest.trim().parse().unwrap(),
    }
}

fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next().unwrap() {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                c => panic!("\\{c} is no escape"),
            },
            c => c,
        });
    }
    plain
}

fn registry() -> Registry {
    let registry = Registry::new(2);
    registry.describe_process("maglor-test", "1.2.3");
    registry
}

#[test]
fn counters_gauges_and_histograms() {
    let registry = registry();
    let requests = registry.counter("requests_total", "Requests.", &["cluster", "endpoint"]);
    let a = requests.with(&["web", "10.0.0.1:80"]);
    a.add(0, 2);
    a.inc(1);
    a.add_shared(4);
    a.add(2, 8); // no such worker: counted as shared
    let open = registry.gauge("connections", "Open.", &[]).with(&[]);
    open.add(0, 5);
    open.sub(1, 7);
    let epoch = registry.gauge("config_epoch", "Epoch.", &[]).with(&[]);
    epoch.set(41);
    epoch.set(42);
    let latency = registry
        .histogram(
            "latency_seconds",
            "Latency.",
            &["cluster"],
            Buckets::seconds(&[0.5, 1.0]).unwrap(),
        )
        .with(&["web"]);
    latency.observe(0, 0.5);
    latency.observe_nanos(1, 500_000_001);
    latency.observe_duration(1, Duration::from_secs(3));
    latency.observe_shared(Duration::from_millis(1));

    let text = registry.encode();
    let parsed = Exposition::parse(&text);
    let labels = [("cluster", "web"), ("endpoint", "10.0.0.1:80")];
    assert_eq!(parsed.value("maglor_requests_total", &labels), 15.0);
    assert_eq!(a.value(), 15);
    assert_eq!(parsed.types["maglor_requests_total"], "counter");
    assert_eq!(parsed.help["maglor_requests_total"], "Requests.");
    assert_eq!(parsed.value("maglor_connections", &[]), -2.0);
    assert_eq!(parsed.types["maglor_connections"], "gauge");
    assert_eq!(parsed.value("maglor_config_epoch", &[]), 42.0);

    assert_eq!(parsed.types["maglor_latency_seconds"], "histogram");
    let bucket = |le| {
        parsed.value(
            "maglor_latency_seconds_bucket",
            &[("cluster", "web"), ("le", le)],
        )
    };
    assert_eq!(
        [bucket("0.5"), bucket("1"), bucket("+Inf")],
        [2.0, 3.0, 4.0]
    );
    assert_eq!(
        parsed.value("maglor_latency_seconds_count", &[("cluster", "web")]),
        4.0
    );
    let sum = parsed.value("maglor_latency_seconds_sum", &[("cluster", "web")]);
    assert!((sum - 4.001_000_001).abs() < 1e-9, "{sum}");
    promtool(&text);
}

#[test]
fn the_process_describes_itself() {
    let parsed = Exposition::parse(&registry().encode());
    let arch = std::env::consts::ARCH;
    let labels = [
        ("arch", arch),
        ("component", "maglor-test"),
        ("version", "1.2.3"),
    ];
    assert_eq!(parsed.value("maglor_build_info", &labels), 1.0);
    assert!(parsed.value("process_resident_memory_bytes", &[]) > 100_000.0);
    assert!(parsed.value("process_open_fds", &[]) >= 3.0);
    assert!(parsed.value("process_max_fds", &[]) >= 3.0);
    assert!(parsed.value("process_cpu_seconds_total", &[]) >= 0.0);
    assert!(parsed.value("process_threads", &[]) >= 1.0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let start = parsed.value("process_start_time_seconds", &[]);
    assert!(
        (now.as_secs_f64() - start).abs() < 3600.0,
        "started at {start}"
    );
}

#[test]
fn anything_in_a_label_or_help_text_comes_back() {
    let registry = Registry::new(1);
    let value = "a\\b\"c\nd,e=\"f\"}é";
    let help = "first \\ line\nsecond";
    let counter = registry
        .counter("odd_total", help, &["name"])
        .with(&[value]);
    counter.inc(0);
    let text = registry.encode();
    let parsed = Exposition::parse(&text);
    assert_eq!(parsed.value("maglor_odd_total", &[("name", value)]), 1.0);
    assert_eq!(parsed.help["maglor_odd_total"], help);
}

#[test]
fn a_series_ends_with_its_last_handle_and_starts_again_at_zero() {
    let registry = Registry::new(1);
    let family = registry.counter("requests_total", "Requests.", &["endpoint"]);
    let first = family.with(&["a"]);
    let second = family.with(&["a"]);
    let third = first.clone();
    first.inc(0);
    second.inc(0);
    third.inc(0);
    assert_eq!(first.value(), 3, "same labels, same series");
    drop((first, second));
    assert!(registry.encode().contains("\"a\"} 3"));
    drop(third);
    assert_eq!(
        registry.encode(),
        "",
        "a family without series is not shown"
    );
    assert_eq!(family.with(&["a"]).value(), 0);
}

#[test]
fn asking_again_returns_the_same_family() {
    let registry = Registry::new(1);
    let handle = registry.counter("x_total", "X.", &["a"]).with(&["1"]);
    registry
        .clone()
        .counter("x_total", "X.", &["a"])
        .with(&["1"])
        .inc(0);
    assert_eq!(handle.value(), 1);
}

#[test]
#[should_panic(expected = "another kind, help or labels")]
fn a_name_has_one_kind() {
    let registry = Registry::new(1);
    let _gauge = registry.gauge("x", "X.", &[]);
    let _counter = registry.counter("x_total", "X.", &[]);
}

#[test]
fn shards_of_threads_add_up() {
    const EACH: u64 = 100_000;
    let registry = Registry::new(4);
    let counter = registry.counter("x_total", "X.", &[]).with(&[]);
    let histogram = registry
        .histogram("x_seconds", "X.", &[], Buckets::latency())
        .with(&[]);
    std::thread::scope(|scope| {
        for shard in 0..6 {
            let (counter, histogram) = (&counter, &histogram);
            scope.spawn(move || {
                for n in 0..EACH {
                    counter.inc(shard);
                    histogram.observe_nanos(shard, n * 1000);
                }
            });
        }
    });
    assert_eq!(counter.value(), 6 * EACH);
    let snapshot = histogram.snapshot();
    assert_eq!(snapshot.count(), 6 * EACH);
    assert_eq!(
        snapshot.sum().as_micros(),
        u128::from(6 * EACH * (EACH - 1) / 2)
    );
    let median = snapshot.quantile(0.5).unwrap().as_secs_f64();
    assert!((median - 0.05).abs() < 0.001, "{median}");
    assert_eq!(snapshot.quantile(1.0).unwrap(), Duration::from_millis(100));
}

/// Asks Prometheus' own tool, where it is installed.
fn promtool(text: &str) {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("promtool is not installed: its check is skipped");
        return;
    };
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A page in OpenMetrics, uncompressed.
fn open_metrics(registry: &Registry) -> String {
    let exposition = registry.expose("application/openmetrics-text", "");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let headers = [("content-type", kind), ("vary", "accept, accept-encoding")];
    assert_eq!(exposition.headers().collect::<Vec<_>>(), headers);
    String::from_utf8(exposition.body).unwrap()
}

#[test]
fn openmetrics_names_families_without_suffixes_and_with_units() {
    let registry = registry();
    let bytes = registry.counter("sent_bytes_total", "Bytes \"sent\".", &["to"]);
    let bytes = bytes.with(&["a\"\\\nb"]);
    bytes.add(0, 7);
    let open = registry.gauge("sent", "Open.", &[]).with(&[]);
    open.set(3);
    let ratio = registry
        .ratio_gauge("even_ratio", "Evenness.", &[])
        .with(&[]);
    ratio.set(125);
    let latency = registry.histogram(
        "latency_seconds",
        "Latency.",
        &[],
        Buckets::seconds(&[0.5, 1.0]).unwrap(),
    );
    let latency = latency.with_exemplars(&[]);
    latency.observe(1, 0.75);
    latency.exemplify(1, exemplar(750_000_000));

    let page = open_metrics(&registry);
    for lines in [
        "# HELP maglor_build Constant 1, with build information as labels.\n# TYPE maglor_build info\nmaglor_build_info{",
        "# HELP maglor_sent_bytes Bytes \\\"sent\\\".\n# TYPE maglor_sent_bytes counter\n# UNIT maglor_sent_bytes bytes\n\
         maglor_sent_bytes_total{to=\"a\\\"\\\\\\nb\"} 7\n",
        "# TYPE maglor_sent gauge\nmaglor_sent 3\n",
        "# TYPE maglor_even_ratio gauge\n# UNIT maglor_even_ratio ratio\nmaglor_even_ratio 0.125\n",
        "# TYPE maglor_latency_seconds histogram\n# UNIT maglor_latency_seconds seconds\n\
         maglor_latency_seconds_bucket{le=\"0.5\"} 0\n\
         maglor_latency_seconds_bucket{le=\"1.0\"} 1 # {trace_id=\"00000000000000000000000000000007\"} 0.75 1700000000.250\n\
         maglor_latency_seconds_bucket{le=\"+Inf\"} 1\n\
         maglor_latency_seconds_sum 0.75\nmaglor_latency_seconds_count 1\n",
        "# TYPE process_cpu_seconds counter\n# UNIT process_cpu_seconds seconds\nprocess_cpu_seconds_total ",
    ] {
        assert!(page.contains(lines), "{lines}\nin\n{page}");
    }
    assert!(page.ends_with("\n# EOF\n"));
    let text = registry.encode();
    assert!(
        !text.contains("# EOF") && !text.contains("trace_id"),
        "{text}"
    );
    assert!(
        text.contains("maglor_latency_seconds_bucket{le=\"1\"} 1\n"),
        "{text}"
    );
    assert!(text.contains("# TYPE maglor_build_info gauge\n"), "{text}");
    promtool(&text);
}

fn exemplar(nanos: u64) -> Exemplar {
    Exemplar {
        trace_id: TraceId::new(7_u128.to_be_bytes()).unwrap(),
        nanos,
        at: 1_700_000_000_250_000_000,
    }
}

#[test]
fn exemplars_end_with_the_last_handle_that_has_them() {
    let registry = Registry::new(1);
    let family = registry.histogram("x_seconds", "X.", &[], Buckets::latency());
    let plain = family.with(&[]);
    plain.exemplify(0, exemplar(1));
    assert!(!open_metrics(&registry).contains("trace_id"));
    let (first, second) = (family.with_exemplars(&[]), family.with_exemplars(&[]));
    first.exemplify(0, exemplar(1));
    assert!(open_metrics(&registry).contains("trace_id"));
    drop(first);
    assert!(open_metrics(&registry).contains("trace_id"));
    drop(second);
    assert!(!open_metrics(&registry).contains("trace_id"));
}

#[test]
fn a_page_is_compressed_on_request() {
    use std::io::Read as _;

    let registry = registry();
    let counter = registry.counter("x_total", "X.", &["n"]);
    let _series: Vec<_> = (0..1000).map(|n| counter.with(&[&n.to_string()])).collect();
    let plain = open_metrics(&registry);
    let compressed = registry.expose("application/openmetrics-text", "deflate, gzip");
    let encoding = ("content-encoding", "gzip");
    assert!(compressed.headers().any(|header| header == encoding));
    assert!(compressed.body.len() * 4 < plain.len());
    let mut text = String::new();
    let mut decoder = flate2::read::GzDecoder::new(&compressed.body[..]);
    decoder.read_to_string(&mut text).unwrap();
    assert!(text.contains("maglor_x_total{n=\"999\"} 0\n") && text.ends_with("# EOF\n"));
}

#[test]
#[should_panic(expected = "maglor_x: counters end in `_total`")]
fn a_counter_has_its_suffix() {
    let _counter = Registry::new(1).counter("x", "X.", &[]);
}

#[test]
#[should_panic(expected = "each name is registered once")]
fn a_computed_gauge_has_its_own_name() {
    let registry = Registry::new(1);
    let _counter = registry.counter("x_total", "X.", &[]);
    registry.sampled_gauge("x", "X.", &[], |_| {});
}
