//! Sock Shop as the authors of the paper on LOR configured it, and their measurements: `data/sock-shop.json`.
//!
//! Their files have the replicas, the limits of processors and the latencies, and for four services the processor time
//! that all pods used, from which the cost of a call follows: the time used a second over the calls a second. Not
//! published are the costs of the other services (the file names the assumption for each) and their division among the
//! front end's paths: here each request and each call of the front end costs the same.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use maglor_testkit::app::{Group, Service, Shape, WorkModel};
use serde::Deserialize;

use super::{ENTRY, STEPS, Stretch, Way, calls};
use crate::error::{Error, Result};

const FILE: &str = "sock-shop.json";
const TEXT: &str = include_str!("../../../data/sock-shop.json");
/// The number of the authors' loads. All rows from the last one on have the same load.
const LOADS: usize = 11;
/// The rates of the rows that costs are computed from: the load had settled, and was sustained.
const SETTLED: RangeInclusive<f64> = 150.0..=540.0;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    /// Where each field is from.
    sources: BTreeMap<String, String>,
    cpu_period_ms: f64,
    services: Vec<Deployed>,
    paths: Vec<Path>,
    runs: Vec<Run>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Deployed {
    name: String,
    replicas: u32,
    /// The limit of each pod, thousandths of a processor.
    cpu_millis: Option<f64>,
    /// Whether the authors put a Proxy-Service before it.
    proxy_service: bool,
    /// Groups of calls at the same time; one after another within a group.
    calls: Vec<Vec<String>>,
    /// The service whose cost is assumed.
    like: Option<String>,
    /// The assumed cost of a call.
    assumed_ms: Option<f64>,
}

/// A path of the front end.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Path {
    path: String,
    calls: Vec<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    policy: String,
    rows: Vec<Row>,
}

/// The authors' values of half a minute.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// Successful requests per second.
    pub(super) rate: f64,
    pub(super) mean_ms: f64,
    pub(super) p95_ms: f64,
    /// The processor time of all pods of a service, in percent of their limits.
    #[serde(default)]
    pub(super) cpu_percent: BTreeMap<String, f64>,
}

/// A service with its cost.
#[derive(Debug, Clone)]
pub(super) struct Costs {
    pub(super) name: String,
    pub(super) replicas: u32,
    pub(super) cpu_millis: Option<f64>,
    pub(super) proxy_service: bool,
    /// Calls per request of a client.
    pub(super) calls: f64,
    /// Processor time per call; of the front end in the mean of its paths.
    pub(super) ms: f64,
    /// How the time is known.
    pub(super) source: String,
}

impl Published {
    /// Reads the file.
    pub(super) fn read() -> Result<Self> {
        serde_json::from_str(TEXT).map_err(|error| Error::parse(FILE, error.to_string()))
    }

    /// Returns the sources, as a list.
    pub(super) fn sources(&self) -> String {
        let line = |(what, from): (&String, &String)| format!("- {what}: {from}\n");
        self.sources.iter().map(line).collect()
    }

    /// Returns the hosts with a Proxy-Service.
    pub(super) fn proxied(&self) -> Vec<String> {
        let proxied = self.services.iter().filter(|one| one.proxy_service);
        proxied.map(|one| one.name.clone()).collect()
    }

    /// Returns the authors' values of a policy under the load next to `rate`: of the same step of their load, at the last
    /// one the mean of all rows there, as in their figure. Loads are the rates with Proxy-Services, which sustained all.
    pub(super) fn nearest(&self, policy: &str, rate: f64) -> Option<Row> {
        let rows = |policy: &str| self.runs.iter().find(|run| run.policy == policy);
        let loads = rows(Way::PROXY_SERVICE.name)?.rows.iter().take(LOADS);
        let off = |row: &Row| (row.rate - rate).abs();
        let loads = loads.enumerate();
        let (step, _) = loads.min_by(|(_, one), (_, other)| off(one).total_cmp(&off(other)))?;
        let own = &rows(policy)?.rows;
        match step + 1 < LOADS {
            true => own.get(step).cloned(),
            false => mean(own.get(step..)?),
        }
    }

