//! Certificates for pairs of proxies: one root, and one leaf that both proxies of a pair present.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use maglor_identity::{Authority, LeafRequest};

use crate::error::{Doing, Error, Result};

const ID: &str = "spiffe://mesh.test/ns/bench/sa/pair";
/// For proxies that verify DNS names only.
const DNS_NAME: &str = "inbound.mesh.test";

/// Certificates and key as PEM.
#[derive(Debug)]
pub(crate) struct Credentials {
    root: String,
    leaf: String,
    key: String,
}

impl Credentials {
    /// Creates credentials that are valid for a day.
    pub(crate) fn new() -> Result<Self> {
        let now = SystemTime::now();
        let domain = "mesh.test".parse().map_err(Error::protocol)?;
        let authority = Authority::create(&domain, now).map_err(Error::protocol)?;
        let mut request = LeafRequest::new(ID.parse().map_err(Error::protocol)?);
        request.dns_names.push(DNS_NAME.into());
        let leaf = authority.issue(&request, now).map_err(Error::protocol)?;
        Ok(Self {
            root: authority.certificate_pem(),
            leaf: leaf.certificate_pem,
            key: leaf.private_key_pem.unwrap_or_default(),
        })
    }

    /// Writes the files to the paths that the configurations refer to.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let pair = format!("{}{}", self.leaf, self.key);
        for (name, text) in [
            ("root.pem", &self.root),
            ("leaf.pem", &self.leaf),
            ("key.pem", &self.key),
            ("pair.pem", &pair),
        ] {
            fs::write(directory.join(name), text).doing("write a certificate")?;
        }
        Ok(())
    }
}
