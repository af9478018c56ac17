//! The graph of a mesh, derived from its metrics in Prometheus: the queries, and the conversion of the responses to
//! edges. The metric names of Maglor, Istio and Linkerd are supported.
//!
//! Every query is a moving average over the window: `rate` handles counter resets and missing scrapes. r is the rate of
//! the sum of response times divided by the rate of their count.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::file::prometheus::Sample;
use crate::live::Traffic;

/// The mesh that exports the metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mesh {
    /// Istio: `istio_requests_total`, `istio_request_duration_milliseconds`, `istio_response_bytes`, as reported by the
    /// caller's proxy.
    Istio,
    /// Linkerd: `request_total`, `response_total`, `response_latency_ms`, outbound.
    Linkerd,
    /// Maglor: `maglor_upstream_*` of pods that are scraped with the labels `namespace` and `pod`.
    Maglor,
}

/// The quantity of a query.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Quantity {
    /// The number of bytes per second, in both directions; the results of several queries are added up.
    Bytes,
    /// The number of connections per second that are not HTTP.
    Connections,
    /// The number of failed calls per second.
    Failures,
    /// The median response time in milliseconds.
    P50,
    /// The 99th percentile of the response time in milliseconds.
    P99,
    /// λ: the number of calls per second.
    Requests,
    /// The number of measured response times per second.
    Timed,
    /// The sum of the response times, in milliseconds per second.
    Times,
}

/// Returns the labels of caller and called service, by which rates are aggregated.
fn labels(mesh: Mesh) -> &'static str {
    match mesh {
        Mesh::Istio => {
            "source_workload_namespace, source_canonical_service, source_workload, \
             destination_service_namespace, destination_canonical_service, destination_service_name"
        }
        Mesh::Linkerd => {
            "namespace, deployment, statefulset, daemonset, pod, \
             dst_namespace, dst_deployment, dst_statefulset, dst_daemonset, dst_service"
        }
        Mesh::Maglor => "namespace, service, app, pod, cluster",
    }
}

/// Returns the queries in PromQL; `window` is T, in whole seconds.
#[must_use]
pub fn queries(mesh: Mesh, window: Duration) -> Vec<(Quantity, String)> {
    let (by, seconds) = (labels(mesh), window.as_secs().max(1));
    let rate = |metric: &str, selector: &str, factor: &str| {
        format!("{factor}sum by ({by}) (rate({metric}{{{selector}}}[{seconds}s]))")
    };
    let quantile = |share: f64, metric: &str, selector: &str, factor: &str| {
        let rate = format!("rate({metric}_bucket{{{selector}}}[{seconds}s])");
        format!("{factor}histogram_quantile({share}, sum by (le, {by}) ({rate}))")
    };
    use Quantity::{Bytes, Connections, Failures, P50, P99, Requests, Timed, Times};
    match mesh {
        Mesh::Istio => {
            let source = "reporter=\"source\"";
            let failed = "reporter=\"source\", response_code=~\"0|5..\"";
            let times = "istio_request_duration_milliseconds";
            vec![
                (Requests, rate("istio_requests_total", source, "")),
                (Failures, rate("istio_requests_total", failed, "")),
                (Times, rate(&format!("{times}_sum"), source, "")),
                (Timed, rate(&format!("{times}_count"), source, "")),
                (P50, quantile(0.5, times, source, "")),
                (P99, quantile(0.99, times, source, "")),
                (Bytes, rate("istio_request_bytes_sum", source, "")),
                (Bytes, rate("istio_response_bytes_sum", source, "")),
                (Bytes, rate("istio_tcp_received_bytes_total", source, "")),
                (Bytes, rate("istio_tcp_sent_bytes_total", source, "")),
                (
                    Connections,
                    rate("istio_tcp_connections_opened_total", source, ""),
                ),
            ]
        }
        Mesh::Linkerd => {
            let outbound = "direction=\"outbound\"";
            let failed = "direction=\"outbound\", classification=\"failure\"";
            vec![
                (Requests, rate("request_total", outbound, "")),
                (Failures, rate("response_total", failed, "")),
                (Times, rate("response_latency_ms_sum", outbound, "")),
                (Timed, rate("response_latency_ms_count", outbound, "")),
                (P50, quantile(0.5, "response_latency_ms", outbound, "")),
                (P99, quantile(0.99, "response_latency_ms", outbound, "")),
            ]
        }
        Mesh::Maglor => {
            let service = "cluster=~\".+\\\\.svc\\\\..+\"";
            let failed = "cluster=~\".+\\\\.svc\\\\..+\", status=~\"5xx|none\"";
            let times = "maglor_upstream_request_duration_seconds";
            vec![
                (
                    Requests,
                    rate("maglor_upstream_requests_total", service, ""),
                ),
                (Failures, rate("maglor_upstream_requests_total", failed, "")),
                (Times, rate(&format!("{times}_sum"), service, "1000 * ")),
                (Timed, rate(&format!("{times}_count"), service, "")),
                (P50, quantile(0.5, times, service, "1000 * ")),
                (P99, quantile(0.99, times, service, "1000 * ")),
                (
                    Bytes,
                    rate("maglor_upstream_request_bytes_total", service, ""),
                ),
                (
                    Bytes,
                    rate("maglor_upstream_response_bytes_total", service, ""),
                ),
                (
                    Connections,
                    rate("maglor_upstream_connections_total", service, ""),
                ),
            ]
        }
    }
}

