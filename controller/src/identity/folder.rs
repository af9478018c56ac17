//! A certificate authority in a directory (`--ca-dir`), as created by `maglor identity ca` and replaced by `maglor
//! identity rotate` (docs/identity.md) or by another program.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use maglor_identity::{Fingerprint, TrustDomain};
use tokio::sync::watch;

use super::authority::{Ca, InForce, Signer, Texts};
use super::rotation::{Circumstances, Phase, Progress, Spread};
use super::succession::{Succession, SuccessionError};
use crate::resource_server::Table;

/// Poll interval for changes of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

const CERTIFICATE: &str = "ca.pem";
const PRIVATE_KEY: &str = "ca_key.pem";
const BUNDLE: &str = "trust_bundle.pem";
/// File that exists during a rotation: the new root signed by the old one.
const CHAIN: &str = "crossed.pem";
/// File with the current state while the authority is replaced by one that members do not trust yet; contains private
/// keys.
const SUCCESSION: &str = "succession.json";

/// Reason why the authority in a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaDirError {
    /// A file cannot be read.
    #[error("{}: {source} (create an authority with `maglor identity ca --out {}`)", path.display(), folder.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Path of the directory.
        folder: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The content of the files is invalid.
    #[error("{}: {source}", folder.display())]
    Unusable {
        /// Path of the directory.
        folder: PathBuf,
        /// Why the content is invalid.
        source: SuccessionError,
    },
}

/// Reads the authority from the files of a directory.
///
/// # Errors
/// If a file cannot be read.
fn source(folder: &Path) -> Result<Signer, CaDirError> {
    let text = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).map_err(|source| CaDirError::Read {
            path,
            folder: folder.to_owned(),
            source,
        })
    };
    let (certificate, private_key) = (text(CERTIFICATE)?, text(PRIVATE_KEY)?);
    let bundle = text(BUNDLE)?;
    let chain = std::fs::read(folder.join(CHAIN)).ok();
    let texts = Texts {
        certificate: &certificate,
        private_key: &private_key,
        bundle: Some(&bundle),
        chain: chain.as_deref(),
    };
    Ok(Signer::of(&texts))
}

/// Follows changes of a certificate authority in a directory.
#[derive(Debug)]
pub struct Follower {
    folder: PathBuf,
    trust_domain: TrustDomain,
    /// Lifetime of leaf certificates.
    ttl: Duration,
    /// Maximum time for which a new root is announced.
    deadline: Duration,
    succession: Succession,
    /// Why the current files are not used; `None` if they are.
    refused: Option<String>,
}

impl Follower {
    /// Opens the authority in a directory: the stored state of an unfinished replacement if there is one, otherwise
    /// the files.
    ///
    /// # Errors
    /// If a file is missing or invalid.
    pub fn open(
        folder: &Path,
        trust_domain: &TrustDomain,
        ttl: Duration,
        deadline: Duration,
    ) -> Result<Self, CaDirError> {
        let unusable = |source| CaDirError::Unusable {
            folder: folder.to_owned(),
            source,
        };
        let begun = Succession::begin(source(folder)?, trust_domain).map_err(unusable)?;
        let kept = std::fs::read(folder.join(SUCCESSION)).ok();
        let kept = kept.map(|text| Succession::from_json(&text, trust_domain));
        let succession = match kept {
            Some(Ok(kept)) => kept,
            Some(Err(error)) => {
                tracing::error!(%error, file = SUCCESSION, "stored state of the CA rotation is invalid; ignoring it");
                begun
            }
            None => begun,
        };
        Ok(Self {
            folder: folder.to_owned(),
            trust_domain: trust_domain.clone(),
            ttl,
            deadline,
            succession,
            refused: None,
        })
    }

    /// Returns the current authority and trust bundle.
    ///
    /// # Errors
    /// If they are invalid.
    pub fn ca(&self) -> Result<Ca, CaDirError> {
        let ca = self.succession.ca(&self.trust_domain);
        ca.map_err(|source| CaDirError::Unusable {
            folder: self.folder.clone(),
            source,
        })
    }

