//! On-disk cache for a proxy's next start: the received resources, the roots and the proxy's identity.
//!
//! Files are synced and then replaced atomically. A file that cannot be read is logged and treated as missing.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use maglor_identity::{Error, Identity, TrustBundle};
use maglor_xds::snapshot;

use crate::mesh::identity::Stored;

const RESOURCES: &str = "resources";
const ROOTS: &str = "roots.pem";
const IDENTITY: &str = "identity.pem";
/// Maximum size of a file in bytes; a larger file was not written by this module.
const LONGEST: u64 = 64 << 20;

/// A cache directory. Only the owner can read its files.
#[derive(Clone, Debug)]
pub(crate) struct Cache(PathBuf);

/// Error in writing a file of the cache.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct KeepError {
    path: PathBuf,
    source: io::Error,
}

impl Cache {
    pub(crate) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    pub(crate) fn keep_resources(&self, resources: &[snapshot::Kept]) -> Result<(), KeepError> {
        self.write(RESOURCES, &snapshot::write(resources))
    }

    /// Reads the resources that an earlier process has received; empty if there are no valid ones.
    pub(crate) fn resources(&self) -> Vec<snapshot::Kept> {
        let Some(bytes) = self.read(RESOURCES) else {
            return Vec::new();
        };
        let read = snapshot::read(&bytes);
        read.unwrap_or_else(|error| {
            self.pass_over(RESOURCES, &error);
            Vec::new()
        })
    }

    pub(crate) fn keep_roots(&self, bundle: &TrustBundle) -> Result<(), KeepError> {
        self.write(ROOTS, bundle.to_pem().as_bytes())
    }

    pub(crate) fn keep_identity(
        &self,
        identity: &Identity,
        private_key_pem: &str,
    ) -> Result<(), KeepError> {
        let text = format!("{private_key_pem}{}", identity.chain_pem());
        self.write(IDENTITY, text.as_bytes())
    }

    /// Reads the cached identity, unless it has expired, and the trusted roots.
    pub(crate) fn identity(&self) -> Stored {
        let roots = self.usable(ROOTS, TrustBundle::from_pem);
        let identity = self.usable(IDENTITY, |own| Identity::from_pem(own, own));
        let has_expired = |own: &Identity| own.expires() <= SystemTime::now();
        if let Some(own) = identity.as_ref().filter(|own| has_expired(own)) {
            tracing::info!(id = %own.id(), "the cached identity has expired");
        }
        Stored {
            identity: identity.filter(|own| !has_expired(own) && roots.is_some()),
            roots,
        }
    }

    /// Reads and parses a file; `None` if it is missing, unreadable or invalid.
    fn usable<T>(&self, name: &str, read: impl Fn(&[u8]) -> Result<T, Error>) -> Option<T> {
        let read = read(&self.read(name)?);
        read.inspect_err(|error| self.pass_over(name, error)).ok()
    }

    fn pass_over(&self, name: &str, error: &dyn std::error::Error) {
        let file = self.0.join(name);
        tracing::warn!(file = %file.display(), %error, "invalid cache file ignored");
    }

    /// Returns the bytes of a file; `None` if it does not exist or cannot be read.
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.0.join(name);
        let length = fs::metadata(&path).ok()?.len();
        let bytes = match length > LONGEST {
            true => Err(io::Error::new(io::ErrorKind::InvalidData, "too long")),
            false => fs::read(&path),
        };
        bytes.inspect_err(|error| self.pass_over(name, error)).ok()
    }

    /// Replaces a file.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), KeepError> {
        let path = self.0.join(name);
        let failed = |source| KeepError {
            path: path.clone(),
            source,
        };
        let new = self.0.join(format!("{name}.new"));
        let write = || {
            fs::create_dir_all(&self.0)?;
            // A file left by a crash may have other permissions.
            let _ = fs::remove_file(&new);
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use bytes::Bytes;
    use maglor_identity::{Authority, LeafRequest};
    use maglor_xds::Kind;

    use super::*;

    fn identity(ttl: Duration, ago: Duration) -> (Identity, String, TrustBundle) {
        let now = SystemTime::now();
        let authority = Authority::create(&"mesh.example".parse().unwrap(), now).unwrap();
        let id = "spiffe://mesh.example/ns/shop/sa/cart".parse().unwrap();
        let request = LeafRequest {
            ttl,
            ..LeafRequest::new(id)
        };
        let issued = authority.issue(&request, now - ago).unwrap();
        let key = issued.private_key_pem.unwrap();
        let chain = issued.certificate_pem.as_bytes();
        let identity = Identity::from_pem(chain, key.as_bytes()).unwrap();
        (identity, key, authority.bundle().unwrap())
    }

    #[test]
    fn what_was_kept_is_found_again_and_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(&folder.path().join("deep/er"));
        assert!(cache.identity().identity.is_none() && cache.resources().is_empty());
        let (own, key, roots) = identity(Duration::from_secs(600), Duration::ZERO);
        cache.keep_identity(&own, &key).unwrap();
        cache.keep_roots(&roots).unwrap();
        let kept = cache.identity();
        let (again, bundle) = (kept.identity.unwrap(), kept.roots.unwrap());
        assert_eq!((again.id(), again.expires()), (own.id(), own.expires()));
        assert!(bundle.is_same(&roots));
        let kept = vec![snapshot::Kept {
            kind: Kind::Listener,
            name: "a".into(),
            version: "1".to_owned(),
            body: Bytes::from_static(b"body"),
        }];
        cache.keep_resources(&kept).unwrap();
        assert_eq!(cache.resources(), kept);
        for name in [IDENTITY, ROOTS, RESOURCES] {
            let file = folder.path().join("deep/er").join(name);
            let mode = fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn what_is_broken_or_too_old_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        let (own, key, roots) = identity(Duration::from_secs(60), Duration::from_secs(120));
        cache.keep_identity(&own, &key).unwrap();
        cache.keep_roots(&roots).unwrap();
        let kept = cache.identity();
        assert!(kept.identity.is_none(), "it has expired");
        assert!(
            kept.roots.is_some_and(|kept| kept.is_same(&roots)),
            "the roots are good"
        );
        let (own, _, _) = identity(Duration::from_secs(60), Duration::ZERO);
        cache.keep_identity(&own, &key).unwrap();
        assert!(
            cache.identity().identity.is_none(),
            "the key is another one's"
        );
        fs::write(folder.path().join(IDENTITY), "nonsense").unwrap();
        assert!(cache.identity().identity.is_none());
        cache.keep_resources(&[]).unwrap();
        let file = folder.path().join(RESOURCES);
        let mut bytes = fs::read(&file).unwrap();
        bytes.push(0);
        fs::write(&file, bytes).unwrap();
        assert!(cache.resources().is_empty());
    }
}
