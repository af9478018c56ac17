//! Certificates: the documents that a proxy starts with, and the identity service's answer to its request.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use linkerd2_proxy_api::identity::{CertifyRequest, CertifyResponse};
use maglor_identity::{Authority, KeyRequest, LeafRequest};
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tonic::Status;

use crate::error::{Doing, Error, Result};

/// The name of all proxies, as Linkerd forms it.
pub(crate) const NAME: &str = "bench.bench.serviceaccount.identity.linkerd.mesh.test";
const ID: &str = "spiffe://mesh.test/ns/bench/sa/bench";
const DOMAIN: &str = "mesh.test";

const ROOT: &str = "root.pem";
const ROOT_KEY: &str = "root-key.pem";

/// A root, and the key and signing request of a proxy.
#[derive(Debug)]
pub(crate) struct Documents {
    authority: Authority,
    /// PKCS#8, DER.
    key: Vec<u8>,
    /// DER.
    signing_request: Vec<u8>,
}

impl Documents {
    /// Creates a root and a key.
    pub(crate) fn create() -> Result<Self> {
        let domain = DOMAIN.parse().map_err(Error::protocol)?;
        let request = KeyRequest::generate().map_err(Error::protocol)?;
        let pem = request.private_key_pem();
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(Error::protocol)?;
        Ok(Self {
            authority: Authority::create(&domain, SystemTime::now()).map_err(Error::protocol)?,
            signing_request: request.der().map_err(Error::protocol)?,
            key: key.secret_pkcs8_der().to_vec(),
        })
    }

    /// Returns the root certificate as PEM.
    pub(crate) fn trust_anchors(&self) -> String {
        self.authority.certificate_pem()
    }

    /// Writes the files that the proxy and [`Issuer::read`] look for; a token is not verified, but has to exist.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let write = |name: &str, bytes: &[u8]| {
            fs::write(directory.join(name), bytes).doing(format!("write {name}"))
        };
        write(ROOT, self.trust_anchors().as_bytes())?;
        write(ROOT_KEY, self.authority.private_key_pem().as_bytes())?;
        write("key.p8", &self.key)?;
        write("csr.der", &self.signing_request)?;
        write("token", b"token")
    }
}

/// The signer of certificates.
#[derive(Debug)]
pub(super) struct Issuer(Authority);

impl Issuer {
    /// Reads the root that [`Documents::write`] has written.
    pub(super) fn read(directory: &Path) -> Result<Self> {
        let read = |name: &str| fs::read(directory.join(name)).doing(format!("read {name}"));
        let root = Authority::from_pem(&read(ROOT)?, &read(ROOT_KEY)?, None);
        Ok(Self(root.map_err(Error::protocol)?))
    }

    /// Signs a certificate for the requested name.
    pub(super) fn certify(
        &self,
        request: &CertifyRequest,
    ) -> std::result::Result<CertifyResponse, Status> {
        if request.identity != NAME {
            return Err(Status::permission_denied(format!(
                "identity {:?}, expected {NAME:?}",
                request.identity
            )));
        }
        let id = ID.parse().map_err(|_| Status::internal(ID))?;
        let mut leaf = LeafRequest::new(id);
        leaf.dns_names.push(NAME.into());
        let signing_request = &request.certificate_signing_request;
        let issued = self.0.sign(signing_request, &leaf, SystemTime::now());
        let issued = issued.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let mut chain = issued.chain.iter().map(|one| one.to_vec());
        Ok(CertifyResponse {
            leaf_certificate: chain.next().unwrap_or_default(),
            intermediate_certificates: chain.collect(),
            valid_until: Some(issued.expires.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_gets_a_certificate_for_its_key_and_name() {
        let directory = tempfile::tempdir().unwrap();
        let documents = Documents::create().unwrap();
        documents.write(directory.path()).unwrap();
        let issuer = Issuer::read(directory.path()).unwrap();
        let request = CertifyRequest {
            identity: NAME.into(),
            token: b"token".to_vec(),
            certificate_signing_request: fs::read(directory.path().join("csr.der")).unwrap(),
        };
        let response = issuer.certify(&request).unwrap();
        let leaf = response.leaf_certificate;
        assert!(leaf.windows(NAME.len()).any(|part| part == NAME.as_bytes()));
        assert!(response.intermediate_certificates.is_empty());
        let until = SystemTime::try_from(response.valid_until.unwrap()).unwrap();
        assert!(until > SystemTime::now());

        let renamed = CertifyRequest {
            identity: "other.test".into(),
            ..request.clone()
        };
        let refused = issuer.certify(&renamed).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
        let malformed = CertifyRequest {
            certificate_signing_request: b"x".to_vec(),
            ..request
        };
        let refused = issuer.certify(&malformed).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }
}
