//! Certificates from a signer outside the mesh that copies the names of the request.
//!
//! Such a signer does not know which workload has sent a request. So the request is verified before it is forwarded: it
//! must have exactly the names of the workload, and nothing else that could be copied. The issued certificate is
//! verified before it is used, since the mesh does not control the signer.

use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, UnixTime};

use crate::der::{BOOLEAN, Der, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, SET};
use crate::error::SanError;
use crate::request::{Parts, RequestedKey};
use crate::x509::{BASIC_CONSTRAINTS, DNS_NAME, SUBJECT_ALT_NAME, URI};
use crate::{Error, Issued, Live, MAX_TTL, SpiffeId, TrustBundle, certificate_pem, x509};

/// The object identifier 1.2.840.113549.1.9.14 (PKCS #9 `extensionRequest`).
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
/// The maximum difference between the clocks of the signer and of this machine.
const SKEW: Duration = Duration::from_secs(5 * 60);
/// The maximum number of names in an error message, and of characters of each name, since a peer has chosen them.
const SHOWN: usize = 4;
const SHOWN_CHARACTERS: usize = 200;

/// A signing request with a valid signature that has exactly the names of a workload.
#[derive(Clone, Debug)]
pub struct NamedRequest {
    der: Vec<u8>,
    public_key: Vec<u8>,
    id: SpiffeId,
    dns_names: Vec<String>,
}

impl NamedRequest {
    /// Verifies a request (DER): it must be signed by its own key, its only URI must be `id`, its DNS names must be
    /// `dns_names`, and it must have no other names, no subject and no other extensions.
    ///
    /// # Errors
    /// [`Error::RequestUnnamed`] if the request is valid but has no names; otherwise one of the other `Request`
    /// variants of [`Error`].
    pub fn verify(der: &[u8], id: &SpiffeId, dns_names: &[String]) -> Result<Self, Error> {
        let parts = Parts::read(der).ok_or(Error::RequestMalformed)?;
        // The signature first: an invalid request must not be mistaken for one without names.
        RequestedKey::of(&parts)?;
        let names = Names::read(parts.attributes)?;
        if !parts.subject.is_empty() {
            return Err(Error::RequestExtra("a subject".to_owned()));
        }
        let names = names.ok_or(Error::RequestUnnamed)?;
        let required = Names::of(id, dns_names);
        if !names.is_same(&required) {
            return Err(Error::RequestNames {
                found: names.to_string(),
                required: required.to_string(),
            });
        }
        Ok(Self {
            der: der.to_vec(),
            public_key: parts.key.to_vec(),
            id: id.clone(),
            dns_names: dns_names.to_vec(),
        })
    }

    /// Returns the workload's ID.
    #[must_use]
    pub fn id(&self) -> &SpiffeId {
        &self.id
    }

    /// Returns the request as PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        let request = pem::Pem::new("CERTIFICATE REQUEST", self.der.clone());
        pem::encode_config(&request, lines)
    }

    /// Verifies the certificate that a signer has issued for this request. `chain` is PEM, the leaf first.
    ///
    /// The key and ID of the certificate must be those of the request. It may omit DNS names of the request, but must
    /// have no other names, and no addresses. It must be valid now, as a client and as a server, be verified by one of
    /// `roots`, and not be valid for longer than [`MAX_TTL`]. The clock of the signer may differ by five minutes.
    ///
    /// # Errors
    /// If one of these conditions does not hold, or `chain` is not PEM.
    pub fn issued(
        &self,
        chain: &[u8],
        roots: &TrustBundle,
        now: SystemTime,
    ) -> Result<Issued, Error> {
        let chain = certificate_pem::read(chain)?;
        let malformed = Error::CertificateMalformed { position: 1 };
        let leaf = x509::parse(&chain[0]).ok_or(malformed)?;
        if leaf.public_key != self.public_key {
            return Err(Error::IssuedKey);
        }
        self.check_names(&leaf)?;
        let expires = leaf.expires();
        let left = expires.duration_since(now).unwrap_or_default();
        if left > MAX_TTL + SKEW {
            return Err(Error::IssuedLifetime { left, max: MAX_TTL });
        }
        check_trust(&chain, roots, judged_at(&leaf, now))?;
        Ok(Issued {
            certificate_pem: certificate_pem::write(&chain),
            chain,
            private_key_pem: None,
            expires,
        })
    }

    fn check_names(&self, leaf: &x509::Certificate) -> Result<(), Error> {
        let names = Names {
            dns: leaf.dns_names.clone(),
            uris: leaf.uris.clone(),
        };
        let mismatch = |found: String| Error::IssuedNames {
            found,
            required: Names::of(&self.id, &self.dns_names).to_string(),
        };
        let id = match leaf.workload() {
            Ok(id) => id,
            Err(SanError::Count(_)) => return Err(mismatch(names.to_string())),
            Err(error) => return Err(error.into()),
        };
        let requested = |name: &String| {
            let mut all = self.dns_names.iter();
            all.any(|one| one.eq_ignore_ascii_case(name))
        };
        if id != self.id || !names.dns.iter().all(requested) {
            return Err(mismatch(names.to_string()));
        }
        match leaf.addresses.first() {
            Some(address) => Err(mismatch(address.to_string())),
            None => Ok(()),
        }
    }
}

/// Returns the time at which a certificate is verified. A signer whose clock is a little ahead issues certificates that
/// are not valid yet here. Members of the mesh accept them, since they use the time of their own certificate as well.
fn judged_at(leaf: &x509::Certificate, now: SystemTime) -> SystemTime {
    let begins = leaf.begins();
    match begins.duration_since(now) {
        Ok(ahead) if ahead <= SKEW => begins,
        Ok(_) | Err(_) => now,
    }
}

