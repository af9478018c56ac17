//! A signer of CertificateSigningRequests, as cert-manager is one: it copies names from requests, and knows nothing of
//! the mesh.

use std::time::{Duration, SystemTime};

use maglor_identity::{Authority, LeafRequest, SpiffeId};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

/// Its name.
pub(crate) const SIGNER: &str = "maglor.test/signer";
/// Tag of a URI in a list of names.
const URI: u8 = 0x86;

/// The certificate for a request, both PEM.
pub(crate) fn sign(authority: &Authority, request: &str, ttl: Duration) -> String {
    let der = CertificateSigningRequestDer::from_pem_slice(request.as_bytes()).unwrap();
    let wanted = LeafRequest {
        ttl,
        ..LeafRequest::new(named(&der))
    };
    let issued = authority.sign(&der, &wanted, SystemTime::now());
    issued.unwrap().certificate_pem
}

/// The first SPIFFE ID of a request.
fn named(der: &[u8]) -> SpiffeId {
    let scheme = b"spiffe://";
    let at = der.windows(scheme.len()).position(|part| part == scheme);
    let at = at.unwrap();
    assert_eq!(der[at - 2], URI, "of less than 128 bytes");
    let text = &der[at..at + usize::from(der[at - 1])];
    str::from_utf8(text).unwrap().parse().unwrap()
}

/// Whether an object is for this signer, approved, and without an answer.
pub(crate) fn is_waiting(object: &Value) -> bool {
    let none = Vec::new();
    let conditions = object["status"]["conditions"].as_array().unwrap_or(&none);
    let has = |kind: &str| conditions.iter().any(|one| one["type"] == kind);
    let is_answered = has("Denied") || has("Failed") || object["status"]["certificate"].is_string();
    object["spec"]["signerName"] == SIGNER && has("Approved") && !is_answered
}

/// Bytes as JSON of Kubernetes has them.
pub(crate) fn base64(text: &str) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap()
}

/// The text of such bytes.
pub(crate) fn text(value: &Value) -> String {
    let bytes: k8s_openapi::ByteString = serde_json::from_value(value.clone()).unwrap();
    String::from_utf8(bytes.0).unwrap()
}

/// A condition.
pub(crate) fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "Policy", "message": "not for shops"})
}