    /// Returns all services with their costs.
    pub(super) fn costs(&self) -> Vec<Costs> {
        let free = self.with(Stretch::NONE, Shape::Exponential, |_| 0.0);
        let all = calls(&free);
        let calls_of = |host: &str| {
            let count = all.iter().filter(|one| **one == host).count();
            count as f64 / STEPS.len() as f64
        };
        let cost = |one: &Deployed| {
            let like = one.like.as_ref();
            let of = like.map_or(Some(one), |like| {
                self.services.iter().find(|other| other.name == *like)
            });
            let used = of.and_then(|of| self.used(of, calls_of(&of.name)));
            let ms = one.assumed_ms.or(used).unwrap_or_default();
            let source = match (one.assumed_ms, like) {
                (Some(_), _) => "assumed".to_owned(),
                (None, Some(like)) => format!("assumed: as {like}"),
                (None, None) => "published".to_owned(),
            };
            Costs {
                name: one.name.clone(),
                replicas: one.replicas,
                cpu_millis: one.cpu_millis,
                proxy_service: one.proxy_service,
                calls: calls_of(&one.name),
                ms,
                source,
            }
        };
        self.services.iter().map(cost).collect()
    }

    /// Returns the measured processor time of a service, ms per call, if it is published.
    fn used(&self, of: &Deployed, calls_a_request: f64) -> Option<f64> {
        let rows = self.runs.iter().flat_map(|run| &run.rows);
        let settled = rows.filter(|row| SETTLED.contains(&row.rate));
        let (mut used, mut calls) = (0.0, 0.0);
        for row in settled {
            if let Some(percent) = row.cpu_percent.get(&of.name) {
                used += percent / 100.0 * f64::from(of.replicas) * of.cpu_millis?;
                calls += row.rate * calls_a_request;
            }
        }
        (calls > 0.0).then(|| used / calls)
    }

    /// Returns the work model with the costs, whose distribution is not published.
    pub(super) fn model(&self, stretch: Stretch, distribution: Shape) -> WorkModel {
        let costs: BTreeMap<_, _> = self
            .costs()
            .into_iter()
            .map(|one| (one.name, one.ms))
            .collect();
        self.with(stretch, distribution, |name| {
            costs.get(name).copied().unwrap_or_default()
        })
    }

    fn with(&self, stretch: Stretch, distribution: Shape, ms: impl Fn(&str) -> f64) -> WorkModel {
        let service = |one: &Deployed, ms: f64, groups: &[Vec<String>]| {
            let mut service = Service::exponential(one.replicas, stretch.0 * ms / 1000.0);
            if let Some(queue) = &mut service.internal_service.queue {
                queue.distribution = distribution.to_string();
            }
            service.external_services = groups.iter().map(|one| group(one)).collect();
            let period = stretch.0 * self.cpu_period_ms / 1000.0;
            match one.cpu_millis {
                Some(millis) => service.limited(millis / 1000.0, period),
                None => service,
            }
        };
        let front = self.services.iter().filter(|one| one.name == ENTRY);
        let messages = self.messages();
        let front = front.flat_map(|one| {
            self.paths.iter().map(|path| {
                let share = weight(path) / messages;
                let service = service(one, share * ms(ENTRY), &path.calls);
                (
                    format!("{ENTRY}{}", path.path),
                    service.at(ENTRY, &path.path),
                )
            })
        });
        let behind = self.services.iter().filter(|one| one.name != ENTRY);
        let behind = behind.map(|one| (one.name.clone(), service(one, ms(&one.name), &one.calls)));
        WorkModel::new(front.chain(behind))
    }

    /// Returns the mean of [`weight`] over a user's steps.
    fn messages(&self) -> f64 {
        let of = |step: &&str| self.paths.iter().find(|path| path.path == **step);
        let sum: f64 = STEPS.iter().filter_map(of).map(weight).sum();
        sum / STEPS.len() as f64
    }
}

