//! The certificate authority of a trust domain: a root certificate with its key, which issues leaf certificates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::string::{Ia5String, PrintableString};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData,
    SanType,
};
use rustls::pki_types::CertificateDer;

use crate::der::{
    Der, IA5_STRING, OBJECT_IDENTIFIER, PRINTABLE_STRING, SEQUENCE, SET, UTF8_STRING,
};
use crate::leaf::{Issued, LeafRequest, MAX_TTL};
use crate::request::RequestedKey;
use crate::{Error, SpiffeId, TrustBundle, TrustDomain, certificate_pem, identity, x509};

/// The validity of a new root.
const ROOT_TTL: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The time by which certificates are backdated, because clocks differ.
const BACKDATED: Duration = Duration::from_secs(5 * 60);
/// The maximum length of a path below a root: a cross-signed successor, then a leaf.
const PATH_LEN: u8 = 1;

/// A root certificate with its private key.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    root: x509::Certificate,
    trust_domain: TrustDomain,
    /// The certificates that are sent after each leaf.
    chain: Vec<CertificateDer<'static>>,
}

impl Authority {
    /// Creates a new root: self-signed, ECDSA P-256, valid for ten years.
    ///
    /// # Errors
    /// If the system returns no random bytes.
    pub fn create(trust_domain: &TrustDomain, now: SystemTime) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = root_params(trust_domain, now)?;
        // Roots of one trust domain are distinguished by name, without verifying their signatures.
        let mark: String = key.der_bytes().iter().skip(1).take(4).map(hex).collect();
        let name = format!("Maglor root {mark}");
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key)?.der().clone();
        Self::assemble(certificate, key, Some(trust_domain.clone()))
    }

    /// Reads a root and its key. The trust domain is that of the root's URI name, or `trust_domain` if the root has
    /// none.
    ///
    /// # Errors
    /// If the root or the key cannot be read, if they do not match, or if the certificate may not sign others.
    pub fn from_pem(
        certificate: &[u8],
        key: &[u8],
        trust_domain: Option<TrustDomain>,
    ) -> Result<Self, Error> {
        let certificate = certificate_pem::read(certificate)?.swap_remove(0);
        let key = KeyPair::try_from(&identity::private_key(key)?)
            .map_err(|error| Error::KeyUnusable(error.to_string()))?;
        let authority = Self::assemble(certificate, key, trust_domain)?;
        authority.check_subject()?;
        Ok(authority)
    }

    fn assemble(
        certificate: CertificateDer<'static>,
        key: KeyPair,
        trust_domain: Option<TrustDomain>,
    ) -> Result<Self, Error> {
        let malformed = Error::CertificateMalformed { position: 1 };
        let root = x509::parse(&certificate).ok_or(malformed)?;
        if !root.is_ca {
            return Err(Error::NotAnAuthority);
        }
        if root.public_key != key.der_bytes() {
            return Err(Error::KeyMismatch);
        }
        let own = root
            .uris
            .iter()
            .find_map(|uri| uri.parse::<SpiffeId>().ok());
        let own = own.map(|id| id.to_trust_domain());
        let trust_domain = trust_domain.or(own).ok_or(Error::NoTrustDomain)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name(&root.subject).ok_or(Error::SubjectUnsupported)?;
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        if let Some(id) = &root.key_id {
            params.key_identifier_method = KeyIdMethod::PreSpecified(id.clone());
        }
        Ok(Self {
            issuer: Issuer::new(params, key),
            certificate,
            root,
            trust_domain,
            chain: Vec::new(),
        })
    }

    /// Checks that rcgen reproduces the root's subject byte for byte, since verifiers find the issuer of a leaf by this
    /// name.
    fn check_subject(&self) -> Result<(), Error> {
        let probe = CertificateParams::default().signed_by(self.issuer.key(), &self.issuer)?;
        let issuer = x509::parse(probe.der()).map(|probe| probe.issuer);
        match issuer == Some(self.root.subject.clone()) {
            true => Ok(()),
            false => Err(Error::SubjectUnsupported),
        }
    }

    /// Returns the trust domain of the root.
    #[must_use]
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// Returns the root as PEM.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        certificate_pem::write(std::slice::from_ref(&self.certificate))
    }

    /// Returns the root's private key as PEM, PKCS#8.
    #[must_use]
    pub fn private_key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Returns the end of the root's validity period.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        self.root.expires()
    }

    /// Returns whether the certificate is self-signed; if not, it is an intermediate certificate of another root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.root.subject == self.root.issuer
    }

    /// Returns a trust bundle that contains only this root.
    ///
    /// # Errors
    /// If the root cannot be used to verify others.
    pub fn bundle(&self) -> Result<TrustBundle, Error> {
        TrustBundle::from_pem(self.certificate_pem().as_bytes())
    }

    /// Returns this root signed by its predecessor, as PEM. If it is sent along with leaves, peers that trust only the
    /// old root trust these leaves, too, so that a rotation needs no order of updates.
    ///
    /// # Errors
    /// If the predecessor has expired or cannot sign.
    pub fn crossed_by(&self, predecessor: &Self, now: SystemTime) -> Result<String, Error> {
        let mut params = root_params(&self.trust_domain, now)?;
        params.distinguished_name = name(&self.root.subject).ok_or(Error::SubjectUnsupported)?;
        if let Some(id) = &self.root.key_id {
            params.key_identifier_method = KeyIdMethod::PreSpecified(id.clone());
        }
        // The path below it ends after one leaf.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, predecessor.not_after(now, ROOT_TTL)?);
        let crossed = params.signed_by(self.issuer.key(), &predecessor.issuer)?;
        Ok(certificate_pem::write(std::slice::from_ref(crossed.der())))
    }

    /// Sets the certificates (PEM) that are sent along with each leaf; see [`Authority::crossed_by`].
    ///
    /// # Errors
    /// If `chain` is empty or not PEM.
    pub fn with_chain(mut self, chain: &[u8]) -> Result<Self, Error> {
        self.chain = certificate_pem::read(chain)?;
        Ok(self)
    }

    /// Issues a leaf for a new key, ECDSA P-256.
    ///
    /// # Errors
    /// If the ID does not belong to this trust domain, if the lifetime is too long, or if the root has expired.
    pub fn issue(&self, request: &LeafRequest, now: SystemTime) -> Result<Issued, Error> {
        let key = KeyPair::generate()?;
        let mut issued = self.leaf(&key, request, now)?;
        issued.private_key_pem = Some(key.serialize_pem());
        Ok(issued)
    }

    /// Issues a leaf for the key of a signing request (DER). The signature of the request is verified; its names and
    /// extensions are ignored.
    ///
    /// # Errors
    /// As those of [`Authority::issue`], and if the request is malformed or not signed by its own key.
    pub fn sign(
        &self,
        signing_request: &[u8],
        request: &LeafRequest,
        now: SystemTime,
    ) -> Result<Issued, Error> {
        self.leaf(&RequestedKey::verified(signing_request)?, request, now)
    }

    fn leaf(
        &self,
        key: &impl PublicKeyData,
        request: &LeafRequest,
        now: SystemTime,
    ) -> Result<Issued, Error> {
        if request.id.trust_domain() != self.trust_domain.as_str() {
            return Err(Error::ForeignId {
                id: request.id.clone(),
                trust_domain: self.trust_domain.clone(),
            });
        }
        if request.ttl.is_zero() || request.ttl > MAX_TTL {
            return Err(Error::Ttl {
                wanted: request.ttl,
                max: MAX_TTL,
            });
        }
        let expires = self.not_after(now, request.ttl)?;
        let params = leaf_params(request, now, expires)?;
        let leaf = params.signed_by(key, &self.issuer)?;
        let chain: Vec<_> = [leaf.der()]
            .into_iter()
            .chain(&self.chain)
            .cloned()
            .collect();
        Ok(Issued {
            certificate_pem: certificate_pem::write(&chain),
            chain,
            private_key_pem: None,
            expires,
        })
    }

    /// Returns the end of the validity period of a new leaf, which must not outlive its issuer.
    fn not_after(&self, now: SystemTime, ttl: Duration) -> Result<SystemTime, Error> {
        let expires = self.expires();
        if expires <= now {
            return Err(Error::AuthorityExpired);
        }
        Ok(expires.min(now + ttl))
    }
}

