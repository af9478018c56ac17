//! The issuing authority, and the roots that workloads trust.

use std::sync::Arc;

use maglor_identity::{Authority, Error, TrustBundle, TrustDomain};
use tokio::sync::watch;

/// What is in force.
#[derive(Debug)]
pub struct Ca {
    /// Signs.
    pub authority: Authority,
    /// What vouches for members: the authority's own root, and others during a rotation.
    pub bundle: TrustBundle,
}

/// What is in force, as it changes; `None` until it was read for the first time.
pub type Watched = watch::Receiver<Option<Arc<Ca>>>;

/// The texts that an authority is made of, PEM.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    /// Its certificate first. Where that is no root, what leads from it to one.
    pub certificate: &'a [u8],
    /// Its key.
    pub private_key: &'a [u8],
    /// The roots to be trusted; absent = the certificate.
    pub bundle: Option<&'a [u8]>,
    /// What is sent with each leaf besides.
    pub chain: Option<&'a [u8]>,
}

impl Ca {
    /// Reads an authority. A certificate that is no root is sent along with each leaf, and `bundle` has to
    /// have its root.
    ///
    /// # Errors
    /// When a text cannot be used, the key is not the certificate's, or the certificate may not sign.
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
