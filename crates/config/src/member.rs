//! Joins a proxy to a mesh: the parts of the configuration that all proxies with a control plane share, from a few
//! flags.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::check::Known;
use crate::diagnostic::Errors;
use crate::load::{Loaded, finish};
use crate::raw::{self, Short, Size, TimeSpan};
use crate::report::Step;
use crate::source::Source;

/// The name of the cluster of the control plane's servers.
const CONTROL_PLANE: &str = "control-plane";
/// The namespace and service account of the control plane, as in its SPIFFE ID.
const CONTROLLER: &str = "ns/maglor/sa/maglor-controller";

/// The flags that all proxies of the mesh share: the identity and location of the proxy, and its control plane.
#[derive(Clone, Debug)]
pub struct Member {
    /// `--control-plane`: `HOST:PORT`; a host `NAME.NAMESPACE.svc` is a Service of the Kubernetes cluster.
    pub control_plane: String,
    /// `--trust-domain`: the trust domain of all SPIFFE IDs.
    pub trust_domain: String,
    /// `--cluster-domain`: the suffix of the DNS names of services.
    pub cluster_domain: String,
    /// The source of the proxy's identity.
    pub credentials: Credentials,
    /// `--cache-dir`: the directory of the cache for the next start; `None` = no cache.
    pub cache_dir: Option<PathBuf>,
    /// `--plain-text`: whether the connection to the control plane has no TLS.
    pub plain_text: bool,
    /// `--pod-namespace`: the namespace of the pod.
    pub namespace: String,
    /// `--pod-name`: the name of the pod, unique in the namespace.
    pub name: String,
    /// `--pod-ips`: the addresses of the pod; empty = unknown.
    pub addresses: Vec<IpAddr>,
    /// `--bind`: the address that the proxy listens on; `None` = all addresses.
    pub bind: Option<IpAddr>,
    /// `--admin-port`: the port of the admin server.
    pub admin_port: u16,
    /// `--workers`: the number of worker threads.
    pub workers: usize,
    /// `--memory-budget`, in bytes; `None` = unlimited.
    pub memory_budget: Option<u64>,
    /// `--drain-timeout`: the drain timeout of open connections; `None` = the default.
    pub drain_timeout: Option<TimeSpan>,
}

/// The source of the proxy's identity.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// PEM files.
    Files {
        /// `--certificate`: the certificate chain.
        certificate: PathBuf,
        /// `--private-key`: the private key.
        private_key: PathBuf,
        /// `--trust-bundle`: the root certificates.
        trust_bundle: PathBuf,
    },
    /// The proxy has no identity.
    None,
    /// The control plane issues a certificate for a token.
    Token {
        /// `--token-file`: the file of the token.
        token_file: PathBuf,
        /// `--trust-bundle`: the initial root certificates.
        trust_bundle: PathBuf,
    },
}

impl Member {
    /// Validates a configuration generated from flags, so that each error names its flag.
    pub(crate) fn load(
        document: &raw::Document,
        origins: Vec<(Vec<Step>, String)>,
    ) -> Result<Loaded, Errors> {
        let known = Known {
            clusters: true,
            route_tables: true,
            identity: true,
            one_author: true,
        };
        finish(document, known, Vec::new(), &Source::Flags(origins))
    }

    /// Returns the configuration without its listeners.
    pub(crate) fn document(&self) -> raw::Document {
        raw::Document {
            workers: Some(u32::try_from(self.workers).unwrap_or(u32::MAX)),
            admin: Some(raw::Admin {
                address: Some(self.listen(self.admin_port)),
                ..raw::Admin::default()
            }),
            identity: self.identity(),
            control_plane: Some(raw::ControlPlane {
                cluster: Some(CONTROL_PLANE.to_owned()),
                node: Some(raw::Node {
                    id: Some(self.node()),
                    cluster: None,
                }),
                cache_dir: self
                    .cache_dir
                    .as_ref()
                    .map(|path| path.display().to_string()),
                gateway: None,
            }),
            drain_timeout: self.drain_timeout,
            memory_budget: self.memory_budget.map(Size),
            clusters: vec![self.cluster()],
            ..raw::Document::default()
        }
    }

