//! Replaces an externally managed authority (by cert-manager, or by hand) without downtime. Pure: no clock, no
//! Kubernetes.
//!
//! A new authority in the source does not take effect immediately if members do not trust it yet: replacing the root
//! would lock out all of them. A [`Succession`] consists of the authority in force and its successor:
//!
//! | phase | signs | trusted | until |
//! | --- | --- | --- | --- |
//! | `steady` | the source's authority | the source's roots | the source contains another authority |
//! | `announcing` | the old one | both | every connected client has acknowledged both, or the deadline |
//! | `retiring` | the new one | both | the last leaf of the old one has expired |
//!
//! No steps are needed if members already trust the new authority: an intermediate of the same root, or a root that
//! the old one has signed and that comes with that signature (`maglor identity rotate`). A bundle that changes while
//! the same key signs is the operator's decision, and takes effect immediately. The whole state can be stored
//! ([`Succession::to_json`]), so that another replica or the next process can continue.

use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use maglor_identity::{
    Authority, Error, Identity, LeafRequest, Live, SpiffeError, SpiffeId, TrustBundle, TrustDomain,
};
use serde::{Deserialize, Serialize};

use super::authority::{Ca, Signer};
use super::rotation::{ANNOUNCED, Circumstances, Phase, SKEW, Spread};

/// Roots in PEM, or an authority, and since when it has this role.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Since<T> {
    what: T,
    /// Time in RFC 3339 format.
    since: String,
}

/// The authority in force and its successor.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Succession {
    /// The authority that signs now.
    signer: Signer,
    /// The authority that will sign, whose roots are announced; `None` if none is announced.
    next: Option<Since<Signer>>,
    /// Roots that the source no longer contains, but whose leaves may still be valid; `None` if there are none.
    retained: Option<Since<String>>,
    /// While they are retained: the signer's certificate signed by the previous authority, followed by the chain to
    /// the previous root.
    crossed: Option<String>,
}

/// Reason why an authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SuccessionError {
    /// A text is invalid.
    #[error(transparent)]
    Identity(#[from] Error),
    /// The trust domain is not valid in a SPIFFE ID.
    #[error(transparent)]
    Domain(#[from] SpiffeError),
    /// The authority's own roots do not verify its leaves.
    #[error(
        "the trust bundle (`ca.crt`, or `trust_bundle.pem`) does not contain the authority's root"
    )]
    Unvouched,
    /// The stored state is invalid.
    #[error("stored state of the CA rotation is invalid: {0}")]
    Json(#[from] serde_json::Error),
}

/// Returns whether members with this bundle trust a leaf that the authority signs now.
fn vouches(
    bundle: &TrustBundle,
    authority: &Authority,
    now: Timestamp,
) -> Result<bool, SuccessionError> {
    let id = SpiffeId::workload(authority.trust_domain(), "probe", "probe")?;
    let now = SystemTime::from(now);
    let issued = authority.issue(&LeafRequest::new(id), now)?;
    let key = issued.private_key_pem.unwrap_or_default();
    let leaf = Identity::from_pem(issued.certificate_pem.as_bytes(), key.as_bytes())?;
    Ok(Live::new(leaf, bundle.clone())?.is_trusted(now))
}

/// Returns the roots of a bundle that verify the authority's leaves, which its members have trusted for long enough.
fn roots_of(ca: &Ca, now: Timestamp) -> Result<Option<TrustBundle>, SuccessionError> {
    let mut roots = Vec::new();
    for root in ca.bundle.certificates() {
        let alone = TrustBundle::from_der([root.to_vec()])?;
        if vouches(&alone, &ca.authority, now)? {
            roots.push(root.to_vec());
        }
    }
    let found = !roots.is_empty();
    Ok(found.then(|| TrustBundle::from_der(roots)).transpose()?)
}

/// Returns the roots in `of` that are not in `other`.
fn without(of: &TrustBundle, other: &TrustBundle) -> Result<Option<TrustBundle>, Error> {
    let roots = of.certificates().iter();
    let left = roots.filter(|root| !other.certificates().contains(root));
    let left: Vec<_> = left.map(|root| root.to_vec()).collect();
    (!left.is_empty())
        .then(|| TrustBundle::from_der(left))
        .transpose()
}

fn age<T>(of: &Since<T>, now: Timestamp) -> Duration {
    // An unreadable time counts as now, because waiting longer is safe.
    let since = of.since.parse::<Timestamp>().unwrap_or(now);
    let age: SignedDuration = now.duration_since(since);
    age.try_into().unwrap_or(Duration::ZERO)
}

fn since<T>(what: T, now: Timestamp) -> Since<T> {
    Since {
        what,
        since: now.to_string(),
    }
}

impl Succession {
    /// Returns the initial state for a source: no authority was in force before.
    ///
    /// # Errors
    /// If the source is invalid.
    pub fn begin(source: Signer, domain: &TrustDomain) -> Result<Self, SuccessionError> {
        source.ca(domain)?;
        Ok(Self {
            signer: source,
            next: None,
            retained: None,
            crossed: None,
        })
    }

