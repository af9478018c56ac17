//! The `maglor.dev` metadata: configuration that Envoy's types cannot express, in the notation of the configuration
//! file.
//!
//! A resource is first encoded in Envoy's fields as far as possible, and decoded again. Each field that is then
//! different from the original is added to `filter_metadata["maglor.dev"]`, where it overrides Envoy's fields; `null`
//! means that the field is not set. So nothing is lost, whatever Envoy's fields can express. If they can express
//! everything, there is no metadata at all.

use std::collections::BTreeMap;

use maglor_config::{Errors, resource};
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value as Wire};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_yaml::{Mapping, Number, Value};

use crate::proto::envoy::config::core::v3::Metadata;

/// The key of our metadata in `filter_metadata`.
pub(crate) const KEY: &str = "maglor.dev";

/// The largest integer up to which all integers are exact in a double.
const WHOLE: f64 = 9_007_199_254_740_992.0;

/// Returns, as metadata, the fields in which `meant` differs from `native`.
pub(crate) fn beyond<T: Serialize>(
    meant: &T,
    native: &T,
) -> Result<Option<Metadata>, serde_yaml::Error> {
    let (meant, mut native) = (fields(meant)?, fields(native)?);
    let mut words = BTreeMap::new();
    for (name, value) in meant {
        let said = native.remove(&name).is_some_and(|said| said == value);
        if let (false, Value::String(name)) = (said, name) {
            words.insert(name, encode(value));
        }
    }
    // Envoy's fields set a value where none was meant.
    for name in native.into_keys() {
        if let Value::String(name) = name {
            words.insert(
                name,
                Wire {
                    kind: Some(Kind::NullValue(0)),
                },
            );
        }
    }
    let metadata = |words| Metadata {
        filter_metadata: [(KEY.to_owned(), Struct { fields: words })].into(),
    };
    Ok((!words.is_empty()).then(|| metadata(words)))
}

/// Returns the `maglor.dev` metadata of a resource; `None` if there is none.
pub(crate) fn of(metadata: Option<&Metadata>) -> Option<&Struct> {
    metadata?.filter_metadata.get(KEY)
}

/// Returns whether the `maglor.dev` metadata contains a field.
pub(crate) fn mention(metadata: Option<&Metadata>, field: &str) -> bool {
    of(metadata).is_some_and(|words| words.fields.contains_key(field))
}

/// The reason why the `maglor.dev` metadata is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WordsError {
    /// The metadata contains unknown fields or invalid values.
    #[error("{0}")]
    Read(Errors),
    /// The metadata cannot be written as text.
    #[error("{0}")]
    Write(#[from] serde_yaml::Error),
}

/// Returns `native` with the fields of `words` in place of its own.
pub(crate) fn overlay<T: Serialize + DeserializeOwned>(
    native: T,
    words: Option<&Struct>,
    name: &str,
) -> Result<T, WordsError> {
    let Some(words) = words.filter(|words| !words.fields.is_empty()) else {
        return Ok(native);
    };
    let mut fields = fields(&native)?;
    for (name, value) in &words.fields {
        let name = Value::String(name.clone());
        match decode(value) {
            Value::Null => drop(fields.remove(&name)),
            value => drop(fields.insert(name, value)),
        }
    }
    let text = serde_yaml::to_string(&Value::Mapping(fields))?;
    resource::read(&text, name).map_err(WordsError::Read)
}

/// Writes a block as YAML text, without the fields that are not set.
pub(crate) fn text<T: Serialize>(block: &T) -> Result<String, serde_yaml::Error> {
    serde_yaml::to_string(&Value::Mapping(fields(block)?))
}

/// Returns the fields of a block that are set.
fn fields<T: Serialize>(block: &T) -> Result<Mapping, serde_yaml::Error> {
    let mut value = serde_yaml::to_value(block)?;
    without_nulls(&mut value);
    Ok(match value {
        Value::Mapping(fields) => fields,
        _ => Mapping::new(),
    })
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Mapping(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Sequence(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

fn encode(value: Value) -> Wire {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text),
        Value::Sequence(items) => Kind::ListValue(ListValue {
            values: items.into_iter().map(encode).collect(),
        }),
        Value::Mapping(map) => Kind::StructValue(Struct {
            fields: map
                .into_iter()
                .filter_map(|(name, value)| Some((name.as_str()?.to_owned(), encode(value))))
                .collect(),
        }),
        Value::Tagged(tagged) => return encode(tagged.value),
    };
    Wire { kind: Some(kind) }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "only whole numbers that an i64 can hold are cast"
)]
fn decode(value: &Wire) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(*value),
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() <= WHOLE => {
            Value::Number(Number::from(*number as i64))
        }
        Some(Kind::NumberValue(number)) => Value::Number(Number::from(*number)),
        Some(Kind::StringValue(text)) => Value::String(text.clone()),
        Some(Kind::ListValue(list)) => Value::Sequence(list.values.iter().map(decode).collect()),
        Some(Kind::StructValue(map)) => Value::Mapping(
            map.fields
                .iter()
                .map(|(name, value)| (Value::String(name.clone()), decode(value)))
                .collect(),
        ),
    }
}
