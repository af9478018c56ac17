//! The two things that the proxy wants to know of its own certificates: DNS names and validity.
//!
//! A walk along the fixed order of fields of RFC 5280 §4.1, not a validator: rustls verifies what
//! peers present. Input is the operator's own file; malformed input is `None`, never a panic.

/// What is read from an end-entity certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Leaf {
    /// DNS names of the subject alternative name, lower case.
    pub(super) dns_names: Vec<String>,
    /// Seconds since 1970.
    pub(super) not_after: u64,
    /// Seconds since 1970.
    pub(super) not_before: u64,
}

const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// `[0] version` and `[3] extensions` of the certificate.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// `[2] dNSName` of a general name.
const DNS_NAME: u8 = 0x82;
/// 2.5.29.17
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Reads a DER certificate.
pub(super) fn parse(der: &[u8]) -> Option<Leaf> {
    let mut certificate = Der(Der(der).expect(SEQUENCE)?);
    let mut tbs = Der(certificate.expect(SEQUENCE)?);
    tbs.optional(VERSION);
    tbs.next()?; // serial number
    tbs.expect(SEQUENCE)?; // signature algorithm
    tbs.expect(SEQUENCE)?; // issuer
    let mut validity = Der(tbs.expect(SEQUENCE)?);
    let (not_before, not_after) = (time(validity.next()?)?, time(validity.next()?)?);
    tbs.expect(SEQUENCE)?; // subject
    tbs.expect(SEQUENCE)?; // public key
    let mut dns_names = Vec::new();
    while let Some((tag, value)) = tbs.next() {
        if tag == EXTENSIONS {
            dns_names = alt_names(Der(value).expect(SEQUENCE)?)?;
        }
    }
    Some(Leaf {
        dns_names,
        not_after,
        not_before,
    })
}

/// DNS names of the subject alternative name among `extensions`.
fn alt_names(extensions: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut extensions = Der(extensions);
    while !extensions.0.is_empty() {
        let mut extension = Der(extensions.expect(SEQUENCE)?);
        if extension.expect(OBJECT_IDENTIFIER)? != SUBJECT_ALT_NAME {
            continue;
        }
        extension.optional(BOOLEAN); // critical
        let mut general = Der(Der(extension.expect(OCTET_STRING)?).expect(SEQUENCE)?);
        while let Some((tag, value)) = general.next() {
            if tag == DNS_NAME {
                names.push(str::from_utf8(value).ok()?.to_ascii_lowercase());
            }
        }
    }
    Some(names)
}

/// A reader of tag, length, value.
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x83 => {
                let (len, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                (
                    len.iter()
                        .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
                    rest,
                )
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((*tag, value))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next()
            .filter(|(found, _)| *found == tag)
            .map(|(_, value)| value)
    }

    /// Skips the next element if it is of `tag`.
    fn optional(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            self.next();
        }
    }
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the only forms that RFC 5280 allows, as seconds since 1970
/// (earlier = 0).
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

/// Proleptic Gregorian calendar; the year is counted from March so that the leap day is its last.
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
