//! Figs. 8e and 8f of the paper on LOR: the cost of the passage through a Proxy-Service.
//!
//! As in the paper there is one instance of the catalogue, and clients request its page only, so
//! that each request passes the Proxy-Service and is not balanced by it. Servers have no queue
//! here: the difference with and without the Proxy-Service is the passage alone, and it is known
//! for each request (`x-exact-us`). The paper's Proxy-Service is Envoy, on another machine; here
//! Envoy forwards the same requests, too, if it is available, and so does a bare forwarder, which
//! only forwards bytes: its cost is that of sockets and waking up on this machine, for any proxy.

use std::time::Duration;

use super::{Stretch, Way, shape};
use crate::bar::Bar;
use crate::error::Result;
use crate::mesh::calibrate::without_queue;
use crate::mesh::report::Report;
use crate::mesh::shape::Central;
use crate::mesh::stage::{Case, Measured, Stage};
use crate::peer::{self, Peer, Subject};
use crate::report::{Table, number};

const RATES: [u32; 5] = [100, 300, 600, 1000, 2000];
const RATES_QUICK: [u32; 2] = [100, 600];
const HOST: &str = "catalogue";
const PATH: &str = "/category";
const WARM_UP: Duration = Duration::from_secs(2);
/// The paper's values, averages over its services and loads.
const PAPER_CPU_MS: f64 = 0.033;
const PAPER_ADDED_MS: f64 = 1.08;
/// The required maximum of the added median latency.
const ADDED_MS: f64 = 0.2;

/// The results of the same load without a Proxy-Service, with it, and with others in its place.
#[derive(Debug, Clone)]
pub(super) struct Passage {
    rate: u32,
    without: Measured,
    with: Measured,
    bare: Measured,
    envoy: Option<Measured>,
}

impl Passage {
    /// Returns the latency that a Proxy-Service adds to the median, ms.
    fn added(&self, with: &Measured) -> f64 {
        with.added_p50 - self.without.added_p50
    }
}

/// Returns the processor time of the Proxy-Service, ms per request.
fn cpu(with: &Measured) -> f64 {
    with.central.iter().map(|(_, cpu)| cpu / 1000.0).sum()
}

/// Runs the experiment.
pub(super) async fn run(stage: &Stage, report: &mut Report) -> Result<Vec<Passage>> {
    let rates: &[u32] = if stage.options.quick {
        &RATES_QUICK
    } else {
        &RATES
    };
    let bare = peer::locate(Subject::Bare, None)?;
    let envoy = peer::locate(Subject::Envoy, None);
    let envoy = envoy
        .inspect_err(|error| eprintln!("passage: without Envoy: {error}"))
        .ok();
    let mut all = Vec::new();
    for &rate in rates {
        let mut runs = Vec::new();
        let others = envoy.iter().map(Some);
        let always = [None, Some(&stage.maglor), Some(&bare)];
        for by in always.into_iter().chain(others) {
            let case = case(stage, rate, by);
            let measured = stage.run(&case).await?;
            report.keep("passage", &case.name, &measured)?;
            runs.push(measured);
        }
        let mut runs = runs.into_iter();
        if let (Some(without), Some(with), Some(bare)) = (runs.next(), runs.next(), runs.next()) {
            all.push(Passage {
                rate,
                without,
                with,
                bare,
                envoy: runs.next(),
            });
        }
    }
    Ok(all)
}

fn case(stage: &Stage, rate: u32, by: Option<&Peer>) -> Case {
    let model = super::model(Stretch::NONE, |name, service| {
        let mut service = without_queue(service);
        if name == HOST {
            service.replicas = 1;
        }
        service
    });
    let mut shape = shape(&Way::LOR);
    shape.proxy_service = by.map(|peer| Central {
        only: Some(vec![HOST.into()]),
        by: Some(peer.clone()),
        ..Central::everywhere(&shape.policy)
    });
    let what = by.map_or("no Proxy-Service".into(), |peer| {
        format!("{} as Proxy-Service", peer.subject)
    });
    Case {
        name: format!("passage: {rate} requests a second, {what}"),
        model,
        shape,
        rate: f64::from(rate),
        paths: vec![PATH.into()],
        users: None,
        warm_up: WARM_UP,
        measured: stage.options.measured(4, 10),
    }
}

/// Returns the bars.
pub(super) fn bars(passages: &[Passage]) -> Vec<Bar> {
    let failed: usize = passages
        .iter()
        .map(|one| one.with.failed + one.without.failed)
        .sum();
    let added = passages.iter().map(|one| one.added(&one.with));
    let mean = |cpus: Vec<f64>| cpus.iter().sum::<f64>() / cpus.len() as f64;
    let own = mean(passages.iter().map(|one| cpu(&one.with)).collect());
    let envoys = passages.iter().filter_map(|one| one.envoy.as_ref());
    let envoys = mean(envoys.map(cpu).collect());
    let least = mean(passages.iter().map(|one| cpu(&one.bare)).collect());
    vec![
        Bar::at_most("passage: failed requests", 0.0, Some(failed as f64)),
        Bar::at_most(
            "passage: CPU of the Proxy-Service, µs a request, mean over loads",
            1000.0 * PAPER_CPU_MS,
            (!passages.is_empty()).then_some(1000.0 * own),
        ),
        Bar::at_most(
            "passage: CPU of the Proxy-Service / Envoy's, mean over loads",
            1.0,
            envoys.is_finite().then_some(own / envoys),
        ),
        Bar::at_most(
            "passage: CPU above a bare forwarder's / Envoy's above it, mean over loads",
            1.0,
            envoys
                .is_finite()
                .then_some((own - least) / (envoys - least)),
        ),
        Bar::at_most(
            "passage: added to the median, ms, worst load",
            ADDED_MS,
            added.reduce(f64::max),
        ),
    ]
}

/// Describes the results.
pub(super) fn text(passages: &[Passage]) -> String {
    let mut table = Table::new([
        "requests a second",
        "added p50 µs, without",
        "with",
        "**by the Proxy-Service**",
        "mean",
        "p99",
        "by Envoy",
        "**CPU, µs a request**",
        "Envoy's",
        "a bare forwarder's",
        "failed",
    ]);
    let micros = |ms: f64| number(Some(1000.0 * ms));
    for one in passages {
        let (without, with, envoy) = (&one.without, &one.with, one.envoy.as_ref());
        table.row(vec![
            one.rate.to_string(),
            micros(without.added_p50),
            micros(with.added_p50),
            micros(one.added(with)),
            micros(with.added.0 - without.added.0),
            micros(with.added.1 - without.added.1),
            number(envoy.map(|envoy| 1000.0 * one.added(envoy))),
            micros(cpu(with)),
            number(envoy.map(|envoy| 1000.0 * cpu(envoy))),
            micros(cpu(&one.bare)),
            (without.failed + with.failed).to_string(),
        ]);
    }
    format!(
        "### Figs. 8e and 8f: a passage\n\nOne instance of the catalogue, its page only, servers without queue: each \
         request passes the Proxy-Service and is not balanced by it. *Added* is what is not the servers' work; the paper, \
         with Envoy and on another machine, has {PAPER_ADDED_MS} ms in the mean, and {PAPER_CPU_MS} ms of a processor a \
         request. The *bare forwarder* hands bytes on and reads nothing in them: what it costs, no proxy that is a process \
         of its own can be below on this machine.\n\n{}",
        table.markdown()
    )
}
