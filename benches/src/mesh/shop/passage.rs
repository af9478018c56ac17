//! Figs. 8e and 8f of the paper on LOR: what a passage through a Proxy-Service costs.
//!
//! As in the paper there is one instance of the catalogue, and clients ask for its page only, so that each request
//! passes the Proxy-Service and is not balanced by it. Servers have no queue here: what differs with the Proxy-Service
//! and without is the passage alone, and it is known for each request (`x-exact-us`).

use std::time::Duration;

use super::{Stretch, Way, shape};
use crate::bar::Bar;
use crate::error::Result;
use crate::mesh::calibrate::without_queue;
use crate::mesh::plan::Central;
use crate::mesh::report::Report;
use crate::mesh::stage::{Case, Measured, Stage};
use crate::report::{Table, number};

const RATES: [u32; 4] = [100, 300, 600, 1000];
const RATES_QUICK: [u32; 2] = [100, 600];
const HOST: &str = "catalogue";
const PATH: &str = "/category";
const WARM_UP: Duration = Duration::from_secs(2);
/// The paper's, averages over its services and loads.
const PAPER_CPU_MS: f64 = 0.033;
const PAPER_ADDED_MS: f64 = 1.08;
/// What is wanted here of the median.
const ADDED_MS: f64 = 0.2;

/// The same load without a Proxy-Service and with it.
#[derive(Debug, Clone)]
pub(super) struct Passage {
    rate: u32,
    without: Measured,
    with: Measured,
}

impl Passage {
    /// What it adds to the median, ms.
    fn added(&self) -> f64 {
        self.with.added_p50 - self.without.added_p50
    }

    /// Processor time of the Proxy-Service, ms a request.
    fn cpu(&self) -> f64 {
        self.with.central.iter().map(|(_, cpu)| cpu / 1000.0).sum()
    }
}

/// Runs it.
///
/// # Errors
/// A case cannot be run.
pub(super) async fn run(stage: &Stage, report: &mut Report) -> Result<Vec<Passage>> {
    let rates: &[u32] = if stage.options.quick {
        &RATES_QUICK
    } else {
        &RATES
    };
    let mut all = Vec::new();
    for &rate in rates {
        let [without, with] = [false, true].map(|central| case(stage, rate, central));
        let mut runs = Vec::new();
        for case in [without, with] {
            let measured = stage.run(&case).await?;
            report.keep("passage", &case.name, &measured)?;
            runs.push(measured);
        }
        if let Ok([without, with]) = <[Measured; 2]>::try_from(runs) {
            all.push(Passage {
                rate,
                without,
                with,
            });
        }
    }
    Ok(all)
}

fn case(stage: &Stage, rate: u32, central: bool) -> Case {
    let model = super::model(Stretch::NONE, |name, service| {
        let mut service = without_queue(service);
        if name == HOST {
            service.replicas = 1;
        }
        service
    });
    let mut shape = shape(&Way::LOR);
    shape.proxy_service = central.then(|| Central {
        only: Some(HOST.into()),
        ..Central::everywhere(&shape.policy)
    });
    let what = if central { "with" } else { "without" };
    Case {
        name: format!("passage: {rate} requests a second, {what} Proxy-Service"),
        model,
        shape,
        rate: f64::from(rate),
        paths: vec![PATH.into()],
        users: None,
        warm_up: WARM_UP,
        measured: stage.options.measured(4, 10),
    }
}

/// The bars.
pub(super) fn bars(passages: &[Passage]) -> Vec<Bar> {
    let failed: usize = passages
        .iter()
        .map(|one| one.with.failed + one.without.failed)
        .sum();
    let worst = |value: fn(&Passage) -> f64| passages.iter().map(value).reduce(f64::max);
    let cpu = passages.iter().map(Passage::cpu).sum::<f64>() / passages.len() as f64;
    vec![
        Bar::at_most("passage: failed requests", 0.0, Some(failed as f64)),
        Bar::at_most(
            "passage: CPU of the Proxy-Service, µs a request, mean over loads",
            1000.0 * PAPER_CPU_MS,
            (!passages.is_empty()).then_some(1000.0 * cpu),
        ),
        Bar::at_most(
            "passage: added to the median, ms, worst load",
            ADDED_MS,
            worst(Passage::added),
        ),
    ]
}

/// What it has shown.
pub(super) fn text(passages: &[Passage]) -> String {
    let mut table = Table::new([
        "requests a second",
        "added p50 µs, without",
        "with",
        "**by the Proxy-Service**",
        "mean",
        "p99",
        "**its CPU, µs a request**",
        "failed",
    ]);
    let micros = |ms: f64| number(Some(1000.0 * ms));
    for one in passages {
        let (without, with) = (&one.without, &one.with);
        table.row(vec![
            one.rate.to_string(),
            micros(without.added_p50),
            micros(with.added_p50),
            micros(one.added()),
            micros(with.added.0 - without.added.0),
            micros(with.added.1 - without.added.1),
            micros(one.cpu()),
            (without.failed + with.failed).to_string(),
        ]);
    }
    format!(
        "### Figs. 8e and 8f: a passage\n\nOne instance of the catalogue, its page only, servers without queue: each \
         request passes the Proxy-Service and is not balanced by it. *Added* is what is not the servers' work; the paper \
         has {PAPER_ADDED_MS} ms in the mean, and {PAPER_CPU_MS} ms of a processor a request.\n\n{}",
        table.markdown()
    )
}
