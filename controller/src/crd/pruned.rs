//! Fields that an API server prunes because its CustomResourceDefinition is older than this program.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};

/// Returns the first field of the `spec` that the definition `own` has and `there` does not, such as
/// `spec.rules[].to[].headers`. The API server accepts an object with such a field, but drops the field. `None` if no
/// field is dropped.
#[must_use]
pub fn pruned(own: &CustomResourceDefinition, there: &CustomResourceDefinition) -> Option<String> {
    let wanted = spec(own, None)?;
    let version = &own.spec.versions.first()?.name;
    match spec(there, Some(version)) {
        Some(there) => missing(wanted, there, "spec"),
        None => Some("spec".to_owned()),
    }
}

/// Returns the schema of the `spec` in a version of a definition.
fn spec<'a>(
    definition: &'a CustomResourceDefinition,
    version: Option<&str>,
) -> Option<&'a JSONSchemaProps> {
    let mut versions = definition.spec.versions.iter();
    let version = versions.find(|one| version.is_none_or(|name| one.name == name))?;
    let schema = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
    schema.properties.as_ref()?.get("spec")
}

fn missing(own: &JSONSchemaProps, there: &JSONSchemaProps, path: &str) -> Option<String> {
    if there.x_kubernetes_preserve_unknown_fields == Some(true) {
        return None;
    }
    let theirs = there.properties.as_ref();
    for (name, own) in own.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        match theirs.and_then(|theirs| theirs.get(name)) {
            None => return Some(path),
            Some(there) => {
                if let Some(found) = missing(own, there, &path) {
                    return Some(found);
                }
            }
        }
    }
    let (own, there) = (item(own)?, item(there)?);
    missing(own, there, &format!("{path}[]"))
}

fn item(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(item) => Some(item),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::crd::definitions;

    #[test]
    fn a_field_that_the_cluster_does_not_know_is_named() {
        for own in definitions().unwrap() {
            assert_eq!(pruned(&own, &own), None);
            let without = |pointer: &str, field: &str| -> CustomResourceDefinition {
                let mut json = serde_json::to_value(&own).unwrap();
                let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
                let at = json.pointer_mut(&format!("{schema}{pointer}")).unwrap();
                at.as_object_mut().unwrap().remove(field).unwrap();
                serde_json::from_value(json).unwrap()
            };
            if own.spec.names.kind != "AuthorizationPolicy" {
                continue;
            }
            let older = without(
                "/properties/rules/items/properties/to/items/properties",
                "methods",
            );
            assert_eq!(
                pruned(&own, &older).as_deref(),
                Some("spec.rules[].to[].methods")
            );
            // A definition newer than this program has more fields.
            assert_eq!(pruned(&older, &own), None);
            let older = without("/properties", "selector");
            assert_eq!(pruned(&own, &older).as_deref(), Some("spec.selector"));
            let mut foreign = own.clone();
            foreign.spec.versions[0].name = "v1".to_owned();
            assert_eq!(pruned(&own, &foreign).as_deref(), Some("spec"));
            let mut all: Value = serde_json::to_value(&older).unwrap();
            all["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"] =
                json!(true);
            let all = serde_json::from_value(all).unwrap();
            assert_eq!(pruned(&own, &all), None);
        }
    }
}
