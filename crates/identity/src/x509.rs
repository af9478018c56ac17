//! A parser for the certificate fields that the mesh needs: names, validity period, issuer.
//!
//! It follows the fixed order of fields of RFC 5280 §4.1 and does not validate certificates: rustls verifies those of
//! peers, and this parser reads the names from verified ones.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::der::{
    BIT_STRING, BOOLEAN, Der, GENERALIZED_TIME, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE,
    SET, UTC_TIME, bits,
};
use crate::error::SanError;
use crate::{Error, SpiffeId, certificate_pem};

/// The tags of `[0] version` and `[3] extensions` of a certificate.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// The tags of general names: `[2] dNSName`, `[6] uniformResourceIdentifier`, `[7] iPAddress`.
pub(crate) const DNS_NAME: u8 = 0x82;
pub(crate) const URI: u8 = 0x86;
const IP_ADDRESS: u8 = 0x87;
/// The object identifier 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// The object identifiers 2.5.29.14, 2.5.29.15, 2.5.29.17 and 2.5.29.19.
const SUBJECT_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x0e];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
pub(crate) const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
pub(crate) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];

/// The bits in the first byte of a key usage: digitalSignature; keyCertSign; keyCertSign or cRLSign (RFC 5280
/// §4.2.1.3).
const PROVES: u8 = 0x80;
const CERTIFIES: u8 = 0x04;
const SIGNS: u8 = CERTIFIES | 0x02;
/// The tags of general names that are skipped: otherName, rfc822Name, x400Address, directoryName, ediPartyName,
/// registeredID.
const OTHER_NAMES: [u8; 6] = [0xa0, 0x81, 0xa3, 0xa4, 0xa5, 0x88];

/// The parsed fields of a certificate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Certificate {
    /// The DNS names of the subject alternative name, in lower case.
    pub dns_names: Vec<String>,
    /// The URIs of the subject alternative name, as written.
    pub uris: Vec<String>,
    /// The IP addresses of the subject alternative name.
    pub addresses: Vec<IpAddr>,
    /// The subject's common name, the last one if there are several; `None` if there is none.
    pub common_name: Option<String>,
    /// Whether the certificate is a CA certificate.
    pub is_ca: bool,
    /// Whether the key may sign certificates or revocation lists.
    pub may_sign: bool,
    /// Whether the key usages allow signing certificates; true without key usages.
    pub(crate) may_certify: bool,
    /// Whether the key usages allow the signature of a handshake; true without key usages.
    pub(crate) may_prove: bool,
    /// The end of the validity period, inclusive, in seconds since the Unix epoch.
    pub not_after: u64,
    /// The beginning of the validity period, in seconds since the Unix epoch.
    pub not_before: u64,
    /// The serial number, big-endian.
    pub serial: Vec<u8>,
    /// The subject's name in DER.
    pub(crate) subject: Vec<u8>,
    /// The issuer's name in DER.
    pub(crate) issuer: Vec<u8>,
    /// The subject key identifier; `None` if there is none.
    pub(crate) key_id: Option<Vec<u8>>,
    /// The bits of the public key.
    pub(crate) public_key: Vec<u8>,
}

impl Certificate {
    /// Returns the last moment of the validity period.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.not_after)
    }

    /// Returns the workload that the certificate names: its only URI must be a SPIFFE ID.
    ///
    /// # Errors
    /// If the certificate has no URI or several, or one that does not name a workload, and if it is a CA certificate
    /// (X509-SVID §5.2).
    pub fn workload(&self) -> Result<SpiffeId, SanError> {
        if self.is_ca || self.may_sign {
            return Err(SanError::MaySign);
        }
        // RFC 8446, 4.4.2.2.
        if !self.may_prove {
            return Err(SanError::MayNotProve);
        }
        let [uri] = self.uris.as_slice() else {
            return Err(SanError::Count(self.uris.len()));
        };
        let id: SpiffeId = uri.parse().map_err(|source| {
            let uri = uri.clone();
            SanError::NotSpiffe { uri, source }
        })?;
        match id.path().is_empty() {
            true => Err(SanError::NoPath(id)),
            false => Ok(id),
        }
    }

    /// Returns the first moment of the validity period.
    #[must_use]
    pub fn begins(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.not_before)
    }
}

/// Parses a certificate in DER; `None` if it is malformed.
#[must_use]
pub fn parse(der: &[u8]) -> Option<Certificate> {
    let mut certificate = Der(Der(der).expect(SEQUENCE)?);
    let mut tbs = Der(certificate.expect(SEQUENCE)?);
    tbs.optional(VERSION);
    let mut found = Certificate {
        serial: tbs.expect(INTEGER)?.to_vec(),
        may_certify: true,
        may_prove: true,
        ..Certificate::default()
    };
    tbs.expect(SEQUENCE)?; // signature algorithm
    found.issuer = tbs.whole(SEQUENCE)?.to_vec();
    let mut validity = Der(tbs.expect(SEQUENCE)?);
    found.not_before = time(validity.next()?)?;
    found.not_after = time(validity.next()?)?;
    found.subject = tbs.whole(SEQUENCE)?.to_vec();
    found.common_name = common_name(&found.subject);
    let mut key = Der(tbs.expect(SEQUENCE)?);
    key.expect(SEQUENCE)?; // its algorithm
    found.public_key = bits(key.expect(BIT_STRING)?)?.to_vec();
    while let Some((tag, value)) = tbs.next() {
        if tag == EXTENSIONS {
            extensions(Der(Der(value).expect(SEQUENCE)?), &mut found)?;
        }
    }
    Some(found)
}

