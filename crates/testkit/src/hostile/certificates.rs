//! Certificates that a peer of the mesh presents, as a client and as a server.
//!
//! Each line of a case is a command that changes the presented certificate; without any it is the
//! certificate of a member, signed by the root, for digital signatures, with no name in it.
//!
//! | command | meaning |
//! | --- | --- |
//! | `uri TEXT`, `dns TEXT`, `email TEXT`, `ip ADDRESS` | a subject alternative name |
//! | `cn TEXT` | the subject's common name |
//! | `days FROM TO` | validity, in days from now |
//! | `ca` or `ca N` | a CA certificate, with this path length |
//! | `usage WORD …`, `eku WORD …` | key usages, extended key usages: `none` for no usages, see the code for the words |
//! | `extension OID critical HEX`, `extension OID optional HEX` | an extension of any kind |
//! | `key KIND` | `p256`, `p384`, `p521`, `ed25519`, `rsa2048` |
//! | `by root`, `by itself`, `by foreign` | its issuer |
//! | `by COMMAND; …` | it is issued by an intermediate authority, made by these commands; the root signs that one |
//! | `long N` | N intermediate authorities, each without limits |
//! | `shown WORD` | `alone`: no intermediates, `junk`: no certificate, `twice`: the leaf again, `root`: with the root |
//! | `flip N` | one bit of the leaf's byte N from its end is changed |
//! | `wrong key` | the proof of possession is by another key |
//! | `nothing` | no certificate is presented |
//!
//! In texts, names and hexadecimal digits of extensions the escapes of the tables apply. Expected
//! outcomes: `ok`, the peer is accepted as a member and its request (or the one to it) is served;
//! or `refused`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, RsaKeySize, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::table::unescape;
use super::{Case, Class, Outcome};
use crate::raw::RawHttp1;

mod credulous;
mod impostor;

pub(super) use credulous::client_config;
pub use impostor::Impostor;

const KEY_USAGE: &str = "2.5.29.15 ";

/// The certificate that a peer presents.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The chain, the leaf first; empty if no certificate is presented.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key that proves possession, PKCS #8.
    pub key: Vec<u8>,
}

impl Shown {
    /// Converts it for rustls, without validation.
    ///
    /// # Panics
    ///
    /// If the key cannot be used.
    #[must_use]
    pub fn certified(&self) -> Arc<CertifiedKey> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key);
        Arc::new(CertifiedKey::new(
            self.chain.clone(),
            key.expect("a key of a known kind"),
        ))
    }
}

/// A root that signs any request.
#[derive(Debug)]
pub struct Signer {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    pem: String,
}

impl Signer {
    /// Creates a new root.
    ///
    /// # Panics
    ///
    /// If it cannot be created.
    #[must_use]
    pub fn root() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = name("the root");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            der: certificate.der().clone(),
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Returns the root's certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the certificate of a case; `foreign` is an untrusted root.
    ///
    /// # Panics
    ///
    /// If the case is malformed.
    #[must_use]
    pub fn make(&self, case: &Case, foreign: &Self) -> Shown {
        self.follow(case.commands(), foreign)
    }

    /// Returns the certificate and key of a member with this id, PEM.
    ///
    /// # Panics
    ///
    /// If the id is not ASCII.
    #[must_use]
    pub fn member(&self, id: &str) -> (String, String) {
        let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
        params
            .subject_alt_names
            .push(SanType::URI(id.try_into().unwrap()));
        params
            .subject_alt_names
            .push(SanType::DnsName("a.example".try_into().unwrap()));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn follow<'a>(&self, commands: impl Iterator<Item = &'a str>, foreign: &Self) -> Shown {
        let mut leaf = Wanted::default();
        for command in commands.filter(|command| !command.is_empty()) {
            leaf.change(command);
        }
        leaf.sign(self, foreign)
    }
}

/// The parameters of a certificate.
pub(super) struct Wanted {
    params: CertificateParams,
    key: KeyPair,
    by: By,
    shown: String,
    flip: Option<usize>,
    wrong_key: bool,
    nothing: bool,
}

enum By {
    Foreign,
    Itself,
    /// The commands of each intermediate authority, the one below the root first.
    Chain(Vec<String>),
}

