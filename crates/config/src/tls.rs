//! TLS settings of listeners and clusters. Files are read by the proxy, not here.

use std::path::PathBuf;

use maglor_identity::SpiffeId;

/// The TLS termination of a filter chain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Termination {
    /// With configured certificates.
    Certificates(DownstreamTls),
    /// With the proxy's identity, for workloads of the mesh.
    Mesh(MeshTermination),
}

/// Mutual TLS for workloads of the mesh.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MeshTermination {
    /// The clients that are accepted.
    pub mode: MeshMode,
    /// The ALPN protocols to offer, in order of preference.
    pub alpn: Vec<String>,
    /// Proxies that are trusted to name the client of a request.
    pub delegates: Vec<SpiffeId>,
}

/// The clients that mutual TLS accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MeshMode {
    /// Workloads of the mesh, and clients in plain text.
    Permissive,
    /// Workloads of the mesh only.
    Strict,
}

/// The TLS origination of a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origination {
    /// With the proxy's identity. Endpoints must have one of these SPIFFE IDs, or any ID of the trust domain if the
    /// list is empty.
    Mesh(Vec<SpiffeId>),
    /// As a client that verifies the names of servers.
    Names(UpstreamTls),
}

/// A certificate chain and its key, both PEM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFiles {
    /// The certificate chain: leaf first, then intermediates.
    pub certificate: PathBuf,
    /// The private key: PKCS#8, PKCS#1 or SEC1.
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
    /// The certificates, at least one. The certificate is chosen by SNI from the names in the certificates; the first
    /// is the default.
    pub certificates: Vec<CertificateFiles>,
    /// The PEM file of the roots of client certificates; `None` = no client certificate is requested.
    pub client_ca: Option<PathBuf>,
    /// Whether clients without a certificate are rejected; only with `client_ca`.
    pub require_client_certificate: bool,
    /// The ALPN protocols to offer, in order of preference; derived from the HTTP protocol by default.
    pub alpn: Vec<String>,
    /// The minimum TLS version.
    pub min_version: MinimumTlsVersion,
}

/// TLS origination towards a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UpstreamTls {
    /// The name for SNI and verification; `None` = the endpoint's DNS name or address.
    pub server_name: Option<String>,
    /// The PEM file of the root certificates; `None` = the system's roots.
    pub ca: Option<PathBuf>,
    /// The client certificate for mutual TLS; `None` = none.
    pub certificate: Option<CertificateFiles>,
    /// Whether any server certificate is accepted. For tests only; a warning is logged.
    pub insecure_skip_verify: bool,
    /// The minimum TLS version.
    pub min_version: MinimumTlsVersion,
}
