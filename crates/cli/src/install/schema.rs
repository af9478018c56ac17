//! Validates values against the chart's `values.schema.json`, as Helm does.
//!
//! Implements the part of JSON Schema (draft 7) that the file uses. Any other keyword is treated as an error of the
//! chart and never ignored.

use maglor_config::suggest::{nearest, one_of};
use regex::Regex;
use serde_json::{Map, Value};

/// A value that violates the schema.
#[derive(Debug)]
pub(super) struct Fault {
    /// Path of the value from the root: names and indices.
    pub(super) path: Vec<String>,
    /// What is wrong with the value, and the valid values.
    pub(super) reason: String,
}

/// Returns the first fault of `value` in the order of its keys; `None` if there is none.
pub(super) fn check(schema: &Value, value: &Value) -> Option<Fault> {
    check_at(schema, value, &mut Vec::new()).err()
}

fn check_at(schema: &Value, value: &Value, path: &mut Vec<String>) -> Result<(), Fault> {
    let Some(keywords) = schema.as_object() else {
        return fault(path, "the schema is not a mapping".to_owned());
    };
    if let Some(types) = keywords.get("type") {
        check_type(types, keywords, value, path)?;
    }
    for (keyword, wanted) in keywords {
        match keyword.as_str() {
            "$schema"
            | "additionalProperties"
            | "description"
            | "properties"
            | "then"
            | "title"
            | "type" => {}
            "enum" => check_enum(wanted, value, path)?,
            "if" => check_then(wanted, keywords, value, path)?,
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    path.push(index.to_string());
                    check_at(wanted, item, path)?;
                    path.pop();
                }
            }
            "maximum" | "minimum" => check_range(keywords, value, path)?,
            "maxLength" | "minLength" => check_length(keywords, value, path)?,
            "maxProperties" => {
                let many = |map: &Map<_, _>| wanted.as_u64().is_none_or(|n| n < map.len() as u64);
                if value.as_object().is_some_and(many) {
                    return fault(path, format!("expected at most {wanted} fields"));
                }
            }
            "minProperties" => {
                let few = |map: &Map<_, _>| wanted.as_u64().is_none_or(|n| n > map.len() as u64);
                if value.as_object().is_some_and(few) {
                    return fault(path, format!("expected at least {wanted} fields"));
                }
            }
            "pattern" => check_pattern(wanted, schema, value, path)?,
            "required" => check_required(wanted, value, path)?,
            _ => return fault(path, format!("the schema has the keyword `{keyword}`")),
        }
    }
    match value.as_object() {
        Some(map) => check_fields(keywords, map, path),
        None => Ok(()),
    }
}

/// Validates values that match `if` against `then`. The description of `then` is the reason of the fault.
fn check_then(
    condition: &Value,
    schema: &Map<String, Value>,
    value: &Value,
    path: &mut Vec<String>,
) -> Result<(), Fault> {
    let Some(then) = schema.get("then") else {
        return fault(path, "the schema has `if` without `then`".to_owned());
    };
    let depth = path.len();
    if check_at(condition, value, path).is_err() {
        path.truncate(depth);
        return Ok(());
    }
    check_at(then, value, path).map_err(|fault| match then["description"].as_str() {
        Some(why) => Fault {
            reason: format!("{}: {why}", fault.reason),
            ..fault
        },
        None => fault,
    })
}

fn fault<T>(path: &[String], reason: String) -> Result<T, Fault> {
    Err(Fault {
        path: path.to_vec(),
        reason,
    })
}

fn check_type(
    types: &Value,
    schema: &Map<String, Value>,
    value: &Value,
    path: &[String],
) -> Result<(), Fault> {
    let types: Vec<_> = match types {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let fits = |name: &&str| match *name {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        // 3.0 is an integer (JSON Schema, 6.1.1).
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        _ => false,
    };
    if types.iter().any(fits) {
        return Ok(());
    }
    let words: Vec<_> = types.iter().map(|name| type_name(name)).collect();
    let range = range(schema).filter(|_| types == ["integer"]);
    let range = range.map(|range| format!(" {range}")).unwrap_or_default();
    let reason = format!(
        "expected {}{range}, found {}",
        words.join(" or "),
        found(value)
    );
    fault(path, reason)
}

fn type_name(name: &str) -> &str {
    match name {
        "array" => "a list",
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "object" => "a mapping",
        "string" => "a string",
        other => other,
    }
}

/// Formats a value for a message.
fn found(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        other => other.to_string(),
    }
}

