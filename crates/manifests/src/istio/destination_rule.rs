//! Translates `DestinationRule`: the settings of connections to a Service, and the subsets of its pods.

use std::collections::BTreeMap;

use maglor_config::raw::{self, HashPolicy};
use serde_json::Value;

use crate::istio::block::Block;
use crate::istio::finding::{Effect, Read, Report};
use crate::istio::pool;

/// A translated `DestinationRule`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DestinationRule {
    /// The host of the Service, as written.
    pub host: String,
    /// The settings of connections to the whole Service.
    pub policy: Policy,
    /// The subsets of its pods.
    pub subsets: Vec<Subset>,
}

/// A named subset of a Service's pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subset {
    /// The name of the subset.
    pub name: String,
    /// The labels of the pods in the subset.
    pub labels: BTreeMap<String, String>,
    /// The settings that override those of the Service.
    pub policy: Policy,
}

/// A `trafficPolicy`. As in Istio, its parts are inherited as wholes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    balancer: Option<(raw::Cluster, Vec<HashPolicy>)>,
    connections: Option<raw::Cluster>,
    outliers: Option<(raw::OutlierEjection, Option<u32>)>,
    plain_text: Option<bool>,
    ports: BTreeMap<u16, Policy>,
}

/// The effective settings of connections to a port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The fields of the cluster that are set.
    pub cluster: raw::Cluster,
    /// The parts of a request to hash.
    pub hash_policy: Vec<HashPolicy>,
    /// Whether TLS is disabled, including that of the mesh (`tls.mode: DISABLE`).
    pub plain_text: bool,
}

impl DestinationRule {
    /// Translates a `spec`.
    #[must_use]
    pub fn read(spec: &Value) -> Read<Self> {
        let report = Report::default();
        let block = Block::new(spec, "spec".to_owned(), &report);
        let host = block.text("host").unwrap_or_default().to_owned();
        if host.is_empty() {
            block.refuse("host", "the field is missing");
        }
        if block.texts("exportTo").iter().any(|to| to != "*") {
            let why = "only `*` is supported: the rule applies to the clients of all namespaces";
            block.ignore("exportTo", why);
        }
        let rule = Self {
            host,
            policy: Policy::read(block.block("trafficPolicy")),
            subsets: block.blocks("subsets").iter().map(Subset::read).collect(),
        };
        block.without(
            "workloadSelector",
            Effect::Refused,
            "not supported: a rule applies to all clients",
        );
        block.end(Effect::Ignored);
        drop(block);
        report.read(Some(rule))
    }

    /// Returns the effective settings of a port, for the whole Service or for one of its subsets.
    #[must_use]
    pub fn settings(&self, port: u16, subset: Option<&Subset>) -> Settings {
        let whole = self.policy.at(port);
        let policy = match subset {
            None => whole,
            Some(subset) => match subset.policy.ports.get(&port) {
                Some(own) => own.clone(),
                None => subset.policy.over(&whole),
            },
        };
        policy.settings()
    }

    /// Returns the ports with settings of their own.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        let subsets = self.subsets.iter().map(|subset| &subset.policy);
        let policies = std::iter::once(&self.policy).chain(subsets);
        policies.flat_map(|policy| policy.ports.keys().copied())
    }

    /// Returns the subset with this name.
    #[must_use]
    pub fn subset(&self, name: &str) -> Option<&Subset> {
        self.subsets.iter().find(|subset| subset.name == name)
    }
}

impl Subset {
    fn read(block: &Block<'_>) -> Self {
        let subset = Self {
            name: block.text("name").unwrap_or_default().to_owned(),
            labels: block.pairs("labels"),
            policy: Policy::read(block.block("trafficPolicy")),
        };
        if subset.name.is_empty() {
            block.refuse("name", "the field is missing");
        }
        block.end(Effect::Ignored);
        subset
    }
}

impl Policy {
    fn read(block: Option<Block<'_>>) -> Self {
        let Some(block) = block else {
            return Self::default();
        };
        let mut ports = BTreeMap::new();
        for entry in block.blocks("portLevelSettings") {
            let number = entry.block("port").and_then(|port| port.port("number"));
            match number {
                Some(number) => drop(ports.insert(number, Self::parts(&entry))),
                None => entry.refuse("port", "write `port: {number: NUMBER}`"),
            }
            entry.end(Effect::Ignored);
        }
        let policy = Self {
            ports,
            ..Self::parts(&block)
        };
        block.end(Effect::Ignored);
        policy
    }

    fn parts(block: &Block<'_>) -> Self {
        Self {
            balancer: block.block("loadBalancer").map(|one| pool::balancer(&one)),
            connections: block
                .block("connectionPool")
                .map(|one| pool::connections(&one)),
            outliers: block
                .block("outlierDetection")
                .map(|one| pool::outliers(&one)),
            plain_text: block.block("tls").map(|tls| plain_text(&tls)),
            ports: BTreeMap::new(),
        }
    }

    /// Returns the settings of a port; a port with settings of its own inherits nothing.
    fn at(&self, port: u16) -> Self {
        let own = self.ports.get(&port).unwrap_or(self);
        Self {
            ports: BTreeMap::new(),
            ..own.clone()
        }
    }

    fn over(&self, outer: &Self) -> Self {
        let (own, outer) = (self.clone(), outer.clone());
        Self {
            balancer: own.balancer.or(outer.balancer),
            connections: own.connections.or(outer.connections),
            outliers: own.outliers.or(outer.outliers),
            plain_text: own.plain_text.or(outer.plain_text),
            ports: BTreeMap::new(),
        }
    }

    fn settings(self) -> Settings {
        let mut cluster = self.connections.unwrap_or_default();
        let (balancer, hash_policy) = self.balancer.unwrap_or_default();
        cluster.policy = balancer.policy;
        cluster.slow_start = balancer.slow_start;
        if let Some((ejection, panic)) = self.outliers {
            cluster.outlier_ejection = Some(ejection);
            cluster.panic_threshold = panic;
        }
        Settings {
            cluster,
            hash_policy,
            plain_text: self.plain_text.unwrap_or(false),
        }
    }
}

/// Reads `tls`. Returns whether TLS is disabled: there is mutual TLS between workloads of the mesh anyway.
fn plain_text(block: &Block<'_>) -> bool {
    let mode = block.text("mode");
    match mode {
        None | Some("DISABLE" | "ISTIO_MUTUAL") => {}
        Some(other) => block.refuse(
            "mode",
            format!(
                "`{other}` is not supported: proxies use TLS only within the mesh; remove `tls` and use TLS in the application"
            ),
        ),
    }
    block.end(Effect::Ignored);
    mode == Some("DISABLE")
}
