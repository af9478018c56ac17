//! Builds the objects that workers use from a validated configuration. All operations that can fail happen here,
//! before the current state changes.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::{ArcSwap, ArcSwapOption};
use hashbrown::HashMap;
use maglor_balance::{SpecError, Time};
use maglor_config as config;
use maglor_config::cluster::UpstreamProtocol;
use maglor_config::listener::{HttpFilter, LoadReports, TrafficDirection};
use maglor_config::tls::MeshTermination;
use maglor_config::{FilterChain, Origination, RouteTable};
use maglor_identity::Live;
use maglor_identity::tls::{Client, Expected};

use crate::mesh::authorization::Authorization;
use crate::mesh::load_feedback::reporting::LoadReporter;
use crate::os::throttle::Throttle;
use crate::protocol::detect::ChainSelector;
use crate::protocol::mesh_transport;
use crate::routing::listener::{Chain, Filter, HttpChain, Listener, TcpChain, Termination};
use crate::routing::on_demand::{Asks, OnDemand};
use crate::routing::rate_limit::Limiter;
use crate::routing::route::Table;
use crate::telemetry::metrics::{ListenerMetrics, Metrics};
use crate::tls::mesh::Mesh;
use crate::tls::{self, Roots};
use crate::upstream::{ClientMesh, ClientTls, Cluster, Clusters};

mod bind;
mod files;

pub use bind::unusable_addresses;
pub(crate) use bind::{Sockets, UnixFile, bind};
pub use files::unusable_files;

/// Label `route` of requests that match no route.
const UNROUTED: &str = "-";

/// Error in applying a configuration that is valid in itself.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A listener's address cannot be bound.
    #[error("listener `{listener}`: cannot bind {address}: {source}")]
    Bind {
        /// The listener's name.
        listener: Arc<str>,
        /// The listener's address.
        address: config::Address,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The admin server's address cannot be bound.
    #[error("admin: cannot bind {address}: {source}")]
    BindAdmin {
        /// The admin server's address.
        address: std::net::SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A cluster's policy does not fit its endpoints.
    #[error("cluster `{cluster}`: {source}")]
    Policy {
        /// The cluster's name.
        cluster: Arc<str>,
        /// Why the policy does not fit.
        source: SpecError,
    },
    /// The identity cannot be used.
    #[error("{place}: {source}")]
    Identity {
        /// Place in the configuration: a cluster, a filter chain, or the identity itself.
        place: String,
        /// The file and what is wrong with it.
        source: Box<maglor_identity::Error>,
    },
    /// Mesh TLS is configured without an identity.
    #[error("{place}: mesh TLS needs an identity")]
    NoIdentity {
        /// Place in the configuration: a cluster or a filter chain.
        place: String,
    },
    /// A certificate, key or root file is not usable.
    #[error("{place}: {source}")]
    Tls {
        /// Place in the configuration: the cluster or filter chain that names the file.
        place: String,
        /// The file and what is wrong with it.
        source: Box<tls::Error>,
    },
}

/// Builds all clusters; those with unchanged configuration are kept.
pub(crate) fn clusters(
    config: &config::Config,
    before: &Clusters,
    files_changed: bool,
    sources: &mut Sources<'_>,
    metrics: &Metrics,
    now: Time,
) -> Result<Clusters, BuildError> {
    let mut clusters = Clusters::default();
    for wanted in &config.clusters {
        let old = before.get(&wanted.name);
        clusters.insert(one_cluster(
            wanted,
            old,
            files_changed,
            sources,
            metrics,
            now,
        )?);
    }
    Ok(clusters)
}

/// Builds a cluster, unless its configuration is unchanged.
pub(crate) fn one_cluster(
    wanted: &Arc<config::Cluster>,
    old: Option<Arc<Cluster>>,
    files_changed: bool,
    sources: &mut Sources<'_>,
    metrics: &Metrics,
    now: Time,
) -> Result<Arc<Cluster>, BuildError> {
    let stays_tls = !files_changed || !matches!(wanted.tls, Some(Origination::Names(_)));
    match old {
        // Resources of the control plane that did not change are the same object.
        Some(old) if stays_tls && (Arc::ptr_eq(old.config(), wanted) || old.config() == wanted) => {
            Ok(old)
        }
        old => cluster(wanted, old.as_deref(), sources, metrics, now).map(Arc::new),
    }
}

/// Roots and identity from which TLS configurations are built.
pub(crate) struct Sources<'a> {
    /// Root files, each read once for everything that is built together.
    roots: Roots,
    live: Option<&'a Arc<Live>>,
}

