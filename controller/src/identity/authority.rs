//! The issuing authority, and the roots that workloads trust.

use std::sync::Arc;

use maglor_identity::{Authority, Error, TrustBundle, TrustDomain};
use tokio::sync::watch;

/// The authority and the trust bundle in force.
#[derive(Debug)]
pub struct Ca {
    /// The authority that signs.
    pub authority: Authority,
    /// The roots for verifying members: the authority's own root, and others during a rotation.
    pub bundle: TrustBundle,
}

/// The authority in force, as it changes; `None` until it was read for the first time.
pub type Watched = watch::Receiver<Option<Arc<Ca>>>;

/// The PEM texts of an authority.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    /// Its certificate, followed by the chain to a root if it is an intermediate.
    pub certificate: &'a [u8],
    /// Its private key.
    pub private_key: &'a [u8],
    /// The trusted roots; `None` = the certificate.
    pub bundle: Option<&'a [u8]>,
    /// Certificates that are sent with each leaf in addition.
    pub chain: Option<&'a [u8]>,
}

impl Ca {
    /// Reads an authority. An intermediate certificate is sent along with each leaf, and `bundle` must contain its
    /// root.
    ///
    /// # Errors
    /// A text is invalid, the key does not match the certificate, or the certificate may not sign.
    pub fn read(texts: &Texts<'_>, trust_domain: Option<&TrustDomain>) -> Result<Self, Error> {
        let (certificate, key) = (texts.certificate, texts.private_key);
        let mut authority = Authority::from_pem(certificate, key, trust_domain.cloned())?;
        let chain = texts
            .chain
            .or((!authority.is_root()).then_some(certificate));
        if let Some(chain) = chain {
            authority = authority.with_chain(chain)?;
        }
        let bundle = match texts.bundle {
            Some(bundle) => TrustBundle::from_pem(bundle)?,
            None => authority.bundle()?,
        };
        Ok(Self { authority, bundle })
    }
}
