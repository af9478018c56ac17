//! Traces of requests as examples of their durations, in OpenMetrics.

use std::time::Duration;

use maglor_testkit::{Answer, Proxy, RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support::collector::{Collector, Transport};
use crate::support::{Web, connect, get, start};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn page(proxy: &Proxy) -> String {
    let request =
        "GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept: application/openmetrics-text\r\n\r\n";
    let response = RawHttp1::connect(proxy.admin()).request(request);
    response.text().to_owned()
}

/// The exemplars of the buckets of a histogram.
fn exemplars_of<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let bucket = format!("{name}_bucket{{");
    let lines = page.lines().filter_map(|line| line.split_once(" # "));
    lines
        .filter(|(sample, _)| sample.starts_with(&bucket))
        .map(|(_, exemplar)| exemplar)
        .collect()
}

/// The exemplars of the durations of requests.
fn exemplars(page: &str) -> Vec<&str> {
    exemplars_of(page, "maglor_http_request_duration_seconds")
}

#[test]
fn an_exported_trace_is_the_example_of_its_bucket() {
    let upstream = Upstream::start("a");
    let collector = Collector::start(Transport::Http);
    let web = Web::to([upstream.address()]).top(&collector.tracing("percent: 0"));
    let proxy = start(&(web.yaml() + &collector.cluster()));
    assert_eq!(get(&proxy, "/").status, 200);
    assert_eq!(exemplars(&page(&proxy)), [""; 0], "no trace is exported");

    let sampled =
        format!("GET / HTTP/1.1\r\nhost: a\r\ntraceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n\r\n");
    assert_eq!(connect(&proxy).request(&sampled).status, 200);
    eventually(TIMEOUT, "there is an exemplar", || {
        let page = page(&proxy);
        let exemplars = exemplars(&page);
        let id = format!("{{trace_id=\"{TRACE}\"}} 0.");
        exemplars.len() == 1 && exemplars[0].starts_with(&id)
    });
    assert!(
        !proxy.admin_get("/metrics").text().contains(TRACE),
        "only in OpenMetrics"
    );
}

#[test]
fn an_exported_trace_is_the_example_of_each_of_its_attempts() {
    let upstreams = ["a", "b"].map(Upstream::start);
    let [slow, quick] = &upstreams;
    let late = Duration::from_millis(300);
    slow.set_answer(move |_| Some(Answer::status(503).after(late)));
    let collector = Collector::start(Transport::Http);
    let web = Web::to([slow.address(), quick.address()])
        .top(&collector.tracing("percent: 100"))
        .route("retry: {attempts: 2, retry_on: 5xx}")
        .cluster("policy: round-robin");
    let proxy = start(&(web.yaml() + &collector.cluster()));
    // Each endpoint gets the first attempt of one of them.
    assert_eq!([get(&proxy, "/").status, get(&proxy, "/").status], [200; 2]);
    eventually(TIMEOUT, "both attempts have exemplars", || {
        let page = page(&proxy);
        let exemplars = exemplars_of(&page, "maglor_upstream_request_duration_seconds");
        exemplars.iter().any(|one| one.contains("} 0.3")) && exemplars.len() > 1
    });
}

#[test]
fn there_are_none_without_traces() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    assert_eq!(get(&proxy, "/").status, 200);
    assert_eq!(exemplars(&page(&proxy)), [""; 0]);
}