impl<'a> Sources<'a> {
    /// Creates sources without any roots read. `live` is the proxy's identity; `None` if it has none.
    pub(crate) fn new(live: Option<&'a Arc<Live>>) -> Self {
        Self {
            roots: Roots::new(),
            live,
        }
    }

    fn live(&self, place: &str) -> Result<&Arc<Live>, BuildError> {
        let place = || place.to_owned();
        self.live
            .ok_or_else(|| BuildError::NoIdentity { place: place() })
    }

    fn origination(
        &mut self,
        wanted: &config::Cluster,
        metrics: &Metrics,
    ) -> Result<Option<ClientTls>, BuildError> {
        let in_mesh = matches!(wanted.tls, Some(Origination::Mesh(_)));
        let alpn: &[&[u8]] = match wanted.protocol {
            UpstreamProtocol::Auto if in_mesh => &[mesh_transport::ALPN, b"h2", b"http/1.1"],
            UpstreamProtocol::Auto | UpstreamProtocol::Downstream => &[b"h2", b"http/1.1"],
            UpstreamProtocol::Http1 => &[b"http/1.1"],
            UpstreamProtocol::Http2 => &[b"h2"],
        };
        let place = format!("cluster `{}`", wanted.name);
        Ok(Some(match &wanted.tls {
            None => return Ok(None),
            Some(Origination::Names(tls)) => {
                let config = tls::client_config(tls, alpn, &mut self.roots);
                let config = config.map_err(|source| BuildError::Tls {
                    place,
                    source: Box::new(source),
                })?;
                ClientTls::Names(config)
            }
            Some(Origination::Mesh(identities)) => {
                let expected = match identities.is_empty() {
                    true => Expected::Member,
                    false => Expected::OneOf(identities.clone()),
                };
                let live = self.live(&place)?;
                let client = Client::new(live, expected, alpn);
                let client = client.map_err(|source| BuildError::Identity {
                    place,
                    source: Box::new(source),
                })?;
                ClientTls::Mesh(ClientMesh {
                    client,
                    live: Arc::clone(live),
                    refused: Arc::new(metrics.mesh_cluster(&wanted.name)),
                    failures: Arc::new(metrics.mesh_cluster_failures(&wanted.name)),
                })
            }
        }))
    }

    fn termination(
        &mut self,
        listener: &str,
        wanted: &FilterChain,
        metrics: &Metrics,
    ) -> Result<Option<Termination>, BuildError> {
        let place = place(listener, wanted);
        Ok(Some(match &wanted.tls {
            None => return Ok(None),
            Some(config::Termination::Certificates(tls)) => {
                let config = tls::server_config(tls, &mut self.roots);
                Termination::Certificates(config.map_err(|source| BuildError::Tls {
                    place,
                    source: Box::new(source),
                })?)
            }
            Some(config::Termination::Mesh(mesh)) => {
                let counted = metrics.mesh_listener(listener);
                let mesh = Mesh::new(mesh, self.live(&place)?, counted);
                Termination::Mesh(Arc::new(mesh.map_err(|source| BuildError::Identity {
                    place,
                    source: Box::new(source),
                })?))
            }
        }))
    }
}

/// Formats the place of a filter chain for error messages.
fn place(listener: &str, chain: &FilterChain) -> String {
    format!("listener `{listener}`, filter chain `{}`", chain.name)
}

fn cluster(
    wanted: &Arc<config::Cluster>,
    old: Option<&Cluster>,
    sources: &mut Sources<'_>,
    metrics: &Metrics,
    now: Time,
) -> Result<Cluster, BuildError> {
    let tls = sources.origination(wanted, metrics)?;
    Cluster::new(Arc::clone(wanted), tls, metrics, old, now).map_err(|source| BuildError::Policy {
        cluster: Arc::clone(&wanted.name),
        source,
    })
}

/// Returns whether two parts of configurations are equal. Their debug text is compared, since regular expressions do
/// not implement equality.
fn same(a: &impl Debug, b: &impl Debug) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

/// A listener that is built, but not yet used.
pub(crate) struct Built {
    pub(crate) listener: Arc<Listener>,
    /// Chains that are kept, with their new routes.
    routes: Vec<(Arc<HttpChain>, Table)>,
    /// TCP chains that are kept, with their new cluster.
    clusters: Vec<(Arc<TcpChain>, Arc<Cluster>)>,
}