    /// Returns, for each part of [`Member::document`], the flag that it came from.
    pub(crate) fn origins(&self) -> Vec<(Vec<Step>, String)> {
        let field = |name: &str| Step::Field(name.into());
        let cluster = || vec![field("clusters"), Step::Index(0)];
        vec![
            (
                vec![field("workers")],
                format!("--workers {}", self.workers),
            ),
            (
                vec![field("admin")],
                format!("--admin-port {}", self.admin_port),
            ),
            (vec![field("drain_timeout")], "--drain-timeout".to_owned()),
            (vec![field("memory_budget")], "--memory-budget".to_owned()),
            (
                vec![field("control_plane"), field("node")],
                format!(
                    "--pod-namespace {} --pod-name {}",
                    self.namespace, self.name
                ),
            ),
            (
                cluster(),
                format!(
                    "--control-plane {}",
                    crate::yaml::short(&self.control_plane)
                ),
            ),
            (
                [cluster(), vec![field("tls")]].concat(),
                format!("--trust-domain {}", crate::yaml::short(&self.trust_domain)),
            ),
        ]
    }

    /// Returns `NAMESPACE/NAME`, the name of the proxy at the control plane.
    pub(crate) fn node(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the address to listen on at a port: not `[::]` if the host has no IPv6.
    pub(crate) fn listen(&self, port: u16) -> String {
        let only_v4 = !self.addresses.is_empty() && self.addresses.iter().all(IpAddr::is_ipv4);
        let any = match only_v4 {
            true => IpAddr::from([0; 4]),
            false => IpAddr::from([0; 16]),
        };
        SocketAddr::new(self.bind.unwrap_or(any), port).to_string()
    }

    /// Returns whether the proxy has an identity for mutual TLS.
    pub(crate) fn has_identity(&self) -> bool {
        !matches!(self.credentials, Credentials::None)
    }

    fn identity(&self) -> Option<raw::Identity> {
        let text = |path: &PathBuf| Some(path.display().to_string());
        match &self.credentials {
            Credentials::Files {
                certificate,
                private_key,
                trust_bundle,
            } => Some(raw::Identity {
                certificate: text(certificate),
                private_key: text(private_key),
                trust_bundle: text(trust_bundle),
                ..raw::Identity::default()
            }),
            Credentials::None => None,
            Credentials::Token {
                token_file,
                trust_bundle,
            } => Some(raw::Identity {
                token_file: text(token_file),
                trust_bundle: text(trust_bundle),
                ..raw::Identity::default()
            }),
        }
    }

    fn cluster(&self) -> raw::Cluster {
        let mesh = raw::UpstreamTls {
            mesh: Some(raw::MeshPeers {
                identities: vec![format!("spiffe://{}/{CONTROLLER}", self.trust_domain)],
            }),
            ..raw::UpstreamTls::default()
        };
        raw::Cluster {
            name: Some(CONTROL_PLANE.to_owned()),
            tls: (!self.plain_text).then_some(Short(mesh)),
            endpoints: vec![Short(raw::Endpoint {
                address: Some(self.server()),
                ..raw::Endpoint::default()
            })],
            ..raw::Cluster::default()
        }
    }

    /// Returns the complete DNS name of the control plane: for an incomplete name, a resolver would try each of its
    /// search domains.
    fn server(&self) -> String {
        match self.control_plane.rsplit_once(':') {
            Some((host, port)) if host.ends_with(".svc") => {
                format!("{host}.{}:{port}", self.cluster_domain)
            }
            _ => self.control_plane.clone(),
        }
    }
}

#[cfg(test)]
impl Member {
    /// A pod of a namespace.
    pub(crate) fn example(namespace: &str) -> Self {
        Self {
            control_plane: "10.0.0.1:15010".into(),
            trust_domain: "cluster.local".into(),
            cluster_domain: "cluster.local".into(),
            credentials: Credentials::None,
            cache_dir: None,
            plain_text: true,
            namespace: namespace.into(),
            name: "web-1".into(),
            addresses: Vec::new(),
            bind: None,
            admin_port: 15_020,
            workers: 1,
            memory_budget: None,
            drain_timeout: None,
        }
    }
}