/// Verifies a chain as peers do, for both sides of a connection.
fn check_trust(
    chain: &[CertificateDer<'static>],
    roots: &TrustBundle,
    now: SystemTime,
) -> Result<(), Error> {
    let [leaf, intermediates @ ..] = chain else {
        return Err(Error::NoCertificate);
    };
    let live = Live::nameless(roots.clone())?;
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let now = UnixTime::since_unix_epoch(since.unwrap_or_default());
    let state = live.state();
    let client = state.verify_client(leaf, intermediates, now);
    client.map_err(Error::IssuedUntrusted)?;
    let server = state.verify_server(leaf, intermediates, now);
    server.map_err(Error::IssuedUntrusted)
}

/// The subject alternative names of a request.
#[derive(Debug, Default)]
struct Names {
    dns: Vec<String>,
    uris: Vec<String>,
}

impl Names {
    fn of(id: &SpiffeId, dns_names: &[String]) -> Self {
        Self {
            dns: dns_names.to_vec(),
            uris: vec![id.as_str().to_owned()],
        }
    }

    /// Reads the names in the attributes of a request; `None` if there are none.
    fn read(attributes: &[u8]) -> Result<Option<Self>, Error> {
        let mut attributes = Der(attributes);
        let mut found = None;
        while !attributes.is_empty() {
            let attribute = attributes.expect(SEQUENCE);
            let mut attribute = Der(attribute.ok_or(Error::RequestMalformed)?);
            let kind = attribute.expect(OBJECT_IDENTIFIER);
            if kind.ok_or(Error::RequestMalformed)? != EXTENSION_REQUEST {
                return Err(Error::RequestExtra("another attribute".to_owned()));
            }
            let values = attribute.expect(SET).ok_or(Error::RequestMalformed)?;
            let mut values = Der(values);
            while !values.is_empty() {
                let extensions = values.expect(SEQUENCE).ok_or(Error::RequestMalformed)?;
                Self::read_extensions(Der(extensions), &mut found)?;
            }
            if !attribute.is_empty() {
                return Err(Error::RequestMalformed);
            }
        }
        Ok(found)
    }

    fn read_extensions(mut extensions: Der<'_>, found: &mut Option<Self>) -> Result<(), Error> {
        while !extensions.is_empty() {
            let (kind, mut value) = extension(&mut extensions).ok_or(Error::RequestMalformed)?;
            match kind {
                SUBJECT_ALT_NAME if found.is_none() => {
                    let names = value.expect(SEQUENCE).ok_or(Error::RequestMalformed)?;
                    *found = Some(Self::read_names(Der(names))?);
                }
                SUBJECT_ALT_NAME => {
                    let twice = "subject alternative names twice".to_owned();
                    return Err(Error::RequestExtra(twice));
                }
                BASIC_CONSTRAINTS => {
                    let constraints = value.expect(SEQUENCE).ok_or(Error::RequestMalformed)?;
                    if Der(constraints)
                        .optional(BOOLEAN)
                        .is_some_and(|ca| ca != [0])
                    {
                        return Err(Error::RequestAuthority);
                    }
                }
                _ => return Err(Error::RequestExtra("another extension".to_owned())),
            }
            if !value.is_empty() {
                return Err(Error::RequestMalformed);
            }
        }
        Ok(())
    }

    fn read_names(mut names: Der<'_>) -> Result<Self, Error> {
        let mut found = Self::default();
        while !names.is_empty() {
            let (tag, value) = names.next().ok_or(Error::RequestMalformed)?;
            let text = str::from_utf8(value).map(str::to_owned);
            match tag {
                DNS_NAME => found.dns.push(text.map_err(|_| Error::RequestMalformed)?),
                URI => found.uris.push(text.map_err(|_| Error::RequestMalformed)?),
                _ => {
                    let other = "a name that is neither a URI nor a DNS name".to_owned();
                    return Err(Error::RequestExtra(other));
                }
            }
        }
        Ok(found)
    }

    /// Returns whether both have the same names, in any order.
    fn is_same(&self, other: &Self) -> bool {
        let sorted = |list: &[String]| {
            let mut list = list.to_vec();
            list.sort();
            list
        };
        sorted(&self.dns) == sorted(&other.dns) && sorted(&self.uris) == sorted(&other.uris)
    }
}

impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<_> = self.uris.iter().chain(&self.dns).collect();
        if all.is_empty() {
            return f.write_str("nothing");
        }
        let shown = all.iter().take(SHOWN).map(|name| {
            let start: String = name.chars().take(SHOWN_CHARACTERS).collect();
            format!("`{}`", start.escape_debug())
        });
        f.write_str(&shown.collect::<Vec<_>>().join(", "))?;
        match all.len().checked_sub(SHOWN) {
            Some(others @ 1..) => write!(f, " and {others} others"),
            Some(0) | None => Ok(()),
        }
    }
}

/// Returns the kind and value of the next extension (RFC 5280 §4.1).
fn extension<'a>(extensions: &mut Der<'a>) -> Option<(&'a [u8], Der<'a>)> {
    let mut extension = Der(extensions.expect(SEQUENCE)?);
    let kind = extension.expect(OBJECT_IDENTIFIER)?;
    extension.optional(BOOLEAN); // critical
    let value = extension.expect(OCTET_STRING)?;
    extension.is_empty().then_some((kind, Der(value)))
}
