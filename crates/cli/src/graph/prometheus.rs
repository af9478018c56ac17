//! Reads the graph of a mesh from the HTTP API of Prometheus, as rates over the window.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use maglor_controller::graph::{Edge, Service, Snapshot};
use maglor_service_graph::file::prometheus::{self as answers, Sample};
use maglor_service_graph::prometheus::{self, Quantity};

use crate::live::LiveError;
use crate::live::access::{Address, Admin};

/// The mesh that exports the metrics.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Mesh {
    /// `maglor_upstream_requests_total`, of pods that are scraped with labels `namespace` and `pod`.
    #[default]
    Maglor,
    /// `istio_requests_total`, as callers' proxies report it.
    Istio,
    /// `request_total`, outbound.
    Linkerd,
}

impl Mesh {
    fn metrics(self) -> prometheus::Mesh {
        match self {
            Self::Maglor => prometheus::Mesh::Maglor,
            Self::Istio => prometheus::Mesh::Istio,
            Self::Linkerd => prometheus::Mesh::Linkerd,
        }
    }
}

/// A URL of the form `http://HOST[:PORT][/PREFIX]`.
#[derive(Clone, Debug)]
pub(super) struct Url {
    address: Address,
    prefix: String,
}

/// Error for a text that is not such a URL.
#[derive(Debug, thiserror::Error)]
#[error("expected http://HOST:PORT, such as http://127.0.0.1:9090; TLS is not supported")]
pub(super) struct UrlError;

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = text.strip_prefix("http://").ok_or(UrlError)?;
        let (host, prefix) = match rest.split_once('/') {
            Some((host, path)) => (host, format!("/{}", path.trim_end_matches('/'))),
            None => (rest, String::new()),
        };
        let with_port = match host.parse::<Address>() {
            Ok(address) => address,
            Err(_) => format!("{host}:80").parse().map_err(|_| UrlError)?,
        };
        let plain = prefix
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
        plain.then_some(()).ok_or(UrlError)?;
        Ok(Self {
            address: with_port,
            prefix: prefix.trim_end_matches('/').to_owned(),
        })
    }
}

/// Returns the graph at a time; `None` stands for now.
pub(super) async fn snapshot(
    url: &Url,
    mesh: Mesh,
    window: Duration,
    at: Option<Timestamp>,
) -> Result<Snapshot, LiveError> {
    // All queries are for the same time.
    let at = at.unwrap_or_else(Timestamp::now);
    let mut answers: Vec<(Quantity, Vec<Sample>)> = Vec::new();
    let admin = Admin::Direct(url.address.clone());
    for (quantity, query) in prometheus::queries(mesh.metrics(), window) {
        let time = at.as_millisecond();
        let path = format!(
            "{}/api/v1/query?time={}.{:03}&query={}",
            url.prefix,
            time.div_euclid(1000),
            time.rem_euclid(1000),
            encoded(&query)
        );
        let page = admin.get(&path).await?;
        let text = String::from_utf8_lossy(&page);
        let samples = answers::answer(&text).map_err(|source| LiveError::Prometheus {
            query,
            source: Box::new(source),
        })?;
        answers.push((quantity, samples));
    }
    let edges = prometheus::edges(mesh.metrics(), &answers);
    let edges = edges.into_iter().map(|((from, to), seen)| Edge {
        p50_ms: seen.p50_ms,
        p99_ms: seen.p99_ms,
        ..Edge::new(from, to, seen.traffic)
    });
    Ok(whole(at, window, edges.collect()))
}

/// Builds a snapshot. Its services are those of the edges; these metrics do not have replica
/// counts.
fn whole(at: Timestamp, window: Duration, edges: Vec<Edge>) -> Snapshot {
    let mut services: BTreeMap<String, Service> = BTreeMap::new();
    for edge in &edges {
        for (name, rps) in [(&edge.from, 0.0), (&edge.to, edge.rps)] {
            let service = services.entry(name.clone()).or_insert_with(|| Service {
                name: name.clone(),
                replicas: 1,
                ..Service::default()
            });
            service.rps += rps;
        }
    }
    Snapshot {
        at: at.to_string(),
        window_seconds: window.as_secs(),
        services: services.into_values().collect(),
        edges,
        ..Snapshot::default()
    }
}

/// Encodes a text for a URL's query (RFC 3986, section 2.1).
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            // Writing to a String cannot fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_host_and_no_tls() {
        let url: Url = "http://prometheus:9090/prefix/".parse().unwrap();
        assert_eq!(url.prefix, "/prefix");
        assert!("http://prometheus".parse::<Url>().is_ok());
        for bad in [
            "https://a:1",
            "a:1",
            "http://",
            "http://a:1/b?c",
            "http://a:1/ ",
        ] {
            assert!(bad.parse::<Url>().is_err(), "{bad}");
        }
    }

    #[test]
    fn queries_go_into_a_url() {
        assert_eq!(
            encoded("rate(a{b=\"c\"}[5s])"),
            "rate%28a%7Bb%3D%22c%22%7D%5B5s%5D%29"
        );
    }

    #[test]
    fn services_are_those_of_the_edges() {
        let edge = |from: &str, to: &str| Edge {
            from: from.to_owned(),
            to: to.to_owned(),
            rps: 2.0,
            ..Edge::default()
        };
        let edges = vec![edge("a/x", "a/y"), edge("a/y", "a/z"), edge("a/x", "a/z")];
        let snapshot = whole(Timestamp::UNIX_EPOCH, Duration::from_secs(60), edges);
        let rates: Vec<_> = snapshot
            .services
            .iter()
            .map(|one| (&*one.name, one.rps))
            .collect();
        assert_eq!(rates, [("a/x", 0.0), ("a/y", 2.0), ("a/z", 4.0)]);
        assert!(maglor_service_graph::file::graph(&snapshot.graph_file()).is_ok());
    }
}
