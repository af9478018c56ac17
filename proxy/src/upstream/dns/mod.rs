//! Endpoints given by DNS names. They are resolved when the cluster is added, and again when the answer expires.
//!
//! Runs on the control thread. Names are resolved independently, so that a name server that does not respond delays
//! only its own names. A name that cannot be resolved keeps its last addresses.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::system_conf::parse_resolv_conf;
use maglor_config::cluster::{DnsRefresh, EndpointAddress};

use super::Cluster;
use super::Resolved;
use crate::runtime::shared::Shared;

#[cfg(test)]
mod tests;

/// Configuration of the system's name servers (resolv.conf(5)).
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Resolves names for all clusters.
#[derive(Clone, Debug)]
pub(crate) struct Resolver(Arc<Mutex<Settings>>);

/// The system's settings when they were last read.
#[derive(Debug)]
struct Settings {
    resolver: TokioResolver,
    path: PathBuf,
    /// Version of the file that was read; `None` if changes are ignored.
    version: Option<FileVersion>,
}

/// Attributes that change when the file is replaced or modified.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FileVersion {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl FileVersion {
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self {
            inode: file.ino(),
            length: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
        })
    }
}

/// Parses a file in the format of resolv.conf(5).
fn read(path: &Path) -> Result<TokioResolver, NetError> {
    let (config, options) = parse_resolv_conf(fs::read(path)?)?;
    resolver(config, options)
}

fn resolver(config: ResolverConfig, options: ResolverOpts) -> Result<TokioResolver, NetError> {
    let provider = TokioRuntimeProvider::default();
    let mut builder = TokioResolver::builder_with_config(config, provider);
    *builder.options_mut() = options;
    let options = builder.options_mut();
    options.ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
    // There is no cache: `dns_refresh` determines when a name is looked up again. A cache would use the TTL of a
    // record even if it is above `max`, and that of a missing name even if it is above `min`.
    options.cache_size = 0;
    builder.build()
}

impl Settings {
    /// Returns the resolver, rebuilt if the file has changed. If the file cannot be read, the last resolver
    /// stays, and the file is read again at the next lookup.
    fn current(&mut self) -> TokioResolver {
        let version = FileVersion::of(&self.path);
        if self.version.is_some() && version.is_some() && version != self.version {
            match read(&self.path) {
                Ok(resolver) => {
                    tracing::info!(file = %self.path.display(), "name servers reloaded");
                    self.resolver = resolver;
                    self.version = version;
                }
                Err(error) => {
                    tracing::debug!(file = %self.path.display(), %error, "cannot read name servers");
                }
            }
        }
        self.resolver.clone()
    }
}

impl Resolver {
    /// Reads the system's resolver configuration (`/etc/resolv.conf`, `/etc/hosts`); the former is reread at a lookup
    /// if it has changed.
    ///
    /// # Errors
    /// If the configuration cannot be read.
    pub(crate) fn new() -> Result<Self, NetError> {
        Self::of_file(Path::new(RESOLV_CONF))
    }

    fn of_file(path: &Path) -> Result<Self, NetError> {
        // Taken before the file is read, so that a change during the read is noticed later.
        let version = FileVersion::of(path);
        Ok(Self(Arc::new(Mutex::new(Settings {
            resolver: read(path)?,
            path: path.to_owned(),
            version,
        }))))
    }

    fn current(&self) -> TokioResolver {
        let mut settings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        settings.current()
    }

    /// Keeps the names of a cluster resolved; never returns. Must be restarted when the cluster gets other endpoints.
    pub(crate) async fn follow(self, cluster: Arc<Cluster>, shared: Arc<Shared>) {
        let DnsRefresh { min, max } = cluster.config().dns_refresh;
        let failures = shared.metrics.control.dns_failures.with(&[cluster.name()]);
        let mut names = Name::all(&cluster);
        let mut looks: FuturesUnordered<_> = (0..names.len())
            .map(|at| self.look(at, Arc::clone(&names[at].host), Duration::ZERO))
            .collect();
        while let Some(first) = looks.next().await {
            let (mut changed, mut look) = (false, first);
            // Answers that have arrived together are applied together.
            loop {
                let name = &mut names[look.name];
                let pause = match look.found {
                    Ok(found) => {
                        changed |= name.found(&found, &cluster);
                        let left = found.valid_until();
                        left.saturating_duration_since(Instant::now())
                            .clamp(min, max)
                    }
                    Err(error) => {
                        failures.add_shared(1);
                        name.failed(&error, &cluster);
                        min
                    }
                };
                looks.push(self.look(look.name, Arc::clone(&name.host), pause));
                match looks.next().now_or_never().flatten() {
                    Some(next) => look = next,
                    None => break,
                }
            }
            if changed {
                apply(&names, &cluster, &shared);
            }
        }
        // There are no names.
        std::future::pending::<()>().await;
    }

