//! The options of `maglor-lab load` for URLs with https.

use std::fs;
use std::path::{Path, PathBuf};

use http::Uri;
use maglor_testkit::load_generator::tls::{Certificate, Settings, Trust};

#[derive(Debug, clap::Args)]
pub(crate) struct Tls {
    /// With https: file with the authorities (PEM) that the server's certificate must come from, instead of the system's.
    #[arg(long, value_name = "PATH", conflicts_with = "insecure")]
    ca: Option<PathBuf>,

    /// With https: file with the client's certificate chain (PEM), for servers that ask for one (mutual TLS).
    #[arg(long, value_name = "PATH", requires = "key")]
    certificate: Option<PathBuf>,

    /// With https: file with the private key of --certificate (PEM).
    #[arg(long, value_name = "PATH", requires = "certificate")]
    key: Option<PathBuf>,

    /// With https: accept any certificate of the server; for tests only.
    #[arg(long)]
    insecure: bool,
}

impl Tls {
    /// Reads the files.
    pub(super) fn settings(&self, url: &Uri) -> Result<Settings, String> {
        let given = [
            ("--ca", self.ca.is_some()),
            ("--certificate", self.certificate.is_some()),
            ("--insecure", self.insecure),
        ];
        if let (Some("http"), Some((name, _))) = (
            url.scheme_str(),
            given.into_iter().find(|(_, given)| *given),
        ) {
            return Err(format!(
                "{name} is for TLS: write https:// instead of http://"
            ));
        }
        let trust = match &self.ca {
            Some(path) => Trust::Authorities(read("--ca", path)?),
            None if self.insecure => Trust::Anyone,
            None => Trust::System,
        };
        let certificate = match self.certificate.as_ref().zip(self.key.as_ref()) {
            Some((chain, key)) => Some(Certificate {
                chain: read("--certificate", chain)?,
                key: read("--key", key)?,
            }),
            None => None,
        };
        Ok(Settings { trust, certificate })
    }
}

/// Reads the file of an option.
pub(super) fn read(option: &str, path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{option} {}: {error}", path.display()))
}