impl Built {
    /// Applies the new routes and clusters, also to open connections. Adds the replaced tables to `superseded`.
    pub(crate) fn commit(self, superseded: &mut Vec<Arc<Table>>) -> Arc<Listener> {
        for (chain, table) in self.routes {
            superseded.push(chain.routes.swap(Arc::new(table)));
        }
        for (chain, cluster) in self.clusters {
            chain.cluster.store(Some(cluster));
        }
        self.listener
    }
}

/// Builds a listener; chains of `before` with unchanged settings are kept.
pub(crate) fn listener(
    wanted: &Arc<config::Listener>,
    before: Option<&Listener>,
    clusters: &Clusters,
    sources: &mut Sources<'_>,
    asks: &Asks,
    metrics: &Metrics,
) -> Result<Built, BuildError> {
    let own = before.map_or_else(
        || metrics.listener(&wanted.name),
        |b| Arc::clone(&b.metrics),
    );
    let limited = before.and_then(|before| before.rate_limit.as_ref());
    let rate_limit = wanted
        .rate_limit
        .as_ref()
        .map(|config| Limiter::build(config, limited));
    let authorization = wanted
        .authorization
        .as_ref()
        .map(|config| Arc::new(Authorization::new(config, &wanted.name, metrics)));
    let mut built = Build {
        name: &wanted.name,
        direction: wanted.direction,
        authorization: authorization.as_ref(),
        before,
        clusters,
        metrics,
        asks,
        own: &own,
        rate_limit,
        routes: Vec::new(),
        tcp: Vec::new(),
    };
    let mut chains = Vec::with_capacity(wanted.filter_chains.len());
    for chain in &wanted.filter_chains {
        let tls = sources.termination(&wanted.name, chain, metrics)?;
        let filter = built.filter(chain);
        chains.push(Chain {
            name: Arc::clone(&chain.name),
            tls,
            filter,
        });
    }
    let (routes, tcp, rate_limit) = (built.routes, built.tcp, built.rate_limit);
    let listener = Arc::new(Listener {
        config: Arc::clone(wanted),
        selector: ChainSelector::new(wanted.filter_chains.iter().map(|chain| &chain.matches)),
        chains,
        metrics: Arc::clone(&own),
        authorization,
        rate_limit,
        ended: Throttle::new(),
    });
    Ok(Built {
        listener,
        routes,
        clusters: tcp,
    })
}

/// Inputs and results of building a listener's chains.
struct Build<'a> {
    name: &'a Arc<str>,
    direction: TrafficDirection,
    before: Option<&'a Listener>,
    clusters: &'a Clusters,
    metrics: &'a Metrics,
    asks: &'a Asks,
    own: &'a Arc<ListenerMetrics>,
    authorization: Option<&'a Arc<Authorization>>,
    rate_limit: Option<Arc<Limiter>>,
    routes: Vec<(Arc<HttpChain>, Table)>,
    tcp: Vec<(Arc<TcpChain>, Arc<Cluster>)>,
}

