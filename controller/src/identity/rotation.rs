//! The steps of a root rotation without downtime, computed from the contents of the authority's Secret. Pure: no
//! clock, no Kubernetes.
//!
//! | phase | signs | trusted | until |
//! | --- | --- | --- | --- |
//! | `steady` | the root | the root | a new root is requested |
//! | `announcing` | the old root | both | every connected proxy has acknowledged both, or the deadline |
//! | `retiring` | the new root | both | the last leaf of the old root has expired |
//!
//! The whole state is in the Secret, and each step is one write that is conditional on its `resourceVersion`. A
//! leader may therefore be killed after any step: the next leader reads the state and continues from there. While the
//! old root retires, leaves are sent with the new root signed by the old one, so that a client that has not received
//! the new root in time can still verify them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use maglor_identity::{Authority, Error, TrustBundle, TrustDomain};

use super::authority::{Ca, Signer, Texts};

/// The key of the signing certificate, the same as in Secrets of type `kubernetes.io/tls` and those of cert-manager.
pub const CERTIFICATE: &str = "tls.crt";
/// The key of the private key; see [`CERTIFICATE`].
pub const PRIVATE_KEY: &str = "tls.key";
/// The key of the trusted roots.
pub const BUNDLE: &str = "ca.crt";
/// The key of the root that will sign, while it is announced.
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
/// The key of the new root signed by the old one, while the old root retires.
const CHAIN: &str = "chain.crt";

/// The annotation that requests a new root, whenever its value differs from that of [`ROTATED`].
pub const ROTATE: &str = maglor_manifests::inject::keys::ROTATE;
/// The annotation with the last value of [`ROTATE`] for which a rotation was started.
pub const ROTATED: &str = maglor_manifests::inject::keys::ROTATED;
/// The annotation with the time when the phase began.
const SINCE: &str = maglor_manifests::inject::keys::ROTATION_SINCE;

/// Maximum assumed difference between the clocks of machines.
pub(super) const SKEW: Duration = Duration::from_secs(300);
/// Minimum time for which a root is announced, because replicas of the controller and files of proxies receive it
/// with a delay.
pub(super) const ANNOUNCED: Duration = Duration::from_secs(5);

/// The mesh's data and annotations of the Secret.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Stored {
    /// Values by key.
    pub data: BTreeMap<String, Vec<u8>>,
    /// Values by annotation name.
    pub annotations: BTreeMap<String, String>,
}

/// The state of a rotation, shown to operators.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// When the phase began.
    pub since: Timestamp,
    /// The clients that do not trust the new root yet, according to the latest reports read by this replica.
    pub missing: Vec<String>,
    /// Why the current content of the source is not used and the previous authority continues to be used; `None` if
    /// it is used.
    pub refused: Option<String>,
}

/// The phase of a rotation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// A new root is announced.
    Announcing,
    /// The new root signs; the old one is still trusted.
    Retiring,
    /// There is one root.
    Steady,
}

impl Phase {
    /// All phases, for metrics.
    pub const ALL: [Self; 3] = [Self::Announcing, Self::Retiring, Self::Steady];

    /// Returns the label of the phase in metrics and logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Announcing => "announcing",
            Self::Retiring => "retiring",
            Self::Steady => "steady",
        }
    }
}

/// Whether all connected clients trust the current bundle.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Spread {
    /// All clients trust the bundle.
    Everywhere,
    /// These clients do not trust the bundle yet, or it is unknown whether they do.
    Missing(Vec<String>),
}

/// The inputs of a step in addition to the Secret.
#[derive(Clone, Debug)]
pub struct Circumstances<'a> {
    /// The current time.
    pub now: Timestamp,
    /// Which clients trust the current bundle.
    pub spread: &'a Spread,
    /// Lifetime of leaf certificates.
    pub ttl: Duration,
    /// Maximum time for which a new root is announced.
    pub deadline: Duration,
}

