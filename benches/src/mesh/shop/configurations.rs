//! Figs. 8b, 8c and 8d with the authors' configuration of Sock Shop, and with the one that was invented before it was
//! known ([`super`]), under the same steps, users and policies.
//!
//! A limit of processor time is emulated as Linux enforces it ([`CpuQuota`](maglor_testkit::app::CpuQuota)): a pod runs at
//! the full speed of one processor until its quota of each 100 ms is used, and then stands still. Each pod has one
//! thread, which is the front end's case; the other services' may use their quota by several threads at once.
//!
//! Each round measures every case once, with times and arrivals of a seed of its own.

mod findings;

use std::fs::File;
use std::io::Write as _;

use maglor_testkit::app::WorkModel;

use super::published::Published;
use super::{Stretch, Way, shape};
use crate::error::{Doing, Result};
use crate::mesh::report::Report;
use crate::mesh::shape::Central;
use crate::mesh::stage::{Case, Measured, Stage};
use crate::report::Findings;

const ROUNDS: u32 = 5;
/// The authors' rates and the others, requests per second.
const RATES: [u32; 4] = [200, 400, 500, 580];
const RATES_INVENTED: [u32; 2] = [400, 500];
const RATES_QUICK: [u32; 1] = [400];
/// The policies whose results the authors have published, and two Proxy-Services instead of one.
const WAYS: [Way; 4] = [
    Way::RANDOM,
    Way::LOR,
    Way::PROXY_SERVICE,
    Way::TWO_PROXY_SERVICES,
];
/// The service of Figs. 8c and 8d.
const PODS: &str = "orders";
/// The rate of the bars.
const RATE: u32 = 400;

/// One of the two configurations.
#[derive(Debug, Clone)]
struct Configuration {
    name: &'static str,
    model: WorkModel,
    /// The hosts that can have a Proxy-Service; `None`: all.
    proxied: Option<Vec<String>>,
    rates: Vec<u32>,
}

/// A policy under a load, in all rounds.
#[derive(Debug, Clone)]
struct Cell {
    configuration: &'static str,
    way: Way,
    rate: u32,
    runs: Vec<Measured>,
}

const PUBLISHED: &str = "published";
const INVENTED: &str = "invented";

/// Runs the experiment.
pub(in crate::mesh) async fn run(stage: &Stage, report: &mut Report) -> Result<Findings> {
    let stretch = Stretch::of(stage);
    let published = Published::read()?;
    let configurations = configurations(stage, &published, stretch);
    for one in &configurations {
        let text = serde_json::to_string_pretty(&one.model).unwrap_or_default();
        let name = format!("sock-shop-{}.json", one.name);
        report.folder.write(&name, &text)?;
    }
    let mut pods = report
        .folder
        .file("pods.csv", "case,round,host,pod,cpu_percent")?;
    let mut cells = cells(stage, &configurations);
    for round in 0..stage.options.rounds(ROUNDS) {
        let stage = stage.seeded(u64::from(round));
        for cell in &mut cells {
            let own = configurations
                .iter()
                .find(|one| one.name == cell.configuration);
            let Some(configuration) = own else { continue };
            let case = case(&stage, configuration, &cell.way, cell.rate);
            let measured = stage.run(&case).await?;
            let name = format!("{}, round {round}", case.name);
            report.keep("shop-published", &name, &measured)?;
            keep_pods(&mut pods, &case, round, &measured)?;
            cell.runs.push(measured);
        }
    }
    let costs = stage.options.costs;
    Ok(findings::findings(&cells, &published, stretch, costs))
}

fn configurations(stage: &Stage, published: &Published, stretch: Stretch) -> Vec<Configuration> {
    let rates = |usual: &[u32]| match stage.options.quick {
        true => RATES_QUICK.into(),
        false => usual.into(),
    };
    vec![
        Configuration {
            name: PUBLISHED,
            model: published.model(stretch, stage.options.costs),
            proxied: Some(published.proxied()),
            rates: rates(&RATES),
        },
        Configuration {
            name: INVENTED,
            model: super::model(stretch, |_, service| service),
            proxied: None,
            rates: rates(&RATES_INVENTED),
        },
    ]
}

/// Returns the cells without runs, in the order of a round.
fn cells(stage: &Stage, configurations: &[Configuration]) -> Vec<Cell> {
    let wanted = &stage.options.policies;
    let chosen = |way: &&Way| wanted.is_empty() || wanted.iter().any(|name| name == way.name);
    let mut cells = Vec::new();
    for configuration in configurations {
        for &rate in &configuration.rates {
            cells.extend(WAYS.iter().filter(chosen).map(|way| Cell {
                configuration: configuration.name,
                way: *way,
                rate,
                runs: Vec::new(),
            }));
        }
    }
    cells
}

fn case(stage: &Stage, configuration: &Configuration, way: &Way, rate: u32) -> Case {
    let mut shape = shape(way);
    shape.proxy_service = way.proxy_services().map(|all| Central {
        only: configuration.proxied.clone(),
        ..all
    });
    let own = super::case(stage, &configuration.model, way, rate);
    Case {
        name: format!(
            "{}: {}, {rate} requests a second",
            configuration.name, way.name
        ),
        shape,
        measured: stage.options.measured(5, 15),
        ..own
    }
}

/// Writes the processor time of each pod of [`PODS`], in percent of its limit.
fn keep_pods(pods: &mut File, case: &Case, round: u32, measured: &Measured) -> Result<()> {
    let own = measured.pods.iter().enumerate();
    for (index, (host, used)) in own.filter(|(_, (host, _))| host == PODS) {
        let percent = 100.0 * used / limit(&case.model, host);
        writeln!(
            pods,
            "\"{}\",{round},{host},{index},{percent:.2}",
            case.name
        )
        .doing("write pods.csv")?;
    }
    Ok(())
}

/// Returns the processors that each instance of a host may use.
fn limit(model: &WorkModel, host: &str) -> f64 {
    let mut services = model.services();
    let own = services.find(|(name, service)| service.host(name) == host);
    let limit = own.and_then(|(_, service)| service.cpu_limit());
    limit.map_or(1.0, |(cpus, _)| cpus)
}

#[cfg(test)]
mod tests {
    use maglor_testkit::app::Shape;

    use super::*;

    #[test]
    fn pods_have_the_limits_of_their_service() {
        let published = Published::read().unwrap();
        let model = published.model(Stretch(2.5), Shape::Exponential);
        for (host, cpus) in [
            ("orders", 0.15),
            (super::super::ENTRY, 0.1),
            ("session-db", 1.0),
        ] {
            assert!((limit(&model, host) - cpus).abs() < 1e-9, "{host}");
        }
    }
}
