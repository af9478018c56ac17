//! A certificate authority and the certificates of workloads, as files.
//!
//! Files are replaced atomically, and private keys are readable only by their owner. While several files are written,
//! a reader may see an old and a new file together; they do not match, so the reader waits for the rest.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use maglor_identity::{Authority, Fingerprint, Identity, LeafRequest, TrustBundle};

use super::Error;

const ROOT: &str = "ca.pem";
const ROOT_KEY: &str = "ca_key.pem";
const BUNDLE: &str = "trust_bundle.pem";
/// File that exists during a rotation: the new root signed by the old one, followed by the old one.
const CROSSED: &str = "crossed.pem";
const OLD: &str = "old_ca.pem";
const OLD_KEY: &str = "old_ca_key.pem";

const CERTIFICATE: &str = "certificate.pem";
const PRIVATE_KEY: &str = "private_key.pem";

/// The permissions of public files, and of keys.
const PUBLIC: u32 = 0o644;
const PRIVATE: u32 = 0o600;

/// The directory of a certificate authority.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Writes a new authority.
    pub(super) fn create(&self, authority: &Authority, force: bool) -> Result<(), Error> {
        make_folder(&self.0)?;
        check_free(&self.file(ROOT_KEY), force)?;
        for left in [CROSSED, OLD, OLD_KEY] {
            remove(&self.file(left))?;
        }
        self.write(BUNDLE, &authority.certificate_pem(), PUBLIC)?;
        self.write(ROOT_KEY, &authority.private_key_pem(), PRIVATE)?;
        self.write(ROOT, &authority.certificate_pem(), PUBLIC)
    }

    /// Returns the issuing authority, with the chain to its predecessor.
    pub(super) fn authority(&self) -> Result<Authority, Error> {
        let authority = self.pair(ROOT, ROOT_KEY)?;
        let crossed = self.file(CROSSED);
        if !crossed.exists() {
            return Ok(authority);
        }
        let chain = read(&crossed)?;
        authority.with_chain(&chain).map_err(in_file(&crossed))
    }

    fn pair(&self, certificate: &str, key: &str) -> Result<Authority, Error> {
        let (certificate, key) = (self.file(certificate), self.file(key));
        let authority = Authority::from_pem(&read(&certificate)?, &read(&key)?, None);
        authority.map_err(|error| {
            let file = match error.is_of_key() {
                true => &key,
                false => &certificate,
            };
            in_file(file)(error)
        })
    }

    /// Returns the roots that all members should trust now.
    fn bundle(&self) -> Result<TrustBundle, Error> {
        let path = self.file(BUNDLE);
        TrustBundle::from_pem(&read(&path)?).map_err(in_file(&path))
    }

    /// Returns the fingerprint of the authority's files. When it changes, all certificates should be issued again.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let files = [ROOT, ROOT_KEY, BUNDLE, CROSSED].map(|name| self.file(name));
        Fingerprint::of(files.iter().map(PathBuf::as_path))
    }

    /// Creates a new root that issues certificates from now on; both roots are trusted.
    pub(super) fn begin_rotation(&self, now: SystemTime) -> Result<(), Error> {
        if self.file(CROSSED).exists() {
            return Err(Error::AlreadyRotating(self.0.clone()));
        }
        let old = self.authority()?;
        let new = Authority::create(old.trust_domain(), now)?;
        let crossed = new.crossed_by(&old, now)?;
        let both = new.bundle()?.union(&self.bundle()?)?;
        self.write(OLD_KEY, &old.private_key_pem(), PRIVATE)?;
        self.write(OLD, &old.certificate_pem(), PUBLIC)?;
        self.write(BUNDLE, &both.to_pem(), PUBLIC)?;
        self.write(CROSSED, &crossed, PUBLIC)?;
        self.write(ROOT_KEY, &new.private_key_pem(), PRIVATE)?;
        self.write(ROOT, &new.certificate_pem(), PUBLIC)
    }

    /// Ends a rotation: only the new root is trusted from now on, and the old key is deleted.
    pub(super) fn finish_rotation(&self) -> Result<(), Error> {
        if !self.file(CROSSED).exists() {
            return Err(Error::NotRotating(self.0.clone()));
        }
        let new = self.authority()?;
        self.write(BUNDLE, &new.bundle()?.to_pem(), PUBLIC)?;
        for old in [CROSSED, OLD_KEY, OLD] {
            remove(&self.file(old))?;
        }
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> Result<(), Error> {
        write(&self.file(name), text, mode)
    }
}

/// The directory of a workload, to which the proxy's `identity` refers.
#[derive(Debug)]
pub(super) struct Leaf(PathBuf);

impl Leaf {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Checks that there is no private key yet, or that it may be replaced.
    pub(super) fn check_free(&self, force: bool) -> Result<(), Error> {
        check_free(&self.0.join(PRIVATE_KEY), force)
    }

    /// Issues a certificate for a new key and writes both, after the roots: a reader in between trusts more roots,
    /// not fewer.
    pub(super) fn issue(
        &self,
        folder: &Folder,
        authority: &Authority,
        request: &LeafRequest,
    ) -> Result<Identity, Error> {
        let issued = authority.issue(request, SystemTime::now())?;
        let key = issued.private_key_pem.unwrap_or_default();
        let identity = Identity::from_pem(issued.certificate_pem.as_bytes(), key.as_bytes())?;
        let bundle = folder.bundle()?.to_pem();
        make_folder(&self.0)?;
        write(&self.0.join(BUNDLE), &bundle, PUBLIC)?;
        write(&self.0.join(PRIVATE_KEY), &key, PRIVATE)?;
        write(&self.0.join(CERTIFICATE), &issued.certificate_pem, PUBLIC)?;
        Ok(identity)
    }
}

fn check_free(key: &Path, force: bool) -> Result<(), Error> {
    match key.exists() && !force {
        true => Err(Error::Exists(key.to_owned())),
        false => Ok(()),
    }
}

fn make_folder(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(failed(path))
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(failed(path))
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(path)(error)),
        _ => Ok(()),
    }
}

/// Replaces a file atomically. Its permissions are set before its contents are written.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let partial = path.with_extension("partial");
    remove(&partial)?;
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(mode);
    let written = options.open(&partial).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&partial, path)
    });
    written.map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}

pub(super) fn in_file(path: &Path) -> impl FnOnce(maglor_identity::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Identity { path, source }
}
