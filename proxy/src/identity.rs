//! Who the proxy is inside the mesh: kept up to date by the control thread, read by handshakes.

use std::sync::Arc;
use std::time::SystemTime;

use maglor_identity::{Error, Files, Identity, Live, Paths, TrustBundle};

use crate::metrics::IdentityMetrics;

/// The proxy's identity, once it has one.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// There for the rest of the process's life: configurations that were built look at it.
    live: Option<Arc<Live>>,
    /// The files that are watched; none while the configuration names none.
    watched: Option<(Paths, Files)>,
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

/// Files that have just been read.
#[derive(Debug)]
struct Read {
    paths: Paths,
    files: Files,
    identity: Identity,
    bundle: TrustBundle,
}

impl Prepared {
    /// What handshakes are to look at.
    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        self.live.as_ref()
    }
}

impl Own {
    /// Reads the files of a configuration, unless they are those that are watched.
    ///
    /// # Errors
    /// When one of them cannot be read or used; the error names it.
    pub(crate) fn prepare(&self, wanted: Option<&Paths>) -> Result<Prepared, Error> {
        let live = self.live.clone();
        let Some(paths) = wanted else {
            let change = Change::Forget;
            return Ok(Prepared { live, change });
        };
        if let Some((watched, _)) = &self.watched
            && watched == paths
        {
            let change = Change::Keep;
            return Ok(Prepared { live, change });
        }
        let (files, identity, bundle) = Files::open(paths.clone())?;
        let live = match live {
            Some(live) => live,
            None => Live::new(identity.clone(), bundle.clone())?,
        };
        Ok(Prepared {
            live: Some(live),
            change: Change::Watch(Box::new(Read {
                paths: paths.clone(),
                files,
                identity,
                bundle,
            })),
        })
    }

    /// Puts it in force.
    pub(crate) fn commit(&mut self, prepared: Prepared, metrics: &IdentityMetrics) {
        self.live = prepared.live;
        match prepared.change {
            Change::Forget => {
                self.watched = None;
                metrics.expires(None);
            }
            Change::Keep => {}
            Change::Watch(read) => {
                self.watched = Some((read.paths, read.files));
                self.rotate(read.identity, read.bundle, metrics);
            }
        }
    }

    /// Looks whether the files have changed. What cannot be used leaves the last good ones in force.
    pub(crate) fn poll(&mut self, metrics: &IdentityMetrics) {
        let polled = self.watched.as_mut().and_then(|(_, files)| files.poll());
        match polled {
            None => {}
            Some(Ok((identity, bundle))) => self.rotate(identity, bundle, metrics),
            Some(Err(error)) => {
                metrics.refused.add_shared(1);
                tracing::error!(%error, "identity refused, the last good one stays in force");
            }
        }
    }

    fn rotate(&self, identity: Identity, bundle: TrustBundle, metrics: &IdentityMetrics) {
        let Some(live) = &self.live else { return };
        match live.rotate(identity, bundle) {
            Ok(rotation) => {
                metrics.applied.add_shared(1);
                metrics.expires(Some(live.expires()));
                tracing::info!(
                    id = %live.id(),
                    expires = %humantime::format_rfc3339_seconds(live.expires()),
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
        if !live.is_trusted(SystemTime::now()) {
            tracing::warn!(
                id = %live.id(),
                "the trust bundle does not vouch for this proxy's own certificate: peers will refuse it"
            );
        }
    }
}
