//! The subscriptions: what the known resources refer to.

use std::collections::BTreeSet;
use std::sync::Arc;

use maglor_config::{self as config, RouteAction};

use super::{Discovery, Known, Route};
use crate::Kind;
use crate::client::Client;

impl Discovery {
    /// Subscribes to all resources that targets and workloads refer to, and unsubscribes from all others.
    pub(super) fn follow(&mut self) {
        let mut targets = self.targets.clone();
        for workload in self.inbound.values().flatten() {
            for name in workload.ahead.iter() {
                targets.insert(name.as_str().into());
            }
        }
        sync(
            &mut self.client,
            Kind::Listener,
            &targets,
            &mut self.listeners,
        );
        sync(
            &mut self.client,
            Kind::Inbound,
            &self.workloads,
            &mut self.inbound,
        );
        let (mut tables, mut clusters) = (BTreeSet::new(), BTreeSet::new());
        let kept = self.inbound.values().flatten();
        clusters.extend(kept.flat_map(|kept| kept.inbound.clusters().map(Arc::from)));
        for route in self.listeners.values().flatten() {
            match route {
                Route::Http { routes, bytes } => {
                    tables.insert(Arc::clone(routes));
                    clusters.extend(bytes.clone());
                }
                Route::Inline(table) => clusters.extend(clusters_in(table).cloned()),
                Route::Tcp(cluster) => drop(clusters.insert(Arc::clone(cluster))),
            }
        }
        sync(&mut self.client, Kind::Routes, &tables, &mut self.routes);
        for table in self.routes.values().flatten() {
            clusters.extend(clusters_in(table).cloned());
        }
        sync(
            &mut self.client,
            Kind::Cluster,
            &clusters,
            &mut self.clusters,
        );
        self.by_endpoints.clear();
        for (name, found) in &self.clusters {
            let eds = found.as_ref().and_then(|found| found.eds.clone());
            if let Some(eds) = eds {
                let clusters = self.by_endpoints.entry(eds).or_default();
                clusters.push(Arc::clone(name));
            }
        }
        let eds = self.by_endpoints.keys().cloned().collect();
        sync(&mut self.client, Kind::Endpoints, &eds, &mut self.endpoints);
    }
}

/// Returns the clusters of a table's routes, including those of mirrors.
pub(super) fn clusters_in(table: &config::RouteTable) -> impl Iterator<Item = &Arc<str>> {
    let routes = table.virtual_hosts.iter().flat_map(|host| &host.routes);
    routes.flat_map(|route| {
        let forward = match &route.action {
            RouteAction::Forward(forward) => Some(forward),
            RouteAction::Direct(_) | RouteAction::Redirect(_) => None,
        };
        let shares = forward
            .into_iter()
            .flat_map(|f| f.clusters.iter().filter_map(|share| share.cluster()));
        let mirrors = forward
            .into_iter()
            .flat_map(|f| f.mirrors.iter().map(|m| &m.cluster));
        shares.chain(mirrors)
    })
}

fn sync<T>(client: &mut Client, kind: Kind, wanted: &BTreeSet<Arc<str>>, known: &mut Known<T>) {
    let subscribed: BTreeSet<_> = client.subscribed(kind).cloned().collect();
    wanted
        .difference(&subscribed)
        .for_each(|name| client.subscribe(kind, name));
    for name in subscribed.difference(wanted) {
        client.unsubscribe(kind, name);
        known.remove(name);
    }
}
