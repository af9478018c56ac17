//! Selects the certificate of a filter chain for a client.
//!
//! The server name (SNI) is matched with the names in the certificates: first exact names, then wildcards of one
//! label (RFC 9525 §6.3). Of several certificates with the same name (for example ECDSA and RSA), the first one that
//! the client can verify is selected. Without a server name, or with an unknown one, the first certificate is used.

use std::sync::Arc;

use hashbrown::HashMap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::files::Certificate;

/// Certificates of a filter chain by name.
#[derive(Debug)]
pub(super) struct CertificateResolver {
    keys: Vec<Arc<CertifiedKey>>,
    exact: HashMap<String, Vec<usize>>,
    /// Indices for wildcard names: `*.example.com` is under `example.com`.
    wildcard: HashMap<String, Vec<usize>>,
}

impl CertificateResolver {
    pub(super) fn new(certificates: Vec<Certificate>) -> Self {
        let mut this = Self {
            keys: Vec::new(),
            exact: HashMap::new(),
            wildcard: HashMap::new(),
        };
        for (index, certificate) in certificates.into_iter().enumerate() {
            for name in certificate.dns_names {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut this.wildcard, parent.to_owned()),
                    None => (&mut this.exact, name),
                };
                map.entry(name).or_default().push(index);
            }
            this.keys.push(Arc::new(certificate.key));
        }
        this
    }

    /// Returns the certificates of a name, in the order of the configuration.
    fn named(&self, name: &str) -> &[usize] {
        let name = name.to_ascii_lowercase();
        let exact = self.exact.get(&name);
        let wildcard = || self.wildcard.get(name.split_once('.')?.1);
        exact.or_else(wildcard).map_or(&[], Vec::as_slice)
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().map_or(&[][..], |name| self.named(name));
        let mut candidates = named.iter().filter_map(|index| self.keys.get(*index));
        let verifiable =
            |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        let first = candidates.clone().next();
        candidates
            .find(verifiable)
            .or(first)
            .or(self.keys.first())
            .cloned()
    }
}