impl Default for Wanted {
    fn default() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // X509-SVID, 4.3.
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.not_before = time_of(-1).into();
        params.not_after = time_of(1).into();
        Self {
            params,
            key: KeyPair::generate().unwrap(),
            by: By::Chain(Vec::new()),
            shown: String::new(),
            flip: None,
            wrong_key: false,
            nothing: false,
        }
    }
}

impl Wanted {
    pub(super) fn change(&mut self, command: &str) {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        let text = || String::from_utf8(unescape(rest)).expect("a name in UTF-8");
        let params = &mut self.params;
        match word {
            "uri" | "dns" | "email" => {
                let text = text().try_into().expect("a name in ASCII");
                params.subject_alt_names.push(match word {
                    "uri" => SanType::URI(text),
                    "dns" => SanType::DnsName(text),
                    _ => SanType::Rfc822Name(text),
                });
            }
            "ip" => {
                let address = rest.parse().expect("an address");
                params.subject_alt_names.push(SanType::IpAddress(address));
            }
            "cn" => params.distinguished_name.push(DnType::CommonName, text()),
            "organisation" => params
                .distinguished_name
                .push(DnType::OrganizationName, text()),
            "days" => {
                let (from, to) = rest.split_once(' ').expect("FROM TO");
                params.not_before = time_of(from.parse().expect("days")).into();
                params.not_after = time_of(to.parse().expect("days")).into();
            }
            "ca" => {
                params.key_usages.clear();
                params.is_ca = IsCa::Ca(match rest {
                    "" => BasicConstraints::Unconstrained,
                    length => BasicConstraints::Constrained(length.parse().expect("a length")),
                });
            }
            "usage" => {
                let words = rest.split(' ').filter(|word| *word != "none");
                params.key_usages = words.map(usage).collect();
            }
            "eku" => params.extended_key_usages = rest.split(' ').map(purpose).collect(),
            "extension" => {
                if rest.starts_with(KEY_USAGE) {
                    params.key_usages.clear();
                }
                params.custom_extensions.push(extension(rest));
            }
            "key" => self.key = key(rest),
            "by" => {
                self.by = match rest {
                    "root" => By::Chain(Vec::new()),
                    "itself" => By::Itself,
                    "foreign" => By::Foreign,
                    commands => By::Chain(vec![commands.to_owned()]),
                }
            }
            "long" => {
                let length = rest.parse().expect("a number");
                self.by = By::Chain((0..length).map(|_| "ca; usage sign".to_owned()).collect());
            }
            "shown" => rest.clone_into(&mut self.shown),
            "flip" => self.flip = Some(rest.parse().expect("a number")),
            "wrong" => self.wrong_key = true,
            "nothing" => self.nothing = true,
            _ => panic!("no command \"{word}\""),
        }
    }

    /// Returns a signing request for it, DER.
    pub(super) fn request(self) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = self.params.distinguished_name;
        params.subject_alt_names = self.params.subject_alt_names;
        params.custom_extensions = self.params.custom_extensions;
        params.key_usages = self.params.key_usages;
        params.extended_key_usages = self.params.extended_key_usages;
        let request = params.serialize_request(&self.key);
        request.expect("a request").der().to_vec()
    }

    fn sign(self, root: &Signer, foreign: &Signer) -> Shown {
        let mut above = Vec::new();
        let certificate = match &self.by {
            By::Foreign => self.params.signed_by(&self.key, &foreign.issuer),
            By::Itself => self.params.self_signed(&self.key),
            By::Chain(authorities) => {
                let mut issuer: Option<Issuer<'static, KeyPair>> = None;
                for (number, commands) in authorities.iter().enumerate() {
                    let mut authority = Self::default();
                    authority.change(&format!("cn authority {number}"));
                    commands
                        .split("; ")
                        .for_each(|command| authority.change(command));
                    let by = issuer.as_ref().unwrap_or(&root.issuer);
                    let signed = authority.params.signed_by(&authority.key, by).unwrap();
                    above.insert(0, signed.der().clone());
                    issuer = Some(Issuer::new(authority.params, authority.key));
                }
                self.params
                    .signed_by(&self.key, issuer.as_ref().unwrap_or(&root.issuer))
            }
        };
        let mut der = certificate.expect("a certificate").der().to_vec();
        if let Some(from_end) = self.flip {
            let at = der.len() - 1 - from_end;
            der[at] ^= 1;
        }
        let leaf = CertificateDer::from(der);
        let junk = CertificateDer::from(b"\x30\x03abc".to_vec());
        let mut chain = vec![leaf.clone()];
        match self.shown.as_str() {
            "alone" => {}
            "junk" => chain.push(junk),
            "twice" => chain.push(leaf),
            "root" => chain.extend(above.into_iter().chain([root.der.clone()])),
            _ => chain.extend(above),
        }
        if self.nothing {
            chain.clear();
        }
        let key = match self.wrong_key {
            true => KeyPair::generate().unwrap(),
            false => self.key,
        };
        Shown {
            chain,
            key: key.serialize_der(),
        }
    }
}