/// The measurements of an edge in Prometheus.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// The averages of the edge; the number of calls in flight is unknown.
    pub traffic: Traffic,
    /// The median response time in milliseconds; `None` = unknown. If Prometheus has not merged several series, it is
    /// the largest of their medians.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of the response time in milliseconds; `None` = unknown.
    pub p99_ms: Option<f64>,
}

/// Converts responses to edges, by caller and called service, `NAMESPACE/NAME`. Invalid rates, and
/// series without the names of caller and called service, are skipped.
#[must_use]
pub fn edges(mesh: Mesh, answers: &[(Quantity, Vec<Sample>)]) -> BTreeMap<(String, String), Seen> {
    let mut all: BTreeMap<(String, String), BTreeMap<Quantity, f64>> = BTreeMap::new();
    for (quantity, samples) in answers {
        for sample in samples {
            let value = Some(sample.value).filter(|value| (0.0..=1e15).contains(value));
            let (Some(value), Some(ends)) = (value, ends(mesh, &sample.labels)) else {
                continue;
            };
            let known = all.entry(ends).or_default().entry(*quantity).or_default();
            *known = match quantity {
                Quantity::P50 | Quantity::P99 => known.max(value),
                _ => *known + value,
            };
        }
    }
    let edges = all.into_iter().map(|(ends, all)| {
        let of = |quantity| all.get(&quantity).copied().unwrap_or(0.0);
        let (times, timed) = (of(Quantity::Times), of(Quantity::Timed));
        let rps = of(Quantity::Requests);
        let traffic = Traffic {
            rps,
            latency_ms: if timed > 0.0 { times / timed } else { 0.0 },
            // Failures are scraped at another moment than calls, or summed in another order.
            failures: of(Quantity::Failures).min(rps),
            bytes_per_second: of(Quantity::Bytes),
            connections: of(Quantity::Connections),
            in_flight: 0.0,
        };
        let seen = Seen {
            traffic,
            p50_ms: all.get(&Quantity::P50).copied(),
            p99_ms: all.get(&Quantity::P99).copied(),
        };
        (ends, seen)
    });
    edges.filter(|(_, seen)| seen.traffic.is_some()).collect()
}

/// Returns the names of the caller and the called service; `None` if the labels do not contain both.
fn ends(mesh: Mesh, labels: &BTreeMap<String, String>) -> Option<(String, String)> {
    let first = |names: &[&str]| {
        let values = names.iter().filter_map(|name| labels.get(*name));
        values
            .map(String::as_str)
            .find(|value| !matches!(*value, "" | "unknown"))
    };
    let named = |namespace: &str, name: &str| match first(&[namespace]) {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    };
    match mesh {
        Mesh::Istio => {
            let from = first(&["source_canonical_service", "source_workload"])?;
            let to = first(&["destination_canonical_service", "destination_service_name"])?;
            Some((
                named("source_workload_namespace", from),
                named("destination_service_namespace", to),
            ))
        }
        Mesh::Linkerd => {
            let from = first(&["deployment", "statefulset", "daemonset", "pod"])?;
            let called = [
                "dst_deployment",
                "dst_statefulset",
                "dst_daemonset",
                "dst_service",
            ];
            let to = first(&called)?;
            Some((named("namespace", from), named("dst_namespace", to)))
        }
        Mesh::Maglor => {
            let (host, _) = first(&["cluster"])?.split_once(':')?;
            let mut called = host.split_once(".svc.")?.0.rsplit('.');
            let (namespace, service) = (called.next()?, called.next()?);
            let from = first(&["service", "app"]).or_else(|| Some(owner(first(&["pod"])?)))?;
            Some((named("namespace", from), format!("{namespace}/{service}")))
        }
    }
}

