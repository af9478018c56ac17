//! Checks the validity of certificates.

use std::time::{Duration, SystemTime};

use maglor_identity::x509;

use super::report::{Advice, Report};

/// Checks the validity of the certificates in a PEM text.
pub(super) fn expiry(
    about: &'static str,
    what: &str,
    pem: &[u8],
    soon: Duration,
    report: &mut Report,
) {
    let advice = || {
        Advice(
            "the controller renews it; see its log".to_owned(),
            "identity.md",
        )
    };
    let certificates = match x509::read_pem(pem) {
        Ok(certificates) => certificates,
        Err(error) => return report.bad(about, format!("{what}: {error}"), advice()),
    };
    let last = certificates.iter().map(x509::Certificate::expires).max();
    let Some(last) = last else {
        return report.bad(about, format!("{what} has no certificate"), advice());
    };
    let date = humantime::format_rfc3339_seconds(last);
    match last.duration_since(SystemTime::now()) {
        Err(_) => report.bad(about, format!("{what} has expired: {date}"), advice()),
        Ok(left) if left < soon => {
            report.warning(about, format!("{what} expires soon: {date}"), advice());
        }
        Ok(_) => report.good(about, format!("{what} is valid until {date}")),
    }
}
