//! The input of the decision rule: options, or a workload file.

use std::collections::HashSet;
use std::time::Duration;

use maglor_config::Origin;
use maglor_config::resource::{self, line_of};
use maglor_service_graph::policy_choice::{Situation, SituationError};
use serde::Deserialize;
use thiserror::Error;

/// CPU time of a proxy for one request, in seconds (papers/001, IV: 0.033 ms).
const CPU_OF_A_REQUEST: f64 = 33e-6;
/// CPU that a proxy should use: its request of 100m times the target utilization.
const CPU_OF_A_PROXY: f64 = 0.1 * 0.7;
/// The default namespace.
pub(super) const NAMESPACE: &str = "default";
/// Maximum number of proxies of a ProxyService.
const MOST_PROXIES: u32 = 100;

/// A service and its callers.
#[derive(Clone, Debug, Default, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    /// Name of the Service.
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,

    /// Namespace of the Service. [default: default]
    #[arg(long, value_name = "NAME")]
    pub(super) namespace: Option<String>,

    /// Number of balancers that send requests to the Service, M. [default: 20]
    #[arg(long, value_name = "M")]
    pub(super) balancers: Option<u32>,

    /// Number of servers, N. [default: 40]
    #[arg(long, value_name = "N")]
    pub(super) servers: Option<u32>,

    /// Utilization of the servers, above 0 and below 1. [default: 0.75]
    #[arg(long, value_name = "RHO")]
    pub(super) rho: Option<f64>,

    /// Mean service time without queueing, in milliseconds. [default: 20]
    #[arg(long, value_name = "MS")]
    pub(super) service_ms: Option<f64>,

    /// Round-trip time between a balancer and a server, in milliseconds. [default: 0.5]
    #[arg(long, value_name = "MS")]
    pub(super) round_trip_ms: Option<f64>,

    /// Standard deviation of the servers' speeds over their mean, 0-0.9. [default: 0]
    #[arg(long, value_name = "H")]
    pub(super) speed_variation: Option<f64>,

    /// Number of proxies, 1-100. [default: as many as the load needs at 100m of CPU each]
    #[arg(long, value_name = "M")]
    pub(super) proxies: Option<u32>,

    /// Latency added by a proxy, in milliseconds. [default: 1.08, the value of the paper in docs/model.md]
    #[arg(long, value_name = "MS")]
    pub(super) proxy_penalty_ms: Option<f64>,
}

/// A workload file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Services {
    services: Vec<Service>,
}

/// Error of the command.
#[derive(Debug, Error)]
pub(super) enum WorkloadError {
    #[error("{file}: {error}")]
    Read { file: String, error: std::io::Error },
    #[error("{}{message}", place(file, *line))]
    File {
        file: String,
        line: Option<usize>,
        message: String,
    },
    #[error("least-gain = {0} is out of range; valid: 0 to below 1")]
    LeastGain(f64),
    #[error(
        "{field} `{value}`: Kubernetes allows at most 63 characters of a-z, 0-9 and `-`, starting with a letter and not ending with `-`"
    )]
    Name { field: &'static str, value: String },
    #[error("{place}: {error}")]
    Of { place: String, error: Box<Self> },
    #[error("{service}{field} = {value} is out of range; valid: {valid}")]
    Range {
        service: String,
        field: &'static str,
        value: f64,
        valid: &'static str,
    },
    #[error("{service}{error}")]
    Situation {
        service: String,
        error: SituationError,
    },
}

impl WorkloadError {
    /// Creates the error for an invalid service in a file, with the service's line.
    pub(super) fn of_service(self, file: &str, text: &str, at: usize) -> Self {
        let field = match &self {
            Self::Name { field, .. } | Self::Range { field, .. } => field,
            Self::Situation { error, .. } => match error {
                SituationError::Rho(_) => "rho",
                SituationError::ServiceTime => "service_ms",
                SituationError::SpeedVariation(_) => "speed_variation",
                SituationError::Empty => "",
            },
            _ => "",
        };
        let path = format!("services[{at}]");
        let line = line_of(text, &format!("{path}.{field}"));
        Self::Of {
            place: format!("{}{path}", place(file, line)),
            error: Box::new(self),
        }
    }
}

fn place(file: &str, line: Option<usize>) -> String {
    line.map_or_else(|| format!("{file}: "), |line| format!("{file}:{line}: "))
}

