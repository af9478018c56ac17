//! Reads the identity and the roots from PEM files, and reads them again when they change.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::{Error, Identity, TrustBundle};

/// The paths of the files of an identity.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Paths {
    /// The certificate chain: the leaf first, then intermediates.
    pub certificate: PathBuf,
    /// The private key of the leaf: PKCS#8, PKCS#1 or SEC1.
    pub private_key: PathBuf,
    /// The trusted roots, at least one.
    pub trust_bundle: PathBuf,
}

/// A watch of an identity's files.
#[derive(Debug)]
pub struct Files {
    paths: Paths,
    watch: Watch,
}

impl Files {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// If a file cannot be read or used; the error contains its path.
    pub fn open(paths: Paths) -> Result<(Self, Identity, TrustBundle), Error> {
        let watch = Watch::new(paths.fingerprint());
        let (identity, bundle) = paths.read()?;
        Ok((Self { paths, watch }, identity, bundle))
    }

    /// Returns the contents of the files if they have changed since they were last read.
    ///
    /// After an error, the caller should keep the last valid contents: a writer may not have finished, and its further
    /// writes are another change.
    pub fn poll(&mut self) -> Option<Result<(Identity, TrustBundle), Error>> {
        let now = self.paths.fingerprint();
        self.watch.poll(now, || self.paths.read())
    }
}

/// Decides when files have to be read again: if their fingerprint changes, and as long as they cannot be read at all.
/// The cause of the latter may be this process alone, for example if it has no free file descriptor. The files then do
/// not change when it has one again.
#[derive(Debug)]
pub struct Watch {
    seen: Fingerprint,
    /// The last reported error; `None` if the files could be read.
    unread: Option<String>,
}

impl Watch {
    /// Creates a watch of files that were read with this fingerprint.
    #[must_use]
    pub fn new(seen: Fingerprint) -> Self {
        Self { seen, unread: None }
    }

    /// Reads the files if necessary; `now` is their current fingerprint. A read error that persists
    /// is returned only once.
    pub fn poll<T>(
        &mut self,
        now: Fingerprint,
        read: impl FnOnce() -> Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        let same = now == self.seen;
        if same && self.unread.is_none() {
            return None;
        }
        self.seen = now;
        let read = read();
        let failed = read.as_ref().err().filter(|error| error.is_unread());
        let unread = failed.map(ToString::to_string);
        let was_said = same && unread.is_some() && unread == self.unread;
        self.unread = unread;
        (!was_said).then_some(read)
    }
}

impl Paths {
    fn fingerprint(&self) -> Fingerprint {
        let paths = [&self.certificate, &self.private_key, &self.trust_bundle];
        Fingerprint::of(paths.into_iter().map(PathBuf::as_path))
    }

    fn read(&self) -> Result<(Identity, TrustBundle), Error> {
        let chain = read(&self.certificate)?;
        let key = read(&self.private_key)?;
        let identity = Identity::from_pem(&chain, &key).map_err(|error| {
            let file = match error.is_of_key() {
                true => &self.private_key,
                false => &self.certificate,
            };
            Error::in_file(file)(error)
        })?;
        Ok((identity, TrustBundle::from_file(&self.trust_bundle)?))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = fs::read(path).map_err(Error::Read);
    bytes.map_err(Error::in_file(path))
}

/// A fingerprint of files; while it does not change, they need not be read again.
///
/// It consists of the modification time, the length and the inode of the files that the paths lead to. So it also
/// changes when a symlink in a path is swapped, as Kubernetes does with mounted secrets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Fingerprint(Vec<Option<(SystemTime, u64, u64)>>);

impl Fingerprint {
    /// Returns the present fingerprint of files; the absence of a file is part of it.
    pub fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        let look = |path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
        };
        Self(paths.map(look).collect())
    }
}
