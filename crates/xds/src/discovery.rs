//! Resolves names to their routes, clusters and endpoints.
//!
//! [`Discovery`] follows *targets*, which are names of Listeners. Resources that a target refers to are subscribed as
//! they become known (Listener → RouteConfiguration → Cluster → ClusterLoadAssignment), and unsubscribed when nothing
//! refers to them any more. Received resources are decoded and validated immediately. Invalid ones are rejected
//! individually, and the last valid version stays in use.
//!
//! In addition to targets, it follows *workloads*, which are the settings of a sidecar's inbound listener. The clusters
//! for which a workload keeps ledgers are subscribed, too, and so are the targets that the server expects the workload
//! to call, so that the first call does not wait for discovery.

mod confirm;
mod kept;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::Rng;
use maglor_config::workload::Workloads;
use maglor_config::{self as config, RouteAction, resource};
use maglor_identity::TrustBundle;

use self::confirm::Unconfirmed;
use crate::client::{Client, Received, Update};
use crate::decode::{self, DecodeError};
use crate::proto::envoy::config::core::v3::Node;
use crate::proto::envoy::service::discovery::v3 as wire;
use crate::{BUNDLE, Inbound, Kind, Listener};

/// The resolution of targets and workloads; see the module's documentation.
#[derive(Debug)]
pub struct Discovery {
    client: Client,
    has_identity: bool,
    targets: BTreeSet<Arc<str>>,
    workloads: BTreeSet<Arc<str>>,
    listeners: Known<Route>,
    routes: Known<Arc<config::RouteTable>>,
    clusters: Known<Found>,
    endpoints: Known<Arc<[config::Endpoint]>>,
    inbound: Known<Workload>,
    bundle: Option<TrustBundle>,
    unconfirmed: Unconfirmed,
    keeping: Option<kept::Keeping>,
}

/// The server's responses by name; `None` = the resource does not exist.
type Known<T> = BTreeMap<Arc<str>, Option<T>>;

/// The routing of a target.
#[derive(Clone, Debug)]
enum Route {
    Http {
        routes: Arc<str>,
        bytes: Option<Arc<str>>,
    },
    Inline(Arc<config::RouteTable>),
    Tcp(Arc<str>),
}

/// The settings of a workload, and the targets that it is expected to call.
#[derive(Clone, Debug)]
struct Workload {
    inbound: Arc<Inbound>,
    ahead: Arc<[String]>,
}

/// A cluster, with the EDS name of its endpoints if EDS provides them.
#[derive(Clone, Debug)]
struct Found {
    cluster: Arc<config::Cluster>,
    eds: Option<Arc<str>>,
}

/// The state of a target.
#[derive(Clone, Debug)]
pub enum Target {
    /// The target does not exist.
    Absent,
    /// A resource that the target needs has not been received yet.
    Pending,
    /// HTTP requests are routed by a table, and other connections go to a cluster.
    Http {
        /// The route table, all clusters of which are known.
        routes: Arc<config::RouteTable>,
        /// The name of the cluster for connections that are not HTTP; `None` = there is none.
        bytes: Option<Arc<str>>,
    },
    /// Connections go to the cluster with this name.
    Tcp(Arc<str>),
}

/// A cluster that a target uses.
#[derive(Clone, Debug)]
pub struct Used {
    /// The configuration of the cluster.
    pub cluster: Arc<config::Cluster>,
    /// The endpoints if EDS provides them; `None` until they are received.
    pub endpoints: Option<Arc<[config::Endpoint]>>,
}

/// The changes caused by a response.
#[derive(Debug, Default)]
pub struct Changes {
    /// Whether the trust bundle has changed.
    pub bundle: bool,
    /// Whether listeners, routes or clusters have changed.
    pub routing: bool,
    /// The names of clusters of which only the endpoints have changed.
    pub endpoints: Vec<Arc<str>>,
    /// Whether the settings of workloads have changed.
    pub inbound: bool,
    /// The errors of rejected resources.
    pub refused: Vec<DecodeError>,
}

impl Discovery {
    /// Creates a discovery that follows nothing yet. With `has_identity`, clusters may use mesh TLS.
    #[must_use]
    pub fn new(node: Node, has_identity: bool) -> Self {
        Self {
            client: Client::new(node),
            has_identity,
            targets: BTreeSet::new(),
            workloads: BTreeSet::new(),
            listeners: Known::new(),
            routes: Known::new(),
            clusters: Known::new(),
            endpoints: Known::new(),
            inbound: Known::new(),
            bundle: None,
            unconfirmed: Unconfirmed::default(),
            keeping: None,
        }
    }

    /// Starts following the trust bundle of the mesh.
    pub fn follow_bundle(&mut self) {
        self.client.subscribe(Kind::Bundle, BUNDLE);
    }

    /// Starts following a target. Returns the changes if the target was found in the cache, because no server responds.
    pub fn want(&mut self, target: &str) -> Changes {
        if !self.targets.insert(target.into()) {
            return Changes::default();
        }
        // Everything else depends on the listener, which is not known yet.
        self.client.subscribe(Kind::Listener, target);
        self.recall()
    }

