//! Checks the API server: its version, its clock, the user's permissions, and the installed
//! definitions.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use http::Request;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::Api;
use kube::api::PostParams;
use kube::client::Body;
use maglor_controller::crd;
use serde_json::Value;

use super::report::{Advice, Report, some_of};
use crate::live::LiveError;
use crate::live::access::{Cluster, asked};

const ABOUT: &str = "kubernetes";
const RESOURCES: &str = "resources";
/// Minor version of Kubernetes (1.x) from which native sidecars are enabled by default.
const OLDEST: u32 = 29;
/// Maximum tolerated clock difference. Certificates are valid from a minute before they are issued; half of this time
/// is left for transit.
const SKEW: Duration = Duration::from_secs(30);

/// The permissions needed to install the mesh, each with group and resource.
const CREATED: [(&str, &str); 9] = [
    ("", "namespaces"),
    ("", "secrets"),
    ("", "configmaps"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("apps", "deployments"),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
];

/// Checks the API server itself.
///
/// # Errors
/// If it does not respond, so that nothing else can be checked.
pub(super) async fn check(
    cluster: &Cluster,
    pre: bool,
    report: &mut Report,
) -> Result<(), LiveError> {
    version(cluster, report).await?;
    clock(cluster, report).await?;
    if pre {
        rights(
            cluster,
            &CREATED.map(|(group, resource)| (group, resource, "create")),
            report,
        )
        .await?;
    } else {
        rights(
            cluster,
            &[
                ("", "pods", "list"),
                ("", "pods/portforward", "create"),
                ("", "pods/portforward", "get"),
            ],
            report,
        )
        .await?;
    }
    gateway_api(cluster, report).await
}

async fn version(cluster: &Cluster, report: &mut Report) -> Result<(), LiveError> {
    let version = cluster.client.apiserver_version().await;
    let version = version.map_err(asked("the version of the API server"))?;
    let minor = version
        .minor
        .trim_end_matches(|c: char| !c.is_ascii_digit());
    let what = format!("API server {}", version.git_version);
    match minor.parse::<u32>().is_ok_and(|minor| minor < OLDEST) {
        false => report.good(ABOUT, what),
        true => report.warning(
            ABOUT,
            format!("{what} does not support native sidecars"),
            Advice(
                format!("use Kubernetes 1.{OLDEST} or later, or plain-container sidecars"),
                "sidecar.md",
            ),
        ),
    }
    Ok(())
}

async fn clock(cluster: &Cluster, report: &mut Report) -> Result<(), LiveError> {
    let Ok(request) = Request::get("/version").body(Body::empty()) else {
        return Ok(());
    };
    let begun = SystemTime::now();
    let response = cluster.client.send(request).await;
    let response = response.map_err(asked("the time of the API server"))?;
    let date = response.headers().get(http::header::DATE);
    let theirs = date.and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    let Some(theirs) = theirs else {
        return Ok(());
    };
    // The `date` header has a resolution of one second.
    let skew = match begun.duration_since(theirs) {
        Ok(ahead) => ahead.saturating_sub(Duration::from_secs(1)),
        Err(behind) => behind.duration(),
    };
    let what = format!(
        "the local clock differs from the API server's by {} s",
        skew.as_secs()
    );
    match skew < SKEW {
        true => report.good(ABOUT, what),
        false => report.bad(
            ABOUT,
            what,
            Advice(
                "certificates may appear expired or not yet valid: run NTP on every node"
                    .to_owned(),
                "identity.md",
            ),
        ),
    }
    Ok(())
}

async fn rights(
    cluster: &Cluster,
    wanted: &[(&str, &str, &str)],
    report: &mut Report,
) -> Result<(), LiveError> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let mut missing = Vec::new();
    for (group, resource, verb) in wanted {
        let (resource, sub) = match resource.split_once('/') {
            Some((resource, sub)) => (resource, Some(sub.to_owned())),
            None => (*resource, None),
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some((*group).to_owned()),
                    namespace: Some(cluster.mesh_namespace.clone()),
                    resource: Some(resource.to_owned()),
                    subresource: sub.clone(),
                    verb: Some((*verb).to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(asked("your permissions"))?;
        if !answer.status.is_some_and(|status| status.allowed) {
            let sub = sub.map(|sub| format!("/{sub}")).unwrap_or_default();
            missing.push(format!("{verb} {resource}{sub}"));
        }
    }
    match missing.is_empty() {
        true => report.good(ABOUT, "you have the required permissions"),
        false => report.bad(
            ABOUT,
            format!("missing permissions: {}", some_of(&missing)),
            Advice(
                "ask a cluster administrator".to_owned(),
                "cli.md#permissions",
            ),
        ),
    }
    Ok(())
}

async fn gateway_api(cluster: &Cluster, report: &mut Report) -> Result<(), LiveError> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let routes = definitions
        .get_opt("httproutes.gateway.networking.k8s.io")
        .await;
    match routes.map_err(asked("the CustomResourceDefinitions of the Gateway API"))? {
        Some(_) => report.good(ABOUT, "the Gateway API is installed"),
        None => report.warning(
            ABOUT,
            "the Gateway API is not installed: HTTPRoutes and GRPCRoutes are unavailable",
            Advice(
                "install the standard channel of the Gateway API to use routes; all other features work without it"
                    .to_owned(),
                "controller.md#routes",
            ),
        ),
    }
    Ok(())
}

/// Compares the mesh's own definitions with those of this program.
pub(super) async fn definitions(cluster: &Cluster, report: &mut Report) {
    let advice = || {
        Advice(
            "maglor-controller crds | kubectl apply --server-side -f -".to_owned(),
            "controller.md#running-it",
        )
    };
    let wanted = match crd::definitions() {
        Ok(wanted) => wanted,
        Err(error) => return report.bad(RESOURCES, error.to_string(), advice()),
    };
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    for own in wanted {
        let name = own.metadata.name.clone().unwrap_or_default();
        match api.get_opt(&name).await {
            Err(error) => report.bad(RESOURCES, format!("{name}: {error}"), advice()),
            Ok(None) => report.bad(RESOURCES, format!("{name} is not installed"), advice()),
            // The controller does not apply objects of such a kind.
            Ok(Some(there))
                if own.spec.names.kind == "AuthorizationPolicy"
                    && crd::pruned(&own, &there).is_some() =>
            {
                let field = crd::pruned(&own, &there).unwrap_or_default();
                let what = format!(
                    "{name} is older than this program: the API server drops `{field}`, so new policies are not applied"
                );
                report.bad(RESOURCES, what, advice());
            }
            Ok(Some(there)) => match difference(&schemas(&own), &schemas(&there), "") {
                None => report.good(RESOURCES, format!("{name} is up to date")),
                Some(place) => report.warning(
                    RESOURCES,
                    format!("{name} differs from the version of this program at {place}"),
                    advice(),
                ),
            },
        }
    }
}

/// Returns the schemas of a definition by version. Other fields, which the API server sets, are ignored.
fn schemas(definition: &CustomResourceDefinition) -> Value {
    let versions = definition.spec.versions.iter();
    let schema = |version: &CustomResourceDefinitionVersion| {
        let schema = version.schema.as_ref();
        schema.and_then(|schema| serde_json::to_value(schema).ok())
    };
    versions
        .filter(|version| version.served)
        .map(|version| (version.name.clone(), schema(version).into()))
        .collect::<serde_json::Map<String, Value>>()
        .into()
}

/// Returns the first place where two values differ. Numbers are compared by value: 1.0 equals 1.
fn difference(own: &Value, there: &Value, place: &str) -> Option<String> {
    match (own, there) {
        (Value::Object(own), Value::Object(there)) => {
            let names: BTreeSet<_> = own.keys().chain(there.keys()).collect();
            let field = |fields: &serde_json::Map<String, Value>, name: &str| {
                fields.get(name).cloned().unwrap_or(Value::Null)
            };
            names.into_iter().find_map(|name| {
                let place = format!("{place}.{name}");
                difference(&field(own, name), &field(there, name), &place)
            })
        }
        (Value::Array(own), Value::Array(there)) if own.len() == there.len() => {
            let mut pairs = own.iter().zip(there).enumerate();
            pairs.find_map(|(at, (own, there))| difference(own, there, &format!("{place}[{at}]")))
        }
        (Value::Number(own), Value::Number(there)) if own.as_f64() == there.as_f64() => None,
        (own, there) => (own != there).then(|| place.trim_start_matches('.').to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Converts a value to the form in which the API server returns it: whole numbers without a decimal point.
    fn answered(value: Value) -> Value {
        match value {
            Value::Number(number) => match number.as_f64() {
                Some(float) if float.fract() == 0.0 => json!(float as i64),
                _ => Value::Number(number),
            },
            Value::Array(list) => list.into_iter().map(answered).collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter();
                fields
                    .map(|(name, value)| (name, answered(value)))
                    .collect()
            }
            other => other,
        }
    }

    #[test]
    fn a_definition_is_the_same_when_it_comes_back() {
        for own in crd::definitions().unwrap() {
            let back = answered(serde_json::to_value(&own).unwrap());
            let back: CustomResourceDefinition = serde_json::from_value(back).unwrap();
            assert_eq!(difference(&schemas(&own), &schemas(&back), ""), None);
        }
    }

    #[test]
    fn the_place_of_a_difference_is_named() {
        let own = json!({"v1": {"a": [1.0, {"b": true}], "c": "x"}});
        let place = |there: Value| difference(&own, &there, "");
        assert_eq!(
            place(json!({"v1": {"a": [1, {"b": true}], "c": "x"}})),
            None
        );
        assert_eq!(
            place(json!({"v1": {"a": [1, {"b": false}], "c": "x"}})).as_deref(),
            Some("v1.a[1].b")
        );
        assert_eq!(place(json!({"v1": {"a": [1]}})).as_deref(), Some("v1.a"));
        assert_eq!(place(json!({})).as_deref(), Some("v1"));
    }
}
