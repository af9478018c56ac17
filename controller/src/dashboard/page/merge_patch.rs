//! JSON merge patches (RFC 7396): the difference between two documents.

use serde_json::{Map, Value};

/// Returns the patch that turns `old` into `new`; `None` if they are equal. Objects merge, null removes a field, and
/// everything else is replaced. Neither document contains null in an object.
pub(crate) fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (name, value) in after {
        let changed = match before.get(name) {
            Some(old) => difference(old, value),
            None => Some(value.clone()),
        };
        if let Some(changed) = changed {
            patch.insert(name.clone(), changed);
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_turns_one_document_into_the_other() {
        let documents = [
            json!({}),
            json!({"a": 1, "list": [1, 2]}),
            json!({"a": {"b": 2}, "list": [1]}),
            json!({"a": {"b": 2, "c": {"d": true}}}),
            json!({"list": []}),
        ];
        for old in &documents {
            for new in &documents {
                let patch = difference(old, new);
                assert_eq!(patch.is_none(), old == new);
                let mut patched = old.clone();
                if let Some(patch) = patch {
                    json_patch::merge(&mut patched, &patch);
                }
                assert_eq!(&patched, new);
            }
        }
    }

    #[test]
    fn only_changed_fields_are_in_a_patch() {
        let old = json!({"services": {"a": {"rps": 1, "x": 2}, "b": {"rps": 1}}});
        let new = json!({"services": {"a": {"rps": 3, "x": 2}}});
        let expected = json!({"services": {"a": {"rps": 3}, "b": null}});
        assert_eq!(difference(&old, &new), Some(expected));
    }
}
