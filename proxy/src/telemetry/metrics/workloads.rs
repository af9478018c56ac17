//! Which workload a proxy belongs to, and which Services its clusters are: information to join to other metrics.
//!
//! The number of series is that of the clusters, plus one: neither comes from a request.

use maglor_telemetry::{Gauge, GaugeFamily, Registry};

/// Metric families with information about workloads.
#[derive(Debug)]
pub(super) struct Families {
    own: GaugeFamily,
    services: GaugeFamily,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            own: registry.gauge(
                "workload_info",
                "Constant 1, with the pod of the proxy and its workload as labels.",
                &["workload_namespace", "workload", "workload_pod"],
            ),
            services: registry.gauge(
                "upstream_service_info",
                "Constant 1, with the Service of a cluster as labels.",
                &[
                    "cluster",
                    "destination_namespace",
                    "destination_service",
                    "destination_port",
                    "destination_subset",
                ],
            ),
        }
    }

    /// Returns the information about the proxy's own pod, `NAMESPACE/POD`; `None` if this is no pod.
    pub(super) fn own(&self, node: &str) -> Option<Gauge> {
        let (namespace, pod) = node.split_once('/')?;
        let info = self.own.with(&[namespace, workload(pod), pod]);
        info.set(1);
        Some(info)
    }

    /// Returns the information about a cluster; `None` if it is not named after a Service.
    pub(super) fn service(&self, cluster: &str) -> Option<Gauge> {
        let (host, port) = cluster.split_once(':')?;
        // One endpoint of a headless Service has a name before that of the Service.
        let mut names = host.split_once(".svc.")?.0.rsplit('.');
        let (namespace, service) = (names.next()?, names.next()?);
        // Prometheus treats an empty label as an absent one.
        let (port, subset) = port.split_once('/').unwrap_or((port, ""));
        let labels = [cluster, namespace, service, port, subset];
        let info = self.services.with(&labels);
        info.set(1);
        Some(info)
    }
}

/// Returns the workload of a pod, derived from the name of the pod: `web` for `web-7d9f8b6c4-x2xlz`, `db` for `db-0`.
fn workload(pod: &str) -> &str {
    // The alphabet of generated names in Kubernetes: no vowels, no characters that look alike.
    let is_generated = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        let alphabet = b"bcdfghjklmnpqrstvwxz2456789";
        lengths.contains(&part.len()) && part.bytes().all(|byte| alphabet.contains(&byte))
    };
    match pod.rsplit_once('-') {
        Some((rest, last)) if is_generated(last, 5..=5) => match rest.rsplit_once('-') {
            Some((workload, hash)) if is_generated(hash, 8..=10) => workload,
            _ => rest,
        },
        Some((workload, last)) if last.parse::<u32>().is_ok() => workload,
        _ => pod,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workload_is_derived_from_the_pod() {
        for (pod, expected) in [
            ("web-7d9f8b6c4-x2xlz", "web"),
            ("web-v1-6c44f9f7db-x2xlz", "web-v1"),
            ("agent-x2xlz", "agent"),
            ("db-0", "db"),
            ("db-12", "db"),
            ("my-app", "my-app"),
            ("web", "web"),
            ("web-", "web-"),
            ("", ""),
        ] {
            assert_eq!(workload(pod), expected, "{pod}");
        }
    }

    #[test]
    fn clusters_of_services_are_described_as_long_as_they_exist() {
        let registry = Registry::new(1);
        let families = Families::new(&registry);
        let services: Vec<_> = [
            "web.shop.svc.cluster.local:80",
            "db-0.db.shop.svc.cluster.local:5432",
            "web.shop.svc.cluster.local:80/canary",
        ]
        .map(|cluster| families.service(cluster))
        .into();
        for other in [
            "web",
            "web:80",
            "web.example:80",
            "shop.svc.cluster.local:80",
            "a.b.svc.c",
        ] {
            assert!(families.service(other).is_none(), "{other}");
        }
        let own = families.own("shop/web-7d9f8b6c4-x2xlz");
        assert!(families.own("web").is_none());
        let page = registry.encode();
        for line in [
            "maglor_upstream_service_info{cluster=\"web.shop.svc.cluster.local:80\",destination_namespace=\"shop\",\
             destination_service=\"web\",destination_port=\"80\",destination_subset=\"\"} 1\n",
            "destination_namespace=\"shop\",destination_service=\"db\",destination_port=\"5432\",destination_subset=\"\"} 1\n",
            "maglor_upstream_service_info{cluster=\"web.shop.svc.cluster.local:80/canary\",destination_namespace=\"shop\",\
             destination_service=\"web\",destination_port=\"80\",destination_subset=\"canary\"} 1\n",
            "maglor_workload_info{workload_namespace=\"shop\",workload=\"web\",workload_pod=\"web-7d9f8b6c4-x2xlz\"} 1\n",
        ] {
            assert!(page.contains(line), "{line} in {page}");
        }
        drop((services, own));
        assert!(!registry.encode().contains("_info"));
    }
}
