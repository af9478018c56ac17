//! Serves the resources of the index to proxies: encodes changed resources, and determines which client may get which
//! resource.
//!
//! An authenticated client gets what is visible to its namespace, and the configuration of its own workload: its node
//! ID, `NAMESPACE/POD`, is trusted if the pod's service account is that of the certificate. For an unauthenticated
//! client (where the server accepts plain text: files, tests) the namespace in its node ID is trusted.

mod shown;
mod variants;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use maglor_identity::{SpiffeId, TrustBundle};
use maglor_xds::decode::DecodeError;
use maglor_xds::encode::{self, EncodeError};
use maglor_xds::grpc_server::{
    Certified, CertifyRequest, Code, Node, Peer, Policy, Server, Status, WhileOpen,
};
use maglor_xds::load::LoadReport;
use maglor_xds::server::{Protocol, Scope};
use maglor_xds::{self as xds, Kind, ServedEndpoint};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use self::variants::{Variants, variant};
use crate::discovery_pages::{self, protocol_name};
use crate::graph::Graphs;
use crate::identity::certify::Certifier;
use crate::index::facts::Key;
use crate::index::{Change, Endpoint, Place, Resource, ResourceId, ResourceKind};
use crate::metrics::on_call::PushMetrics;

/// The resources served to proxies. Clones share the same table.
#[derive(Clone)]
pub struct Table {
    server: Server,
    consumers: Consumers,
    accounts: Accounts,
    shared: Shared,
    graphs: Arc<OnceLock<Arc<Graphs>>>,
    pushes: Arc<OnceLock<PushMetrics>>,
}

/// A proxy that a group of Services shares, and the ports on which it has reported that it listens.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct SharedProxy {
    /// Node ID of the proxy, `NAMESPACE/POD`.
    pub(crate) proxy: String,
    pub(crate) ports: BTreeSet<u16>,
}

/// The service accounts of the proxies that may request an `Inbound`, by `NAMESPACE/POD`.
type Accounts = Arc<RwLock<BTreeMap<String, String>>>;

/// The ports of the proxies that groups of Services share, by `NAMESPACE/POD`.
type Shared = Arc<RwLock<BTreeMap<String, BTreeSet<u16>>>>;

/// The existing per-client variants of resources.
type Consumers = Arc<RwLock<Variants>>;

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

impl Table {
    /// Creates an empty table. If `strict`, clients must authenticate.
    #[must_use]
    pub fn new(strict: bool) -> Self {
        Self::with(strict, None)
    }

    /// Creates an empty table for clients that authenticate, and that get their certificates from this server for a
    /// token.
    #[must_use]
    pub fn certifying(certifier: Certifier) -> Self {
        Self::with(true, Some(certifier))
    }

    fn with(strict: bool, certifier: Option<Certifier>) -> Self {
        let (consumers, accounts) = (Consumers::default(), Accounts::default());
        let (graphs, pushes) = (Arc::default(), Arc::default());
        let access = Access {
            graphs: Arc::clone(&graphs),
            pushes: Arc::clone(&pushes),
            strict,
            certifier,
            consumers: Arc::clone(&consumers),
            accounts: Arc::clone(&accounts),
        };
        Self {
            server: Server::new(Arc::new(access)),
            consumers,
            accounts,
            shared: Shared::default(),
            graphs,
            pushes,
        }
    }

    /// Requests load reports from clients from now on.
    pub fn observe(&self, graphs: Arc<Graphs>) {
        // The first value is kept, because there is one graph.
        let _ = self.graphs.set(graphs);
    }

    /// Counts the clients' acknowledgements and rejections from now on.
    pub fn count(&self, pushes: PushMetrics) {
        // The first value is kept, as above.
        let _ = self.pushes.set(pushes);
    }

    /// Returns the longest time for which a client has neither acknowledged nor rejected a response.
    pub(crate) fn longest_unanswered(&self) -> Duration {
        self.server.longest_unanswered()
    }

    /// Publishes the roots that clients should trust from now on.
    pub fn trust(&self, bundle: &TrustBundle) {
        let resource = encode::bundle(bundle);
        self.server.cache(|cache, now| cache.set(resource, now));
    }