impl Services {
    /// Parses a file. `namespace` applies to services without one.
    pub(super) fn parse(
        text: &str,
        file: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<Service>, WorkloadError> {
        let wrong = |line, message| WorkloadError::File {
            file: file.to_owned(),
            line,
            message,
        };
        let read: Self = resource::read(text, file).map_err(|errors| {
            let first = errors.0.into_iter().next();
            first.map_or_else(
                || wrong(None, "the file cannot be parsed".to_owned()),
                |first| {
                    let line = match first.origin {
                        Origin::Place { line, .. } => Some(line),
                        Origin::File(_) | Origin::Flag(_) => None,
                    };
                    let message = match (&*first.path, first.help) {
                        ("", None) => first.message,
                        ("", Some(help)) => format!("{}; {help}", first.message),
                        (path, None) => format!("{path}: {}", first.message),
                        (path, Some(help)) => format!("{path}: {}; {help}", first.message),
                    };
                    wrong(line, message)
                },
            )
        })?;
        let mut names = HashSet::new();
        for (at, service) in read.services.iter().enumerate() {
            let name = service.name.as_deref().unwrap_or_default();
            let path = format!("services[{at}].name");
            let wrong = |what: String| wrong(line_of(text, &path), format!("{path}: {what}"));
            if name.is_empty() {
                return Err(wrong("the name is missing".to_owned()));
            }
            let of = service.namespace.as_deref().or(namespace);
            if !names.insert((of.unwrap_or(NAMESPACE), name)) {
                return Err(wrong(format!("the service `{name}` is defined twice")));
            }
            let named = service.check_names();
            named.map_err(|error| error.of_service(file, text, at))?;
        }
        Ok(read.services)
    }
}

impl Service {
    /// Checks that the name and namespace are valid in Kubernetes, because the output is applied there.
    pub(super) fn check_names(&self) -> Result<(), WorkloadError> {
        let valid = |name: &str| {
            let inside =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            (1..=63).contains(&name.len()) && name.bytes().all(inside) && !name.ends_with('-')
        };
        let names = [("name", &self.name), ("namespace", &self.namespace)];
        for (field, value) in names {
            let Some(value) = value else { continue };
            let first = value.as_bytes().first();
            // The name of a Service begins with a letter (RFC 1035); a namespace may begin with a digit (RFC 1123).
            let begins = first.is_some_and(|first| match field {
                "name" => first.is_ascii_lowercase(),
                _ => first.is_ascii_lowercase() || first.is_ascii_digit(),
            });
            if !(valid(value) && begins) {
                let value = value.clone();
                return Err(WorkloadError::Name { field, value });
            }
        }
        Ok(())
    }

    /// Fills missing fields from another service.
    pub(super) fn or(self, other: &Self) -> Self {
        let other = other.clone();
        Self {
            name: self.name.or(other.name),
            namespace: self.namespace.or(other.namespace),
            balancers: self.balancers.or(other.balancers),
            servers: self.servers.or(other.servers),
            rho: self.rho.or(other.rho),
            service_ms: self.service_ms.or(other.service_ms),
            round_trip_ms: self.round_trip_ms.or(other.round_trip_ms),
            speed_variation: self.speed_variation.or(other.speed_variation),
            proxies: self.proxies.or(other.proxies),
            proxy_penalty_ms: self.proxy_penalty_ms.or(other.proxy_penalty_ms),
        }
    }

    /// Returns the service as a prefix of messages.
    pub(super) fn place(&self) -> String {
        let name = self.name.as_deref();
        name.map_or_else(String::new, |name| format!("{name}: "))
    }

    /// Returns the requests per second of all callers.
    pub(super) fn rate(&self) -> f64 {
        let servers = f64::from(self.servers.unwrap_or(40));
        servers * self.rho.unwrap_or(0.75) * 1000.0 / self.service_ms.unwrap_or(20.0)
    }

    /// Returns the number of proxies that the load needs at 100m each, which may be fractional.
    fn needed(&self) -> f64 {
        self.rate() * CPU_OF_A_REQUEST / CPU_OF_A_PROXY
    }

    /// Returns the CPU request of each proxy, in millicores, if the maximum number of proxies at
    /// 100m each is not enough.
    pub(super) fn cpu_millis(&self) -> Option<u64> {
        let each = 100.0 * self.needed() / f64::from(MOST_PROXIES);
        (self.proxies.is_none() && each > 100.0).then_some(each.ceil() as u64)
    }