    /// Follows the directory. If the files are invalid, the last valid authority continues to be used. A different
    /// authority signs only once the clients of `table` trust it. Returns when all receivers are dropped.
    pub async fn follow(
        mut self,
        ca: watch::Sender<Option<Arc<InForce>>>,
        table: Table,
        progress: watch::Sender<Option<Progress>>,
    ) {
        let mut seen = None;
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        loop {
            tokio::select! {
                _ = poll.tick() => {}
                () = ca.closed() => return,
            }
            let now = fingerprint(&self.folder);
            let changed = seen.as_ref() != Some(&now);
            seen = Some(now);
            let missing: Vec<String> = table
                .distrusting()
                .iter()
                .map(ToString::to_string)
                .collect();
            let next = match changed.then(|| self.read()).flatten() {
                Some(next) => Some(next),
                None => self.step(&missing),
            };
            if let Some(next) = next {
                self.put_in_force(next, &ca);
            }
            let announcing = self.succession.phase() == Phase::Announcing;
            progress.send_replace(Some(Progress {
                phase: self.succession.phase(),
                since: self.succession.since().unwrap_or(Timestamp::now()),
                missing: if announcing { missing } else { Vec::new() },
                refused: self.refused.clone(),
            }));
        }
    }

    /// Reads the files and returns the state that follows from them; `None` if it has not changed.
    fn read(&mut self) -> Option<Succession> {
        let read = source(&self.folder).map_err(|error| error.to_string());
        let next = read.and_then(|source| {
            let next = self
                .succession
                .follow(&source, &self.trust_domain, Timestamp::now());
            next.map_err(|error| error.to_string())
        });
        match next {
            Ok(next) => {
                self.refused = None;
                next
            }
            Err(error) => {
                tracing::error!(error, "invalid authority; keeping the last valid one");
                self.refused = Some(error);
                None
            }
        }
    }

    fn step(&self, missing: &[String]) -> Option<Succession> {
        let spread = match missing.is_empty() {
            true => Spread::Everywhere,
            false => Spread::Missing(missing.to_vec()),
        };
        let circumstances = Circumstances {
            now: Timestamp::now(),
            spread: &spread,
            ttl: self.ttl,
            deadline: self.deadline,
        };
        let next = self.succession.step(&self.trust_domain, &circumstances);
        next.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot continue the CA rotation");
            None
        })
    }

    fn put_in_force(&mut self, next: Succession, ca: &watch::Sender<Option<Arc<InForce>>>) {
        let new = match next.ca(&self.trust_domain) {
            Ok(new) => new,
            Err(error) => {
                return tracing::error!(%error, "invalid authority; keeping the last valid one");
            }
        };
        if let Err(error) = self.keep(&next) {
            let file = self.folder.join(SUCCESSION);
            tracing::warn!(file = %file.display(), %error, "cannot store the state of the CA rotation; a restart of the controller would interrupt the rotation");
        }
        let roots = new.bundle.certificates().len();
        let phase = next.phase();
        tracing::info!(roots, phase = phase.word(), "authority loaded");
        self.succession = next;
        ca.send_replace(Some(Arc::new(new.into())));
    }

    /// Stores the state for the next process, as long as it differs from the files.
    fn keep(&self, next: &Succession) -> std::io::Result<()> {
        let file = self.folder.join(SUCCESSION);
        if next.phase() == Phase::Steady {
            return match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        // The file contains private keys.
        let new = file.with_extension("new");
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&new)?.write_all(next.to_json().as_bytes())?;
        std::fs::rename(&new, &file)
    }
}

fn fingerprint(folder: &Path) -> Fingerprint {
    let files = [CERTIFICATE, PRIVATE_KEY, BUNDLE, CHAIN].map(|name| folder.join(name));
    Fingerprint::of(files.iter().map(PathBuf::as_path))
}
