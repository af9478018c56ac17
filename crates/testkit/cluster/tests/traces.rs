//! Traces in a real Jaeger: those of the demo's application are complete, an absent Jaeger harms no request, and
//! applications that forward only B3's or only W3C's headers are joined.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Jaeger.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use maglor_testkit::cluster::{jaeger, static_program};
use maglor_testkit::{Answer, Proxy, ProxyBuilder, RawHttp1, Upstream, wait};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);
/// The application's services; the ingress calls the first one.
const SERVICES: [&str; 4] = ["details", "productpage", "ratings", "reviews"];

/// A Jaeger with its memory as storage. Dropping it kills it.
struct Jaeger {
    program: PathBuf,
    child: Child,
    ports: [u16; 7],
}

impl Jaeger {
    fn start() -> Self {
        let program = jaeger().unwrap();
        let held: Vec<_> = (0..7)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
            .collect();
        let ports = held.iter().map(|one| one.local_addr().unwrap().port());
        let ports: [u16; 7] = ports.collect::<Vec<_>>().try_into().unwrap();
        drop(held);
        let child = Self::process(&program, &ports);
        let jaeger = Self {
            program,
            child,
            ports,
        };
        jaeger.until_ready();
        jaeger
    }

    fn process(program: &PathBuf, ports: &[u16; 7]) -> Child {
        let flags = [
            "collector.otlp.grpc.host-port",
            "query.http-server.host-port",
            "collector.otlp.http.host-port",
            "admin.http.host-port",
            "collector.grpc-server.host-port",
            "collector.http-server.host-port",
            "query.grpc-server.host-port",
        ];
        let each = flags.iter().zip(ports);
        let flags = each.map(|(flag, port)| format!("--{flag}=127.0.0.1:{port}"));
        let mut jaeger = Command::new(program);
        jaeger
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        jaeger.env("SPAN_STORAGE_TYPE", "memory").spawn().unwrap()
    }

    /// The address for spans over gRPC.
    fn collector(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    fn query(&self, path: &str) -> Value {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[1]));
        let response = RawHttp1::connect(address).get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.json()
    }

    fn until_ready(&self) {
        let ports = [self.ports[0], self.ports[1]];
        wait::eventually(LIMIT, "Jaeger is ready", || {
            let reachable =
                |port| std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
            ports.into_iter().all(reachable)
        });
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.child = Self::process(&self.program, &self.ports);
        self.until_ready();
    }

    /// The traces in which a service has a span.
    fn traces(&self, service: &str) -> Vec<Trace> {
        let found = self.query(&format!(
            "/api/traces?service={service}&limit=5000&lookback=1h"
        ));
        let traces = found["data"].as_array().unwrap();
        traces.iter().map(Trace::new).collect()
    }
}

impl Drop for Jaeger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
struct Span {
    service: String,
    parent: Option<String>,
    tags: BTreeMap<String, String>,
}

/// The spans of a trace by their identifiers.
#[derive(Debug)]
struct Trace(BTreeMap<String, Span>);

impl Trace {
    fn new(trace: &Value) -> Self {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let span = |span: &Value| {
            let process = span["processID"].as_str().unwrap();
            let tags = span["tags"].as_array().unwrap().iter();
            let tags = tags.map(|tag| (text(&tag["key"]), text(&tag["value"])));
            let parent = span["references"][0]["spanID"].as_str();
            let id = span["spanID"].as_str().unwrap().to_owned();
            let span = Span {
                service: text(&trace["processes"][process]["serviceName"]),
                parent: parent.map(str::to_owned),
                tags: tags.collect(),
            };
            (id, span)
        };
        Self(
            trace["spans"]
                .as_array()
                .unwrap()
                .iter()
                .map(span)
                .collect(),
        )
    }

    fn services(&self) -> BTreeSet<&str> {
        self.0.values().map(|span| span.service.as_str()).collect()
    }

    /// Returns the spans whose parent is not in the trace.
    fn roots(&self) -> usize {
        let spans = self.0.values();
        let is_root = |span: &&Span| {
            let parent = span.parent.as_ref();
            parent.is_none_or(|parent| !self.0.contains_key(parent))
        };
        spans.filter(is_root).count()
    }

    /// Returns the numbers of attempts of the requests that were sent to a service.
    fn attempts(&self, service: &str) -> Vec<usize> {
        let mut attempts: BTreeMap<&str, usize> = BTreeMap::new();
        for span in self.0.values() {
            if span
                .tags
                .get("maglor.cluster")
                .is_some_and(|name| name.starts_with(service))
            {
                let request = span.parent.as_deref().unwrap();
                *attempts.entry(request).or_default() += 1;
            }
        }
        attempts.into_values().collect()
    }
}

fn demo(jaeger: &Jaeger, arguments: &[&str]) -> Child {
    let program = static_program("maglor-demo", "dev").unwrap();
    let proxy = static_program("maglor-proxy", "dev").unwrap();
    let controller = static_program("maglor-controller", "dev").unwrap();
    let mut demo = Command::new(program);
    demo.args([
        "--format",
        "json",
        "--rate",
        "20",
        "--collector",
        &jaeger.collector(),
    ]);
    demo.args(arguments).arg("--proxy").arg(proxy);
    demo.arg("--controller").arg(controller);
    demo.stdout(Stdio::piped()).spawn().unwrap()
}

