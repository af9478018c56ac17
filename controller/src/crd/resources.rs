//! Resource requests and limits of a container.

use std::collections::BTreeMap;

use maglor_manifests::inject::quantity;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// `resources` of a container (core/v1), limited to CPU and memory.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// Requested resources. Default: `cpu: 100m`, `memory: 16Mi`.
    #[serde(
        default,
        deserialize_with = "amounts",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(schema_with = "amounts_schema")]
    pub requests: BTreeMap<String, String>,
    /// Resource limits. Default: `memory: 128Mi`.
    #[serde(
        default,
        deserialize_with = "amounts",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(schema_with = "amounts_schema")]
    pub limits: BTreeMap<String, String>,
}

/// A quantity, as a number or a string: `cpu: 1` or `cpu: 500m`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a quantity such as 250m or 64Mi")]
enum Amount {
    Text(String),
    Whole(u64),
}

fn amounts<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let amounts = BTreeMap::<String, Amount>::deserialize(from)?;
    let text = |(name, amount)| match amount {
        Amount::Text(text) => (name, text),
        Amount::Whole(number) => (name, number.to_string()),
    };
    Ok(amounts.into_iter().map(text).collect())
}

fn amounts_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"x-kubernetes-int-or-string": true},
    })
}

impl Resources {
    /// Checks that quantities are valid and that requests do not exceed limits.
    pub(super) fn check(&self) -> Result<(), (String, String)> {
        for (kind, amounts) in [("requests", &self.requests), ("limits", &self.limits)] {
            for (name, amount) in amounts {
                if quantity(amount).is_none() {
                    let message =
                        format!("invalid quantity `{amount}`, expected for example 250m or 64Mi");
                    return Err((format!("{kind}.{name}"), message));
                }
            }
        }
        for (name, limit) in &self.limits {
            if let Some(request) = self.requests.get(name)
                && quantity(request) > quantity(limit)
            {
                let message = format!("`{request}` exceeds the limit, `{limit}`");
                return Err((format!("requests.{name}"), message));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_checked() {
        let check = |text: &str| serde_yaml::from_str::<Resources>(text).unwrap().check();
        for text in [
            "{}",
            "{requests: {cpu: 250m, memory: 64Mi}, limits: {cpu: '1', memory: 64Mi}}",
            "{requests: {cpu: '2'}, limits: {memory: 1Gi}}",
            "{requests: {cpu: 1}, limits: {cpu: 2, memory: 134217728}}",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for (text, field) in [
            ("{requests: {cpu: fast}}", "requests.cpu"),
            ("{limits: {memory: -1Mi}}", "limits.memory"),
            (
                "{requests: {cpu: '2'}, limits: {cpu: 1500m}}",
                "requests.cpu",
            ),
        ] {
            assert_eq!(check(text).unwrap_err().0, field, "{text}");
        }
    }
}
