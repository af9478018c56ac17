//! Certificates, keys and roots from PEM files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use maglor_config::tls::CertificateFiles;
use maglor_config::{DownstreamTls, UpstreamTls};
use maglor_identity::{Fingerprint, x509};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

use super::{Error, provider};

/// Usual paths of the system's root certificates: Debian and Alpine, Fedora, openSUSE, OpenWrt.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A certificate chain and its private key.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) key: CertifiedKey,
    /// DNS names in lower case; wildcards begin with `*.`.
    pub(super) dns_names: Vec<String>,
}

/// Reads a certificate chain and its private key, which must match.
pub(super) fn certified_key(paths: &CertificateFiles) -> Result<Certificate, Error> {
    let chain = certificates(&paths.certificate)?;
    let leaf = x509::parse(&chain[0]).ok_or_else(|| Error::BadCertificate {
        path: paths.certificate.clone(),
        position: 1,
    })?;
    warn_if_invalid(&paths.certificate, &leaf, UnixTime::now());
    let key_path = &paths.private_key;
    let key = PrivateKeyDer::from_pem_slice(&read(key_path)?).map_err(|source| match source {
        pem::Error::NoItemsFound => Error::NoKey(key_path.clone()),
        source => Error::Pem {
            path: key_path.clone(),
            source,
        },
    })?;
    let key = CertifiedKey::from_der(chain, key, provider()).map_err(|source| match source {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Error::KeyMismatch {
            certificate: paths.certificate.clone(),
            key: key_path.clone(),
        },
        source => Error::BadKey {
            path: key_path.clone(),
            source,
        },
    })?;
    Ok(Certificate {
        key,
        dns_names: leaf.dns_names,
    })
}

/// Warns of a certificate outside of its validity period. It is served nevertheless: clients that verify it report
/// the error, and the proxy's other functions continue.
fn warn_if_invalid(path: &Path, leaf: &x509::Certificate, now: UnixTime) {
    let path = path.display();
    if leaf.not_after < now.as_secs() {
        tracing::warn!(%path, "certificate has expired");
    } else if leaf.not_before > now.as_secs() {
        tracing::warn!(%path, "certificate is not valid yet; is the clock right?");
    }
}

/// Reads the certificates of a file, which must contain at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bytes = read(path)?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|source| Error::Pem {
        path: path.to_owned(),
        source,
    })?;
    if all.is_empty() {
        return Err(Error::NoCertificate(path.to_owned()));
    }
    Ok(all)
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

/// Root certificates by file, shared by configurations that are built together: the system's roots alone take about
/// 100 kB. A new value must be created for each build, so that changed files are read again.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    by_file: HashMap<PathBuf, Arc<RootCertStore>>,
    system: Option<Arc<RootCertStore>>,
}

impl Roots {
    /// Creates an empty cache.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns the roots of a configured file, all of which must be usable.
    pub(super) fn file(&mut self, path: &Path) -> Result<Arc<RootCertStore>, Error> {
        if let Some(store) = self.by_file.get(path) {
            return Ok(store.clone());
        }
        let mut store = RootCertStore::empty();
        for certificate in certificates(path)? {
            store.add(certificate).map_err(|source| Error::BadRoot {
                path: path.to_owned(),
                source,
            })?;
        }
        let store = Arc::new(store);
        self.by_file.insert(path.to_owned(), store.clone());
        Ok(store)
    }

    /// Returns the system's roots; unusable ones are skipped, as in other programs. `SSL_CERT_FILE` is ignored,
    /// because only the configuration determines what the proxy trusts.
    pub(super) fn system(&mut self) -> Result<Arc<RootCertStore>, Error> {
        if let Some(store) = &self.system {
            return Ok(store.clone());
        }
        let mut store = RootCertStore::empty();
        for path in SYSTEM_ROOTS {
            let Ok(certificates) = certificates(Path::new(path)) else {
                continue;
            };
            store.add_parsable_certificates(certificates);
            if !store.is_empty() {
                let store = Arc::new(store);
                self.system = Some(store.clone());
                return Ok(store);
            }
        }
        Err(Error::NoSystemRoots(SYSTEM_ROOTS.join(", ")))
    }
}

/// Returns the fingerprint of a filter chain's files, which changes when they have to be read again.
pub(crate) fn downstream_files(tls: &DownstreamTls) -> Fingerprint {
    let pairs = tls.certificates.iter();
    Fingerprint::of(pairs.flat_map(pair).chain(tls.client_ca.as_deref()))
}

/// Returns the fingerprint of a cluster's files, including the system's roots if the cluster uses them.
pub(crate) fn upstream_files(tls: &UpstreamTls) -> Fingerprint {
    let ca = match &tls.ca {
        Some(path) => vec![path.as_path()],
        None if tls.insecure_skip_verify => Vec::new(),
        None => SYSTEM_ROOTS.map(Path::new).to_vec(),
    };
    Fingerprint::of(tls.certificate.iter().flat_map(pair).chain(ca))
}

fn pair(files: &CertificateFiles) -> [&Path; 2] {
    [&files.certificate, &files.private_key]
}