/// Returns the number of requests that the front end handles for one to `path`: itself, and its calls.
fn weight(path: &Path) -> f64 {
    1.0 + path.calls.iter().map(Vec::len).sum::<usize>() as f64
}

/// Returns the means of rows.
fn mean(rows: &[Row]) -> Option<Row> {
    let first = rows.first()?;
    let of = |value: &dyn Fn(&Row) -> f64| rows.iter().map(value).sum::<f64>() / rows.len() as f64;
    let cpu = |host: &String| {
        let used = |row: &Row| row.cpu_percent.get(host).copied().unwrap_or_default();
        (host.clone(), of(&used))
    };
    Some(Row {
        rate: of(&|row| row.rate),
        mean_ms: of(&|row| row.mean_ms),
        p95_ms: of(&|row| row.p95_ms),
        cpu_percent: first.cpu_percent.keys().map(cpu).collect(),
    })
}

fn group(services: &[String]) -> Group {
    Group {
        probabilities: BTreeMap::new(),
        seq_len: services.len() as u32,
        services: services.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_a_work_model_of_the_paper_s_steps() {
        let published = Published::read().unwrap();
        let model = published.model(Stretch::NONE, Shape::Exponential);
        let text = serde_json::to_string(&model).unwrap();
        assert_eq!(WorkModel::parse(&text).unwrap(), model);
        let hosts = model.hosts();
        for (host, replicas) in [("carts", 8), ("orders", 7), ("user-db", 1), (ENTRY, 30)] {
            assert_eq!(hosts[host], replicas);
        }
        for step in STEPS {
            assert!(model.called(&format!("{ENTRY}{step}")).is_some(), "{step}");
        }
        assert_eq!(published.proxied().len(), 7);
    }

    #[test]
    fn costs_reproduce_the_published_use_of_processors() {
        let published = Published::read().unwrap();
        let costs = published.costs();
        let of = |name: &str| costs.iter().find(|one| one.name == name).unwrap();
        // Of a user's 22 steps: one login and four orders call `user` 25 times.
        assert!((of("user").calls - 25.0 / 22.0).abs() < 1e-9);
        assert!((of("orders").calls - 4.0 / 22.0).abs() < 1e-9);
        assert_eq!(
            (of("payment").ms, of("queue-master").calls),
            (of("user").ms, 0.0)
        );
        for name in [ENTRY, "carts", "orders", "user"] {
            let one = of(name);
            let predicted = 400.0 * one.calls * one.ms
                / (f64::from(one.replicas) * one.cpu_millis.unwrap())
                * 100.0;
            let row = published.nearest("Proxy-Service", 400.0).unwrap();
            let measured = row.cpu_percent[name];
            let off = (predicted / measured - 1.0).abs();
            assert!(off < 0.25, "{name}: {predicted} instead of {measured} %");
        }
        // The mean over the paths is the front end's.
        let model = published.model(Stretch::NONE, Shape::Exponential);
        let work = |step: &&str| {
            let called = model.called(&format!("{ENTRY}{step}"));
            called.unwrap().1.work().mean.as_secs_f64() * 1000.0
        };
        let mean = STEPS.iter().map(work).sum::<f64>() / STEPS.len() as f64;
        assert!((mean - of(ENTRY).ms).abs() < 1e-3, "{mean}");
    }

    #[test]
    fn rows_are_those_next_to_a_rate() {
        let published = Published::read().unwrap();
        for (policy, mean) in [
            ("random", 66.9),
            ("lor(choices=2)", 42.3),
            ("Proxy-Service", 26.5),
        ] {
            let row = published.nearest(policy, 400.0).unwrap();
            assert!((row.mean_ms - mean).abs() < 1e-9, "{row:?}");
        }
        let last = published.nearest("Proxy-Service", 580.0).unwrap();
        assert!((60.0..64.0).contains(&last.mean_ms), "{last:?}");
    }
}