    fn proxies(&self) -> Result<u32, WorkloadError> {
        match self.proxies {
            Some(value) if value > MOST_PROXIES => Err(WorkloadError::Range {
                service: self.place(),
                field: "proxies",
                value: value.into(),
                valid: "1 to 100",
            }),
            Some(value) => Ok(value),
            // A cast saturates, so the rule reports invalid values.
            None => Ok((self.needed().ceil() as u32).clamp(1, MOST_PROXIES)),
        }
    }

    /// Returns the input of the decision rule.
    pub(super) fn situation(&self) -> Result<Situation, WorkloadError> {
        let time = |field, value: Option<f64>, default: f64, least: f64| {
            let value = value.unwrap_or(default);
            let fits = value >= least && value <= 1e7;
            match fits.then(|| Duration::try_from_secs_f64(value / 1000.0)) {
                Some(Ok(time)) => Ok(time),
                _ => Err(WorkloadError::Range {
                    service: self.place(),
                    field,
                    value,
                    valid: "milliseconds, up to 10000000, the service time from 0.001",
                }),
            }
        };
        let service_time = time("service_ms", self.service_ms, 20.0, 0.001)?;
        Ok(Situation {
            balancers: self.balancers.unwrap_or(20),
            servers: self.servers.unwrap_or(40),
            rho: self.rho.unwrap_or(0.75),
            service_time,
            round_trip: time("round_trip_ms", self.round_trip_ms, 0.5, 0.0)?,
            speed_variation: self.speed_variation.unwrap_or(0.0),
            proxies: self.proxies()?,
            proxy_penalty: time("proxy_penalty_ms", self.proxy_penalty_ms, 1.08, 0.0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_what_is_wrong_has_a_line() {
        let good = "services:\n- {name: web, rho: 0.5}\n- {name: cart, servers: 4}\n";
        let services = Services::parse(good, "w.yaml", None).unwrap();
        assert_eq!(services.len(), 2);
        assert_eq!(services[1].servers, Some(4));
        for (text, expected) in [
            (
                "services:\n- {name: web}\n- {name: b, roh: 1}\n",
                "w.yaml:3: ",
            ),
            ("services:\n- {rho: 0.5}\n", "w.yaml:2: services[0].name"),
            (
                "services:\n- {name: web}\n- {name: My_Cart}\n",
                "w.yaml:3: services[1]: name `My_Cart`: Kubernetes allows",
            ),
            (
                "services:\n- name: web\n  namespace: shop.example\n",
                "w.yaml:3: services[0]: namespace `shop.example`: ",
            ),
            (
                "services: [{name: a, namespace: x}, {name: a}, {name: a}]",
                "services[2].name: the service `a` is defined twice",
            ),
            (
                "services: [{name: a, namespace: default}, {name: a}]",
                "services[1].name: the service `a` is defined twice",
            ),
            ("service: []", "w.yaml:1: "),
        ] {
            let error = Services::parse(text, "w.yaml", None)
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
        // A namespace that is not set is that of the option.
        let text = "services: [{name: a, namespace: shop}, {name: a}]";
        assert!(Services::parse(text, "w.yaml", Some("shop")).is_err());
        assert!(Services::parse(text, "w.yaml", None).is_ok());
    }

    #[test]
    fn proxies_are_as_many_as_the_load_needs() {
        let proxies = |servers| {
            let service = Service {
                servers: Some(servers),
                service_ms: Some(1.0),
                ..Service::default()
            };
            service.situation().unwrap().proxies
        };
        // 0.75 × 1000 requests per second and server, 33 µs each.
        assert_eq!(proxies(2), 1);
        assert_eq!(proxies(40), 15);
        // The maximum number of proxies, and the CPU that each of them then has to request.
        assert_eq!(proxies(1000), 100);
        let service = |proxies| Service {
            servers: Some(1000),
            service_ms: Some(1.0),
            proxies,
            ..Service::default()
        };
        assert_eq!(service(None).cpu_millis(), Some(354));
        assert_eq!(service(Some(2)).cpu_millis(), None);
        let error = service(Some(101)).situation().unwrap_err().to_string();
        assert!(error.contains("proxies = 101 is out of range"), "{error}");
    }

    #[test]
    fn nonsense_is_named() {
        let service = Service {
            name: Some("web".into()),
            service_ms: Some(-1.0),
            ..Service::default()
        };
        let error = service.situation().unwrap_err().to_string();
        assert!(
            error.starts_with("web: service_ms = -1 is out of range"),
            "{error}"
        );
    }
}
