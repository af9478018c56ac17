//! The JSON Schema for editors.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::raw;

/// Returns the JSON Schema (2020-12) of a configuration file, with descriptions and defaults.
#[must_use]
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<raw::Document>().to_value();
    remove_null(&mut schema);
    schema
}

/// Removes the alternative `null`, since an empty value is an error in a configuration.
fn remove_null(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(remove_null),
        Value::Object(map) => {
            let is_null = |v: &Value| v == "null" || v == &serde_json::json!({"type": "null"});
            for key in ["type", "anyOf"] {
                if let Some(Value::Array(list)) = map.get_mut(key) {
                    list.retain(|item| !is_null(item));
                }
            }
            if let Some(Value::Array(list)) = map.get("type")
                && let [only] = &list[..]
            {
                let only = only.clone();
                map.insert("type".into(), only);
            }
            if let Some(Value::Array(list)) = map.get("anyOf")
                && let [Value::Object(only)] = &list[..]
            {
                let only = only.clone();
                map.remove("anyOf");
                map.extend(only);
            }
            map.values_mut().for_each(remove_null);
        }
        _ => {}
    }
}
