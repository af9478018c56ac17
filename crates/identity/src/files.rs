//! Identity and roots from PEM files, read again when they change.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::{Error, Identity, TrustBundle};

/// Where the files are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Paths {
    /// The leaf first, then intermediates.
    pub certificate: PathBuf,
    /// Of the leaf: PKCS#8, PKCS#1 or SEC1.
    pub private_key: PathBuf,
    /// One root or several.
    pub trust_bundle: PathBuf,
}

/// Watches an identity's files.
#[derive(Debug)]
pub struct Files {
    paths: Paths,
    watch: Watch,
}

impl Files {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// When one of them cannot be read or used; the error names it.
    pub fn open(paths: Paths) -> Result<(Self, Identity, TrustBundle), Error> {
        let watch = Watch::new(paths.fingerprint());
        let (identity, bundle) = paths.read()?;
        Ok((Self { paths, watch }, identity, bundle))
    }

    /// What the files hold now, if they have changed since they were last read.
    ///
    /// An error means that the last good ones should stay: a writer may be half-way, and the file
    /// that it is still to write is another change.
    pub fn poll(&mut self) -> Option<Result<(Identity, TrustBundle), Error>> {
        let now = self.paths.fingerprint();
        self.watch.poll(now, || self.paths.read())
    }
}

/// Says when files are to be read again: when they look different, and for as long as they cannot be
/// read at all. That may have to do with this process alone, which has no descriptor left, say; then
/// nothing about the files will change when it has one again.
#[derive(Debug)]
pub struct Watch {
    seen: Fingerprint,
    /// Why they were not read, as it was said.
    unread: Option<String>,
}

impl Watch {
    /// Of files that have been read when they looked like this.
    #[must_use]
    pub fn new(seen: Fingerprint) -> Self {
        Self { seen, unread: None }
    }

    /// Reads the files if they should be; `now` is how they look. That they still cannot be read is not
    /// said again.
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

/// What files looked like; equal = they need not be read again.
///
/// By time of change, length and number of the file that the path leads to: it also changes when a
/// symlink on the way is swapped, as Kubernetes does with mounted secrets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Fingerprint(Vec<Option<(SystemTime, u64, u64)>>);

impl Fingerprint {
    /// Of these files, as they are now; one that is not there is a look, too.
    pub fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        let look = |path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
        };
        Self(paths.map(look).collect())
    }
}