    /// Returns for each client, by node ID, whether it trusts the current bundle.
    #[must_use]
    pub fn trusting(&self) -> Vec<(Arc<str>, bool)> {
        self.server.holders(Kind::Bundle, xds::BUNDLE)
    }

    /// Returns the clients that do not trust the current bundle, by node ID.
    pub(crate) fn distrusting(&self) -> Vec<Arc<str>> {
        let clients = self.trusting().into_iter();
        let behind = clients.filter(|(_, holds)| !holds);
        behind.map(|(node, _)| node).collect()
    }

    /// Returns the shared proxies of groups of Services that are connected and have acknowledged the latest published
    /// version. A proxy acknowledges a version once it listens on the ports.
    pub(crate) fn shared_proxies(&self) -> Vec<SharedProxy> {
        // Read before the cache, because entries are added to the cache first.
        let known = self
            .shared
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let listens = |proxy: &str| {
            let mut holders = self.server.holders(Kind::Inbound, proxy).into_iter();
            holders.any(|(node, holds)| holds && *node == *proxy)
        };
        let known = known.into_iter().filter(|(proxy, _)| listens(proxy));
        known
            .map(|(proxy, ports)| SharedProxy { proxy, ports })
            .collect()
    }

    /// Publishes all changes at once; returns the number of resources that cannot be encoded.
    pub fn publish(&self, changes: &[Change]) -> u64 {
        let mut unserved = 0;
        self.server.cache(|cache, now| {
            for change in changes {
                let (Change::Remove(id) | Change::Set(id, _)) = change;
                let kind = kind(id.kind);
                let key = match &id.consumer {
                    Some(consumer) => variant(&id.name, consumer),
                    None => id.name.clone(),
                };
                self.note_account(id, change);
                match change {
                    Change::Remove(_) => {
                        cache.remove(kind, &key, now);
                    }
                    Change::Set(id, resource) => match encoded(id, resource) {
                        Ok(mut resource) => {
                            resource.name = key.as_str().into();
                            cache.set(resource, now);
                        }
                        Err(error) => {
                            unserved += 1;
                            tracing::error!(resource = key, %error, "cannot encode resource; serving the last valid version");
                            continue;
                        }
                    },
                }
                if let Some(consumer) = &id.consumer {
                    let mut consumers = self.consumers.write().unwrap_or_else(PoisonError::into_inner);
                    let differs = consumers.note(&key, consumer, matches!(change, Change::Set(..)));
                    drop(consumers);
                    // Subscribers of this name now get a different resource.
                    if differs {
                        cache.mark_changed(kind, &id.name, now);
                    }
                }
            }
        });
        unserved
    }

    /// Records the owner and ports of an `Inbound` before it is served.
    fn note_account(&self, id: &ResourceId, change: &Change) {
        if id.kind != ResourceKind::Inbound {
            return;
        }
        let mut accounts = self
            .accounts
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        shared.remove(&id.name);
        match change {
            Change::Set(_, Resource::Inbound(inbound)) => {
                accounts.insert(id.name.clone(), inbound.service_account.clone());
                let ports: BTreeSet<u16> = inbound.forwards.iter().map(|one| one.port).collect();
                if !ports.is_empty() {
                    shared.insert(id.name.clone(), ports);
                }
            }
            _ => drop(accounts.remove(&id.name)),
        }
    }

    /// Records the nodes on which pods run, which determine their variants of some Services.
    pub fn place(&self, places: Vec<(Key, Option<Place>)>) {
        if places.is_empty() {
            return;
        }
        let mut moved = BTreeSet::new();
        let mut consumers = self
            .consumers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        for (pod, place) in places {
            moved.insert(pod.to_string());
            consumers.place(pod, place);
        }
        let matters = consumers.has_places();
        drop(consumers);
        if matters {
            // A proxy may have subscribed before its location was known.
            self.server
                .look_again(Kind::Endpoints, |node| moved.contains(node));
        }
    }

