//! Clusters and endpoints from the control plane, in addition to those of the configuration file.

use std::sync::Arc;

use hashbrown::HashSet;
use maglor_config as config;
use maglor_xds::discovery::Used;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::App;
use super::names::has_names;
use crate::control::build::{self, BuildError, Sources};
use crate::routing::on_demand::Ask;
use crate::upstream::{Cluster, Clusters};

impl App {
    /// Returns the receiver of the workers' queries; `None` after the first call.
    pub(crate) fn take_asks(&mut self) -> Option<UnboundedReceiver<Ask>> {
        self.asks.take()
    }

    /// Returns a service that a filter chain needs and for which the control plane has not responded yet.
    pub(crate) fn unknown_service(&self) -> Option<String> {
        self.listening.values().find_map(|listening| {
            let state = listening.state.borrow();
            let chains = state.chains.iter().filter_map(|chain| chain.filter.http());
            let mut asked = chains.filter_map(|chain| chain.on_demand.as_ref());
            asked.find_map(|asked| asked.unknown().map(ToOwned::to_owned))
        })
    }

    /// Replaces the clusters of the control plane with these.
    pub(crate) fn discover(&mut self, used: Vec<Used>) {
        let names = |all: &[Used]| all.iter().any(names_in);
        let resolves = names(&used) || names(&self.discovered);
        if names(&used)
            && let Err(error) = self.need_resolver()
        {
            tracing::error!(%error, "cannot start the DNS resolver; endpoints with host names are not resolved");
        }
        let before = std::mem::replace(&mut self.discovered, used);
        let mut gone: HashSet<_> = before.iter().map(|used| &used.cluster.name).collect();
        // The new cluster is built from the old one.
        for used in &self.discovered {
            gone.remove(&used.cluster.name);
        }
        for cluster in &self.config.clusters {
            gone.remove(&cluster.name);
        }
        let mut clusters = Clusters::default();
        let kept = self.clusters.iter();
        let kept = kept.filter(|cluster| !gone.contains(cluster.name()));
        kept.for_each(|cluster| clusters.insert(Arc::clone(cluster)));
        self.clusters = clusters;
        self.add_discovered();
        self.introduce_peers();
        self.watched
            .send_replace(self.clusters.iter().cloned().collect());
        if resolves {
            self.resolve();
        }
    }

    /// Returns whether the configuration file defines this cluster. The file takes precedence over the control plane.
    fn is_of_file(&self, name: &str) -> bool {
        self.config.clusters.iter().any(|own| *own.name == *name)
    }

    /// Keeps the clusters of the control plane unchanged while a new configuration file is applied.
    pub(super) fn keep_discovered(&self, wanted: &config::Config, clusters: &mut Clusters) {
        let of_file = names_of(wanted);
        for used in &self.discovered {
            let name = &used.cluster.name;
            let is_of_file = of_file.contains(name);
            if let Some(cluster) = self.clusters.get(name).filter(|_| !is_of_file) {
                clusters.insert(cluster);
            }
        }
    }

    /// Updates the inbound listeners with the current endpoints of their services.
    fn introduce_peers(&self) {
        for listening in self.listening.values() {
            let listener = Arc::clone(&listening.state.borrow());
            build::introduce_peers(&listener, &self.clusters);
        }
    }

    /// Builds the clusters of the control plane that the file does not define. A cluster that cannot be built keeps
    /// its previous state.
    fn add_discovered(&mut self) {
        let live = self.live();
        let mut sources = Sources::new(live.as_ref());
        let config = Arc::clone(&self.config);
        let of_file = names_of(&config);
        for used in &self.discovered {
            if of_file.contains(&used.cluster.name) {
                continue;
            }
            let name = &used.cluster.name;
            match self.build_discovered(used, &mut sources) {
                Ok(cluster) => {
                    cluster.guard().put_in_force();
                    self.clusters.insert(cluster);
                }
                Err(error) => {
                    tracing::error!(cluster = %name, %error, "cannot apply a cluster of the control plane; keeping the last valid version");
                }
            }
        }
    }

    /// Builds a discovered cluster with the endpoints that the control plane has assigned to it.
    fn build_discovered(
        &self,
        used: &Used,
        sources: &mut Sources<'_>,
    ) -> Result<Arc<Cluster>, BuildError> {
        let now = self.shared.time(Instant::now());
        let metrics = &self.shared.metrics;
        let wanted = &used.cluster;
        let old = self.clusters.get(&wanted.name);
        let cluster = build::one_cluster(wanted, old, false, sources, metrics, now)?;
        let assigned = used.endpoints.as_ref();
        let assigned = assigned.map(|endpoints| cluster.assign(endpoints, metrics, now));
        if let Some(Err(error)) = assigned {
            tracing::error!(cluster = %wanted.name, %error, "cannot apply endpoints received from the control plane; keeping the previous endpoints");
        }
        Ok(cluster)
    }

    /// Replaces the endpoints of a discovered cluster; nothing else changes.
    pub(crate) fn assign(&mut self, cluster: &str, endpoints: &Arc<[config::Endpoint]>) {
        let mut resolves = has_names(endpoints);
        let known = self.discovered.iter_mut();
        for used in known.filter(|used| *used.cluster.name == *cluster) {
            resolves |= names_in(used);
            used.endpoints = Some(Arc::clone(endpoints));
        }
        let Some(found) = self
            .clusters
            .get(cluster)
            .filter(|_| !self.is_of_file(cluster))
        else {
            return;
        };
        let now = self.shared.time(Instant::now());
        if let Err(error) = found.assign(endpoints, &self.shared.metrics, now) {
            tracing::error!(%cluster, %error, "cannot apply endpoints received from the control plane; keeping the previous endpoints");
        }
        if resolves {
            if let Err(error) = self.need_resolver() {
                tracing::error!(%error, "cannot start the DNS resolver; endpoints with host names are not resolved");
            }
            self.resolve();
        }
    }
}

fn names_of(config: &config::Config) -> HashSet<&Arc<str>> {
    config.clusters.iter().map(|own| &own.name).collect()
}

/// Returns whether a cluster has endpoints that are DNS names.
fn names_in(used: &Used) -> bool {
    let assigned = used.endpoints.as_deref().unwrap_or_default();
    has_names(&used.cluster.endpoints) || has_names(assigned)
}
