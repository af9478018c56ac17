//! The difference between two documents as a JSON Patch (RFC 6902).

use serde_json::{Value, json};

/// Returns the operations of a JSON Patch that turn `before` into `after`; none if they are equal.
///
/// Objects are compared member by member. All other values that differ, including lists, are replaced as a whole.
#[must_use]
pub fn patch(before: &Value, after: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    compare(&mut String::new(), before, after, &mut operations);
    operations
}

fn compare(path: &mut String, before: &Value, after: &Value, operations: &mut Vec<Value>) {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        if before != after {
            operations.push(json!({"op": "replace", "path": path, "value": after}));
        }
        return;
    };
    let length = path.len();
    for (name, value) in old {
        step(path, name);
        match new.get(name) {
            Some(other) => compare(path, value, other, operations),
            None => operations.push(json!({"op": "remove", "path": path})),
        }
        path.truncate(length);
    }
    for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        step(path, name);
        operations.push(json!({"op": "add", "path": path, "value": value}));
        path.truncate(length);
    }
}

/// Appends a member's name to a JSON Pointer (RFC 6901).
fn step(path: &mut String, name: &str) {
    path.push('/');
    path.push_str(&name.replace('~', "~0").replace('/', "~1"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_reported() {
        let before = json!({"a": {"b/c": 1, "d": [1], "same": {}}, "gone": 1});
        let after = json!({"a": {"b/c": 2, "d": [1, 2], "same": {}, "~": null}});
        assert_eq!(
            Value::from(patch(&before, &after)),
            json!([
                {"op": "replace", "path": "/a/b~1c", "value": 2},
                {"op": "replace", "path": "/a/d", "value": [1, 2]},
                {"op": "add", "path": "/a/~0", "value": null},
                {"op": "remove", "path": "/gone"},
            ])
        );
        assert!(patch(&after, &after).is_empty());
    }
}