    /// Serves one client until it disconnects.
    pub async fn serve<Io>(&self, io: Io, address: SocketAddr, identity: Option<SpiffeId>)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let peer = Peer { address, identity };
        self.server.clone().serve(io, peer).await;
    }

    /// Ends all streams, so that clients connect to another replica.
    pub fn close(&self) {
        self.server.close();
    }

    /// Returns the number of clients by protocol.
    pub(crate) fn protocols(&self) -> [(&'static str, usize); 2] {
        let sessions = self.server.sessions();
        let count = |protocol| {
            sessions
                .iter()
                .filter(|one| one.protocol == protocol)
                .count()
        };
        [Protocol::Delta, Protocol::StateOfTheWorld]
            .map(|protocol| (protocol_name(protocol), count(protocol)))
    }

    /// Returns the connected clients.
    pub(crate) fn sessions(&self) -> Vec<Value> {
        let sessions = self.server.sessions();
        sessions.iter().map(discovery_pages::session).collect()
    }

    /// Returns the most recent changes, newest first; all retained ones if `all`.
    pub(crate) fn receipts(&self, all: bool) -> Vec<Value> {
        let (last, now) = self
            .server
            .cache(|cache, now| (discovery_pages::receipts(cache, all), now));
        last.iter()
            .map(|one| discovery_pages::receipt(one, now))
            .collect()
    }

    /// Returns the resources, or those of one kind.
    pub(crate) fn resources(&self, kind: Option<Kind>) -> Vec<Value> {
        // Work while the lock is held delays proxies, so strings are formatted afterwards.
        let listed = self
            .server
            .cache(|cache, _| discovery_pages::listed(cache, kind));
        discovery_pages::resources(listed)
    }

    /// Returns all resources of a kind in the format of the configuration file.
    pub(crate) fn all_of(&self, kind: Kind) -> Result<Vec<Value>, DecodeError> {
        let bodies = self
            .server
            .cache(|cache, _| discovery_pages::bodies(cache, kind));
        let each = bodies
            .iter()
            .map(|body| discovery_pages::resource(kind, body));
        each.collect()
    }

    /// Returns a resource in the format of the configuration file; `None` if there is none of that name.
    pub(crate) fn resource(&self, kind: Kind, name: &str) -> Result<Option<Value>, DecodeError> {
        let body = self
            .server
            .cache(|cache, _| discovery_pages::body(cache, kind, name));
        body.map(|body| discovery_pages::resource(kind, &body))
            .transpose()
    }
}

fn kind(kind: ResourceKind) -> Kind {
    match kind {
        ResourceKind::Cluster => Kind::Cluster,
        ResourceKind::Endpoints => Kind::Endpoints,
        ResourceKind::Inbound => Kind::Inbound,
        ResourceKind::Listener => Kind::Listener,
        ResourceKind::Routes => Kind::Routes,
    }
}

fn encoded(id: &ResourceId, resource: &Resource) -> Result<xds::Resource, EncodeError> {
    match resource {
        Resource::Cluster(cluster) => encode::cluster(cluster),
        Resource::Endpoints(list) => {
            let list: Vec<ServedEndpoint> = list.iter().map(Endpoint::served).collect();
            encode::endpoints(&id.name, &list)
        }
        Resource::Inbound(inbound) => {
            encode::inbound(&id.name, &inbound.described(), &inbound.ahead)
        }
        Resource::Listener(listener) => encode::listener(&id.name, &listener.described()),
        Resource::Routes(table) => encode::routes(table),
    }
}

/// The access rules: which client gets which resources and certificates.
struct Access {
    strict: bool,
    certifier: Option<Certifier>,
    consumers: Consumers,
    accounts: Accounts,
    graphs: Arc<OnceLock<Arc<Graphs>>>,
    pushes: Arc<OnceLock<PushMetrics>>,
}

/// A client's identity and location.
struct Client {
    /// Namespace of the client; `None` if it has none.
    namespace: Option<String>,
    /// Node ID as reported by the client.
    node: String,
    /// Service account with which the client has authenticated; `None` if it has not.
    account: Option<String>,
}

impl Access {
    fn client(&self, peer: &Peer, node: &Node) -> Result<Client, Status> {
        let claimed = node.id.split_once('/').map(|(namespace, _)| namespace);
        let refused = |code, what: String| Err(Status::new(code, what));
        self.admit(peer)?;
        let Some(identity) = &peer.identity else {
            return Ok(Client {
                namespace: claimed.map(str::to_owned),
                node: node.id.clone(),
                account: None,
            });
        };
        let (Some(namespace), Some(account)) = (identity.namespace(), identity.service_account())
        else {
            let what = format!("{identity} is not a Kubernetes workload");
            return refused(Code::PermissionDenied, what);
        };
        if claimed.is_some_and(|claimed| claimed != namespace) {
            let what = format!("{identity} is not in the namespace of node `{}`", node.id);
            return refused(Code::PermissionDenied, what);
        }
        Ok(Client {
            namespace: Some(namespace.to_owned()),
            node: node.id.clone(),
            account: Some(account.to_owned()),
        })
    }
}

