//! Requests to an authority for a workload's certificate, and the result.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;

use crate::SpiffeId;

/// No certificate of a workload lives longer: it cannot be revoked, only left to expire.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// A certificate that is wanted for a workload.
#[derive(Clone, Debug)]
pub struct LeafRequest {
    /// Its only URI.
    pub id: SpiffeId,
    /// How long it is valid from now on, at most [`MAX_TTL`].
    pub ttl: Duration,
    /// Names for clients outside the mesh.
    pub dns_names: Vec<String>,
    /// Addresses for clients outside the mesh.
    pub addresses: Vec<IpAddr>,
}

impl LeafRequest {
    /// For a workload, for as long as allowed.
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

/// A certificate that was issued.
#[derive(Clone, Debug)]
pub struct Issued {
    /// DER: the leaf, then what leads from it to an older root, if there is one.
    pub chain: Vec<CertificateDer<'static>>,
    /// PEM: the leaf, then what leads from it to an older root, if there is one.
    pub certificate_pem: String,
    /// PEM, PKCS#8; `None` where the key stayed with who asked.
    pub private_key_pem: Option<String>,
    /// The end of its validity.
    pub expires: SystemTime,
}
