//! µBench's `workmodel.json`: the services, their costs and their calls.
//!
//! ```json
//! {"s0": {"url": "s0", "path": "/api/v1", "replicas": 2,
//!         "external_services": [{"seq_len": 100, "services": ["s1", "s2"],
//!                                "probabilities": {"s2": 0.5}}],
//!         "internal_service": {"queue": {"service_time": 0.02, "distribution": "exp"}}}}
//! ```
//!
//! The fields are those of µBench (its manual, "Work Model"); fields that only a deployment on
//! Kubernetes needs are ignored. Services with the same `url` share their instances and differ by
//! `path`. Groups are called concurrently, `seq_len` services of each, drawn at random, one after
//! another; each with its probability. `s1__2` calls `s1` once more.
//!
//! µBench's functions need a processor; here the time is in the file instead:
//!
//! | `internal_service` | time |
//! | --- | --- |
//! | `queue` (ours): `service_time` (s), `distribution` (as in `maglor-lab sim --service`), `workers` | drawn accordingly |
//! | … with `cpu_limit` (processors), `cpu_period` (s) | the same, as the only thread of a process with this limit |
//! | `loader` with `sleep_stress.run` | `sleep_time` (s), constant |
//! | anything else, or none | none: 0 |
//!
//! `mean_response_size` (kB) of each of them is the mean of an exponential size, as in µBench.

mod check;
mod field;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::distribution::{Shape, Work};

/// Services by name.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(transparent)]
pub struct WorkModel {
    services: BTreeMap<String, Service>,
}

/// A service.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Service {
    /// Groups of services that are called when the own work has ended, at the same time.
    #[serde(default)]
    pub external_services: Vec<Group>,
    /// The own work.
    #[serde(default)]
    pub internal_service: Internal,
    /// The path that requests to it have.
    #[serde(default = "path")]
    pub path: String,
    /// How many instances there are, 1–10 000; those of the first service of a `url` count.
    #[serde(default = "one", deserialize_with = "field::replicas")]
    pub replicas: u32,
    /// The host of its instances. Empty: the service's name.
    #[serde(default)]
    pub url: String,
}

/// Services that are called one after another.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Group {
    /// How likely a service is called, 0–1; by default 1.
    #[serde(default, deserialize_with = "field::probabilities")]
    pub probabilities: BTreeMap<String, f64>,
    /// How many of them are called, drawn at random, 0–1 000 000; all, if there are no more.
    #[serde(deserialize_with = "field::seq_len")]
    pub seq_len: u32,
    /// Their names.
    pub services: Vec<String>,
}

/// µBench's `internal_service`: a function and its parameters.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Internal {
    /// Parameters of µBench's loader; only the sleep and the response size are emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loader: Option<Loader>,
    /// The emulated queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueParameters>,
}

/// The emulated functions of µBench's loader.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Loader {
    /// kB, 0–1000.
    #[serde(default, deserialize_with = "field::mean_response_size")]
    pub mean_response_size: f64,
    /// A pause in place of work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep_stress: Option<SleepStress>,
}

/// A pause in place of work.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SleepStress {
    /// Whether there is one.
    pub run: bool,
    /// Seconds, 0–3600.
    #[serde(deserialize_with = "field::sleep_time")]
    pub sleep_time: f64,
}

/// A FIFO queue.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct QueueParameters {
    /// The limit of an instance, processors, 0.001-1; see [`CpuQuota`](super::CpuQuota). It requires one worker.
    #[serde(
        default,
        deserialize_with = "field::cpu_limit",
        skip_serializing_if = "Option::is_none"
    )]
    pub cpu_limit: Option<f64>,
    /// How often the limit's quota is renewed, seconds, 0.001-10; by default 0.1, as in Kubernetes.
    #[serde(default = "cpu_period", deserialize_with = "field::cpu_period")]
    pub cpu_period: f64,
    /// The distribution of service times, named as in [`Shape`].
    #[serde(default = "distribution", deserialize_with = "field::distribution")]
    pub distribution: String,
    /// kB, 0–1000.
    #[serde(default, deserialize_with = "field::mean_response_size")]
    pub mean_response_size: f64,
    /// Mean, seconds, 0–3600.
    #[serde(deserialize_with = "field::service_time")]
    pub service_time: f64,
    /// Concurrent requests in an instance, 1–10 000.
    #[serde(default = "one", deserialize_with = "field::workers")]
    pub workers: u32,
}

/// The reason why a work model is invalid. One line each.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WorkModelError {
    /// Services that call each other in an endless loop.
    #[error("line {line}: {service} calls itself in an endless loop: {way}")]
    Cycle {
        /// The line of its first mention.
        line: usize,
        /// One of them.
        service: String,
        /// The chain of calls.
        way: String,
    },
    /// Two services that cannot be distinguished.
    #[error("line {line}: {service} has the url and the path of {other}; one of them must differ")]
    Same {
        /// The line of its first mention.
        line: usize,
        /// The later one.
        service: String,
        /// The earlier one.
        other: String,
    },
    /// It is no JSON, or a field has the wrong type or is out of range.
    #[error("{0}")]
    Syntax(String),
    /// A limited processor with more than one worker.
    #[error(
        "line {line}: {service} has a cpu_limit and {workers} workers; a limited instance has one worker"
    )]
    LimitedWorkers {
        /// The line of its first mention.
        line: usize,
        /// The service.
        service: String,
        /// How many workers it has.
        workers: u32,
    },
    /// A called service does not exist.
    #[error("line {line}: {service}.external_services calls `{callee}`, which is not in this file")]
    Unknown {
        /// The line of its first mention.
        line: usize,
        /// The caller.
        service: String,
        /// The called service.
        callee: String,
    },
}

