//! The parameters of a workload certificate, and the issued certificate.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;

use crate::SpiffeId;

/// The longest lifetime of a workload certificate: it cannot be revoked, only left to expire.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// The parameters of a workload certificate.
#[derive(Clone, Debug)]
pub struct LeafRequest {
    /// The SPIFFE ID, the certificate's only URI.
    pub id: SpiffeId,
    /// The lifetime from now on, at most [`MAX_TTL`].
    pub ttl: Duration,
    /// DNS names, for clients outside the mesh.
    pub dns_names: Vec<String>,
    /// IP addresses, for clients outside the mesh.
    pub addresses: Vec<IpAddr>,
}

impl LeafRequest {
    /// Requests a certificate for a workload with the longest lifetime.
    #[must_use]
    pub fn new(id: SpiffeId) -> Self {
        Self {
            id,
            ttl: MAX_TTL,
            dns_names: Vec::new(),
            addresses: Vec::new(),
        }
    }
}

/// An issued certificate.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The chain as DER: the leaf, then the cross-signed certificate of an older root, if any.
    pub chain: Vec<CertificateDer<'static>>,
    /// The chain as PEM: the leaf, then the cross-signed certificate of an older root, if any.
    pub certificate_pem: String,
    /// The private key as PEM, PKCS#8; `None` if the requester kept it.
    pub private_key_pem: Option<String>,
    /// The end of the validity.
    pub expires: SystemTime,
}