/// Returns the name of the owner of a pod, derived from the name of the pod: `web` for `web-7d9f8b6c4-x2xlz`, `db` for
/// `db-0`.
fn owner(pod: &str) -> &str {
    // The alphabet of generated names in Kubernetes: no vowels, no characters that look alike.
    let made_up = |part: &str, lengths: &[usize]| {
        lengths.contains(&part.len())
            && part
                .bytes()
                .all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte))
    };
    let Some((rest, last)) = pod.rsplit_once('-') else {
        return pod;
    };
    if !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()) {
        return rest;
    }
    if !made_up(last, &[5]) {
        return pod;
    }
    match rest.rsplit_once('-') {
        Some((owner, hash)) if made_up(hash, &[8, 9, 10]) => owner,
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(labels: &[(&str, &str)], value: f64) -> Sample {
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Sample {
            labels: labels.collect(),
            value,
        }
    }

    fn only(edges: BTreeMap<(String, String), Seen>) -> (String, String, Seen) {
        assert_eq!(edges.len(), 1, "{edges:?}");
        let ((from, to), seen) = edges.into_iter().next().unwrap();
        (from, to, seen)
    }

    #[test]
    fn istios_series_become_edges() {
        let called = |version: &str, value| {
            sample(
                &[
                    ("source_workload_namespace", "default"),
                    ("source_workload", version),
                    ("source_canonical_service", "reviews"),
                    ("destination_service_namespace", "default"),
                    ("destination_service_name", "ratings"),
                ],
                value,
            )
        };
        let foreign = sample(
            &[
                ("source_workload", "unknown"),
                ("destination_service_name", "reviews"),
            ],
            5.0,
        );
        let answers = [
            (
                Quantity::Requests,
                vec![
                    called("reviews-v2", 30.0),
                    called("reviews-v3", 10.0),
                    foreign,
                ],
            ),
            (
                Quantity::Times,
                vec![called("reviews-v2", 90.0), called("reviews-v3", 70.0)],
            ),
            (
                Quantity::Timed,
                vec![called("reviews-v2", 30.0), called("reviews-v3", 10.0)],
            ),
            (
                Quantity::Failures,
                vec![called("reviews-v3", 1.0), called("reviews-v2", f64::NAN)],
            ),
            (
                Quantity::P99,
                vec![called("reviews-v3", 9.0), called("reviews-v2", 4.0)],
            ),
            (Quantity::P50, vec![called("reviews-v3", f64::NAN)]),
            (Quantity::Bytes, vec![called("reviews-v3", 100.0)]),
            (Quantity::Bytes, vec![called("reviews-v3", 900.0)]),
        ];
        let (from, to, seen) = only(edges(Mesh::Istio, &answers));
        let traffic = seen.traffic;
        assert_eq!((&*from, &*to), ("default/reviews", "default/ratings"));
        assert_eq!(
            (traffic.rps, traffic.latency_ms, traffic.failures),
            (40.0, 4.0, 1.0)
        );
        assert_eq!(traffic.bytes_per_second, 1000.0, "both ways");
        assert_eq!((seen.p50_ms, seen.p99_ms), (None, Some(9.0)));
        // An edge of connections that carry no HTTP.
        let answers = [(Quantity::Bytes, vec![called("db", 5.0)])];
        assert_eq!(only(edges(Mesh::Istio, &answers)).2.traffic.rps, 0.0);
    }

    #[test]
    fn linkerds_and_our_series_become_edges() {
        let linkerd = sample(
            &[
                ("namespace", "emojivoto"),
                ("deployment", "web"),
                ("pod", "web-1"),
                ("dst_namespace", "emojivoto"),
                ("dst_deployment", "voting"),
                ("dst_service", "voting-svc"),
            ],
            2.0,
        );
        let (from, to, _) = only(edges(Mesh::Linkerd, &[(Quantity::Requests, vec![linkerd])]));
        assert_eq!((&*from, &*to), ("emojivoto/web", "emojivoto/voting"));
        let ours = sample(
            &[
                ("namespace", "shop"),
                ("pod", "web-7d9f8b6c4-x2xlz"),
                ("cluster", "cart.shop.svc.cluster.local:80"),
            ],
            2.0,
        );
        let application = sample(
            &[
                ("namespace", "shop"),
                ("pod", "web-0"),
                ("cluster", "inbound/application"),
            ],
            2.0,
        );
        let (from, to, _) = only(edges(
            Mesh::Maglor,
            &[(Quantity::Requests, vec![ours, application])],
        ));
        assert_eq!((&*from, &*to), ("shop/web", "shop/cart"));
    }

    /// If all calls fail, failures may be counted a moment later than calls. A file with more failures than calls would
    /// be rejected by its readers.
    #[test]
    fn no_more_calls_fail_than_there_are() {
        let called = |value| {
            let from = [("namespace", "a"), ("deployment", "web")];
            let to = [("dst_namespace", "a"), ("dst_deployment", "db")];
            vec![sample(&[from, to].concat(), value)]
        };
        let answers = [
            (Quantity::Requests, called(2.0)),
            (Quantity::Failures, called(2.000_000_1)),
        ];
        let (_, _, seen) = only(edges(Mesh::Linkerd, &answers));
        assert_eq!((seen.traffic.rps, seen.traffic.failures), (2.0, 2.0));
    }

    #[test]
    fn pods_are_called_by_what_made_them() {
        for (pod, made_by) in [
            ("web-7d9f8b6c4-x2xlz", "web"),
            ("db-0", "db"),
            ("log-agent-x2xlz", "log-agent"),
            ("bare", "bare"),
            ("load-generator", "load-generator"),
        ] {
            assert_eq!(owner(pod), made_by, "{pod}");
        }
    }

    #[test]
    fn queries_name_window_and_reporter() {
        for mesh in [Mesh::Istio, Mesh::Linkerd, Mesh::Maglor] {
            for (_, query) in queries(mesh, Duration::from_secs(90)) {
                assert!(query.contains("[90s]"), "{query}");
            }
        }
        let (_, requests) = &queries(Mesh::Istio, Duration::from_secs(60))[0];
        assert!(requests.contains("reporter=\"source\""), "{requests}");
    }
}