fn summary(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
#[ignore = "builds Jaeger the first time, for several minutes: cargo xtask e2e"]
fn each_request_is_one_trace_across_all_services_with_its_retries() {
    let jaeger = Jaeger::start();
    let demo = demo(&jaeger, &["--for", "6", "--fault", "reviews-2:errors@1"]);
    let output = demo.wait_with_output().unwrap();
    let summary = summary(&output);
    assert!(output.status.success(), "{summary}");
    let stages = summary["stages"].as_array().unwrap().iter();
    let requests: u64 = stages
        .map(|stage| stage["requests"].as_u64().unwrap())
        .sum();
    // Proxies send what is left when they end, so that all spans are there.
    let of_users = || -> Vec<Trace> {
        let traces = jaeger.traces("ingress").into_iter();
        // Not those of the intruders.
        traces
            .filter(|trace| trace.services().contains("productpage"))
            .collect()
    };
    wait::eventually(LIMIT, "all traces have arrived", || {
        of_users().len() as u64 >= requests
    });
    let traces = of_users();
    assert_eq!(traces.len() as u64, requests);
    for trace in &traces {
        let services = trace.services();
        assert!(
            SERVICES.iter().all(|one| services.contains(one)),
            "{trace:#?}"
        );
        assert_eq!(trace.roots(), 1, "{trace:#?}");
    }
    let retried = traces
        .iter()
        .filter(|trace| trace.attempts("reviews").contains(&2));
    let retried = retried.count();
    println!(
        "{requests} requests, {} traces, {retried} with a second attempt at reviews",
        traces.len()
    );
    assert!(retried > 0);
    assert_eq!(summary["spans"]["dropped"], 0.0, "{}", summary["spans"]);
}

#[test]
#[ignore = "builds Jaeger the first time, for several minutes: cargo xtask e2e"]
fn requests_do_not_depend_on_the_collector() {
    let mut jaeger = Jaeger::start();
    let running = demo(&jaeger, &["--for", "45"]);
    wait::eventually(LIMIT, "there is a trace", || {
        !jaeger.traces("ingress").is_empty()
    });
    jaeger.kill();
    // Longer than a batch is kept for further attempts.
    thread::sleep(Duration::from_secs(25));
    jaeger.restart();
    wait::eventually(LIMIT, "there is a trace again", || {
        !jaeger.traces("ingress").is_empty()
    });
    let output = running.wait_with_output().unwrap();
    let summary = summary(&output);
    assert!(output.status.success(), "{summary}");
    assert_eq!(
        summary["stages"][0]["failures"], 0,
        "{}",
        summary["stages"][0]
    );
    println!("spans: {}", summary["spans"]);
    assert!(summary["spans"]["dropped"].as_f64().unwrap() > 0.0);
    assert!(summary["spans"]["exported"].as_f64().unwrap() > 0.0);
}

/// A proxy that calls an endpoint.
fn proxy(name: &str, endpoint: SocketAddr, jaeger: &Jaeger) -> Proxy {
    let collector = jaeger.collector();
    ProxyBuilder::new(static_program("maglor-proxy", "dev").unwrap())
        .config(format!(
            "
admin: {{address: '127.0.0.1:0'}}
tracing: {{cluster: collector, service_name: {name}, sampling: {{percent: 100}}}}
listeners:
- {{name: web, address: '127.0.0.1:0', http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: next}}]}}]}}}}
clusters:
- {{name: next, endpoints: ['{endpoint}']}}
- {{name: collector, endpoints: ['{collector}']}}
"
        ))
        .start()
}

/// An application that forwards only some headers to the next proxy.
fn application(next: SocketAddr, headers: &'static [&'static str]) -> Upstream {
    let application = Upstream::start("application");
    application.set_answer(move |request| {
        let forwarded = headers
            .iter()
            .filter_map(|name| Some((name, request.header(name)?)));
        let forwarded: String = forwarded
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let mut client = RawHttp1::connect(next);
        let response = client.request(format!(
            "GET /next HTTP/1.1\r\nhost: next\r\n{forwarded}\r\n"
        ));
        Some(Answer::status(response.status))
    });
    application
}

#[test]
#[ignore = "builds Jaeger the first time, for several minutes: cargo xtask e2e"]
fn applications_with_headers_of_one_kind_are_joined() {
    let jaeger = Jaeger::start();
    let kinds: [(&str, &str, &'static [&'static str]); 3] = [
        (
            "w3c",
            "traceparent: 00-11111111111111111111111111111111-2222222222222222-01",
            &["traceparent"],
        ),
        (
            "b3-multi",
            "x-b3-traceid: 33333333333333333333333333333333\r\nx-b3-spanid: 4444444444444444\r\nx-b3-sampled: 1",
            &["x-b3-traceid", "x-b3-spanid", "x-b3-sampled"],
        ),
        (
            "b3-single",
            "b3: 55555555555555555555555555555555-6666666666666666-1",
            &["b3"],
        ),
    ];
    for (name, header, forwarded) in kinds {
        let last = Upstream::start("last");
        let services = ["front", "middle", "back"].map(|place| format!("{name}-{place}"));
        let back = proxy(&services[2], last.address(), &jaeger);
        let second = application(back.listener("web"), forwarded);
        let middle = proxy(&services[1], second.address(), &jaeger);
        let first = application(middle.listener("web"), forwarded);
        let front = proxy(&services[0], first.address(), &jaeger);
        let mut client = RawHttp1::connect(front.listener("web"));
        let response = client.request(format!("GET / HTTP/1.1\r\nhost: a\r\n{header}\r\n\r\n"));
        assert_eq!(response.status, 200, "{name}");
        let trace = wait::until(LIMIT, "the whole trace has arrived", || {
            let mut traces = jaeger.traces(&services[0]).into_iter();
            // A server span and a client span of each proxy.
            traces.find(|trace| trace.0.len() == 6)
        });
        let expected: BTreeSet<_> = services.iter().map(String::as_str).collect();
        assert_eq!(trace.services(), expected, "{name}: {trace:#?}");
        assert_eq!(trace.roots(), 1, "{name}: {trace:#?}");
        println!("{name}: one trace of {} spans", trace.0.len());
    }
}
