//! Locates admin ports: at configured addresses, or in pods of a cluster.

mod ask;
mod pods;

use std::path::PathBuf;
use std::str::FromStr;

pub(crate) use self::ask::{Admin, Lines};
pub(crate) use self::pods::{Cluster, Instance, Target, asked, has_proxy, workload};
use super::LiveError;

/// The admin port of a sidecar.
const SIDECAR_PORT: u16 = 15020;
/// The admin port of the controller.
const CONTROLLER_PORT: u16 = 15011;

/// The cluster, or addresses instead of one.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Where to look")]
pub(crate) struct Where {
    /// Context of the kubeconfig, instead of the current one.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// Kubeconfig file, instead of $KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Namespace of the mesh.
    #[arg(long, value_name = "NAME", default_value = "maglor")]
    pub(crate) mesh_namespace: String,

    /// Admin address of a controller, instead of a cluster.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) controller: Option<Address>,

    /// Admin address of a proxy, instead of a cluster; may be repeated. NAME is how it is shown.
    #[arg(long = "proxy", value_name = "[NAME=]HOST:PORT")]
    pub(crate) proxies: Vec<Named>,
}

/// Selection of pods.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Where to look")]
pub(crate) struct Pods {
    /// Namespace of the pods, instead of the context's.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,

    /// Include pods of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
}

/// An address of the form `HOST:PORT`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Address(String);

/// Error for an address without a port.
#[derive(Debug, thiserror::Error)]
#[error("expected HOST:PORT, such as {0}")]
pub(crate) struct AddressError(String);

impl AddressError {
    /// Returns the address, with a default host or port added if it is missing.
    fn of(text: &str) -> Self {
        let text = text.split_once("://").map_or(text, |(_, rest)| rest);
        let text = text.split('/').next().unwrap_or_default();
        Self(match text.rsplit_once(':') {
            None if text.parse::<u16>().is_ok() => format!("127.0.0.1:{text}"),
            None if !text.is_empty() => format!("{text}:15020"),
            Some(("", port)) if port.parse::<u16>().is_ok() => format!("127.0.0.1:{port}"),
            Some((host, port))
                if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) =>
            {
                text.to_owned()
            }
            _ => "127.0.0.1:15020".to_owned(),
        })
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError::of(text);
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let good = !host.is_empty()
            && !text.contains('/')
            && port.parse::<u16>().is_ok_and(|port| port > 0);
        good.then(|| Self(text.to_owned())).ok_or_else(wrong)
    }
}

/// A proxy's address and display name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Named {
    name: String,
    address: Address,
}

impl FromStr for Named {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (name, address) = text.split_once('=').unwrap_or((text, text));
        Ok(Self {
            name: name.to_owned(),
            address: address.parse()?,
        })
    }
}

impl Where {
    /// Returns whether addresses are set, so that no cluster is used.
    pub(crate) fn is_by_address(&self) -> bool {
        self.controller.is_some() || !self.proxies.is_empty()
    }

    /// Returns the controller of `--controller`.
    pub(crate) fn addressed_controllers(&self) -> Vec<Instance> {
        let passed = self.controller.iter();
        passed
            .map(|address| Instance::direct(&address.0, address))
            .collect()
    }

    /// Returns the proxies of `--proxy`.
    pub(crate) fn addressed_proxies(&self) -> Vec<Instance> {
        let passed = self.proxies.iter();
        passed
            .map(|one| Instance::direct(&one.name, &one.address))
            .collect()
    }

    /// Returns the controller's replicas; fails if there are none.
    pub(crate) async fn controllers(&self) -> Result<Vec<Instance>, LiveError> {
        if self.controller.is_some() {
            return Ok(self.addressed_controllers());
        }
        if !self.proxies.is_empty() {
            return Err(LiveError::NoControllerAddress);
        }
        let cluster = Cluster::open(self).await?;
        let replicas = cluster.controllers().await?;
        match replicas.is_empty() {
            true => Err(LiveError::NoController {
                namespace: self.mesh_namespace.clone(),
            }),
            false => Ok(replicas),
        }
    }

    /// Returns the proxies of a target, or all proxies; fails if there are none.
    pub(crate) async fn proxies(
        &self,
        pods: &Pods,
        target: Option<&Target>,
    ) -> Result<Vec<Instance>, LiveError> {
        if !self.proxies.is_empty() {
            let all = self.addressed_proxies();
            let wanted: Vec<_> = all
                .into_iter()
                .filter(|one| target.is_none_or(|target| target.is(one)))
                .collect();
            return match (wanted.is_empty(), target) {
                (true, Some(target)) => Err(LiveError::NoProxy(format!(
                    "no --proxy is named `{target}`"
                ))),
                _ => Ok(wanted),
            };
        }
        if self.controller.is_some() {
            return Err(LiveError::NoProxyAddress);
        }
        let cluster = Cluster::open(self).await?;
        let found = cluster.proxies(pods, target).await?;
        if found.is_empty() {
            let place = match pods.all_namespaces {
                true => "any namespace".to_owned(),
                false => format!("namespace `{}`", cluster.namespace(pods)),
            };
            let what = match target {
                Some(target) => {
                    format!("no pod with a proxy matches `{target}` in {place}")
                }
                None => format!("no pod with a proxy is running in {place}"),
            };
            return Err(LiveError::NoProxy(what));
        }
        Ok(found)
    }

    /// Returns whether to query proxies rather than the controller by default.
    pub(crate) fn names_proxies(&self) -> bool {
        !self.proxies.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_a_port() {
        for good in ["127.0.0.1:15020", "localhost:1", "[::1]:80"] {
            assert!(good.parse::<Address>().is_ok(), "{good}");
        }
        for bad in [
            "127.0.0.1",
            "localhost:",
            ":80",
            "localhost:0",
            "a:99999",
            "http://a:80",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
        let named: Named = "web=127.0.0.1:1".parse().unwrap();
        assert_eq!(
            (named.name.as_str(), named.address.0.as_str()),
            ("web", "127.0.0.1:1")
        );
        let bare: Named = "127.0.0.1:1".parse().unwrap();
        assert_eq!(bare.name, "127.0.0.1:1");
    }
}
