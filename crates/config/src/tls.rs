//! TLS settings of listeners and clusters. Files are read by the proxy, not here.

use std::path::PathBuf;

use maglor_identity::SpiffeId;

/// How a filter chain terminates TLS.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Termination {
    /// With certificates of its own.
    Certificates(DownstreamTls),
    /// With the proxy's identity, for workloads of the mesh.
    Mesh(MeshTermination),
}

/// Mutual TLS for workloads of the mesh.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MeshTermination {
    /// Who is let in.
    pub mode: MeshMode,
    /// ALPN protocols offered, in order of preference.
    pub alpn: Vec<String>,
    /// Proxies that are trusted to name the client of a request.
    pub delegates: Vec<SpiffeId>,
}

/// Who is let in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MeshMode {
    /// Workloads of the mesh, and plain text.
    Permissive,
    /// Workloads of the mesh only.
    Strict,
}

/// How a cluster speaks TLS to its endpoints.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origination {
    /// With the proxy's identity. Endpoints prove one of these, or any of the trust domain where
    /// there are none.
    Mesh(Vec<SpiffeId>),
    /// As a client of servers that prove their names.
    Names(UpstreamTls),
}

/// A certificate chain and its key, both PEM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFiles {
    /// Leaf first, then intermediates.
    pub certificate: PathBuf,
    /// PKCS#8, PKCS#1 or SEC1.
    pub private_key: PathBuf,
}

/// The minimum TLS version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MinimumTlsVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    Tls12,
    /// Only TLS 1.3.
    Tls13,
}

/// TLS termination on a filter chain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DownstreamTls {
    /// At least one; chosen by SNI against the certificate's names, the first is the default.
    pub certificates: Vec<CertificateFiles>,
    /// Roots that client certificates must chain to; `None` = no client certificate is asked for.
    pub client_ca: Option<PathBuf>,
    /// Whether a client without certificate is refused (only with `client_ca`).
    pub require_client_certificate: bool,
    /// ALPN protocols offered, in order of preference; derived from the HTTP protocol by default.
    pub alpn: Vec<String>,
    /// Oldest version accepted.
    pub min_version: MinimumTlsVersion,
}

/// TLS origination towards a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UpstreamTls {
    /// Name for SNI and verification; `None` = the endpoint's DNS name or address.
    pub server_name: Option<String>,
    /// PEM roots; `None` = the system's roots.
    pub ca: Option<PathBuf>,
    /// Client certificate for mutual TLS.
    pub certificate: Option<CertificateFiles>,
    /// Accept any server certificate. For tests only; logged loudly.
    pub insecure_skip_verify: bool,
    /// Oldest version accepted.
    pub min_version: MinimumTlsVersion,
}