/// Reason why the Secret is invalid or a step is not possible.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// A key of the Secret is missing.
    #[error("the Secret has no `{0}`")]
    Missing(&'static str),
    /// A certificate or a key is invalid.
    #[error(transparent)]
    Identity(#[from] Error),
}

impl Stored {
    /// Creates a new certificate authority.
    ///
    /// # Errors
    /// If the system returns no random bytes.
    pub fn create(trust_domain: &TrustDomain, now: Timestamp) -> Result<Self, RotationError> {
        let root = Authority::create(trust_domain, now.into())?;
        let mut stored = Self::default();
        stored.put(CERTIFICATE, root.certificate_pem());
        stored.put(PRIVATE_KEY, root.private_key_pem());
        stored.put(BUNDLE, root.certificate_pem());
        stored.begin(now);
        Ok(stored)
    }

    /// Returns the authority and the trust bundle.
    ///
    /// # Errors
    /// If a key of the Secret is missing or invalid.
    pub fn ca(&self, trust_domain: &TrustDomain) -> Result<Ca, RotationError> {
        Ok(Ca::read(&self.texts()?, Some(trust_domain))?)
    }

    /// Returns the certificates and the private key of the authority, in PEM.
    ///
    /// # Errors
    /// If a key of the Secret is missing.
    pub fn signer(&self) -> Result<Signer, RotationError> {
        Ok(Signer::of(&self.texts()?))
    }

    fn texts(&self) -> Result<Texts<'_>, RotationError> {
        Ok(Texts {
            certificate: self.text(CERTIFICATE)?,
            private_key: self.text(PRIVATE_KEY)?,
            bundle: self.data.get(BUNDLE).map(Vec::as_slice),
            chain: self.data.get(CHAIN).map(Vec::as_slice),
        })
    }

    /// Returns the phase of the rotation.
    #[must_use]
    pub fn phase(&self) -> Phase {
        if self.data.contains_key(NEXT_CERTIFICATE) {
            return Phase::Announcing;
        }
        match self.data.contains_key(CHAIN) {
            true => Phase::Retiring,
            false => Phase::Steady,
        }
    }

    /// Returns when the phase began. An unreadable time counts as `now`, because waiting longer is safe.
    #[must_use]
    pub fn since(&self, now: Timestamp) -> Timestamp {
        let since = self.annotations.get(SINCE);
        since.and_then(|since| since.parse().ok()).unwrap_or(now)
    }

    /// Returns the Secret after the next step; `None` if no step is due.
    ///
    /// # Errors
    /// If a part of the Secret is invalid, or if a root cannot be created.
    pub fn step(
        &self,
        trust_domain: &TrustDomain,
        circumstances: &Circumstances<'_>,
    ) -> Result<Option<Self>, RotationError> {
        let age: SignedDuration = circumstances
            .now
            .duration_since(self.since(circumstances.now));
        let age: Duration = age.try_into().unwrap_or(Duration::ZERO);
        match self.phase() {
            Phase::Steady if self.is_asked_for() => {
                self.announce(trust_domain, circumstances.now).map(Some)
            }
            Phase::Announcing => {
                let spread = *circumstances.spread == Spread::Everywhere && age >= ANNOUNCED;
                match spread || age >= circumstances.deadline {
                    true => self.sign(trust_domain, circumstances.now).map(Some),
                    false => Ok(None),
                }
            }
            Phase::Retiring if age >= circumstances.ttl + SKEW => {
                Ok(Some(self.retire(circumstances.now)))
            }
            Phase::Retiring | Phase::Steady => Ok(None),
        }
    }

    fn is_asked_for(&self) -> bool {
        let asked = self.annotations.get(ROTATE);
        asked.is_some() && asked != self.annotations.get(ROTATED)
    }

    /// Creates a new root and announces it; the old root still signs.
    fn announce(&self, trust_domain: &TrustDomain, now: Timestamp) -> Result<Self, RotationError> {
        let next = Authority::create(trust_domain, now.into())?;
        let present = TrustBundle::from_pem(self.text(CERTIFICATE)?)?;
        let mut then = self.clone();
        then.put(BUNDLE, present.union(&next.bundle()?)?.to_pem());
        then.put(NEXT_CERTIFICATE, next.certificate_pem());
        then.put(NEXT_KEY, next.private_key_pem());
        let asked = self.annotations.get(ROTATE).cloned().unwrap_or_default();
        then.annotations.insert(ROTATED.to_owned(), asked);
        then.begin(now);
        Ok(then)
    }

    /// Makes the new root sign from now on.
    fn sign(&self, trust_domain: &TrustDomain, now: Timestamp) -> Result<Self, RotationError> {
        let read = |certificate, key| -> Result<Authority, RotationError> {
            let (certificate, key) = (self.text(certificate)?, self.text(key)?);
            Ok(Authority::from_pem(
                certificate,
                key,
                Some(trust_domain.clone()),
            )?)
        };
        let old = read(CERTIFICATE, PRIVATE_KEY)?;
        let new = read(NEXT_CERTIFICATE, NEXT_KEY)?;
        let mut then = self.clone();
        then.put(CHAIN, new.crossed_by(&old, now.into())?);
        then.put(BUNDLE, new.bundle()?.union(&old.bundle()?)?.to_pem());
        then.put(CERTIFICATE, new.certificate_pem());
        then.put(PRIVATE_KEY, new.private_key_pem());
        then.data.remove(NEXT_CERTIFICATE);
        then.data.remove(NEXT_KEY);
        then.begin(now);
        Ok(then)
    }

    /// Removes the old root from the trusted roots.
    fn retire(&self, now: Timestamp) -> Self {
        let mut then = self.clone();
        then.data.remove(CHAIN);
        if let Some(root) = self.data.get(CERTIFICATE) {
            then.data.insert(BUNDLE.to_owned(), root.clone());
        }
        then.begin(now);
        then
    }

    fn text(&self, key: &'static str) -> Result<&[u8], RotationError> {
        let text = self.data.get(key).map(Vec::as_slice);
        text.ok_or(RotationError::Missing(key))
    }

    fn put(&mut self, key: &str, text: String) {
        self.data.insert(key.to_owned(), text.into_bytes());
    }

    fn begin(&mut self, now: Timestamp) {
        self.annotations.insert(SINCE.to_owned(), now.to_string());
    }
}

#[cfg(test)]
mod tests;