impl Build<'_> {
    fn filter(&mut self, wanted: &FilterChain) -> Filter {
        let old = self
            .before
            .and_then(|before| before.chains.iter().find(|chain| chain.name == wanted.name));
        let http = old.and_then(|old| old.filter.http());
        let tcp = old.and_then(|old| old.filter.tcp());
        // A client admitted in one TLS mode must not stay connected in another mode: a chain whose mode changes is
        // not kept.
        let mesh = match &wanted.tls {
            Some(config::Termination::Mesh(mesh)) => Some(mesh),
            Some(config::Termination::Certificates(_)) | None => None,
        };
        match &wanted.filter {
            config::Filter::Detect {
                http: routed,
                tcp: bytes,
            } => Filter::Detect {
                http: self.http(routed, mesh, http),
                tcp: self.tcp(bytes, tcp),
            },
            config::Filter::Http(settings) => Filter::Http(self.http(settings, mesh, http)),
            config::Filter::Tcp(settings) => Filter::Tcp(self.tcp(settings, tcp)),
        }
    }

    fn http(
        &mut self,
        settings: &HttpFilter,
        mesh: Option<&MeshTermination>,
        old: Option<&Arc<HttpChain>>,
    ) -> Arc<HttpChain> {
        let before = old.map(|old| old.routes.load());
        let mut table = Table::compile(
            &settings.routes,
            self.name,
            self.clusters,
            self.metrics,
            self.rate_limit.as_ref(),
            before.as_deref().map(|before| &**before),
        );
        table.authorization = self.authorization.cloned();
        table.delegates = mesh.map_or_else(Vec::new, |mesh| mesh.delegates.clone());
        let mesh = mesh.map(|mesh| mesh.mode);
        let bare = HttpFilter {
            routes: Arc::new(RouteTable::default()),
            ..settings.clone()
        };
        if let Some(old) = old.filter(|old| old.mesh == mesh && same(&old.settings, &bare)) {
            // The service's endpoints may have changed.
            self.load_reporter(settings, Some(old));
            self.routes.push((Arc::clone(old), table));
            return Arc::clone(old);
        }
        Arc::new(HttpChain {
            listener: Arc::clone(self.name),
            direction: self.direction,
            settings: bare,
            mesh,
            routes: ArcSwap::from_pointee(table),
            retired: AtomicBool::new(false),
            metrics: Arc::clone(self.own),
            load_reporter: self.load_reporter(settings, old),
            failures: mesh.map(|_| self.metrics.mesh_listener_failures(self.name)),
            on_demand: settings.discovery.as_ref().map(|wanted| {
                let known = old.and_then(|old| old.on_demand.clone());
                OnDemand::new(wanted, self.name, self.asks, known)
            }),
            unrouted: self.metrics.route(self.name, &UNROUTED.into(), None, true),
        })
    }

    /// Returns the load reporter of a chain. A reload keeps an existing reporter and its counts.
    fn load_reporter(
        &self,
        settings: &HttpFilter,
        old: Option<&Arc<HttpChain>>,
    ) -> Option<Arc<LoadReporter>> {
        let wanted = settings.load_reports.as_ref()?;
        let known = old.and_then(|old| old.load_reporter.clone());
        let known = known.filter(|load_reporter| load_reporter.speaks_orca() == wanted.orca);
        let load_reporter = known.unwrap_or_else(|| {
            let metrics = self.metrics.load_reporter(self.name);
            Arc::new(LoadReporter::new(wanted.orca, metrics))
        });
        load_reporter.set_peers(peers(wanted, self.clusters));
        Some(load_reporter)
    }

    fn tcp(&mut self, settings: &config::TcpFilter, old: Option<&Arc<TcpChain>>) -> Arc<TcpChain> {
        let cluster = self.clusters.get(&settings.cluster);
        if let (Some(old), Some(cluster)) = (old.filter(|old| old.settings == *settings), &cluster)
        {
            self.tcp.push((Arc::clone(old), Arc::clone(cluster)));
            return Arc::clone(old);
        }
        Arc::new(TcpChain {
            settings: settings.clone(),
            cluster: ArcSwapOption::new(cluster),
        })
    }
}

/// Returns the cluster of a service's endpoints, once it is known, and the name of the endpoint behind the chain.
fn peers(wanted: &LoadReports, clusters: &Clusters) -> Option<(Arc<Cluster>, String)> {
    let peers = wanted.peers.as_ref()?;
    Some((clusters.get(&peers.cluster)?, peers.endpoint.to_string()))
}

/// Updates the load reporters of a listener with the current endpoints of their services.
pub(crate) fn introduce_peers(listener: &Listener, clusters: &Clusters) {
    for chain in http_chains(listener) {
        if let (Some(load_reporter), Some(wanted)) =
            (&chain.load_reporter, &chain.settings.load_reports)
        {
            load_reporter.set_peers(peers(wanted, clusters));
        }
    }
}

/// Returns the chains of `before` that `now` no longer contains.
pub(crate) fn retired(before: &Listener, now: Option<&Listener>) -> Vec<Arc<HttpChain>> {
    let kept: HashMap<*const HttpChain, ()> = now
        .iter()
        .flat_map(|now| http_chains(now))
        .map(|chain| (Arc::as_ptr(chain), ()))
        .collect();
    http_chains(before)
        .filter(|chain| !kept.contains_key(&Arc::as_ptr(chain)))
        .cloned()
        .collect()
}

fn http_chains(listener: &Listener) -> impl Iterator<Item = &Arc<HttpChain>> {
    let chains = listener.chains.iter();
    chains.filter_map(|chain| chain.filter.http())
}