    async fn look(&self, name: usize, host: Arc<str>, pause: Duration) -> Look {
        tokio::time::sleep(pause).await;
        let found = self.current().lookup_ip(&*host).await;
        Look { name, found }
    }
}

/// Result of a lookup.
struct Look {
    /// Index of the name.
    name: usize,
    found: Result<LookupIp, NetError>,
}

/// A DNS name of a cluster.
#[derive(Debug)]
struct Name {
    host: Arc<str>,
    port: u16,
    /// Index of the endpoint that has this name.
    endpoint: usize,
    /// Addresses in sorted order, so that a shuffled answer counts as unchanged.
    addresses: Vec<IpAddr>,
    /// Whether the last lookup failed.
    failing: bool,
}

impl Name {
    /// Returns the names of a cluster with their last addresses.
    fn all(cluster: &Cluster) -> Vec<Self> {
        let endpoints = cluster.endpoints();
        let described = cluster.described();
        let names = described.iter().enumerate().filter_map(|(endpoint, one)| {
            let EndpointAddress::Dns { host, port } = &one.address else {
                return None;
            };
            let of_name = endpoints.targets().iter().filter(|target| {
                let own = target.address.ip().map(|address| address.port());
                target.host.as_ref() == Some(host) && own == Some(*port)
            });
            Some(Self {
                host: Arc::clone(host),
                port: *port,
                endpoint,
                addresses: of_name
                    .filter_map(|target| Some(target.address.ip()?.ip()))
                    .collect(),
                failing: false,
            })
        });
        names.collect()
    }

    /// Applies an answer; returns whether it has changed.
    fn found(&mut self, found: &LookupIp, cluster: &Cluster) -> bool {
        if std::mem::take(&mut self.failing) {
            tracing::info!(cluster = %cluster.name(), name = %self.host, "DNS lookup succeeded again");
        }
        let mut addresses: Vec<_> = found.iter().collect();
        if cluster.config().first_address_only {
            // The address in use is kept while it is in the answer: servers shuffle their answers, and another
            // address would close the connections to this one.
            let used = self.addresses.first();
            let used = used.filter(|one| addresses.contains(one)).copied();
            addresses = used.or(addresses.first().copied()).into_iter().collect();
        }
        addresses.sort_unstable();
        std::mem::replace(&mut self.addresses, addresses) != self.addresses
    }

    /// Handles a failed lookup. Lookups are retried and may fail for a long time, so that only the first failure is
    /// logged.
    fn failed(&mut self, error: &NetError, cluster: &Cluster) {
        if !std::mem::replace(&mut self.failing, true) {
            let error = in_words(error);
            tracing::warn!(cluster = %cluster.name(), name = %self.host, %error, "DNS lookup failed");
        }
    }
}

/// Describes why a name has no address, because the resolver's own message contains names of its types.
fn in_words(error: &NetError) -> String {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => "there is no such name".into(),
            ResponseCode::Refused => "the name server refuses to answer".into(),
            ResponseCode::ServFail => "the name server failed".into(),
            _ => "the name has no addresses".into(),
        },
        NetError::Dns(DnsError::ResponseCode(code)) => match *code {
            ResponseCode::NXDomain => "there is no such name".into(),
            ResponseCode::Refused => "the name server refuses to answer".into(),
            ResponseCode::ServFail => "the name server failed".into(),
            code => format!("the name server answers: {code}"),
        },
        NetError::Timeout => "no name server has answered in time (/etc/resolv.conf)".into(),
        NetError::NoConnections => "no name server can be reached (/etc/resolv.conf)".into(),
        other => other.to_string(),
    }
}

/// Applies the addresses of a cluster's names.
fn apply(names: &[Name], cluster: &Cluster, shared: &Shared) {
    let resolved: Vec<_> = names
        .iter()
        .flat_map(|name| {
            name.addresses.iter().map(|ip| Resolved {
                address: SocketAddr::new(*ip, name.port).into(),
                endpoint: name.endpoint,
            })
        })
        .collect();
    let now = shared.time(tokio::time::Instant::now());
    if let Err(error) = cluster.resolve(&resolved, &shared.metrics, now) {
        tracing::warn!(cluster = %cluster.name(), %error, "resolved endpoints not applied");
    }
}
