//! Parts of a pod's spec: containers, conflicts with the sidecar, and fields to change.

use serde_json::{Map, Value, json};

use crate::inject::INIT;
use crate::inject::container::{CACHE_VOLUME, IDENTITY_VOLUME};
use crate::inject::outcome::Refusal;
use crate::inject::settings::{ADMIN_PORT, INBOUND_PORT, OUTBOUND_PORT, PROXY_UID};

/// Returns all containers, each with the name of the list that contains it.
pub(crate) fn containers(spec: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    ["initContainers", "containers"]
        .into_iter()
        .flat_map(move |field| {
            spec[field]
                .as_array()
                .into_iter()
                .flatten()
                .map(move |one| (field, one))
        })
}

/// Checks the containers for conflicts with the sidecar; `is_own` identifies the sidecar's own containers by list and
/// name.
pub(crate) fn check(
    spec: &Value,
    is_own: impl Fn(&'static str, &str) -> bool,
) -> Result<(), Refusal> {
    let whole_pod = spec["securityContext"]["runAsUser"].as_u64();
    let mut has_own = false;
    for (field, container) in containers(spec) {
        let name = container["name"].as_str().unwrap_or_default().to_owned();
        if is_own(field, &name) {
            has_own = true;
            continue;
        }
        if name == INIT {
            let field = match field {
                "containers" => "spec.containers",
                _ => "spec.initContainers",
            };
            return Err(Refusal::Name { field, name });
        }
        let user = container["securityContext"]["runAsUser"].as_u64();
        if user.or(whole_pod) == Some(u64::from(PROXY_UID)) {
            return Err(Refusal::User { container: name });
        }
        let ports = container["ports"].as_array().into_iter().flatten();
        let numbers = ports.filter_map(|port| port["containerPort"].as_u64());
        let ours = [INBOUND_PORT, OUTBOUND_PORT, ADMIN_PORT];
        let taken = ours
            .into_iter()
            .find(|port| numbers.clone().any(|one| one == u64::from(*port)));
        if let Some(port) = taken {
            return Err(Refusal::Port {
                container: name,
                port,
            });
        }
    }
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut names = volumes.filter_map(|volume| volume["name"].as_str());
    match names.find(|name| !has_own && [IDENTITY_VOLUME, CACHE_VOLUME].contains(name)) {
        Some(name) => Err(Refusal::Name {
            field: "spec.volumes",
            name: name.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Sets HTTP proxy variables in the environment of an application's container, unless they are set.
pub(crate) fn add_variables(
    container: &mut Map<String, Value>,
    variables: [(&'static str, String); 2],
    path: &str,
) -> Result<(), Refusal> {
    let environment = container.entry("env").or_insert_with(|| json!([]));
    if environment.is_null() {
        *environment = json!([]);
    }
    let Value::Array(environment) = environment else {
        return Err(Refusal::Shape {
            field: format!("{path}.env"),
            expected: "a list",
        });
    };
    for (name, value) in variables {
        let known = |one: &Value| {
            one["name"]
                .as_str()
                .is_some_and(|one| one.eq_ignore_ascii_case(name))
        };
        if !environment.iter().any(known) {
            environment.push(json!({"name": name, "value": value}));
        }
    }
    Ok(())
}

/// Returns a field that must be an object.
pub(crate) fn object<'a>(
    value: Option<&'a mut Value>,
    field: &str,
) -> Result<&'a mut Map<String, Value>, Refusal> {
    let object = value.and_then(Value::as_object_mut);
    object.ok_or_else(|| Refusal::Shape {
        field: match field {
            "" => "the pod".to_owned(),
            field => field.to_owned(),
        },
        expected: "an object",
    })
}

/// Returns a list of the spec, which is created if it is absent.
pub(crate) fn list<'a>(
    spec: &'a mut Map<String, Value>,
    field: &str,
) -> Result<&'a mut Vec<Value>, Refusal> {
    let list = spec.entry(field).or_insert(Value::Null);
    if list.is_null() && field != "containers" {
        *list = json!([]);
    }
    list.as_array_mut().ok_or_else(|| Refusal::Shape {
        field: format!("spec.{field}"),
        expected: "a list",
    })
}
