//! Who the proxy is inside the mesh: kept up to date by the control thread, read by handshakes.
//!
//! By files, it is what they hold. By the control plane, there are roots from the beginning, and an
//! identity once the control plane has certified one or one was found that an
//! earlier process has left.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use maglor_config::{Enrolment, Identity as Wanted};
use maglor_identity::{
    Error, Files, Fingerprint, Identity, Live, Paths, Rotation, TrustBundle, Unusable, Watch,
};

use crate::telemetry::metrics::IdentityMetrics;

/// The proxy's identity, once it has one.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// There for the rest of the process's life: configurations that were built look at it.
    live: Option<Arc<Live>>,
    /// What is watched; nothing while the configuration wants no identity.
    watched: Option<Watched>,
    /// Roots of the file, as it was read last, and of an earlier process: by these the control plane proves itself
    /// where those that it has told lead to it no more.
    anchors: Option<TrustBundle>,
    /// Whom the control plane has said to trust, once it has.
    received: Option<TrustBundle>,
    /// When to ask for a certificate; `None` = at once.
    renew_at: Option<SystemTime>,
    /// Why the control plane has not certified us, where that went wrong last.
    trouble: Option<String>,
    /// The control plane has not taken the identity that is in force.
    refused: bool,
}

/// What an earlier process has left.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) identity: Option<Identity>,
    pub(crate) roots: Option<TrustBundle>,
}

/// Why a certificate of the control plane is not what it should be.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    #[error("the certificate issued begins at {}: this machine's clock or the control plane's is wrong", humantime::format_rfc3339_seconds(*.0))]
    Early(SystemTime),
    #[error("the certificate issued proves nothing: {0}")]
    Unusable(Unusable),
    #[error("{0}")]
    Identity(Arc<Error>),
}

impl From<Error> for NotTaken {
    fn from(error: Error) -> Self {
        Self::Identity(Arc::new(error))
    }
}

/// An identity that is wanted and proves nothing.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) why: Unusable,
    /// Why there is no other.
    pub(crate) trouble: String,
}

#[derive(Debug)]
enum Watched {
    Files(Paths, Files),
    /// The file of roots.
    Roots(Enrolment, Watch),
}

/// What a configuration makes of the identity, once it is in force.
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

/// What has just been read.
#[derive(Debug)]
struct Read {
    watched: Watched,
    identity: Option<Identity>,
    bundle: TrustBundle,
}

impl Prepared {
    /// What handshakes are to look at.
    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        self.live.as_ref()
    }
}

impl Own {
    /// Reads the files of a configuration, unless they are those that are watched. `kept` is what an
    /// earlier process has left of an identity.
    ///
    /// # Errors
    /// When one of them cannot be read or used; the error names it.
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

    /// What is in force already, for what is built besides a configuration.
    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        self.live.as_ref()
    }

    /// Puts it in force.
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

    /// Looks whether the files have changed. What cannot be used leaves the last good ones in force.
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
                // The file may be older than what was said, or newer: the platform takes its time.
                let both = self
                    .received
                    .as_ref()
                    .map(|received| received.union(&bundle));
                match both.unwrap_or(Ok(bundle)) {
                    Ok(bundle) => self.put(identity, bundle, metrics),
                    Err(error) => tracing::error!(%error, "roots refused"),
                }
            }
            Some(Err(error)) => {
                metrics.refused.add_shared(1);
                tracing::error!(%error, "identity refused, the last good one stays in force");
            }
        }
    }

    /// Takes what the control plane has certified. The roots that it distinguished from that go on: another replica may
    /// not know of the last ones yet. Where those do not lead to the certificate, the roots that came with it replace them.
    ///
    /// # Errors
    /// [`NotTaken`] where the certificate would prove nothing. It is in force only if the one before proves nothing
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

    /// The control plane says whom to trust.
    pub(crate) fn receive_bundle(&mut self, bundle: TrustBundle, metrics: &IdentityMetrics) {
        self.received = Some(bundle.clone());
        self.put(None, bundle, metrics);
    }

    /// Puts roots in force, and an identity where it is another one.
    fn put(&self, identity: Option<Identity>, bundle: TrustBundle, metrics: &IdentityMetrics) {
        let rotated = self.live.as_ref().map(|live| match identity {
            Some(identity) => live.rotate(identity, bundle),
            None => live.trust(bundle),
        });
        self.log_rotation(rotated, metrics);
    }

    /// When to ask for a certificate, as an earlier process may have left one; `None` = at once.
    pub(crate) fn renew_at(&self) -> Option<SystemTime> {
        self.renew_at
    }

    /// The roots by which the control plane proves itself when it certifies: those in force, and those of the file, which
    /// the platform replaces also while the control plane cannot be reached.
    pub(crate) fn anchors(&self) -> Option<TrustBundle> {
        let bundle = self.live.as_ref()?.bundle();
        let both = self.anchors.as_ref().map(|anchors| bundle.union(anchors));
        Some(both.and_then(Result::ok).unwrap_or(bundle))
    }

    /// The control plane has not taken our identity.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Certifying us has failed.
    pub(crate) fn fail(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Why there is no identity that proves anything where one is wanted, and why there is no other.
    pub(crate) fn missing(&self, now: SystemTime) -> Option<Missing> {
        let why = self.live.as_ref()?.usable(now).err()?;
        let trouble = match (&self.watched, self.trouble.as_deref()) {
            (Some(Watched::Files(..)), _) => "it is read from files",
            (_, Some(trouble)) => trouble,
            (_, None) => "the control plane was not asked yet",
        };
        Some(Missing {
            why,
            trouble: trouble.to_owned(),
        })
    }

    /// Shows whether the identity proves anything: time alone may end that.
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
                    "identity in force"
                );
            }
            Err(error) => {
                metrics.refused.add_shared(1);
                tracing::error!(%error, "identity refused, the last good one stays in force");
            }
        }
        self.show(metrics);
        if live.is_identified() && !live.is_trusted(SystemTime::now()) {
            tracing::warn!(
                id = live.id().map(tracing::field::display),
                "the trust bundle does not vouch for this proxy's own certificate: peers will refuse it"
            );
        }
    }
}

impl Read {
    /// The roots of a file, and what an earlier process has left, as far as it is still good. Its roots
    /// are trusted beside those of the file, until the control plane says which to trust: one of the
    /// two may not have heard of the last one. They are also where its identity has expired meanwhile.
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
