//! The proxy's identity in the mesh: kept up to date by the control thread, read by TLS handshakes.
//!
//! An identity from files consists of their contents. With a control plane, the roots are known from the start, and
//! the identity once the control plane has issued one or the cached one of an earlier process was read.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use maglor_config::{Enrolment, Identity as Wanted};
use maglor_identity::{
    Error, Files, Fingerprint, Identity, Live, Paths, Rotation, TrustBundle, Unusable, Watch,
};

use crate::telemetry::metrics::IdentityMetrics;

/// State of the proxy's identity.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// The identity in use; `None` until one is configured. Kept until the process ends, because configurations refer
    /// to it.
    live: Option<Arc<Live>>,
    /// Watched files; `None` while no identity is configured.
    watched: Option<Watched>,
    /// Roots of the file when it was last read, and cached roots of an earlier process. They authenticate the control
    /// plane if the roots that it has sent do not.
    anchors: Option<TrustBundle>,
    /// Trust bundle from the control plane; `None` until it has sent one.
    received: Option<TrustBundle>,
    /// When to request a certificate; `None` means immediately.
    renew_at: Option<SystemTime>,
    /// Error of the last enrolment; `None` if it succeeded.
    trouble: Option<String>,
    /// Whether the control plane has rejected the current identity.
    refused: bool,
}

/// Identity and roots that an earlier process has cached.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) identity: Option<Identity>,
    pub(crate) roots: Option<TrustBundle>,
}

/// Reason why a certificate from the control plane is not valid.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    #[error("the issued certificate is not valid before {}: the clock of this machine or of the control plane is wrong", humantime::format_rfc3339_seconds(*.0))]
    Early(SystemTime),
    #[error("the issued certificate is not usable: {0}")]
    Unusable(Unusable),
    #[error("{0}")]
    Identity(Arc<Error>),
}

impl From<Error> for NotTaken {
    fn from(error: Error) -> Self {
        Self::Identity(Arc::new(error))
    }
}

/// A missing or invalid identity.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) why: Unusable,
    /// Why no other identity was issued.
    pub(crate) trouble: String,
}

#[derive(Debug)]
enum Watched {
    Files(Paths, Files),
    /// The file of roots.
    Roots(Enrolment, Watch),
}

/// The identity of a configuration, ready to be applied.
#[derive(Debug)]
pub(crate) struct Prepared {
    live: Option<Arc<Live>>,
    change: Change,
}

#[derive(Debug)]
enum Change {
    Forget,
    Keep,
    Watch(Box<Read>),
}

/// Contents of files that were just read.
#[derive(Debug)]
struct Read {
    watched: Watched,
    identity: Option<Identity>,
    bundle: TrustBundle,
}

impl Prepared {
    /// Returns the identity for TLS handshakes; `None` if none is configured.
    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        self.live.as_ref()
    }
}

impl Own {
    /// Reads the identity files of a configuration, unless they are already watched. `kept` returns the cached
    /// identity of an earlier process.
    ///
    /// # Errors
    /// If a file cannot be read or used; the error names it.
    pub(crate) fn prepare(
        &self,
        wanted: Option<&Wanted>,
        kept: impl FnOnce() -> Stored,
    ) -> Result<Prepared, Error> {
        let live = self.live.clone();
        let change = match (wanted, &self.watched) {
            (None, _) => Change::Forget,
            (Some(Wanted::Files(paths)), Some(Watched::Files(watched, _))) if watched == paths => {
                Change::Keep
            }
            (Some(Wanted::ControlPlane(enrolment)), Some(Watched::Roots(watched, _)))
                if watched == enrolment =>
            {
                Change::Keep
            }
            (Some(Wanted::Files(paths)), _) => {
                let (files, identity, bundle) = Files::open(paths.clone())?;
                Change::Watch(Box::new(Read {
                    watched: Watched::Files(paths.clone(), files),
                    identity: Some(identity),
                    bundle,
                }))
            }
            (Some(Wanted::ControlPlane(enrolment)), _) => {
                Change::Watch(Box::new(Read::roots(enrolment, kept())?))
            }
        };
        let live = match (live, &change) {
            (None, Change::Watch(read)) => Some(read.live()?),
            (live, _) => live,
        };
        Ok(Prepared { live, change })
    }

