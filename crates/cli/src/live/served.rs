//! The responses of admin ports, with the fields that commands use, and names of services.

use std::convert::Infallible;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value;

/// Suffix of names in the usual cluster domain, which is omitted in tables.
const USUAL: &str = ".svc.cluster.local";

/// The response of a proxy's `/clusters` page.
#[derive(Debug, Deserialize)]
pub(super) struct Clusters {
    pub(super) clusters: Vec<Cluster>,
}

/// A cluster as a proxy sees it.
#[derive(Debug, Deserialize)]
pub(super) struct Cluster {
    pub(super) name: String,
    pub(super) policy: String,
    pub(super) tls: Option<String>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// An endpoint as a proxy sees it.
#[derive(Debug, Deserialize)]
pub(super) struct Endpoint {
    pub(super) address: String,
    pub(super) host: Option<String>,
    pub(super) weight: u32,
    pub(super) priority: u32,
    pub(super) locality: Option<String>,
    pub(super) outstanding: u32,
    pub(super) healthy: bool,
    pub(super) ejected: bool,
    pub(super) draining: bool,
}

/// The response of a proxy's `/routes` page.
#[derive(Debug, Deserialize)]
pub(super) struct Tables {
    pub(super) listeners: Vec<Listener>,
}

/// A listener of a proxy.
#[derive(Debug, Deserialize)]
pub(super) struct Listener {
    pub(super) name: String,
    pub(super) direction: String,
    pub(super) chains: Vec<Chain>,
}

impl Listener {
    /// Returns the clusters of the listener's chains.
    pub(super) fn clusters(&self) -> impl Iterator<Item = &str> {
        self.chains.iter().flat_map(|chain| {
            let hosts = chain.hosts.iter();
            let routes = hosts.flat_map(|host| host.routes.iter().flatten());
            let shares = routes.flat_map(|route| &route.clusters);
            let names = shares.map(|share| share.name.as_str());
            names.chain(chain.bytes.as_deref())
        })
    }
}

/// A filter chain.
#[derive(Debug, Deserialize)]
pub(super) struct Chain {
    pub(super) name: String,
    pub(super) hosts: Vec<Host>,
    /// Cluster for non-HTTP connections; `None` if there is none.
    pub(super) bytes: Option<String>,
}

/// A virtual host, or a host that was discovered on demand.
#[derive(Debug, Deserialize)]
pub(super) struct Host {
    pub(super) domains: Vec<String>,
    pub(super) discovered: bool,
    /// Routes of the host; `None` if the control plane has no resource of this name.
    pub(super) routes: Option<Vec<Route>>,
    /// Cluster for non-HTTP connections to the host; `None` if there is none.
    #[serde(default)]
    pub(super) bytes: Option<String>,
}

/// A route of a proxy.
#[derive(Debug, Deserialize)]
pub(super) struct Route {
    pub(super) name: String,
    #[serde(rename = "match")]
    pub(super) matches: String,
    #[serde(default)]
    pub(super) clusters: Vec<Share>,
    pub(super) respond: Option<u16>,
    pub(super) redirect: Option<u16>,
    pub(super) timeout_ms: Option<u64>,
    #[serde(default)]
    pub(super) retries: u32,
}

/// A cluster's share of a route's requests.
#[derive(Debug, Deserialize)]
pub(super) struct Share {
    pub(super) name: String,
    pub(super) weight: u32,
}

/// A resource as a controller serves it.
#[derive(Debug, Deserialize)]
pub(super) struct Resource {
    pub(super) name: String,
    /// Namespace of the clients whose variant this is; `None` for all clients.
    pub(super) namespace: Option<String>,
    /// The resource in the format of the configuration file.
    pub(super) resource: Value,
}

/// A service on the command line: `reviews`, `reviews.shop`, or with a port `reviews.shop:9080`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Service {
    host: String,
    port: Option<String>,
}

impl FromStr for Service {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.to_owned())),
            None => (text, None),
        };
        let host = host.to_owned();
        Ok(Self { host, port })
    }
}

impl Service {
    /// Returns whether a name begins with the requested one, label by label.
    pub(super) fn is(&self, name: &str) -> bool {
        let (host, port) = name.rsplit_once(':').unwrap_or((name, ""));
        let rest = host.strip_prefix(self.host.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            && self.port.as_ref().is_none_or(|wanted| wanted == port)
    }
}

/// Shortens a name for tables.
pub(super) fn short(name: &str) -> String {
    name.replace(USUAL, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_named_by_as_much_as_is_needed() {
        let name = "reviews.shop.svc.cluster.local:9080";
        for good in [
            "reviews",
            "reviews.shop",
            "reviews:9080",
            name,
            "reviews.shop.svc:9080",
        ] {
            assert!(good.parse::<Service>().unwrap().is(name), "{good}");
        }
        for bad in ["review", "reviews.other", "reviews:80", "shop"] {
            assert!(!bad.parse::<Service>().unwrap().is(name), "{bad}");
        }
        assert_eq!(short(name), "reviews.shop:9080");
        assert!("10.0.0.1".parse::<Service>().unwrap().is("10.0.0.1:80"));
    }
}