fn root_params(trust_domain: &TrustDomain, now: SystemTime) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![uri(&format!("spiffe://{trust_domain}"))?];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(PATH_LEN));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now, now + ROOT_TTL);
    Ok(params)
}

fn leaf_params(
    request: &LeafRequest,
    now: SystemTime,
    expires: SystemTime,
) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(request.dns_names.clone())?;
    params.distinguished_name = DistinguishedName::new();
    let name = request.id.service_account().unwrap_or("workload");
    // X.520 allows 64 characters.
    let name: String = name.chars().take(64).collect();
    params.distinguished_name.push(DnType::CommonName, name);
    let addresses = request.addresses.iter().copied().map(SanType::IpAddress);
    params.subject_alt_names.extend(addresses);
    params.subject_alt_names.push(uri(request.id.as_str())?);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A proxy is the server of some connections and the client of others.
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, now, expires);
    Ok(params)
}

fn uri(text: &str) -> Result<SanType, Error> {
    Ok(SanType::URI(Ia5String::try_from(text)?))
}

/// Sets the validity period, which begins a little before `now` because the clocks of peers differ.
fn set_validity(params: &mut CertificateParams, now: SystemTime, expires: SystemTime) {
    let since_1970 = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_1970(now).saturating_sub(BACKDATED);
    params.not_after = epoch + since_1970(expires);
}

fn hex(byte: &u8) -> String {
    format!("{byte:02x}")
}

/// Parses a name (RFC 5280 §4.1.2.4) into rcgen's form; `None` for forms that rcgen cannot write.
fn name(der: &[u8]) -> Option<DistinguishedName> {
    let mut name = DistinguishedName::new();
    let mut parts = Der(Der(der).expect(SEQUENCE)?);
    while !parts.is_empty() {
        let mut set = Der(parts.expect(SET)?);
        let mut attribute = Der(set.expect(SEQUENCE)?);
        let kind = DnType::from_oid(&oid(attribute.expect(OBJECT_IDENTIFIER)?)?);
        let (tag, value) = attribute.next()?;
        let text = str::from_utf8(value).ok()?;
        let value = match tag {
            IA5_STRING => DnValue::Ia5String(Ia5String::try_from(text).ok()?),
            PRINTABLE_STRING => DnValue::PrintableString(PrintableString::try_from(text).ok()?),
            UTF8_STRING => DnValue::Utf8String(text.to_owned()),
            _ => return None,
        };
        name.push(kind, value);
    }
    Some(name)
}

/// Parses the components of an object identifier (X.690 §8.19).
fn oid(der: &[u8]) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    for byte in der {
        number = number.checked_mul(128)? + u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            match numbers.is_empty() {
                true => {
                    let first = (number / 40).min(2);
                    numbers.extend([first, number - 40 * first]);
                }
                false => numbers.push(number),
            }
            number = 0;
        }
    }
    Some(numbers)
}