    /// Stops following a target.
    pub fn forget(&mut self, target: &str) {
        if self.targets.remove(target) {
            self.follow();
        }
    }

    /// Replaces the followed workloads; returns whether this changes the known ones.
    pub fn want_workloads(&mut self, names: impl Iterator<Item = Arc<str>>) -> bool {
        let wanted: BTreeSet<_> = names.collect();
        if wanted == self.workloads {
            return false;
        }
        let gone = self.workloads.difference(&wanted);
        let known = gone.filter(|name| self.inbound.get(*name).is_some_and(Option::is_some));
        let changes = known.count() > 0;
        self.workloads = wanted;
        self.follow();
        changes | self.recall().inbound
    }

    /// Returns the settings of the known workloads.
    #[must_use]
    pub fn workloads(&self) -> Workloads {
        let known = self.inbound.iter();
        known
            .filter_map(|(name, known)| {
                Some((Arc::clone(name), Arc::clone(&known.as_ref()?.inbound)))
            })
            .collect()
    }

    /// Returns the followed targets.
    pub fn targets(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.targets.iter()
    }

    /// Starts a new stream.
    pub fn connected(&mut self) {
        self.unconfirmed = Unconfirmed::default();
        self.client.connected();
    }

    /// Ends the stream and returns the delay before the next attempt.
    pub fn disconnected(&mut self, rng: &mut Rng) -> Duration {
        self.client.disconnected(rng)
    }

    /// Returns the next message to send on the stream; `None` if there is none.
    pub fn request(&mut self) -> Option<wire::DeltaDiscoveryRequest> {
        self.client.request()
    }

    /// Processes a response.
    pub fn receive(&mut self, response: wire::DeltaDiscoveryResponse) -> Changes {
        let Some(mut update) = self.client.receive(response) else {
            return Changes::default();
        };
        self.go_online();
        let mut changes = Changes::default();
        let mut good = Vec::with_capacity(update.resources.len());
        for resource in update.resources.drain(..) {
            match self.take(update.kind, &resource) {
                Ok(()) => {
                    if let Some(keeping) = &mut self.keeping {
                        keeping.put(update.kind, &resource);
                    }
                    good.push(resource);
                }
                Err(error) => changes.refused.push(error),
            }
        }
        update.resources = good;
        for name in &update.removed {
            let forgotten = self.remove(update.kind, name);
            if let Some(keeping) = self.keeping.as_mut().filter(|_| forgotten) {
                keeping.remove(update.kind, name);
            }
        }
        self.answer(&update, &changes.refused);
        match update.kind {
            Kind::Endpoints => {
                let named = update.resources.iter().map(|resource| &resource.name);
                changes.endpoints = self.clusters_of(named.chain(&update.removed));
            }
            Kind::Bundle => changes.bundle = !update.resources.is_empty(),
            Kind::Inbound => {
                changes.inbound = !update.is_empty();
                self.unconfirmed.came(&update, changes.refused.is_empty());
            }
            _ => changes.routing = !update.is_empty(),
        }
        // These refer to no other resource.
        if !matches!(update.kind, Kind::Bundle | Kind::Endpoints) {
            self.follow();
        }
        changes
    }

    fn answer(&mut self, update: &Update, refused: &[DecodeError]) {
        if refused.is_empty() {
            return self.client.accept(update);
        }
        let reasons: Vec<_> = refused.iter().map(ToString::to_string).collect();
        self.client.refuse(update, &reasons.join("\n"));
    }

    fn take(&mut self, kind: Kind, resource: &Received) -> Result<(), DecodeError> {
        let (name, body) = (Arc::clone(&resource.name), &resource.body);
        match kind {
            Kind::Bundle => self.bundle = Some(decode::bundle(&name, body)?),
            Kind::Cluster => {
                let decoded = decode::cluster(&name, body)?;
                let cluster = resource::cluster(&decoded.raw, self.has_identity)?;
                let found = Found {
                    cluster: Arc::new(cluster),
                    eds: decoded.eds.map(Into::into),
                };
                self.clusters.insert(name, Some(found));
            }
            Kind::Endpoints => {
                let endpoints = decode::usable_endpoints(&name, body)?;
                self.endpoints.insert(name, Some(endpoints.into()));
            }
            Kind::Listener => {
                let route = match decode::listener(&name, body)? {
                    Listener::Http { routes, bytes } => Route::Http {
                        routes: routes.into(),
                        bytes: bytes.map(Into::into),
                    },
                    Listener::Inline(table) => Route::Inline(Arc::new(resource::routes(&table)?)),
                    Listener::Tcp { cluster } => Route::Tcp(cluster.into()),
                };
                self.listeners.insert(name, Some(route));
            }
            Kind::Routes => {
                let table = resource::routes(&decode::routes(&name, body)?)?;
                self.routes.insert(name, Some(Arc::new(table)));
            }
            Kind::Inbound => {
                let (inbound, ahead) = decode::inbound(&name, body)?;
                inbound.check(&name, self.has_identity)?;
                let workload = Workload {
                    inbound: Arc::new(inbound),
                    ahead: ahead.into(),
                };
                self.inbound.insert(name, Some(workload));
            }
        }
        Ok(())
    }

