//! A certificate with its key: the credentials that a proxy presents to its peers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::InconsistentKeys;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::provider::provider;
use crate::{Error, SpiffeId, certificate_pem, x509};

/// The share of the lifetime after which a certificate is renewed.
const RENEW_AT: f64 = 0.7;

/// An X.509-SVID: a certificate chain and the key of its leaf.
#[derive(Clone, Debug)]
pub struct Identity {
    id: SpiffeId,
    key: Arc<CertifiedKey>,
    begins: SystemTime,
    expires: SystemTime,
}

impl Identity {
    /// Reads the chain, leaf first, and its key.
    ///
    /// An expired certificate is accepted here; peers reject it, and log the reason.
    ///
    /// # Errors
    /// If the chain or the key is missing, if they do not match, or if the leaf does not name exactly one workload.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        Self::from_der(certificate_pem::read(chain)?, private_key(key)?)
    }

    /// Creates an identity from a chain, leaf first, and its key.
    pub(crate) fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, Error> {
        if chain.is_empty() {
            return Err(Error::NoCertificate);
        }
        let malformed = Error::CertificateMalformed { position: 1 };
        let leaf = x509::parse(&chain[0]).ok_or(malformed)?;
        let id = leaf.workload()?;
        let key = CertifiedKey::from_der(chain, key, provider());
        let key = key.map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Error::KeyMismatch,
            error => Error::KeyUnusable(error.to_string()),
        })?;
        Ok(Self {
            id,
            key: Arc::new(key),
            begins: leaf.begins(),
            expires: leaf.expires(),
        })
    }

    /// Returns the SPIFFE ID.
    #[must_use]
    pub fn id(&self) -> &SpiffeId {
        &self.id
    }

    /// Returns the beginning of the validity period.
    #[must_use]
    pub fn begins(&self) -> SystemTime {
        self.begins
    }

    /// Returns the end of the validity period.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        self.expires
    }

    /// Returns the time to request the next certificate: after 70 % of the lifetime, which leaves seven hours for
    /// further attempts if the lifetime is a day.
    #[must_use]
    pub fn renew_at(&self) -> SystemTime {
        let lifetime = self.expires.duration_since(self.begins).unwrap_or_default();
        self.begins + lifetime.mul_f64(RENEW_AT)
    }

    /// Returns the delay until the next certificate is requested if this one was issued at `now`: 70 % of the remaining
    /// lifetime. The time by which certificates are backdated is not included, since it would be a large part of a
    /// short lifetime.
    #[must_use]
    pub fn renew_after(&self, now: SystemTime) -> Duration {
        let left = self.expires.duration_since(now).unwrap_or_default();
        left.mul_f64(RENEW_AT)
    }

    /// Returns the chain as PEM, leaf first.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        certificate_pem::write(&self.key.cert)
    }

    pub(crate) fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }

    pub(crate) fn leaf(&self) -> Option<&CertificateDer<'static>> {
        self.key.cert.first()
    }
}

/// Parses the first private key of a PEM text.
pub(crate) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        pem::Error::NoItemsFound => Error::NoKey,
        error => Error::KeyUnusable(format!("not PEM: {error}")),
    })
}
