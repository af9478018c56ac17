//! The control plane, and on-demand discovery from it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The control plane used by chains with [`Discovery`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ControlPlane {
    /// The name of the cluster of the control plane's servers.
    pub cluster: Arc<str>,
    /// The node id of the proxy; not empty.
    pub node_id: String,
    /// The group of proxies that this proxy belongs to; may be empty.
    pub node_cluster: String,
    /// The directory in which received resources are cached for the next start; `None` = no cache.
    pub cache_dir: Option<PathBuf>,
    /// The pod of this proxy, `NAMESPACE/POD`, whose listeners come from the control plane; `None` = only listeners of
    /// the file.
    pub gateway: Option<Arc<str>>,
}

/// The discovery of hosts without a virtual host, and of original destinations of redirected
/// connections, when they are first called.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Discovery {
    /// The name to request for all requests; `None` = the host of each request.
    pub host: Option<String>,
    /// Whether the virtual host is selected by the host of each request; if not, the virtual host of
    /// [`host`](Self::host) applies to all requests.
    pub by_virtual_host: bool,
    /// The namespace of hosts with a single label, such as `reviews`.
    pub namespace: String,
    /// The DNS domain of the Kubernetes cluster.
    pub domain: String,
    /// The maximum time for which a request or connection waits for the control plane.
    pub timeout: Duration,
    /// The time without calls after which a target is unsubscribed.
    pub idle_timeout: Duration,
}

impl Discovery {
    /// Returns the name, at the control plane, of the target of a request for a host and port; `None` if there is none.
    #[must_use]
    pub fn target(&self, host: &str, port: u16) -> Option<String> {
        match &self.host {
            Some(only) => Some(only.clone()),
            None => self.complete(host, port),
        }
    }

    /// Returns the name of a host and port at the control plane; `None` if the host cannot be a service. Names are
    /// completed as by the resolver of a pod: `reviews`, `reviews.shop` and `reviews.shop.svc` are names of the
    /// cluster, other names are unchanged.
    pub(crate) fn complete(&self, host: &str, port: u16) -> Option<String> {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let host = host.as_str();
        let plain =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']');
        if host.is_empty() || host.len() > 253 || !host.chars().all(plain) {
            return None;
        }
        if host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok() {
            return Some(format!("{host}:{port}"));
        }
        let (namespace, domain) = (&self.namespace, &self.domain);
        let labels = host.split('.').count();
        Some(match labels {
            1 => format!("{host}.{namespace}.svc.{domain}:{port}"),
            2 => format!("{host}.svc.{domain}:{port}"),
            3 if host.ends_with(".svc") => format!("{host}.{domain}:{port}"),
            _ => format!("{host}:{port}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_like_in_a_pod() {
        let mut discovery = Discovery {
            host: None,
            by_virtual_host: false,
            namespace: "shop".to_owned(),
            domain: "cluster.local".to_owned(),
            timeout: Duration::ZERO,
            idle_timeout: Duration::ZERO,
        };
        for (host, target) in [
            ("cart", "cart.shop.svc.cluster.local:80"),
            ("Cart.Other", "cart.other.svc.cluster.local:80"),
            ("cart.other.svc", "cart.other.svc.cluster.local:80"),
            (
                "cart.other.svc.cluster.local.",
                "cart.other.svc.cluster.local:80",
            ),
            ("www.example.com", "www.example.com:80"),
            ("10.96.0.1", "10.96.0.1:80"),
            ("[fd00::1]", "[fd00::1]:80"),
        ] {
            assert_eq!(discovery.target(host, 80).as_deref(), Some(target));
        }
        for host in ["", ".", "a b", "a/b", "ä"] {
            assert_eq!(discovery.target(host, 80), None, "{host}");
        }
        discovery.host = discovery.complete("web-target", 90);
        for host in ["", "cart"] {
            let target = discovery.target(host, 80);
            assert_eq!(
                target.as_deref(),
                Some("web-target.shop.svc.cluster.local:90")
            );
        }
    }
}
