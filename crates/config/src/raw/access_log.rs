//! The access log of the configuration file.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{OneOrMany, Pairs};

/// Where and how requests are logged.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AccessLog {
    /// File to append to, or `/dev/stdout`.
    #[schemars(extend("default" = "/dev/stdout"))]
    pub path: Option<String>,
    /// Layout of each line.
    #[schemars(extend("default" = "json"))]
    pub format: Option<AccessLogFormat>,
    /// Fields of each JSON object, in this order; or a mapping of custom keys to fields, as in
    /// `{ts: time, code: status}`. See docs/access-log.md. Default: all fields.
    pub fields: Option<AccessLogFields>,
    /// A custom line format, instead of `format`: text with fields in braces, as in
    /// `{client} {method} {target} {status}`; `{{` and `}}` are literal braces.
    pub template: Option<String>,
}

/// Layout of an access log line.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// One JSON object per line.
    Json,
    /// Values of the fields, separated by spaces and quoted where needed.
    Text,
}

/// The fields of each JSON object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AccessLogFields {
    /// Custom keys, each with the field that is its value.
    Keys(Pairs<String>),
    /// Fields whose names are the keys.
    Names(OneOrMany),
}

impl<'de> Deserialize<'de> for AccessLogFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = AccessLogFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field, a list of fields, or a mapping of keys to fields")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(AccessLogFields::Names(OneOrMany(vec![text.to_owned()])))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let names = Vec::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(AccessLogFields::Names(OneOrMany(names)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Pairs::deserialize(MapAccessDeserializer::new(map)).map(AccessLogFields::Keys)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for AccessLogFields {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AccessLogFields".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names = OneOrMany::json_schema(generator);
        let keys = Pairs::<String>::json_schema(generator);
        json_schema!({"anyOf": [names, keys]})
    }
}
