//! Certificates in PEM.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::Error;

/// Parses the certificates of a PEM text; there must be at least one.
pub(crate) fn read(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(Error::Pem)?;
    if all.is_empty() {
        return Err(Error::NoCertificate);
    }
    Ok(all)
}

pub(crate) fn write(certificates: &[CertificateDer<'_>]) -> String {
    let one = |der: &CertificateDer<'_>| pem::Pem::new("CERTIFICATE", der.to_vec());
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    let all: Vec<_> = certificates.iter().map(one).collect();
    pem::encode_many_config(&all, lines)
}