fn path() -> String {
    "/api/v1".into()
}

const fn one() -> u32 {
    1
}

const fn cpu_period() -> f64 {
    0.1
}

fn distribution() -> String {
    Shape::Exponential.to_string()
}

impl WorkModel {
    /// Parses and validates a file's text.
    ///
    /// # Errors
    ///
    /// The first error, with its line.
    pub fn parse(text: &str) -> Result<Self, WorkModelError> {
        let model: Self = serde_json::from_str(text)
            .map_err(|error| WorkModelError::Syntax(error.to_string()))?;
        check::check(&model, text)?;
        Ok(model)
    }

    /// Creates a work model in code.
    #[must_use]
    pub fn new(services: impl IntoIterator<Item = (String, Service)>) -> Self {
        Self {
            services: services.into_iter().collect(),
        }
    }

    /// Returns all services, by name.
    pub fn services(&self) -> impl Iterator<Item = (&str, &Service)> {
        self.services.iter().map(|(name, one)| (name.as_str(), one))
    }

    /// Returns the service that `callee` names; a suffix after `__` only distinguishes calls.
    #[must_use]
    pub fn called(&self, callee: &str) -> Option<(&str, &Service)> {
        let name = callee.split("__").next().unwrap_or(callee);
        let (name, service) = self.services.get_key_value(name)?;
        Some((name, service))
    }

    /// Returns the hosts of instances, each with the number of them, by name.
    #[must_use]
    pub fn hosts(&self) -> BTreeMap<&str, u32> {
        let mut hosts = BTreeMap::new();
        for (name, service) in self.services() {
            hosts.entry(service.host(name)).or_insert(service.replicas);
        }
        hosts
    }
}

impl Service {
    /// Creates a service of exponential work, with one worker and without calls.
    #[must_use]
    pub fn exponential(replicas: u32, mean_seconds: f64) -> Self {
        Self {
            external_services: Vec::new(),
            internal_service: Internal {
                loader: None,
                queue: Some(QueueParameters {
                    cpu_limit: None,
                    cpu_period: cpu_period(),
                    distribution: distribution(),
                    mean_response_size: 0.0,
                    service_time: mean_seconds,
                    workers: 1,
                }),
            },
            path: path(),
            replicas,
            url: String::new(),
        }
    }

    /// Limits the processor of each instance to `cpus`, with a quota for each period; see [`CpuQuota`](super::CpuQuota).
    #[must_use]
    pub fn limited(mut self, cpus: f64, period_seconds: f64) -> Self {
        if let Some(queue) = &mut self.internal_service.queue {
            queue.cpu_limit = Some(cpus);
            queue.cpu_period = period_seconds;
        }
        self
    }

    /// Adds a group of services that are called one after another.
    #[must_use]
    pub fn calling<'a>(mut self, services: impl IntoIterator<Item = &'a str>) -> Self {
        let services: Vec<_> = services.into_iter().map(str::to_owned).collect();
        self.external_services.push(Group {
            probabilities: BTreeMap::new(),
            seq_len: services.len() as u32,
            services,
        });
        self
    }

    /// Sets another host and path than those of its name.
    #[must_use]
    pub fn at(mut self, url: &str, path: &str) -> Self {
        url.clone_into(&mut self.url);
        path.clone_into(&mut self.path);
        self
    }

    /// Returns the host of its instances, `name` being the service's.
    #[must_use]
    pub fn host<'a>(&'a self, name: &'a str) -> &'a str {
        if self.url.is_empty() { name } else { &self.url }
    }

    /// Returns the cost of a request.
    #[must_use]
    pub fn work(&self) -> Work {
        let sleep = |loader: &Loader| {
            let sleep = loader.sleep_stress.as_ref();
            sleep
                .filter(|sleep| sleep.run)
                .map(|sleep| sleep.sleep_time)
        };
        let (seconds, shape) = match &self.internal_service {
            Internal {
                queue: Some(queue), ..
            } => {
                let shape = queue.distribution.parse();
                (queue.service_time, shape.unwrap_or(Shape::Exponential))
            }
            Internal { loader, .. } => {
                let seconds = loader.as_ref().and_then(sleep);
                (seconds.unwrap_or_default(), Shape::Deterministic)
            }
        };
        let mean = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Work { mean, shape }
    }

    /// Returns the number of requests processed concurrently by an instance; without a queue,
    /// unlimited.
    #[must_use]
    pub fn workers(&self) -> u32 {
        let queue = self.internal_service.queue.as_ref();
        queue.map_or(u32::MAX, |queue| queue.workers.max(1))
    }

    /// Returns the limit of an instance's processor, and the period of its quota.
    #[must_use]
    pub fn cpu_limit(&self) -> Option<(f64, std::time::Duration)> {
        let queue = self.internal_service.queue.as_ref()?;
        let period = std::time::Duration::try_from_secs_f64(queue.cpu_period);
        Some((queue.cpu_limit?, period.unwrap_or_default()))
    }

    /// Returns the mean size of a response, kB.
    #[must_use]
    pub fn mean_response_size(&self) -> f64 {
        let Internal { loader, queue } = &self.internal_service;
        let queue = queue.as_ref().map(|queue| queue.mean_response_size);
        let loader = loader.as_ref().map(|loader| loader.mean_response_size);
        queue.or(loader).unwrap_or_default()
    }
}

impl Group {
    /// Returns the probability that `service` is called when it is drawn.
    #[must_use]
    pub fn probability(&self, service: &str) -> f64 {
        self.probabilities.get(service).copied().unwrap_or(1.0)
    }

    /// Returns whether all of its services are drawn for every request.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.seq_len as usize >= self.services.len()
    }
}

#[cfg(test)]
mod tests;