    /// Returns whether the server has responded to the request for a name.
    fn is_answered(&self, kind: Kind, name: &str) -> bool {
        match kind {
            Kind::Bundle => self.bundle.is_some(),
            Kind::Cluster => self.clusters.contains_key(name),
            Kind::Endpoints => self.endpoints.contains_key(name),
            Kind::Listener => self.listeners.contains_key(name),
            Kind::Routes => self.routes.contains_key(name),
            Kind::Inbound => self.inbound.contains_key(name),
        }
    }

    /// Records that a resource does not exist; returns whether a known one was removed.
    fn remove(&mut self, kind: Kind, name: &Arc<str>) -> bool {
        let name = Arc::clone(name);
        match kind {
            // The last bundle always applies.
            Kind::Bundle => return false,
            // The workload exists: it is this one. A server that does not know it is behind.
            Kind::Inbound => return self.inbound.entry(name).or_insert(None).is_none(),
            Kind::Cluster => drop(self.clusters.insert(name, None)),
            Kind::Endpoints => drop(self.endpoints.insert(name, None)),
            Kind::Listener => drop(self.listeners.insert(name, None)),
            Kind::Routes => drop(self.routes.insert(name, None)),
        }
        true
    }

    /// Returns the clusters whose EDS name is one of these.
    fn clusters_of<'a>(&self, names: impl Iterator<Item = &'a Arc<str>>) -> Vec<Arc<str>> {
        let names: BTreeSet<&Arc<str>> = names.collect();
        let known = self.clusters.iter();
        let theirs = known.filter(|(_, found)| {
            let eds = found.as_ref().and_then(|found| found.eds.as_ref());
            eds.is_some_and(|eds| names.contains(eds))
        });
        theirs.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Returns the state of a target.
    #[must_use]
    pub fn target(&self, name: &str) -> Target {
        let Some(listener) = self.listeners.get(name) else {
            return Target::Pending;
        };
        match listener {
            None => Target::Absent,
            Some(Route::Tcp(cluster)) if self.is_known(cluster) => Target::Tcp(Arc::clone(cluster)),
            Some(Route::Tcp(_)) => Target::Pending,
            Some(Route::Inline(table)) => self.http(table, None),
            Some(Route::Http { routes, bytes }) => match self.routes.get(routes) {
                None => Target::Pending,
                Some(None) => Target::Absent,
                Some(Some(table)) => self.http(table, bytes.as_ref()),
            },
        }
    }

    fn http(&self, table: &Arc<config::RouteTable>, bytes: Option<&Arc<str>>) -> Target {
        let all_known = clusters_in(table).all(|name| self.is_known(name));
        match all_known && bytes.is_none_or(|name| self.is_known(name)) {
            true => Target::Http {
                routes: Arc::clone(table),
                bytes: bytes.cloned(),
            },
            false => Target::Pending,
        }
    }

    /// Returns whether a cluster is known together with its endpoints, or known not to exist.
    fn is_known(&self, name: &Arc<str>) -> bool {
        match self.clusters.get(name) {
            None => false,
            Some(None) => true,
            Some(Some(found)) => match &found.eds {
                None => true,
                Some(eds) => self.endpoints.contains_key(eds),
            },
        }
    }

    /// Returns the trust bundle of the mesh; `None` until it is received.
    #[must_use]
    pub fn bundle(&self) -> Option<&TrustBundle> {
        self.bundle.as_ref()
    }

    /// Returns all received clusters.
    pub fn clusters(&self) -> impl Iterator<Item = Used> {
        let found = self.clusters.values().flatten();
        found.map(|found| self.used(found))
    }

    /// Returns the cluster with this name; `None` if it was not received.
    #[must_use]
    pub fn cluster(&self, name: &str) -> Option<Used> {
        let found = self.clusters.get(name)?.as_ref()?;
        Some(self.used(found))
    }

    fn used(&self, found: &Found) -> Used {
        let none = || Arc::from(Vec::new());
        let endpoints = found.eds.as_ref().map(|eds| {
            let known = self.endpoints.get(eds).cloned().flatten();
            known.unwrap_or_else(none)
        });
        Used {
            cluster: Arc::clone(&found.cluster),
            endpoints,
        }
    }

    /// Subscribes to all resources that targets and workloads refer to, and unsubscribes from all others.
    fn follow(&mut self) {
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
        let eds = self.clusters.values().flatten();
        let eds = eds.filter_map(|found| found.eds.clone()).collect();
        sync(&mut self.client, Kind::Endpoints, &eds, &mut self.endpoints);
    }
}

/// Returns the clusters of a table's routes, including those of mirrors.
fn clusters_in(table: &config::RouteTable) -> impl Iterator<Item = &Arc<str>> {
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

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
