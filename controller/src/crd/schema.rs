//! Converts the schema of a type to the subset that Kubernetes accepts ("structural").
//!
//! Kubernetes supports no references, no alternatives of different types and no `null` type, and writes defaults into
//! stored objects, which would prevent inheritance between levels. Therefore references are inlined, the alternative
//! with fields (or items) is kept, and defaults are moved to the description. The short forms that the proxy's file
//! also accepts (`retry: 5xx`) must therefore be written out in a resource: `retry: {retry_on: [5xx]}`.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// The schemas of `spec` and `status` of a kind.
pub(super) struct Shape {
    pub(super) spec: Value,
    status: Value,
    description: Value,
}

impl Shape {
    pub(super) fn of<PolicySpec: JsonSchema, Status: JsonSchema>() -> Self {
        let mut spec = structural(root::<PolicySpec>());
        let description = spec["description"].take();
        spec["description"] = json!("Desired state.");
        Self {
            spec,
            status: structural(root::<Status>()),
            description,
        }
    }

    pub(super) fn into_schema(self) -> Value {
        json!({
            "type": "object",
            "description": self.description,
            "required": ["spec"],
            "properties": {"spec": self.spec, "status": self.status},
        })
    }
}

fn root<T: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let generator: SchemaGenerator = settings.into_generator();
    generator.into_root_schema_for::<T>().to_value()
}

/// Removes fields from a block, and from its required fields.
pub(super) fn without(block: &mut Value, names: &[&str]) {
    if let Some(properties) = block["properties"].as_object_mut() {
        properties.retain(|name, _| !names.contains(&name.as_str()));
    }
    if let Some(map) = block.as_object_mut() {
        map.remove("required");
    }
}

fn structural(schema: Value) -> Value {
    let Value::Object(mut map) = schema else {
        return schema;
    };
    for word in ["$schema", "title", "examples", "$defs"] {
        map.remove(word);
    }
    choose_alternative(&mut map);
    choose_type(&mut map);
    // Unknown fields are rejected by strict validation; this keyword is not allowed together with `properties`.
    if map
        .get("additionalProperties")
        .is_some_and(Value::is_boolean)
    {
        map.remove("additionalProperties");
    }
    if map
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|format| format.starts_with("uint"))
    {
        map.remove("format");
    }
    describe_default(&mut map);
    for word in ["items", "additionalProperties"] {
        if let Some(inner) = map.remove(word) {
            map.insert(word.into(), structural(inner));
        }
    }
    if let Some(Value::Object(properties)) = map.remove("properties") {
        let properties: Map<String, Value> = properties
            .into_iter()
            .map(|(name, inner)| (name, structural(inner)))
            .collect();
        map.insert("properties".into(), Value::Object(properties));
    }
    Value::Object(map)
}

/// Resolves `anyOf` and `oneOf`: enums become a list of values; of other alternatives one is kept.
fn choose_alternative(map: &mut Map<String, Value>) {
    for word in ["anyOf", "oneOf"] {
        let Some(Value::Array(mut list)) = map.remove(word) else {
            continue;
        };
        list.retain(|item| item["type"] != "null");
        let consts: Vec<Value> = list
            .iter()
            .filter_map(|item| item.get("const").cloned())
            .collect();
        if consts.len() == list.len() && !consts.is_empty() {
            map.insert("type".into(), json!("string"));
            map.insert("enum".into(), Value::Array(consts));
            continue;
        }
        let types = || list.iter().map(|item| item["type"].as_str());
        if types().all(|one| matches!(one, Some("integer" | "string")))
            && types().any(|one| one == Some("integer"))
        {
            map.insert("x-kubernetes-int-or-string".into(), json!(true));
            continue;
        }
        // A load balancing policy is a string in resources. Other types with fields or items must be written out, and
        // a value that may be a number may also be a string.
        let policy = |item: &Value| item["required"] == json!(["name"]);
        let named =
            list.iter().any(policy) && list.iter().any(|item| item.get("examples").is_some());
        let rank = |item: &Value| match item["type"].as_str() {
            Some("string") if named => 0,
            Some("object") => 1,
            Some("array") => 2,
            None => 3,
            Some("string") => 4,
            Some(_) => 5,
        };
        list.sort_by_key(rank);
        if let Some(Value::Object(chosen)) = list.into_iter().next() {
            for (key, value) in chosen {
                map.entry(key).or_insert(value);
            }
            choose_alternative(map);
        }
    }
}

/// Reduces the type to a single one: removes `null`, and keeps the string if a number is an alternative form.
fn choose_type(map: &mut Map<String, Value>) {
    match map.remove("type") {
        Some(Value::Array(mut types)) => {
            types.retain(|one| one != "null");
            let text_or_number = types.iter().any(|one| one == "string") && types.len() > 1;
            if text_or_number && map.remove("maximum").is_some() {
                // The value is a duration: the only allowed number is 0, which is also a valid string.
                map.remove("minimum");
                map.insert("type".into(), json!("string"));
            } else if text_or_number {
                map.remove("minimum");
                map.insert("x-kubernetes-int-or-string".into(), json!(true));
            } else if let Some(only) = types.into_iter().next() {
                map.insert("type".into(), only);
            }
        }
        Some(one) => {
            map.insert("type".into(), one);
        }
        None => {}
    }
    if let Some(Value::Array(words)) = map.get_mut("enum") {
        words.retain(|word| !word.is_null());
        if !map.contains_key("type") {
            map.insert("type".into(), json!("string"));
        }
    }
}

fn describe_default(map: &mut Map<String, Value>) {
    let Some(default) = map.remove("default") else {
        return;
    };
    let empty = matches!(&default, Value::Array(list) if list.is_empty())
        || matches!(&default, Value::String(text) if text.is_empty())
        || matches!(&default, Value::Object(map) if map.is_empty())
        || default.is_null();
    if empty {
        return;
    }
    let default = match &default {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let text = map.get("description").and_then(Value::as_str).unwrap_or("");
    let text = format!("{text} Default: `{default}`.");
    map.insert("description".into(), Value::String(text.trim().to_owned()));
}