impl Client {
    /// Returns whether the `Inbound` of this name is the client's own.
    fn is_own(&self, name: &str, accounts: &Accounts) -> bool {
        let Some(account) = &self.account else {
            let of = name.split_once('/').map(|(of, _)| of);
            return of.is_some() && of == self.namespace.as_deref();
        };
        let accounts = accounts.read().unwrap_or_else(PoisonError::into_inner);
        name == self.node && accounts.get(name) == Some(account)
    }
}

impl Policy for Access {
    fn admit(&self, peer: &Peer) -> Result<(), Status> {
        match self.strict && peer.identity.is_none() {
            true => Err(Status::new(
                Code::Unauthenticated,
                "this control plane requires a client certificate of the mesh; it is missing, expired, or not signed by a trusted root",
            )),
            false => Ok(()),
        }
    }

    fn authorize(&self, peer: &Peer, node: &Node) -> Result<Scope, Status> {
        let client = self.client(peer, node)?;
        let (consumers, accounts) = (Arc::clone(&self.consumers), Arc::clone(&self.accounts));
        Ok(Arc::new(move |kind, name| {
            match (kind, &client.namespace) {
                // Variants of other clients cannot be requested.
                _ if name.contains('#') => None,
                (Kind::Inbound, _) => client.is_own(name, &accounts).then(|| name.into()),
                (Kind::Routes, Some(namespace)) => {
                    let consumers = consumers.read().unwrap_or_else(PoisonError::into_inner);
                    Some((&*consumers.of_namespace(name, namespace)).into())
                }
                (Kind::Endpoints, Some(namespace)) => {
                    let consumers = consumers.read().unwrap_or_else(PoisonError::into_inner);
                    // The pod is only claimed by the client. It determines which endpoints are near, and nothing
                    // else.
                    let pod = client.node.split_once('/').map_or("", |(_, pod)| pod);
                    Some((&*consumers.of_pod(name, namespace, pod)).into())
                }
                _ => Some(name.into()),
            }
        }))
    }

    fn answered(&self, delays: &[Duration], refused: Option<Kind>) {
        if let Some(pushes) = self.pushes.get() {
            pushes.answered(delays, refused);
        }
    }

    fn certify<'a>(&'a self, peer: &'a Peer, request: CertifyRequest) -> Certified<'a> {
        match &self.certifier {
            Some(certifier) => Box::pin(certifier.certify(peer.address, request)),
            None => Box::pin(async {
                let what = "certificates are disabled: start the controller without --plain-text";
                Err(Status::new(Code::Unimplemented, what))
            }),
        }
    }

    fn load_interval(&self) -> Option<Duration> {
        self.graphs.get()?.report_interval()
    }

    fn load_interval_changes(&self) -> Option<watch::Receiver<()>> {
        Some(self.graphs.get()?.interval_changes())
    }

    fn omits_empty_loads(&self, peer: &Peer, node: &Node) -> Option<WhileOpen> {
        let (client, graphs) = (self.client(peer, node).ok()?, self.graphs.get()?);
        Some(graphs.omits_empty(&client.node, client.account.as_deref()))
    }

    fn load(&self, peer: &Peer, node: &Node, report: &LoadReport) -> Result<(), Status> {
        let client = self.client(peer, node)?;
        let Some(graphs) = self.graphs.get() else {
            return Ok(());
        };
        let Some(account) = &client.account else {
            graphs.take(&client.node, report);
            return Ok(());
        };
        match graphs.topology().account_of(&client.node) {
            Some(own) if own == account => graphs.take(&client.node, report),
            Some(_) => {
                let what = format!("node `{}` belongs to another workload", client.node);
                return Err(Status::new(Code::PermissionDenied, what));
            }
            // There is no such pod, or it is not known yet, so the report is ignored.
            None => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