fn name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

/// Returns the time this number of days from now.
fn time_of(days: i64) -> SystemTime {
    let time = Duration::from_secs(days.unsigned_abs() * 24 * 3600);
    match days < 0 {
        true => SystemTime::now() - time,
        false => SystemTime::now() + time,
    }
}

fn usage(word: &str) -> KeyUsagePurpose {
    match word {
        "digital" => KeyUsagePurpose::DigitalSignature,
        "sign" => KeyUsagePurpose::KeyCertSign,
        "crl" => KeyUsagePurpose::CrlSign,
        "encipher" => KeyUsagePurpose::KeyEncipherment,
        "agree" => KeyUsagePurpose::KeyAgreement,
        _ => panic!("no key usage \"{word}\""),
    }
}

fn purpose(word: &str) -> ExtendedKeyUsagePurpose {
    match word {
        "server" => ExtendedKeyUsagePurpose::ServerAuth,
        "client" => ExtendedKeyUsagePurpose::ClientAuth,
        "any" => ExtendedKeyUsagePurpose::Any,
        "code" => ExtendedKeyUsagePurpose::CodeSigning,
        "ocsp" => ExtendedKeyUsagePurpose::OcspSigning,
        "other" => ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 4, 1, 99999, 1]),
        _ => panic!("no extended key usage \"{word}\""),
    }
}

/// Parses `OID critical HEX`.
fn extension(text: &str) -> CustomExtension {
    let mut words = text.splitn(3, ' ');
    let oid = words.next().unwrap_or_default().split('.');
    let oid: Vec<u64> = oid.map(|part| part.parse().expect("a number")).collect();
    let critical = words.next() == Some("critical");
    let content = unescape(words.next().unwrap_or_default());
    let mut extension = CustomExtension::from_oid_content(&oid, content);
    extension.set_criticality(critical);
    extension
}

fn key(kind: &str) -> KeyPair {
    match kind {
        "p256" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        "p384" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        "p521" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
        "ed25519" => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        "rsa2048" => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048),
        _ => panic!("no kind of key \"{kind}\""),
    }
    .expect("a key")
}

/// Returns whether a TLS server serves a client that presents this certificate.
#[must_use]
pub fn is_served(shown: &Shown, server: SocketAddr) -> bool {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = &[&rustls::version::TLS13, &rustls::version::TLS12];
    let config = client_config(shown, &provider, versions, &["http/1.1"]);
    let mut client = RawHttp1::connect_tls(server, "a.example", config).into_connection();
    let request = "GET /case HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let sent = client.send(request);
    sent.is_ok()
        && client
            .read_head()
            .is_ok_and(|head| head.starts_with("HTTP/1.1 200 "))
}

/// Returns the outcome of a peer.
#[must_use]
pub fn outcome(served: bool) -> Outcome {
    let (class, detail) = match served {
        true => (Class::Accepted, "served"),
        false => (Class::Refused, "refused"),
    };
    let detail = detail.to_owned();
    Outcome { class, detail }
}

/// Compares with the expected outcome.
///
/// # Errors
///
/// The difference.
///
/// # Panics
///
/// If the expected outcome is invalid.
pub fn check(case: &Case, served: bool) -> Result<(), String> {
    let expected = match case.expected.as_str() {
        "ok" => true,
        "refused" => false,
        other => panic!("{}: no outcome \"{other}\"", case.name),
    };
    match served == expected {
        true => Ok(()),
        false => Err(format!(
            "{}: expected {}, got {}",
            case.name,
            case.expected,
            outcome(served).detail
        )),
    }
}
