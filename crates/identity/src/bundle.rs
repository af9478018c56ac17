//! The trust bundle: the root certificates of a trust domain.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};

use crate::{Error, certificate_pem, x509};

/// The roots of a trust domain: one, or several during a CA rotation.
#[derive(Clone, Debug)]
pub struct TrustBundle {
    certificates: Vec<CertificateDer<'static>>,
    /// The same roots for rustls, in the order of the certificates.
    store: Arc<RootCertStore>,
    /// The end of each root's validity period, in seconds since the Unix epoch, in the same order.
    ends: Vec<u64>,
}

impl TrustBundle {
    /// Reads one or several roots in PEM, each of which must be usable.
    ///
    /// # Errors
    /// If there is no root, or if one is malformed or not a CA certificate; the error names its position.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        Self::of(certificate_pem::read(pem)?)
    }

    /// Reads the roots from a PEM file.
    ///
    /// # Errors
    /// As those of [`TrustBundle::from_pem`], and if the file cannot be read; the error contains the path.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let pem = std::fs::read(path).map_err(Error::Read);
        let bundle = pem.and_then(|pem| Self::from_pem(&pem));
        bundle.map_err(Error::in_file(path))
    }

    /// Creates a bundle from roots in DER.
    ///
    /// # Errors
    /// As those of [`TrustBundle::from_pem`].
    pub fn from_der(roots: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, Error> {
        let roots: Vec<_> = roots.into_iter().map(CertificateDer::from).collect();
        match roots.is_empty() {
            true => Err(Error::NoCertificate),
            false => Self::of(roots),
        }
    }

    fn of(mut certificates: Vec<CertificateDer<'static>>) -> Result<Self, Error> {
        let mut seen = Vec::new();
        certificates.retain(|root| {
            let new = !seen.contains(root);
            seen.push(root.clone());
            new
        });
        let mut store = RootCertStore::empty();
        let mut ends = Vec::new();
        for (i, root) in certificates.iter().enumerate() {
            let position = i + 1;
            let added = store.add(root.clone());
            added.map_err(|source| Error::RootUnusable { position, source })?;
            let root = x509::parse(root).ok_or(Error::CertificateMalformed { position })?;
            if !root.is_ca || !root.may_certify {
                return Err(Error::RootNotAnAuthority { position });
            }
            ends.push(root.not_after);
        }
        let store = Arc::new(store);
        Ok(Self {
            certificates,
            store,
            ends,
        })
    }

    /// Returns a bundle with the roots of both bundles, those of `self` first. All peers have to trust it before a new
    /// root may sign.
    ///
    /// # Errors
    /// None, if both bundles are valid.
    pub fn union(&self, other: &Self) -> Result<Self, Error> {
        let both = self.certificates.iter().chain(&other.certificates);
        Self::of(both.cloned().collect())
    }

    /// Returns the roots as DER.
    #[must_use]
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// Returns the roots as PEM.
    #[must_use]
    pub fn to_pem(&self) -> String {
        certificate_pem::write(&self.certificates)
    }

    /// Returns whether both bundles contain the same roots, in any order.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.count_without(other) == 0 && other.count_without(self) == 0
    }

    /// Returns the number of roots in this bundle that are not in `other`.
    pub(crate) fn count_without(&self, other: &Self) -> usize {
        let lost = |root: &&CertificateDer<'_>| !other.certificates.contains(root);
        self.certificates.iter().filter(lost).count()
    }

    pub(crate) fn store(&self) -> &Arc<RootCertStore> {
        &self.store
    }

    /// Returns the roots that have not expired; `None` if no root has expired. Chain verification does not check the
    /// validity period of roots.
    pub(crate) fn without_expired(&self, now: UnixTime) -> Option<Arc<RootCertStore>> {
        let is_good = |end: &u64| *end >= now.as_secs();
        if self.ends.iter().all(is_good) {
            return None;
        }
        let roots = self.store.roots.iter().zip(&self.ends);
        let good = roots.filter(|(_, end)| is_good(end));
        Some(Arc::new(good.map(|(root, _)| root.clone()).collect()))
    }
}