    /// Returns the current identity, for parts that are built independently of a configuration.
    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        self.live.as_ref()
    }

    /// Applies a prepared identity.
    pub(crate) fn commit(&mut self, prepared: Prepared, metrics: &IdentityMetrics) {
        self.live = prepared.live;
        match prepared.change {
            Change::Forget => {
                self.watched = None;
                self.anchors = None;
                metrics.expires(None);
                metrics.set_usable(false);
            }
            Change::Keep => {}
            Change::Watch(read) => {
                self.watched = Some(read.watched);
                self.anchors = Some(read.bundle.clone());
                self.received = None;
                self.renew_at = read.identity.as_ref().map(Identity::renew_at);
                self.put(read.identity, read.bundle, metrics);
            }
        }
    }

    /// Checks whether the files have changed. If the new content is not valid, the last valid content is kept.
    pub(crate) fn poll(&mut self, metrics: &IdentityMetrics) {
        let polled = match &mut self.watched {
            None => return,
            Some(Watched::Files(_, files)) => files
                .poll()
                .map(|read| read.map(|(identity, bundle)| (Some(identity), bundle))),
            Some(Watched::Roots(enrolment, watch)) => {
                let path = &enrolment.trust_bundle;
                let polled = watch.poll(fingerprint(path), || TrustBundle::from_file(path));
                polled.map(|read| read.map(|bundle| (None, bundle)))
            }
        };
        match polled {
            None => self.show(metrics),
            Some(Ok((identity, bundle))) => {
                self.anchors = Some(bundle.clone());
                // The platform updates the file with a delay, so it may be older or newer than the received bundle.
                let both = self
                    .received
                    .as_ref()
                    .map(|received| received.union(&bundle));
                match both.unwrap_or(Ok(bundle)) {
                    Ok(bundle) => self.put(identity, bundle, metrics),
                    Err(error) => {
                        tracing::error!(%error, "trust bundle rejected; keeping the last valid one");
                    }
                }
            }
            Some(Err(error)) => {
                metrics.refused.add_shared(1);
                tracing::error!(%error, "identity rejected; keeping the last valid one");
            }
        }
    }

    /// Applies a certificate from the control plane. A trust bundle received separately is kept, since another
    /// replica may not have the latest roots yet. If that bundle does not verify the certificate, the roots that came
    /// with the certificate replace it.
    ///
    /// # Errors
    /// [`NotTaken`] if the certificate is not valid. In this case it is applied only if the previous one is not valid
    /// either.
    pub(crate) fn certified(
        &mut self,
        identity: Identity,
        roots: TrustBundle,
        now: SystemTime,
        metrics: &IdentityMetrics,
    ) -> Result<(), NotTaken> {
        let leads = |bundle: &TrustBundle| -> Result<_, Error> {
            let candidate = Live::new(identity.clone(), bundle.clone())?;
            Ok(candidate.usable(identity.begins()).is_ok())
        };
        let received = match self.received.take() {
            Some(received) if leads(&received)? => Some(received),
            Some(_) | None => None,
        };
        self.received = received;
        let bundle = self.received.clone().unwrap_or(roots);
        let begins = identity.begins();
        let early = |live: &&Arc<Live>| begins > live.time(now);
        let not_taken = match self.live.as_ref().filter(early) {
            Some(_) => Some(NotTaken::Early(begins)),
            None if !leads(&bundle)? => Some(NotTaken::Unusable(Unusable::Untrusted)),
            None => None,
        };
        let before = self.live.as_ref().map(|live| live.usable(now));
        if let (Some(why), Some(Ok(()))) = (&not_taken, before) {
            return Err(why.clone());
        }
        self.put(Some(identity), bundle, metrics);
        self.refused = false;
        let usable = self.live.as_ref().map_or(Ok(()), |live| live.usable(now));
        match not_taken {
            Some(why) => return Err(why),
            None => usable.map_err(NotTaken::Unusable)?,
        }
        self.trouble = None;
        Ok(())
    }

    /// Replaces the trust bundle with one from the control plane.
    pub(crate) fn receive_bundle(&mut self, bundle: TrustBundle, metrics: &IdentityMetrics) {
        self.received = Some(bundle.clone());
        self.put(None, bundle, metrics);
    }

    /// Applies roots, and an identity if there is a new one.
    fn put(&self, identity: Option<Identity>, bundle: TrustBundle, metrics: &IdentityMetrics) {
        let rotated = self.live.as_ref().map(|live| match identity {
            Some(identity) => live.rotate(identity, bundle),
            None => live.trust(bundle),
        });
        self.log_rotation(rotated, metrics);
    }

    /// Returns when to request a certificate, with regard to a cached one; `None` means immediately.
    pub(crate) fn renew_at(&self) -> Option<SystemTime> {
        self.renew_at
    }

    /// Returns the roots that authenticate the control plane during enrolment: the current ones, and those of the
    /// file, which the platform updates even while the control plane is unavailable.
    pub(crate) fn anchors(&self) -> Option<TrustBundle> {
        let bundle = self.live.as_ref()?.bundle();
        let both = self.anchors.as_ref().map(|anchors| bundle.union(anchors));
        Some(both.and_then(Result::ok).unwrap_or(bundle))
    }

    /// Records that the control plane has rejected the identity.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Records a failed enrolment.
    pub(crate) fn fail(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Returns why the configured identity is not valid and why no other was issued; `None` if it is valid.
    pub(crate) fn missing(&self, now: SystemTime) -> Option<Missing> {
        let why = self.live.as_ref()?.usable(now).err()?;
        let trouble = match (&self.watched, self.trouble.as_deref()) {
            (Some(Watched::Files(..)), _) => "it is read from files",
            (_, Some(trouble)) => trouble,
            (_, None) => "no certificate has been requested from the control plane yet",
        };
        Some(Missing {
            why,
            trouble: trouble.to_owned(),
        })
    }

    /// Updates the metric of the identity's validity, which can change with time alone.
    fn show(&self, metrics: &IdentityMetrics) {
        let now = SystemTime::now();
        let usable = self
            .live
            .as_ref()
            .is_some_and(|live| live.usable(now).is_ok());
        metrics.set_usable(usable);
    }

    fn log_rotation(&self, rotated: Option<Result<Rotation, Error>>, metrics: &IdentityMetrics) {
        let (Some(live), Some(rotated)) = (&self.live, rotated) else {
            return;
        };
        match rotated {
            Ok(rotation) => {
                metrics.applied.add_shared(1);
                metrics.expires(live.expires());
                let expires = live.expires().map(humantime::format_rfc3339_seconds);
                tracing::info!(
                    id = live.id().map(tracing::field::display),
                    expires = expires.map(tracing::field::display),
                    roots_added = rotation.roots_added,
                    roots_removed = rotation.roots_removed,
                    "identity loaded"
                );
            }
            Err(error) => {
                metrics.refused.add_shared(1);
                tracing::error!(%error, "identity rejected; keeping the last valid one");
            }
        }
        self.show(metrics);
        if live.is_identified() && !live.is_trusted(SystemTime::now()) {
            tracing::warn!(
                id = live.id().map(tracing::field::display),
                "the trust bundle does not verify this proxy's own certificate; peers will reject it"
            );
        }
    }
}

