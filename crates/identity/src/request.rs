//! Certificate signing requests (RFC 2986): their creation and verification.
//!
//! The mesh's own authority takes the key of a request and verifies that the owner of the key signed it. The authority
//! decides on names, extensions and lifetime, and does not read those of the request. A signer outside the mesh copies
//! the names of the request instead; for such a signer, a request is created with names, and verified as a
//! [`crate::NamedRequest`].

use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519, SanType, SignatureAlgorithm,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, alg_id};

use crate::der::{BIT_STRING, Der, INTEGER, SEQUENCE, bits};
use crate::provider::provider;
use crate::{Error, Identity, SpiffeId};

/// The tag of `[0] attributes`.
const ATTRIBUTES: u8 = 0xa0;

/// A new key, ECDSA P-256, for a certificate request. The key exists only in memory.
#[derive(Debug)]
pub struct KeyRequest(KeyPair);

impl KeyRequest {
    /// Generates a key.
    ///
    /// # Errors
    /// If the system returns no random bytes.
    pub fn generate() -> Result<Self, Error> {
        Ok(Self(KeyPair::generate()?))
    }

    /// Returns the request for the authority in DER: the public key, signed by the private key.
    ///
    /// # Errors
    /// If the key cannot sign.
    pub fn der(&self) -> Result<Vec<u8>, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        Ok(params.serialize_request(&self.0)?.der().to_vec())
    }

    /// Returns a request with names, for a signer that copies them into the certificate.
    ///
    /// # Errors
    /// If a DNS name is malformed, or the key cannot sign.
    pub fn der_naming(&self, id: &SpiffeId, dns_names: &[String]) -> Result<Vec<u8>, Error> {
        let mut params = CertificateParams::new(dns_names)?;
        params.distinguished_name = DistinguishedName::new();
        let uri = SanType::URI(id.as_str().try_into()?);
        params.subject_alt_names.push(uri);
        Ok(params.serialize_request(&self.0)?.der().to_vec())
    }

    /// Combines the key with the chain issued by the authority into an identity. `chain` is DER, the leaf first.
    ///
    /// # Errors
    /// If the chain is empty or belongs to another key, or if the leaf does not name exactly one workload.
    pub fn certified(&self, chain: impl IntoIterator<Item = Vec<u8>>) -> Result<Identity, Error> {
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        let key = PrivatePkcs8KeyDer::from(self.0.serialize_der());
        Identity::from_der(chain, PrivateKeyDer::Pkcs8(key))
    }

    /// Returns the private key as PEM, PKCS#8.
    #[must_use]
    pub fn private_key_pem(&self) -> String {
        self.0.serialize_pem()
    }
}

/// The public key of a request whose signature is valid.
#[derive(Debug)]
pub(crate) struct RequestedKey {
    bits: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

impl RequestedKey {
    /// Parses a request (DER) and verifies its signature.
    pub(crate) fn verified(request: &[u8]) -> Result<Self, Error> {
        Self::of(&Parts::read(request).ok_or(Error::RequestMalformed)?)
    }

    /// Returns the key of a parsed request, whose signature is verified.
    pub(crate) fn of(parts: &Parts<'_>) -> Result<Self, Error> {
        let algorithm = match parts.key_algorithm {
            id if id == alg_id::ECDSA_P256.as_ref() => &PKCS_ECDSA_P256_SHA256,
            id if id == alg_id::ECDSA_P384.as_ref() => &PKCS_ECDSA_P384_SHA384,
            id if id == alg_id::ED25519.as_ref() => &PKCS_ED25519,
            _ => return Err(Error::RequestKey),
        };
        let known = provider().signature_verification_algorithms.all;
        let fits = known.iter().find(|known| {
            known.public_key_alg_id().as_ref() == parts.key_algorithm
                && known.signature_alg_id().as_ref() == parts.signature_algorithm
        });
        let verifier = fits.ok_or(Error::RequestSignature)?;
        let verified = verifier.verify_signature(parts.key, parts.signed, parts.signature);
        verified.map_err(|_| Error::RequestSignature)?;
        Ok(Self {
            bits: parts.key.to_vec(),
            algorithm,
        })
    }
}

impl rcgen::PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.bits
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

/// The relevant fields of `CertificationRequest` (RFC 2986 §4).
pub(crate) struct Parts<'a> {
    signed: &'a [u8],
    /// The contents of the subject's name; empty if there is none.
    pub(crate) subject: &'a [u8],
    key_algorithm: &'a [u8],
    pub(crate) key: &'a [u8],
    /// The contents of the attributes; empty if there are none.
    pub(crate) attributes: &'a [u8],
    signature_algorithm: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(crate) fn read(request: &'a [u8]) -> Option<Self> {
        let mut outer = Der(request);
        let mut request = Der(outer.expect(SEQUENCE)?);
        let signed = request.whole(SEQUENCE)?;
        let signature_algorithm = request.expect(SEQUENCE)?;
        let signature = bits(request.expect(BIT_STRING)?)?;
        if !outer.is_empty() || !request.is_empty() {
            return None;
        }
        let mut info = Der(Der(signed).expect(SEQUENCE)?);
        info.expect(INTEGER)?; // version
        let subject = info.expect(SEQUENCE)?;
        let mut key = Der(info.expect(SEQUENCE)?);
        Some(Self {
            signed,
            subject,
            attributes: info.optional(ATTRIBUTES).unwrap_or_default(),
            key_algorithm: key.expect(SEQUENCE)?,
            key: bits(key.expect(BIT_STRING)?)?,
            signature_algorithm,
            signature,
        })
    }
}
