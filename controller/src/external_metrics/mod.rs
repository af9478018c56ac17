//! Serves the request rates of Proxy-Services as `external.metrics.k8s.io/v1beta1`, for the HorizontalPodAutoscalers
//! of their proxies.
//!
//! The API server forwards requests of authorized clients (RBAC on `external.metrics.k8s.io`). Other clients are
//! rejected (`front`). Each proxy reports its calls to the replica to which it is connected, so each request is
//! forwarded to all replicas. If the data of a replica is missing, the response is an error: a value that is too low
//! would remove proxies.

mod answer;
mod front;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use tokio::net::TcpListener;

use crate::clients::Clients;
use crate::graph::Graphs;
use crate::graph::parts::{ProxyLoad, latest};
use crate::graph::replicas::Replicas;
use crate::https::{self, Serving};
use crate::index::facts::service::{PROXIED, PROXY_GROUP};

/// The name of the `APIService`.
pub(crate) const API_SERVICE: &str = "v1beta1.external.metrics.k8s.io";
/// The name of the metric: requests per second that the proxies in front of a Service, or of a group of Services,
/// send to the endpoints in total.
pub(crate) const REQUESTS: &str = "maglor_proxy_service_requests_per_second";
/// The label that contains the Service's name.
pub(crate) const SERVICE: &str = "service";
/// The label that contains the group's name, for Services that share proxies.
pub(crate) const GROUP: &str = "group";