impl Read {
    /// Reads the file of roots, and combines it with a cached identity that is still valid. Cached roots are
    /// trusted in addition to those of the file until the control plane sends a bundle, since one of the two may be
    /// out of date. They stay trusted if the cached identity has expired.
    fn roots(enrolment: &Enrolment, kept: Stored) -> Result<Self, Error> {
        let watch = Watch::new(fingerprint(&enrolment.trust_bundle));
        let mut bundle = TrustBundle::from_file(&enrolment.trust_bundle)?;
        if let Some(known) = &kept.roots {
            bundle = bundle.union(known)?;
        }
        let mut identity = None;
        if let Some(own) = kept.identity {
            let live = Live::new(own.clone(), bundle.clone())?;
            identity = live.usable(SystemTime::now()).is_ok().then_some(own);
        }
        Ok(Self {
            watched: Watched::Roots(enrolment.clone(), watch),
            identity,
            bundle,
        })
    }

    fn live(&self) -> Result<Arc<Live>, Error> {
        match &self.identity {
            Some(identity) => Live::new(identity.clone(), self.bundle.clone()),
            None => Live::nameless(self.bundle.clone()),
        }
    }
}

fn fingerprint(path: &Path) -> Fingerprint {
    Fingerprint::of([path].into_iter())
}

#[cfg(test)]
mod tests;
