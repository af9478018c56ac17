//! `maglor stat`: prints success rates and latencies of requests, by workload or by called service.

use std::process::ExitCode;
use std::time::Duration;

use maglor_config::raw::TimeSpan;
use serde::Serialize;

use super::access::{Pods, Target, Where};
use super::served::short;
use super::table::{self, Column, Format, Row, or_dash};
use super::traffic::{Flow, Observer, Traffic, Workload};

const EXAMPLES: &str = "\
Examples:
  Inbound requests of the workloads of this namespace, over five seconds:
    maglor stat
  Outbound requests of productpage, with retries and ejections, over a minute:
    maglor stat services --of productpage-v1 --window 1m
  Totals since the start of the proxies, as JSON:
    maglor stat services -A --since-start -o json
  Without Kubernetes:
    maglor stat --proxy web=127.0.0.1:15020

Success is the share of requests without 5xx; for outbound calls, the share of attempts with a response
other than 5xx. mTLS of a workload is the share of its clients' connections since the start.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Object to aggregate by.
    #[arg(value_enum, default_value_t)]
    by: By,

    /// Only proxies of this pod or workload.
    #[arg(long, value_name = "POD|WORKLOAD")]
    of: Option<Target>,

    /// Length of the measurement.
    #[arg(long, value_name = "TIME", default_value = "5s")]
    window: TimeSpan,

    /// Totals since the start of each proxy, instead of a measurement; without rates.
    #[arg(long, conflicts_with = "window")]
    since_start: bool,

    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    pods: Pods,

    #[command(flatten)]
    place: Where,
}

/// What requests are aggregated by.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum By {
    /// Requests to each workload.
    #[default]
    Workloads,
    /// Requests from each workload to each service.
    Services,
}

/// A workload, or a service that it calls.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    pub(super) workload: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) service: Option<String>,
    pub(super) proxies: usize,
    pub(super) requests: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rps: Option<f64>,
    pub(super) success: Option<f64>,
    pub(super) p50_ms: Option<f64>,
    pub(super) p95_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    /// Share of requests over mutual TLS; `None` if unknown.
    pub(super) mtls: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) calls: Option<Calls>,
}

/// Statistics that exist only for outbound requests.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Calls {
    pub(super) retries: f64,
    pub(super) ejections: f64,
    pub(super) ejected_now: f64,
}

impl Line {
    fn new(
        workload: &Workload,
        service: Option<&str>,
        flow: &Flow,
        time: Option<Duration>,
    ) -> Self {
        let millis = |percent| {
            let time = flow.latencies.percentile(percent)?;
            Some((time.as_secs_f64() * 1e6).round() / 1e3)
        };
        let seconds = time.map(|time| time.as_secs_f64().max(f64::EPSILON));
        Self {
            namespace: workload.namespace.clone(),
            workload: workload.name.clone(),
            service: service.map(str::to_owned),
            proxies: flow.proxies.len(),
            requests: flow.requests,
            rps: seconds.map(|seconds| flow.requests / seconds),
            success: flow.success(),
            p50_ms: millis(50.0).filter(|_| flow.requests > 0.0),
            p95_ms: millis(95.0).filter(|_| flow.requests > 0.0),
            p99_ms: millis(99.0).filter(|_| flow.requests > 0.0),
            mtls: match flow.mesh {
                Some(mesh) => Some(f64::from(u8::from(mesh))),
                None => flow.mutual_tls(),
            },
            calls: service.map(|_| Calls {
                retries: flow.retries,
                ejections: flow.ejections,
                ejected_now: flow.ejected,
            }),
        }
    }

    fn start(&self) -> Vec<String> {
        vec![or_dash(self.namespace.as_ref()), self.workload.clone()]
    }

    fn numbers(&self) -> Vec<String> {
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        let ms = |ms: f64| format!("{ms:.1} ms");
        vec![
            or_dash(self.success.map(percent)),
            match self.rps {
                Some(rps) => format!("{rps:.1}"),
                None => format!("{:.0}", self.requests),
            },
            or_dash(self.p50_ms.map(ms)),
            or_dash(self.p95_ms.map(ms)),
            or_dash(self.p99_ms.map(ms)),
            or_dash(self.mtls.map(|share| format!("{:.0} %", share * 100.0))),
        ]
    }
}

