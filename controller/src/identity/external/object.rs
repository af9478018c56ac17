//! The CertificateSigningRequest object: its creation, its approval, and the meaning of its status. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::identity::labels::{CONTROLLER, MANAGED_BY, PART_OF};

/// Minimum lifetime that Kubernetes accepts, in seconds.
const SHORTEST: u64 = 600;
/// Usages of the certificate, the same as with the built-in authority: a proxy is the server of some connections and
/// the client of others.
const USAGES: [&str; 3] = ["digital signature", "client auth", "server auth"];
/// The reason of the approval.
const REASON: &str = "MaglorVerified";
/// Types of conditions.
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// The meaning of an object's status.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum State {
    /// The request was denied, with this reason and message.
    Denied(String),
    /// The signer has failed, with this reason and message.
    Failed(String),
    /// The signer has issued this certificate, in PEM.
    Issued(Vec<u8>),
    /// The signer has not responded yet.
    Pending,
}

/// Returns a new object for a request in PEM.
pub(super) fn new(signer: &str, request: &str, ttl: Duration) -> CertificateSigningRequest {
    let labels = [(MANAGED_BY, CONTROLLER), PART_OF];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let seconds = ttl.as_secs().max(SHORTEST);
    CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some("maglor-".to_owned()),
            labels: Some(BTreeMap::from(labels)),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            expiration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            request: ByteString(request.as_bytes().to_vec()),
            signer_name: signer.to_owned(),
            usages: Some(USAGES.map(str::to_owned).into()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

/// Returns the object with an approval; `None` if the request was already approved or denied.
pub(super) fn approved(
    object: &CertificateSigningRequest,
    requester: &str,
) -> Option<CertificateSigningRequest> {
    if has(object, APPROVED).is_some() || has(object, DENIED).is_some() {
        return None;
    }
    let now = Time(Timestamp::now());
    let condition = CertificateSigningRequestCondition {
        type_: APPROVED.to_owned(),
        status: "True".to_owned(),
        reason: Some(REASON.to_owned()),
        message: Some(format!(
            "The request names exactly the identity of its sender: {requester}"
        )),
        last_update_time: Some(now.clone()),
        last_transition_time: Some(now),
    };
    let mut approved = object.clone();
    let status = approved.status.get_or_insert_default();
    status.conditions.get_or_insert_default().push(condition);
    Some(approved)
}

/// Returns the meaning of the status. A denial or failure takes precedence over a certificate.
pub(super) fn state(object: &CertificateSigningRequest) -> State {
    if let Some(condition) = has(object, DENIED) {
        return State::Denied(reason_of(condition));
    }
    if let Some(condition) = has(object, FAILED) {
        return State::Failed(reason_of(condition));
    }
    let status = object.status.as_ref();
    let certificate = status.and_then(|status| status.certificate.as_ref());
    match certificate.filter(|certificate| !certificate.0.is_empty()) {
        Some(certificate) => State::Issued(certificate.0.clone()),
        None => State::Pending,
    }
}

/// Returns the condition of a type, if its status is true.
fn has<'a>(
    object: &'a CertificateSigningRequest,
    type_: &str,
) -> Option<&'a CertificateSigningRequestCondition> {
    let mut conditions = object.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_ && condition.status == "True")
}

/// Maximum length of a signer's message in an error, in characters.
const LONGEST: usize = 500;

fn reason_of(condition: &CertificateSigningRequestCondition) -> String {
    let reason = condition.reason.as_deref().unwrap_or("no reason given");
    let message = condition.message.as_deref().unwrap_or_default();
    let text = match message.is_empty() {
        true => reason.to_owned(),
        false => format!("{reason}: {message}"),
    };
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(type_: &str, status: &str) -> CertificateSigningRequestCondition {
        CertificateSigningRequestCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some("Policy".to_owned()),
            message: Some("not here".to_owned()),
            ..CertificateSigningRequestCondition::default()
        }
    }

    fn with(conditions: &[(&str, &str)], certificate: Option<&[u8]>) -> CertificateSigningRequest {
        let mut object = new("a.test/b", "PEM", Duration::from_secs(3600));
        let status = object.status.get_or_insert_default();
        let conditions = conditions.iter();
        let conditions = conditions.map(|(type_, status)| condition(type_, status));
        status.conditions = Some(conditions.collect());
        status.certificate = certificate.map(|pem| ByteString(pem.to_vec()));
        object
    }

    #[test]
    fn an_object_has_what_the_signer_needs() {
        let object = new("a.test/b", "PEM", Duration::from_secs(3600));
        let spec = &object.spec;
        assert_eq!(spec.signer_name, "a.test/b");
        assert_eq!(spec.request.0, b"PEM");
        assert_eq!(spec.expiration_seconds, Some(3600));
        assert_eq!(spec.usages.as_deref().map(<[_]>::len), Some(3));
        let short = new("a.test/b", "PEM", Duration::from_secs(10));
        assert_eq!(short.spec.expiration_seconds, Some(600));
    }

    #[test]
    fn an_object_is_approved_once() {
        let object = approved(&with(&[], None), "account shop/cart").unwrap();
        let condition = has(&object, APPROVED).unwrap();
        assert_eq!(condition.reason.as_deref(), Some(REASON));
        let message = condition.message.as_deref().unwrap_or_default();
        assert!(message.ends_with("account shop/cart"), "{message}");
        assert_eq!(approved(&object, "account shop/cart"), None);
        assert_eq!(approved(&with(&[(DENIED, "True")], None), "a"), None);
    }

    #[test]
    fn the_status_decides() {
        let why = || "Policy: not here".to_owned();
        let pem = Some(&b"PEM"[..]);
        for (conditions, certificate, expected) in [
            (&[][..], None, State::Pending),
            (&[(APPROVED, "True")], None, State::Pending),
            (&[(APPROVED, "True")], Some(&b""[..]), State::Pending),
            (&[(APPROVED, "True")], pem, State::Issued(b"PEM".to_vec())),
            (&[(FAILED, "False")], pem, State::Issued(b"PEM".to_vec())),
            (&[(DENIED, "True")], None, State::Denied(why())),
            (
                &[(APPROVED, "True"), (FAILED, "True")],
                None,
                State::Failed(why()),
            ),
            (
                &[(APPROVED, "True"), (FAILED, "True")],
                pem,
                State::Failed(why()),
            ),
        ] {
            let object = with(conditions, certificate);
            assert_eq!(state(&object), expected, "{conditions:?}");
        }
        assert_eq!(state(&new("a.test/b", "", Duration::ZERO)), State::Pending);
    }
}
