//! Writes to the API server, and interprets its responses.

use serde_json::{Value, json};

use super::is;
use crate::proxy_service::FINALIZER;
use crate::proxy_service::steps::Step;

/// Returns whether an error means that the object has changed since it was read. Applying creates a deleted object,
/// so for this step 404 means that the kind or the namespace is missing, which another observation would not change.
pub(super) fn is_stale(step: &Step, error: &kube::Error) -> bool {
    let gone = is(error, 404) && !matches!(step, Step::Apply(_));
    gone || is(error, 409)
}

/// Returns the patch that removes the finalizer of this controller from a `ProxyService`.
pub(super) fn released(there: &Value) -> Value {
    let finalizers = there["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten();
    let others: Vec<&Value> = finalizers.filter(|one| **one != FINALIZER).collect();
    json!({"metadata": {"finalizers": others}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_made_is_no_reason_to_look_again_at_once() {
        let answer = |code| {
            let status = kube::core::Status::failure("", "").with_code(code);
            kube::Error::Api(status.boxed())
        };
        let (apply, delete) = (Step::Apply(Box::default()), Step::Delete(Box::default()));
        assert!(is_stale(&delete, &answer(404)) && is_stale(&apply, &answer(409)));
        assert!(!is_stale(&apply, &answer(404)) && !is_stale(&delete, &answer(403)));
    }

    #[test]
    fn finalizers_of_others_stay() {
        let meta = json!({
            "name": "web", "uid": "u1", "resourceVersion": "7",
            "finalizers": ["example.org/first", FINALIZER, "example.org/last"],
        });
        let expected =
            json!({"metadata": {"finalizers": ["example.org/first", "example.org/last"]}});
        assert_eq!(released(&json!({"metadata": meta})), expected);
        let gone = json!({"metadata": {"uid": "u1", "resourceVersion": "7"}});
        assert_eq!(released(&gone)["metadata"]["finalizers"], json!([]));
    }
}
