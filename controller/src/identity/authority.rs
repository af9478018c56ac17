//! The issuer of certificates, and the roots that workloads trust.

use std::sync::Arc;
use std::time::SystemTime;

use maglor_identity::{Authority, Error, TrustBundle, TrustDomain};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::signer::RemoteSigner;

/// The current issuer and trust bundle.
#[derive(Debug)]
pub struct InForce {
    /// Issues leaf certificates.
    pub issuer: Issuer,
    /// The roots that members trust.
    pub bundle: TrustBundle,
}

/// The issuer of leaf certificates.
#[derive(Debug)]
pub enum Issuer {
    /// A certificate authority whose key the controller has.
    Authority(Box<Authority>),
    /// A signer outside the mesh that has the key.
    Signer(Arc<dyn RemoteSigner>),
}

impl Issuer {
    /// Returns the trust domain of the IDs that the issuer certifies.
    #[must_use]
    pub fn trust_domain(&self) -> &TrustDomain {
        match self {
            Self::Authority(authority) => authority.trust_domain(),
            Self::Signer(signer) => signer.trust_domain(),
        }
    }

    /// Returns the end of the validity of the issuer's own certificate; `None` for a signer outside the mesh, where
    /// it is unknown.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        match self {
            Self::Authority(authority) => Some(authority.expires()),
            Self::Signer(_) => None,
        }
    }

    /// Returns the name of the signer outside the mesh; `None` for the controller's own authority.
    #[must_use]
    pub fn signer(&self) -> Option<&str> {
        match self {
            Self::Authority(_) => None,
            Self::Signer(signer) => Some(signer.name()),
        }
    }
}

impl From<Ca> for InForce {
    fn from(ca: Ca) -> Self {
        Self {
            issuer: Issuer::Authority(Box::new(ca.authority)),
            bundle: ca.bundle,
        }
    }
}

/// A certificate authority whose key the controller has, and its roots.
#[derive(Debug)]
pub struct Ca {
    /// The authority that signs.
    pub authority: Authority,
    /// The roots for verifying members: the authority's own root, and others during a rotation.
    pub bundle: TrustBundle,
}

/// The current issuer and trust bundle, with changes; `None` until they were read for the first time.
pub type Watched = watch::Receiver<Option<Arc<InForce>>>;

/// The PEM texts of a certificate authority.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    /// The authority's certificate, followed by the chain to a root if it is an intermediate.
    pub certificate: &'a [u8],
    /// The authority's private key.
    pub private_key: &'a [u8],
    /// The trusted roots; `None` if the authority's certificate is the only one.
    pub bundle: Option<&'a [u8]>,
    /// Certificates that are additionally sent with each leaf; `None` if there are none.
    pub chain: Option<&'a [u8]>,
}

/// A certificate authority in the format of its source: PEM.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Signer {
    /// The authority's certificate, followed by the chain to a root if it is an intermediate.
    pub certificate: String,
    /// The authority's private key.
    pub private_key: String,
    /// The trusted roots; absent if the authority's certificate is the only one.
    pub bundle: Option<String>,
    /// Certificates that are additionally sent with each leaf; absent if there are none.
    pub chain: Option<String>,
}

impl Ca {
    /// Reads an authority. An intermediate certificate is sent along with each leaf, and `bundle` must contain its
    /// root.
    ///
    /// # Errors
    /// If a text is invalid, if the key does not match the certificate, or if the certificate may not sign.
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

impl Signer {
    /// Copies the texts of an authority.
    #[must_use]
    pub fn of(texts: &Texts<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            certificate: text(texts.certificate),
            private_key: text(texts.private_key),
            bundle: texts.bundle.map(text),
            chain: texts.chain.map(text),
        }
    }

    pub(super) fn ca(&self, domain: &TrustDomain) -> Result<Ca, Error> {
        let texts = Texts {
            certificate: self.certificate.as_bytes(),
            private_key: self.private_key.as_bytes(),
            bundle: self.bundle.as_deref().map(str::as_bytes),
            chain: self.chain.as_deref().map(str::as_bytes),
        };
        Ca::read(&texts, Some(domain))
    }

    /// Returns whether both have the same key and certificate.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.certificate, &self.private_key) == (&other.certificate, &other.private_key)
    }

    /// Returns the certificates sent with each leaf: those of the source, or the chain from an intermediate to its
    /// root.
    pub(super) fn chain(&self, ca: &Ca) -> Option<&str> {
        let own = (!ca.authority.is_root()).then_some(&*self.certificate);
        self.chain.as_deref().or(own)
    }
}
