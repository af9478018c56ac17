//! `AdmissionReview` of `admission.k8s.io/v1`: the API server's request before it stores an object, and the response.

use serde_json::{Value, json};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// The maximum length of an accepted uid in bytes; API servers create shorter ones.
const LONGEST_UID: usize = 256;

/// The request: a pending operation of the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Review {
    /// The uid of the request, which is repeated in the response.
    pub uid: String,
    /// The operation: `CREATE`, `UPDATE`, ….
    pub operation: String,
    /// The namespace of the object; empty if its kind has no namespaces.
    pub namespace: String,
    /// The name of the object; empty if the API server generates it later.
    pub name: String,
    /// The new object; null if the object is deleted.
    pub object: Value,
    /// The old object; null if the object is created.
    pub old_object: Value,
    /// Whether the operation is a dry run, so that the review must have no side effects.
    pub dry_run: bool,
}

/// The reason why a body is not a valid request.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// A field is missing or invalid.
    #[error("{0}")]
    Field(&'static str),
    /// The body is not valid JSON.
    #[error("invalid JSON: {0}")]
    Syntax(#[from] serde_json::Error),
}

/// The response to a review.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The object may be stored, with the changes of a JSON Patch.
    Allowed {
        /// The operations of the patch; empty = the object is unchanged.
        patch: Vec<Value>,
        /// Warnings for the client, which kubectl prints.
        warnings: Vec<String>,
    },
    /// The object may not be stored.
    Denied {
        /// The reason, which contains the field.
        reason: String,
    },
}

impl Review {
    /// Parses a request.
    ///
    /// # Errors
    /// If the body is not a request of this version.
    pub fn read(body: &[u8]) -> Result<Self, ReviewError> {
        let mut review: Value = serde_json::from_slice(body)?;
        if review["apiVersion"] != API_VERSION || review["kind"] != KIND {
            return Err(ReviewError::Field(
                "apiVersion and kind: must be admission.k8s.io/v1 AdmissionReview",
            ));
        }
        let Value::Object(mut request) = review["request"].take() else {
            return Err(ReviewError::Field("request: must be an object"));
        };
        let mut take = |field: &str| request.remove(field).unwrap_or_default();
        let mut text = |field: &str| match take(field) {
            Value::String(text) => text,
            _ => String::new(),
        };
        let [uid, operation, namespace, name] =
            ["uid", "operation", "namespace", "name"].map(&mut text);
        if uid.is_empty() || uid.len() > LONGEST_UID {
            return Err(ReviewError::Field(
                "request.uid: must be a string of up to 256 bytes",
            ));
        }
        Ok(Self {
            uid,
            operation,
            namespace,
            name,
            object: take("object"),
            old_object: take("oldObject"),
            dry_run: take("dryRun") == true,
        })
    }

    /// Encodes the response; `base64` encodes the patch (RFC 4648, section 4).
    #[must_use]
    pub fn answer(&self, verdict: Verdict, base64: impl FnOnce(Vec<u8>) -> Value) -> Value {
        let mut response = json!({"uid": self.uid});
        match verdict {
            Verdict::Allowed { patch, warnings } => {
                response["allowed"] = json!(true);
                if !patch.is_empty() {
                    let patch = Value::from(patch).to_string().into_bytes();
                    response["patchType"] = json!("JSONPatch");
                    response["patch"] = base64(patch);
                }
                if !warnings.is_empty() {
                    response["warnings"] = json!(warnings);
                }
            }
            Verdict::Denied { reason } => {
                response["allowed"] = json!(false);
                response["status"] = json!({"code": 403, "reason": "Forbidden", "message": reason});
            }
        }
        json!({"apiVersion": API_VERSION, "kind": KIND, "response": response})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(request: &Value) -> Vec<u8> {
        let review = json!({"apiVersion": API_VERSION, "kind": KIND, "request": request});
        review.to_string().into_bytes()
    }

    #[test]
    fn a_question_and_its_answers() {
        let review = Review::read(&question(&json!({
            "uid": "u1", "operation": "CREATE", "namespace": "shop", "object": {"a": 1}, "oldObject": null,
        })));
        let review = review.unwrap();
        assert!(!review.dry_run);
        let dry = Review::read(&question(&json!({"uid": "u2", "dryRun": true})));
        assert!(dry.unwrap().dry_run);
        assert_eq!(
            (review.namespace.as_str(), &review.object),
            ("shop", &json!({"a": 1}))
        );
        let allowed = Verdict::Allowed {
            patch: vec![json!({"op": "remove", "path": "/a"})],
            warnings: Vec::new(),
        };
        let text = |bytes: Vec<u8>| json!(String::from_utf8(bytes).unwrap());
        let answer = review.answer(allowed, text);
        assert_eq!(
            answer["response"],
            json!({"uid": "u1", "allowed": true, "patchType": "JSONPatch",
                "patch": r#"[{"op":"remove","path":"/a"}]"#})
        );
        let denied = Verdict::Denied {
            reason: "spec.a: no".into(),
        };
        let answer = review.answer(denied, text);
        assert_eq!(answer["response"]["status"]["message"], "spec.a: no");
    }

    #[test]
    fn what_is_no_question_is_refused() {
        for (body, expected) in [
            (b"{".to_vec(), "invalid JSON"),
            (b"[]".to_vec(), "apiVersion and kind"),
            (
                br#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}"#
                    .to_vec(),
                "apiVersion",
            ),
            (question(&Value::Null), "request: must be"),
            (question(&json!({"uid": 1})), "request.uid"),
            (question(&json!({"uid": "x".repeat(257)})), "request.uid"),
            ("[".repeat(100_000).into_bytes(), "invalid JSON"),
        ] {
            let error = Review::read(&body).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
