//! The issuer of certificates, and the roots that workloads trust.

use std::sync::Arc;
use std::time::SystemTime;

use maglor_identity::{Authority, Error, TrustBundle, TrustDomain};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::external::ExternalSigner;

/// The issuer and the trust bundle in force.
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
    /// An authority whose key the controller has.
    Authority(Box<Authority>),
    /// A signer outside the mesh, which has the key.
    Signer(Arc<ExternalSigner>),
}

impl Issuer {
    /// The trust domain of the IDs that it certifies.
    #[must_use]
    pub fn trust_domain(&self) -> &TrustDomain {
        match self {
            Self::Authority(authority) => authority.trust_domain(),
            Self::Signer(signer) => signer.trust_domain(),
        }
    }

    /// The end of the validity of its own certificate; `None` = that is not known here.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        match self {
            Self::Authority(authority) => Some(authority.expires()),
            Self::Signer(_) => None,
        }
    }

    /// The name of the signer outside the mesh; `None` for an authority of the controller's own.
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

/// An authority whose key the controller has, and its roots.
#[derive(Debug)]
pub struct Ca {
    /// The authority that signs.
    pub authority: Authority,
    /// The roots for verifying members: the authority's own root, and others during a rotation.
    pub bundle: TrustBundle,
}

/// The issuer and the trust bundle in force, as they change; `None` until they were read for the first time.
pub type Watched = watch::Receiver<Option<Arc<InForce>>>;

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

/// An authority as a source has it: PEM.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Signer {
    /// Its certificate first; where that is no root, what leads from it to one.
    pub certificate: String,
    /// Its key.
    pub private_key: String,
    /// The roots to be trusted; absent = the certificate.
    pub bundle: Option<String>,
    /// Certificates that are sent in addition to each leaf.
    pub chain: Option<String>,
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

    /// Returns whether both sign with the same key and certificate.
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
