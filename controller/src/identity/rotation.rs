//! The steps of a root rotation without downtime, from the contents of the authority's Secret. Pure: no clock, no
//! Kubernetes.
//!
//! | phase | signs | trusted | until |
//! | --- | --- | --- | --- |
//! | `steady` | the root | the root | a new root is requested |
//! | `announcing` | the old root | both | every proxy that is connected has said that it trusts both, or the deadline |
//! | `retiring` | the new root | both | the last leaf of the old root has expired |
//!
//! All there is stands in the Secret, and each step is one write under its `resourceVersion`. So a replica that
//! writes may be killed after any step: the next writer reads where things are and continues from there.
//! While the old root retires, leaves come with the new root signed by the old one, so that a client that did
//! not hear of the new one in time still finds the way.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use maglor_identity::{Authority, Error, TrustBundle, TrustDomain};

use super::authority::{Ca, Texts};
use super::succession::Signer;

/// What signs, and its key: the names of a Secret of type `kubernetes.io/tls`, as cert-manager writes it.
pub const CERTIFICATE: &str = "tls.crt";
/// See [`CERTIFICATE`].
pub const PRIVATE_KEY: &str = "tls.key";
/// The roots to be trusted.
pub const BUNDLE: &str = "ca.crt";
/// The root that will sign, while it is announced.
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
/// While the old root retires: the new one signed by it.
const CHAIN: &str = "chain.crt";

/// Asks for a new root: whenever its value differs from that of [`ROTATED`].
pub const ROTATE: &str = maglor_inject::keys::ROTATE;
/// The last value of [`ROTATE`] for which a rotation was begun.
pub const ROTATED: &str = maglor_inject::keys::ROTATED;
/// When the phase began.
const SINCE: &str = maglor_inject::keys::ROTATION_SINCE;

/// Clocks of machines differ by no more.
pub(super) const SKEW: Duration = Duration::from_secs(300);
/// A root is announced for this long at least: replicas of the controller and files of proxies follow.
pub(super) const ANNOUNCED: Duration = Duration::from_secs(5);

/// Data and annotations of the Secret, as far as they are ours.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Stored {
    /// By key.
    pub data: BTreeMap<String, Vec<u8>>,
    /// By name.
    pub annotations: BTreeMap<String, String>,
}

/// Where a rotation is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// A new root is made known.
    Announcing,
    /// The new root signs; the old one is still trusted.
    Retiring,
    /// There is one root.
    Steady,
}

impl Phase {
    /// All of them, for tables of metrics.
    pub const ALL: [Self; 3] = [Self::Announcing, Self::Retiring, Self::Steady];

    /// The word in metrics and logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Announcing => "announcing",
            Self::Retiring => "retiring",
            Self::Steady => "steady",
        }
    }
}

/// Whether everybody who is connected trusts what is to be trusted now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Spread {
    /// Everybody does.
    Everywhere,
    /// These do not yet, or it is not known of them.
    Missing(Vec<String>),
}

/// What a step depends on besides the Secret.
#[derive(Clone, Debug)]
pub struct Circumstances<'a> {
    /// The time.
    pub now: Timestamp,
    /// Who trusts the bundle as it is now.
    pub spread: &'a Spread,
    /// How long leaves live.
    pub ttl: Duration,
    /// How long a new root is announced at most.
    pub deadline: Duration,
}

/// Why the Secret cannot be used, or a step not be done.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// A key of the Secret is not there.
    #[error("the Secret has no `{0}`")]
    Missing(&'static str),
    /// A certificate or a key cannot be used.
    #[error(transparent)]
    Identity(#[from] Error),
}

impl Stored {
    /// A new authority.
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

    /// What issues, and whom to trust.
    ///
    /// # Errors
    /// When something is not there or cannot be used.
    pub fn ca(&self, trust_domain: &TrustDomain) -> Result<Ca, RotationError> {
        Ok(Ca::read(&self.texts()?, Some(trust_domain))?)
    }

    /// What the authority is made of.
    ///
    /// # Errors
    /// When something is not there.
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

    /// Where the rotation is.
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

    /// Creation time. An unreadable time counts as `now`: waiting longer is safe.
    #[must_use]
    pub fn since(&self, now: Timestamp) -> Timestamp {
        let since = self.annotations.get(SINCE);
        since.and_then(|since| since.parse().ok()).unwrap_or(now)
    }

    /// The Secret after the next step; `None` as long as there is nothing to do.
    ///
    /// # Errors
    /// When something in it cannot be used, or a root not be made.
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

    /// Makes a root; the old one signs on.
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

    /// The new root signs from now on.
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

    /// The old root is not trusted any more.
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