/// Parses all certificates of a PEM text; there must be at least one.
///
/// # Errors
/// If there is no certificate, or one is malformed; the error names its position.
pub fn read_pem(pem: &[u8]) -> Result<Vec<Certificate>, Error> {
    let all = certificate_pem::read(pem)?;
    let numbered = all.iter().enumerate();
    let read = numbered.map(|(i, der)| {
        let position = i + 1;
        parse(der).ok_or(Error::CertificateMalformed { position })
    });
    read.collect()
}

/// Returns the common name in a `Name` (RFC 5280 §4.1.2.4), which consists of sets of pairs.
fn common_name(subject: &[u8]) -> Option<String> {
    let mut sets = Der(Der(subject).expect(SEQUENCE)?);
    let mut found = None;
    while !sets.is_empty() {
        let mut set = Der(sets.expect(SET)?);
        while !set.is_empty() {
            let mut pair = Der(set.expect(SEQUENCE)?);
            let id = pair.expect(OBJECT_IDENTIFIER)?;
            let (_, text) = pair.next()?;
            if id == COMMON_NAME {
                // Legacy string types are not UTF-8.
                found = Some(String::from_utf8_lossy(text).into_owned());
            }
        }
    }
    found
}

fn extensions(mut all: Der<'_>, found: &mut Certificate) -> Option<()> {
    while !all.is_empty() {
        let mut extension = Der(all.expect(SEQUENCE)?);
        let id = extension.expect(OBJECT_IDENTIFIER)?;
        extension.optional(BOOLEAN); // critical
        let mut value = Der(extension.expect(OCTET_STRING)?);
        match id {
            SUBJECT_ALT_NAME => alt_names(Der(value.expect(SEQUENCE)?), found)?,
            SUBJECT_KEY_IDENTIFIER => found.key_id = Some(value.expect(OCTET_STRING)?.to_vec()),
            // The number of unused bits comes first.
            KEY_USAGE => {
                let usage = value.expect(BIT_STRING)?.get(1).copied();
                let has = |bits| usage.is_some_and(|usage| usage & bits != 0);
                (found.may_sign, found.may_certify) = (has(SIGNS), has(CERTIFIES));
                found.may_prove = has(PROVES);
            }
            BASIC_CONSTRAINTS => {
                let mut constraints = Der(value.expect(SEQUENCE)?);
                found.is_ca = constraints.optional(BOOLEAN).is_some_and(|v| v != [0]);
            }
            _ => {}
        }
    }
    Some(())
}

fn alt_names(mut names: Der<'_>, found: &mut Certificate) -> Option<()> {
    while !names.is_empty() {
        let (tag, value) = names.next()?;
        match tag {
            DNS_NAME => {
                let name = str::from_utf8(value).ok()?;
                found.dns_names.push(name.to_ascii_lowercase());
            }
            IP_ADDRESS => {
                let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
                let address = v4.or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from));
                found.addresses.push(address.ok()?);
            }
            URI => found.uris.push(str::from_utf8(value).ok()?.to_owned()),
            tag if OTHER_NAMES.contains(&tag) => {}
            _ => return None,
        }
    }
    Some(())
}

/// Converts `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the only forms that RFC 5280 allows, to seconds since 1970; earlier
/// times become 0.
fn time((tag, value): (u8, &[u8])) -> Option<u64> {
    let digits = value.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |range| digits.get(range).map(decimal);
    let (year, rest) = match tag {
        UTC_TIME => match number(0..2)? {
            year @ 50.. => (1900 + year, 2),
            year => (2000 + year, 2),
        },
        GENERALIZED_TIME => (number(0..4)?, 4),
        _ => return None,
    };
    if digits.len() != rest + 10 {
        return None;
    }
    let field = |index: usize| number(rest + 2 * index..rest + 2 * index + 2);
    let days = days_since_1970(year, field(0)?, field(1)?)?;
    let seconds = days * 86_400 + field(2)? * 3600 + field(3)? * 60 + field(4)?;
    Some(u64::try_from(seconds).unwrap_or(0))
}

fn decimal(digits: &[u8]) -> i64 {
    digits
        .iter()
        .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
}

/// Returns the number of days since 1970 in the proleptic Gregorian calendar. Years are counted from March, so that the
/// leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    Some(year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468)
}
