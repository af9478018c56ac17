//! The parameters of a workload certificate, and the issued certificate.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;

use crate::SpiffeId;

/// The maximum lifetime of a workload certificate, which cannot be revoked.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// The parameters of a workload certificate.
#[derive(Clone, Debug)]
pub struct LeafRequest {
    /// The SPIFFE ID, which becomes the only URI of the certificate.
    pub id: SpiffeId,
    /// The lifetime from now on, at most [`MAX_TTL`].
    pub ttl: Duration,
    /// The DNS names, which clients outside the mesh verify.
    pub dns_names: Vec<String>,
    /// The IP addresses, which clients outside the mesh verify.
    pub addresses: Vec<IpAddr>,
}

impl LeafRequest {
    /// Creates the parameters for a workload, with the maximum lifetime and no further names.
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
    /// The chain in DER: the leaf and, if there is one, the cross-signed certificate of an older root.
    pub chain: Vec<CertificateDer<'static>>,
    /// The chain as PEM: the leaf and, if there is one, the cross-signed certificate of an older root.
    pub certificate_pem: String,
    /// The private key as PEM, PKCS#8; `None` if it was not generated here.
    pub private_key_pem: Option<String>,
    /// The end of the validity period.
    pub expires: SystemTime,
}