    /// Reads a stored state.
    ///
    /// # Errors
    /// If the state is malformed or its content is invalid.
    pub fn from_json(text: &[u8], domain: &TrustDomain) -> Result<Self, SuccessionError> {
        let read: Self = serde_json::from_slice(text)?;
        read.ca(domain)?;
        Ok(read)
    }

    /// Encodes the whole state, including private keys.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the authority and the roots that members trust.
    ///
    /// # Errors
    /// If a part of the state is invalid.
    pub fn ca(&self, domain: &TrustDomain) -> Result<Ca, SuccessionError> {
        let mut ca = self.signer.ca(domain)?;
        if let Some(crossed) = &self.crossed {
            let own = self.signer.chain(&ca).unwrap_or_default();
            let chain = format!("{own}\n{crossed}");
            ca.authority = ca.authority.with_chain(chain.as_bytes())?;
        }
        if let Some(retained) = &self.retained {
            let roots = TrustBundle::from_pem(retained.what.as_bytes())?;
            ca.bundle = ca.bundle.union(&roots)?;
        }
        if let Some(next) = &self.next {
            ca.bundle = ca.bundle.union(&next.what.ca(domain)?.bundle)?;
        }
        Ok(ca)
    }

    /// Returns the phase of the replacement.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match (&self.next, &self.retained) {
            (Some(_), _) => Phase::Announcing,
            (None, Some(_)) => Phase::Retiring,
            (None, None) => Phase::Steady,
        }
    }

    /// Returns when the phase began; `None` in the phase `steady`.
    #[must_use]
    pub fn since(&self) -> Option<Timestamp> {
        let next = self.next.as_ref().map(|next| &next.since);
        let since = next.or(self.retained.as_ref().map(|roots| &roots.since))?;
        since.parse().ok()
    }

    /// Returns the state that follows from the current source; `None` if it does not change.
    ///
    /// # Errors
    /// If the source is invalid; in this case the authority in force stays.
    pub fn follow(
        &self,
        source: &Signer,
        domain: &TrustDomain,
        now: Timestamp,
    ) -> Result<Option<Self>, SuccessionError> {
        if self.next.as_ref().is_some_and(|next| next.what == *source) {
            return Ok(None);
        }
        if self.signer == *source && self.next.is_none() {
            return Ok(None);
        }
        let new = source.ca(domain)?;
        if !vouches(&new.bundle, &new.authority, now)? {
            return Err(SuccessionError::Unvouched);
        }
        let mut then = self.clone();
        // An announced authority that has not signed yet is replaced by the current one of the source.
        then.next = None;
        if source.is_same(&self.signer) {
            then.signer = source.clone();
            return Ok(Some(then));
        }
        let old = self.signer.ca(domain)?;
        let known = match roots_of(&old, now)? {
            Some(roots) => vouches(&roots, &new.authority, now)?,
            // The signing authority has expired or was never trusted, so no member loses trust in it.
            None => true,
        };
        match known {
            true => then.put_in_force(source.clone(), domain, now)?,
            false => then.next = Some(since(source.clone(), now)),
        }
        Ok(Some(then))
    }

    /// Returns the state after the next step; `None` if no step is due. Clocks are assumed to differ by at most
    /// `SKEW`, and by at most the lifetime of a leaf.
    ///
    /// # Errors
    /// If a part of the state is invalid.
    pub fn step(
        &self,
        domain: &TrustDomain,
        circumstances: &Circumstances<'_>,
    ) -> Result<Option<Self>, SuccessionError> {
        let Circumstances { now, ttl, .. } = *circumstances;
        if let Some(next) = &self.next {
            let announced = age(next, now);
            let spread = *circumstances.spread == Spread::Everywhere && announced >= ANNOUNCED;
            if !spread && announced < circumstances.deadline {
                return Ok(None);
            }
            let mut then = self.clone();
            then.next = None;
            then.put_in_force(next.what.clone(), domain, now)?;
            return Ok(Some(then));
        }
        match &self.retained {
            Some(roots) if age(roots, now) >= ttl + SKEW.min(ttl) => Ok(Some(Self {
                retained: None,
                crossed: None,
                ..self.clone()
            })),
            _ => Ok(None),
        }
    }

    /// Makes another authority sign from now on. Roots that it lacks remain trusted for the time being.
    fn put_in_force(
        &mut self,
        new: Signer,
        domain: &TrustDomain,
        now: Timestamp,
    ) -> Result<(), SuccessionError> {
        let (old, then) = (self.ca(domain)?, new.ca(domain)?);
        let retained = without(&old.bundle, &then.bundle)?;
        self.retained = retained.map(|roots| since(roots.to_pem(), now));
        // A member without the new root can verify a chain through the old one. If the old authority can no longer
        // sign, no member trusts it any more.
        let crossed = then.authority.crossed_by(&old.authority, now.into()).ok();
        let own = self.signer.chain(&old).unwrap_or_default();
        self.crossed = match &self.retained {
            Some(_) => crossed.map(|crossed| format!("{crossed}{own}")),
            None => None,
        };
        self.signer = new;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
