//! An authority in a folder, as `maglor identity ca` makes it and `maglor identity rotate` replaces it
//! (docs/identity.md): `--ca-dir`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use maglor_identity::{Error, Fingerprint, TrustDomain};
use tokio::sync::watch;

use super::authority::{Ca, Texts};

/// How often it is looked whether the files have changed.
const LOOK: Duration = Duration::from_secs(1);

const CERTIFICATE: &str = "ca.pem";
const PRIVATE_KEY: &str = "ca_key.pem";
const BUNDLE: &str = "trust_bundle.pem";
/// During a rotation: the new root signed by the old one.
const CHAIN: &str = "crossed.pem";

/// Why an authority in a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaDirError {
    /// A file cannot be read.
    #[error("{}: {source} (`maglor identity ca --out {}` makes an authority)", path.display(), folder.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is in the files cannot be used.
    #[error("{}: {source}", folder.display())]
    Unusable {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        source: Error,
    },
}

/// The authority of a folder as it is now.
///
/// # Errors
/// When a file is not there or cannot be used.
pub fn read(folder: &Path, trust_domain: &TrustDomain) -> Result<Ca, CaDirError> {
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
    Ca::read(&texts, Some(trust_domain)).map_err(|source| CaDirError::Unusable {
        folder: folder.to_owned(),
        source,
    })
}

/// Follows a folder. What cannot be used leaves the last good one in force; returns when nobody wants to
/// know any more.
pub async fn follow(
    folder: PathBuf,
    trust_domain: TrustDomain,
    ca: watch::Sender<Option<Arc<Ca>>>,
) {
    let mut seen = fingerprint(&folder);
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = look.tick() => {}
            () = ca.closed() => return,
        }
        let now = fingerprint(&folder);
        if now == seen {
            continue;
        }
        seen = now;
        match read(&folder, &trust_domain) {
            Ok(new) => {
                tracing::info!(
                    roots = new.bundle.certificates().len(),
                    "authority in force"
                );
                ca.send_replace(Some(Arc::new(new)));
            }
            Err(error) => tracing::error!(%error, "authority refused, the last good one stays"),
        }
    }
}

fn fingerprint(folder: &Path) -> Fingerprint {
    let files = [CERTIFICATE, PRIVATE_KEY, BUNDLE, CHAIN].map(|name| folder.join(name));
    Fingerprint::of(files.iter().map(PathBuf::as_path))
}
