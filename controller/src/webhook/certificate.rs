//! The webhook's server certificate.
//!
//! Each certificate has its own root, whose key is discarded once the certificate is signed, so that no stored secret
//! could sign another certificate. The bundle that the API server trusts contains the last two roots, so that
//! replicas can switch to a new certificate one after another.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use maglor_identity::x509;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// How long a certificate is valid.
const TTL: Duration = Duration::from_secs(90 * 24 * 3600);
/// How long before its end a certificate is replaced.
const BEFORE_END: Duration = Duration::from_secs(30 * 24 * 3600);
/// How much earlier the validity begins, because clocks differ.
const BACKDATED: Duration = Duration::from_secs(3600);
/// The number of roots in a bundle: the current and the previous one.
const ROOTS: usize = 2;

/// A certificate, its key, and the roots to verify it, all as PEM.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct Certificate {
    pub(super) bundle: String,
    pub(super) chain: String,
    pub(super) key: String,
}

/// The private key is omitted.
impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

/// Reason why a certificate cannot be created or used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    #[error("cannot create a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("cannot parse the certificate: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("the certificate is not usable for TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Returns the names by which a Service can be reached from anywhere in the cluster.
pub(super) fn names(service: &str, namespace: &str, domain: &str) -> Vec<String> {
    let short = format!("{service}.{namespace}.svc");
    vec![format!("{short}.{domain}"), short]
}

impl Certificate {
    /// Creates a certificate; the newest root of `previous` stays in the bundle.
    pub(super) fn make(
        names: &[String],
        previous: Option<&str>,
        now: SystemTime,
    ) -> Result<Self, CertificateError> {
        let params = |names: Vec<String>, common_name: &str| {
            let mut params = CertificateParams::new(names)?;
            params.not_before = (now - BACKDATED).into();
            params.not_after = (now + TTL).into();
            params
                .distinguished_name
                .push(DnType::CommonName, common_name);
            Ok::<_, rcgen::Error>(params)
        };
        let root_key = KeyPair::generate()?;
        // Roots are looked up by name. If two had the same name, both would have to be attempted, but OpenSSL uses only
        // the first one.
        let mark: String = root_key
            .public_key_raw()
            .iter()
            .skip(1)
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut root = params(Vec::new(), &format!("Maglor webhook root {mark}"))?;
        root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = root.self_signed(&root_key)?;
        let key = KeyPair::generate()?;
        let mut leaf = params(names.to_vec(), "Maglor webhook")?;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let leaf = leaf.signed_by(&key, &Issuer::new(root, root_key))?;
        let mut bundle = vec![certificate.pem()];
        bundle.extend(previous.into_iter().flat_map(split).take(ROOTS - 1));
        Ok(Self {
            bundle: bundle.concat(),
            chain: leaf.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Returns whether a new certificate is needed, because this one expires soon, has different names, or cannot be
    /// read.
    pub(super) fn is_due(&self, names: &[String], now: SystemTime) -> bool {
        let fine = self.leaf().is_some_and(|leaf| {
            now + BEFORE_END < leaf.expires()
                && names.iter().all(|name| leaf.dns_names.contains(name))
        });
        !fine || self.server().is_err() || split(&self.bundle).is_empty()
    }

    fn leaf(&self) -> Option<x509::Certificate> {
        let leaf = CertificateDer::from_pem_slice(self.chain.as_bytes());
        x509::parse(&leaf.ok()?)
    }

    /// Returns when the certificate expires; `None` if it cannot be read.
    pub(super) fn expires(&self) -> Option<SystemTime> {
        Some(self.leaf()?.expires())
    }

    /// Returns the TLS configuration of a server with this certificate.
    pub(super) fn server(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(self.chain.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = config.with_no_client_auth().with_single_cert(chain?, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Splits a bundle into its certificates, each including the PEM header and footer.
fn split(bundle: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----\n";
    let whole = bundle.split_inclusive(END).filter(|one| one.ends_with(END));
    whole.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_in_time_and_its_root_stays_known() {
        let names = names("maglor-controller", "maglor", "cluster.local");
        assert_eq!(names[1], "maglor-controller.maglor.svc");
        let now = SystemTime::now();
        let first = Certificate::make(&names, None, now).unwrap();
        assert!(!first.is_due(&names, now));
        assert!(!first.is_due(&names, now + TTL - BEFORE_END - Duration::from_secs(60)));
        assert!(first.is_due(&names, now + TTL - BEFORE_END));
        assert!(first.is_due(&["other".to_owned()], now));
        let second = Certificate::make(&names, Some(&first.bundle), now).unwrap();
        let third = Certificate::make(&names, Some(&second.bundle), now).unwrap();
        assert_eq!(split(&third.bundle).len(), 2);
        assert!(third.bundle.contains(&split(&second.bundle)[0]));
        assert!(!third.bundle.contains(&split(&first.bundle)[0]));
        let broken = Certificate {
            key: second.key,
            ..first
        };
        assert!(broken.is_due(&names, now), "the key is another one's");
    }

    #[test]
    fn the_key_is_not_shown() {
        let names = ["a".to_owned()];
        let one = Certificate::make(&names, None, SystemTime::now()).unwrap();
        assert!(!format!("{one:?}").contains("PRIVATE"));
    }
}
