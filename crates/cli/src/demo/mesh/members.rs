//! The identities of the demo's mesh: a temporary authority, and a certificate for each proxy.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use maglor_identity::{Authority, LeafRequest, SpiffeId, TrustDomain};

use super::Error;

pub(super) const TRUST_DOMAIN: &str = "demo.maglor";
pub(super) const NAMESPACE: &str = "bookinfo";

/// Returns the id of a service's members.
pub(super) fn id(service: &str) -> String {
    format!("spiffe://{TRUST_DOMAIN}/ns/{NAMESPACE}/sa/{service}")
}

/// The authority that issues the certificates. Its key is never written.
#[derive(Debug)]
pub(super) struct Members(Authority);

impl Members {
    pub(super) fn new() -> Result<Self, Error> {
        let domain: TrustDomain = TRUST_DOMAIN.parse().map_err(Error::Name)?;
        Ok(Self(Authority::create(&domain, SystemTime::now())?))
    }

    /// Writes a new certificate of a service, its key and the roots into a folder, by the names
    /// used in the configuration.
    pub(super) fn issue(&self, service: &str, folder: &Path) -> Result<(), Error> {
        let id: SpiffeId = id(service).parse().map_err(Error::Name)?;
        let issued = self.0.issue(&LeafRequest::new(id), SystemTime::now())?;
        let key = issued.private_key_pem.unwrap_or_default();
        let bundle = self.0.certificate_pem();
        fs::write(folder.join("trust_bundle.pem"), bundle)
            .and_then(|()| fs::write(folder.join("certificate.pem"), issued.certificate_pem))
            .and_then(|()| secret(&folder.join("private_key.pem"), &key))
            .map_err(Error::system("write a certificate"))
    }
}

/// Writes a file that only the owner may read.
fn secret(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}