fn check_enum(wanted: &Value, value: &Value, path: &[String]) -> Result<(), Fault> {
    let words = wanted.as_array().map_or(&[][..], Vec::as_slice);
    if words.contains(value) {
        return Ok(());
    }
    if let [Value::Bool(only)] = words {
        return fault(path, format!("expected {only}, found {}", found(value)));
    }
    let words: Vec<_> = words.iter().filter_map(Value::as_str).collect();
    let shown: Vec<_> = words
        .iter()
        .filter(|word| !word.is_empty())
        .copied()
        .collect();
    let near = value.as_str().and_then(|word| nearest(word, words));
    let hint = near.map(|near| format!("; did you mean `{near}`?"));
    let hint = hint.unwrap_or_default();
    fault(
        path,
        format!("expected {}, found {}{hint}", one_of(&shown), found(value)),
    )
}

/// Formats the range of a number: `from 1 to 30`.
fn range(schema: &Map<String, Value>) -> Option<String> {
    let end = |name| schema.get(name).and_then(Value::as_f64);
    match (end("minimum"), end("maximum")) {
        (Some(least), Some(most)) => Some(format!("from {least} to {most}")),
        (Some(least), None) => Some(format!("of at least {least}")),
        (None, Some(most)) => Some(format!("of at most {most}")),
        (None, None) => None,
    }
}

fn check_range(schema: &Map<String, Value>, value: &Value, path: &[String]) -> Result<(), Fault> {
    let Some(number) = value.as_f64() else {
        return Ok(());
    };
    let end = |name| schema.get(name).and_then(Value::as_f64);
    let below = end("minimum").is_some_and(|least| number < least);
    if !below && end("maximum").is_none_or(|most| number <= most) {
        return Ok(());
    }
    let range = range(schema).unwrap_or_default();
    fault(path, format!("expected a number {range}, found {value}"))
}

fn check_length(schema: &Map<String, Value>, value: &Value, path: &[String]) -> Result<(), Fault> {
    let Some(text) = value.as_str() else {
        return Ok(());
    };
    let length = text.chars().count() as u64;
    let end = |name| schema.get(name).and_then(Value::as_u64);
    let (least, most) = (end("minLength"), end("maxLength"));
    if least.is_none_or(|least| length >= least) && most.is_none_or(|most| length <= most) {
        return Ok(());
    }
    let reason = match most {
        Some(most) => format!(
            "expected {} to {most} characters, found {length}",
            least.unwrap_or(0)
        ),
        None => "must not be empty".to_owned(),
    };
    fault(path, reason)
}

fn check_pattern(
    wanted: &Value,
    schema: &Value,
    value: &Value,
    path: &[String],
) -> Result<(), Fault> {
    let Some(text) = value.as_str() else {
        return Ok(());
    };
    let pattern = match Regex::new(wanted.as_str().unwrap_or_default()) {
        Ok(pattern) => pattern,
        Err(error) => return fault(path, format!("the schema has a bad pattern: {error}")),
    };
    if pattern.is_match(text) {
        return Ok(());
    }
    // A fault is one line, but a description may have several.
    let meaning = schema["description"].as_str().unwrap_or_default();
    let meaning = meaning.replace('\n', " ");
    let meaning = meaning.strip_suffix('.').unwrap_or(&meaning);
    fault(path, format!("{value} is not a valid value: {meaning}"))
}

/// Checks for required values. A value is usually missing because Helm removes values that are set to null.
fn check_required(wanted: &Value, value: &Value, path: &mut Vec<String>) -> Result<(), Fault> {
    let Some(map) = value.as_object() else {
        return Ok(());
    };
    let names = wanted.as_array().into_iter().flatten();
    let missing = names.filter_map(Value::as_str);
    match missing.into_iter().find(|name| !map.contains_key(*name)) {
        None => Ok(()),
        Some(name) => {
            path.push(name.to_owned());
            fault(path, "must have a value, not null".to_owned())
        }
    }
}

fn check_fields(
    schema: &Map<String, Value>,
    map: &Map<String, Value>,
    path: &mut Vec<String>,
) -> Result<(), Fault> {
    let known = schema.get("properties").and_then(Value::as_object);
    for (name, value) in map {
        path.push(name.clone());
        let field = known.and_then(|known| known.get(name));
        match field.or(schema.get("additionalProperties")) {
            Some(Value::Bool(false)) => return fault(path, unknown(known)(name)),
            Some(Value::Bool(true)) | None => {}
            Some(schema) => check_at(schema, value, path)?,
        }
        path.pop();
    }
    Ok(())
}

/// Suggests a replacement for an unknown key: the most similar key, or one of all keys.
fn unknown(known: Option<&Map<String, Value>>) -> impl Fn(&str) -> String {
    move |name| {
        let mut names: Vec<_> = known
            .into_iter()
            .flatten()
            .map(|(name, _)| &**name)
            .collect();
        names.sort_unstable();
        match nearest(name, names.iter().copied()) {
            Some(near) => format!("unknown key; did you mean `{near}`?"),
            None => format!("unknown key; expected {}", one_of(&names)),
        }
    }
}