/// The owner of proxies: the label for its kind, and its name.
type Whose = (&'static str, String);
/// The pod label that names the owner of a proxy, for each label of the metric.
const LABELS: [(&str, &str); 2] = [(SERVICE, PROXIED), (GROUP, PROXY_GROUP)];

/// The dependencies of the server.
pub(crate) struct ExternalMetrics {
    pub(crate) client: Client,
    pub(crate) replicas: Replicas,
    pub(crate) graphs: Arc<Graphs>,
    /// The webhook's certificate, which the API server also trusts for this server.
    pub(crate) serving: Serving,
}

/// Reason why there is currently no value.
#[derive(Debug, thiserror::Error)]
enum ValueError {
    #[error("the API server does not respond: {0}")]
    Kubernetes(#[from] kube::Error),
    #[error("{0} replicas of the controller did not return load reports")]
    Missing(u32),
    #[error("none of {proxies} running proxies has reported yet")]
    Silent { proxies: usize },
}

impl ExternalMetrics {
    /// Serves requests for as long as the future is polled.
    pub(crate) async fn run(self, socket: TcpListener, clients: Clients) {
        let (sender, serving) = tokio::sync::watch::channel(None);
        let known = front::follow(self.client.clone(), self.serving.clone(), sender);
        let service = Arc::new(self);
        let handle = move |request: http::Request<bytes::Bytes>| {
            let service = Arc::clone(&service);
            async move { service.handle(&request).await }
        };
        tokio::join!(
            known,
            https::serve(socket, serving, "external metrics server", clients, handle),
        );
    }

    /// Returns the requests per second of a namespace by Service or group: of one of these, or of all that have
    /// proxies.
    async fn values(
        &self,
        namespace: &str,
        whose: Option<&Whose>,
    ) -> Result<BTreeMap<Whose, f64>, ValueError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let mut proxies = Vec::new();
        for (of, label) in LABELS {
            let labels = match whose {
                Some((asked, _)) if *asked != of => continue,
                Some((_, name)) => format!("{label}={name}"),
                None => label.to_owned(),
            };
            let pods = pods.list(&ListParams::default().labels(&labels)).await?;
            proxies.extend(pods.items.iter().filter_map(|pod| {
                let name = pod.labels().get(label)?.clone();
                Some((format!("{namespace}/{}", pod.name_any()), (of, name)))
            }));
        }
        let others = self.replicas.ask("/graph?proxies").await;
        if others.missing > 0 {
            return Err(ValueError::Missing(others.missing));
        }
        let mut heard: Vec<Vec<ProxyLoad>> = others.all;
        heard.push(self.graphs.proxies());
        by_whose(proxies.into_iter(), &latest(heard))
    }
}

/// Sums the calls of proxies by their owner.
fn by_whose(
    proxies: impl Iterator<Item = (String, Whose)>,
    heard: &BTreeMap<String, ProxyLoad>,
) -> Result<BTreeMap<Whose, f64>, ValueError> {
    let mut sums: BTreeMap<Whose, (f64, usize, usize)> = BTreeMap::new();
    for (proxy, whose) in proxies {
        let (rps, reported, all) = sums.entry(whose).or_default();
        *all += 1;
        if let Some(load) = heard.get(&proxy) {
            *rps += load.rps;
            *reported += 1;
        }
    }
    let silent = sums.values().find(|(_, reported, _)| *reported == 0);
    if let Some((_, _, proxies)) = silent
        && sums.len() == 1
    {
        return Err(ValueError::Silent { proxies: *proxies });
    }
    let known = sums
        .into_iter()
        .filter(|(_, (_, reported, _))| *reported > 0);
    Ok(known.map(|(whose, (rps, ..))| (whose, rps)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(loads: &[(&str, f64)]) -> BTreeMap<String, ProxyLoad> {
        let load = |(proxy, rps): &(&str, f64)| ProxyLoad {
            proxy: (*proxy).to_owned(),
            rps: *rps,
            ..ProxyLoad::default()
        };
        latest(vec![loads.iter().map(load).collect()])
    }

    fn sums(
        proxies: &[(&str, &str)],
        loads: &[(&str, f64)],
    ) -> Result<Vec<(String, f64)>, ValueError> {
        let owned = |(pod, service): &(&str, &str)| {
            let whose = (SERVICE, (*service).to_owned());
            ((*pod).to_owned(), whose)
        };
        let sums = by_whose(proxies.iter().map(owned), &heard(loads))?;
        Ok(sums
            .into_iter()
            .map(|((_, name), rps)| (name, rps))
            .collect())
    }

    #[test]
    fn proxies_of_a_service_add_up() {
        let proxies = [("shop/a", "web"), ("shop/b", "web"), ("shop/c", "cart")];
        let loads = [
            ("shop/a", 10.0),
            ("shop/b", 5.5),
            ("shop/c", 0.0),
            ("shop/x", 99.0),
        ];
        let expected = [("cart".to_owned(), 0.0), ("web".to_owned(), 15.5)];
        assert_eq!(sums(&proxies, &loads).unwrap(), expected);
    }

    #[test]
    fn a_group_is_not_a_service_of_its_name() {
        let proxies = [("shop/a", (SERVICE, "low")), ("shop/b", (GROUP, "low"))];
        let proxies = proxies.map(|(pod, (of, name))| (pod.to_owned(), (of, name.to_owned())));
        let heard = heard(&[("shop/a", 1.0), ("shop/b", 2.0)]);
        let sums = by_whose(proxies.into_iter(), &heard).unwrap();
        assert_eq!(sums[&(GROUP, "low".to_owned())], 2.0);
        assert_eq!(sums[&(SERVICE, "low".to_owned())], 1.0);
    }

    #[test]
    fn who_has_not_reported_is_not_taken_for_idle() {
        let silent = sums(&[("shop/a", "web"), ("shop/b", "web")], &[("shop/x", 1.0)]);
        assert!(matches!(silent, Err(ValueError::Silent { proxies: 2 })));
        // A proxy that starts while others are ready.
        let some = sums(&[("shop/a", "web"), ("shop/b", "web")], &[("shop/a", 7.0)]);
        assert_eq!(some.unwrap(), [("web".to_owned(), 7.0)]);
        let beside = sums(&[("shop/a", "web"), ("shop/b", "cart")], &[("shop/a", 7.0)]);
        assert_eq!(beside.unwrap(), [("web".to_owned(), 7.0)]);
        assert_eq!(sums(&[], &[]).unwrap(), []);
    }

    #[test]
    fn of_two_reports_the_last_one_counts() {
        let load = |rps, age_seconds| ProxyLoad {
            proxy: "shop/a".to_owned(),
            age_seconds,
            rps,
            latency_ms: 0.0,
        };
        for replicas in [
            vec![vec![load(1.0, 9.0)], vec![load(2.0, 0.5)]],
            vec![vec![load(2.0, 0.5)], vec![load(1.0, 9.0)]],
        ] {
            assert_eq!(latest(replicas)["shop/a"].rps, 2.0);
        }
    }
}