/// Inbound requests of a workload.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Asked(pub(super) Line);

impl Row for Asked {
    const COLUMNS: &'static [Column] = &[
        Column::text("NAMESPACE").of("namespace"),
        Column::text("WORKLOAD").of("workload"),
        Column::number("SUCCESS").of("success"),
        Column::number("REQ/S").of("rps"),
        Column::number("P50").of("p50_ms"),
        Column::number("P95").of("p95_ms"),
        Column::number("P99").of("p99_ms"),
        Column::number("MTLS").of("mtls"),
        Column::number("REQUESTS").of("requests").wide(),
        Column::number("PROXIES").of("proxies").wide(),
    ];

    fn cells(&self) -> Vec<String> {
        let Self(line) = self;
        let end = vec![format!("{:.0}", line.requests), line.proxies.to_string()];
        [line.start(), line.numbers(), end].concat()
    }
}

/// Requests of a workload to a called service.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Called(pub(super) Line);

impl Row for Called {
    const COLUMNS: &'static [Column] = &[
        Column::text("NAMESPACE").of("namespace"),
        Column::text("WORKLOAD").of("workload"),
        Column::text("CALLS").of("service"),
        Column::number("SUCCESS").of("success"),
        Column::number("REQ/S").of("rps"),
        Column::number("P50").of("p50_ms"),
        Column::number("P95").of("p95_ms"),
        Column::number("P99").of("p99_ms"),
        Column::number("MTLS").of("mtls"),
        Column::number("RETRIES").of("calls/retries"),
        Column::number("EJECTED").of("calls/ejected_now"),
        Column::number("EJECTIONS").of("calls/ejections").wide(),
        Column::number("REQUESTS").of("requests").wide(),
        Column::number("PROXIES").of("proxies").wide(),
    ];

    fn cells(&self) -> Vec<String> {
        let Self(line) = self;
        let calls = line.calls.as_ref();
        let count = |of: fn(&Calls) -> f64| or_dash(calls.map(|calls| format!("{:.0}", of(calls))));
        let service = line.service.as_deref().map(short);
        [
            line.start(),
            vec![or_dash(service)],
            line.numbers(),
            vec![
                count(|calls| calls.retries),
                count(|calls| calls.ejected_now),
                count(|calls| calls.ejections),
                format!("{:.0}", line.requests),
                line.proxies.to_string(),
            ],
        ]
        .concat()
    }
}

/// Returns the inbound requests of workloads; with rates if `time` is known.
pub(super) fn asked(traffic: &Traffic, time: Option<Duration>) -> impl Iterator<Item = Line> {
    let all = traffic.inbound.iter();
    all.map(move |(workload, flow)| Line::new(workload, None, flow, time))
}

/// Returns the outbound requests of workloads; with rates if `time` is known.
pub(super) fn called(traffic: &Traffic, time: Option<Duration>) -> impl Iterator<Item = Line> {
    let all = traffic.outbound.iter();
    all.map(move |((workload, service), flow)| Line::new(workload, Some(service), flow, time))
}

pub(crate) fn run(options: &Options) -> ExitCode {
    super::run(async {
        let proxies = options.place.proxies(&options.pods, options.of.as_ref());
        let mut observer = Observer::new(proxies.await?);
        let mut traffic = observer.look().await?;
        let mut time = None;
        if !options.since_start {
            tokio::time::sleep(options.window.0).await;
            traffic = observer.look().await?;
            time = Some(traffic.time);
        }
        for (name, error) in &traffic.silent {
            eprintln!("{name}: {error}");
        }
        let none = "no proxy has responded";
        match options.by {
            By::Workloads => {
                let rows: Vec<_> = asked(&traffic, time).map(Asked).collect();
                table::show(&rows, options.output, none);
            }
            By::Services => {
                let none = "there were no requests";
                let rows: Vec<_> = called(&traffic, time).map(Called).collect();
                table::show(&rows, options.output, none);
            }
        }
        Ok(())
    })
}
