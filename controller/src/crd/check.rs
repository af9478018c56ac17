//! Validates policies with the proxy's own checks, and reports errors with the paths of the resource's fields.

use maglor_config::{Diagnostic, mesh_tracing, raw, resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::derived_fields;
use crate::encoding_check;

/// Reason why a resource is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// A field was set whose value is determined by Kubernetes or by a route.
    #[error("spec.{field} is derived from the Service and its routes; remove the field")]
    Foreign {
        /// Path of the field, such as `cluster.endpoints`.
        field: String,
    },
    /// The proxy would reject the value of a field.
    #[error("{path}: {message}")]
    Value {
        /// Path of the field, such as `spec.cluster.limits.max_requests`.
        path: String,
        /// Why the value is invalid, and a valid alternative.
        message: String,
    },
}

/// Reads the `spec` of one of the mesh's own resources.
///
/// # Errors
/// If there are fields of a wrong type, or unknown fields.
pub fn spec<T: DeserializeOwned>(object: &Value) -> Result<T, SpecError> {
    let spec = &object["spec"];
    T::deserialize(spec).map_err(|error| {
        // The parser for the proxy's files reports the path of the error.
        let reported = resource::read::<T>(&spec.to_string(), "spec").err();
        let each = reported.into_iter().flat_map(|errors| errors.0).map(|one| {
            let path = match &*one.path {
                "" => "spec".to_owned(),
                path => format!("spec.{path}"),
            };
            value(path, one)
        });
        all(each).unwrap_or_else(|| SpecError::Value {
            path: "spec".to_owned(),
            message: error.to_string(),
        })
    })
}

/// Maximum number of errors that are reported together.
const MOST_ERRORS: usize = 10;

/// Joins several errors into one with the path of the first; the others follow with their own paths. `None` if there
/// are none.
pub(crate) fn all(errors: impl IntoIterator<Item = SpecError>) -> Option<SpecError> {
    let mut errors = errors.into_iter();
    let first = errors.next()?;
    let SpecError::Value { path, mut message } = first else {
        return Some(first);
    };
    for other in errors.by_ref().take(MOST_ERRORS - 1) {
        message.push_str(&format!("; {other}"));
    }
    let more = errors.count();
    if more > 0 {
        message.push_str(&format!(" (and {more} more errors)"));
    }
    Some(SpecError::Value { path, message })
}

/// Converts an error of the proxy's checks to an error about a field of a resource.
fn value(path: String, reported: Diagnostic) -> SpecError {
    let message = match reported.help {
        Some(help) => format!("{}; {help}", reported.message),
        None => reported.message,
    };
    SpecError::Value { path, message }
}

const ROUTE: &str = "listeners[0].http.virtual_hosts[0].routes[0]";

/// Validates the blocks of a `TrafficPolicy` or `MeshConfig`.
///
/// # Errors
/// If a block is invalid; the error describes all problems.
pub fn blocks(cluster: Option<&raw::Cluster>, route: Option<&raw::Route>) -> Result<(), SpecError> {
    if let Some(field) = derived_fields::set_in(cluster, route).into_iter().next() {
        return Err(SpecError::Foreign { field });
    }
    let cluster = raw::Cluster {
        name: Some("service".to_owned()),
        ..cluster.cloned().unwrap_or_default()
    };
    let mut route = raw::Route {
        cluster: Some("service".to_owned()),
        ..route.cloned().unwrap_or_default()
    };
    unlimited(&mut route);
    let paths = [("clusters[0]", "spec.cluster"), (ROUTE, "spec.route")];
    document(with_routes(vec![route.clone()]), vec![cluster.clone()])
        .map_err(|errors| renamed(errors, &paths))?;
    let unreadable = |path: &str| {
        let path = path.to_owned();
        move |message| SpecError::Value { path, message }
    };
    encoding_check::cluster(&cluster).map_err(unreadable("spec.cluster"))?;
    encoding_check::routes(&table(vec![route])).map_err(unreadable("spec.route"))?;
    Ok(())
}

/// Validates the export of spans of a `MeshConfig`.
///
/// # Errors
/// All errors.
pub fn tracing(tracing: &raw::MeshTracing) -> Result<(), SpecError> {
    let errors = mesh_tracing::check(tracing, "spec").err().into_iter();
    let each = errors.flat_map(|errors| errors.0);
    match all(each.map(|one| value(format!("spec.{}", one.path), one))) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Returns a route table that contains only these routes.
fn table(routes: Vec<raw::Route>) -> raw::RouteTable {
    raw::RouteTable {
        name: Some("policy".to_owned()),
        virtual_hosts: vec![raw::VirtualHost {
            domains: Some(raw::OneOrMany(vec!["*".to_owned()])),
            routes,
            ..raw::VirtualHost::default()
        }],
    }
}

/// Removes the limit that the proxy's default timeout implies: if a resource sets no timeout, an attempt may take any
/// time.
fn unlimited(route: &mut raw::Route) {
    route
        .timeout
        .get_or_insert(raw::TimeSpan(std::time::Duration::ZERO));
}

/// Errors of routes, each with the index of its route if it concerns a single one.
pub type RouteErrors = Vec<(Option<usize>, String)>;

/// Validates routes without an action, or with a direct response.
///
/// # Errors
/// If a route is invalid; the error describes all problems.
pub fn routes(
    mut routes: Vec<raw::Route>,
    normalization: raw::PathNormalization,
) -> Result<(), RouteErrors> {
    for route in &mut routes {
        if route.redirect.is_none() && route.direct_response.is_none() {
            route.cluster = Some("service".to_owned());
            unlimited(route);
        }
    }
    let cluster = raw::Cluster {
        name: Some("service".to_owned()),
        ..raw::Cluster::default()
    };
    let mut listener = with_routes(routes.clone());
    if let Some(http) = &mut listener.http {
        http.path_normalization = Some(normalization);
    }
    if let Err(errors) = document(listener, vec![cluster]) {
        let each = errors.into_iter().map(|error| {
            let text = error.to_string();
            let rest = text.strip_prefix("listeners[0].http.virtual_hosts[0].routes[");
            let found = rest.and_then(|rest| rest.split_once(']'));
            let found = found.and_then(|(at, message)| Some((at.parse().ok()?, message)));
            match found {
                Some((at, message)) => (Some(at), message.trim_start_matches('.').to_owned()),
                None => (None, text),
            }
        });
        return Err(each.collect());
    }
    let Err(why) = encoding_check::routes(&table(routes.clone())) else {
        return Ok(());
    };
    let each = routes.into_iter().enumerate();
    let alone = each.filter_map(|(at, route)| {
        Some((Some(at), encoding_check::routes(&table(vec![route])).err()?))
    });
    let found: RouteErrors = alone.collect();
    match found.is_empty() {
        true => Err(vec![(None, why)]),
        false => Err(found),
    }
}

/// Validates the rules of an `AuthorizationPolicy`.
///
/// # Errors
/// If a rule is invalid; the error describes all problems.
pub fn rules(rules: &[raw::AuthorizationRule]) -> Result<(), SpecError> {
    let answer = raw::Route {
        direct_response: Some(raw::DirectResponse {
            status: Some(200),
            ..raw::DirectResponse::default()
        }),
        ..raw::Route::default()
    };
    let listener = raw::Listener {
        tls: Some(raw::Short(raw::DownstreamTls {
            mesh: Some(raw::MeshMode::Strict),
            ..raw::DownstreamTls::default()
        })),
        authorization: Some(raw::Authorization {
            rules: rules.to_vec(),
            ..raw::Authorization::default()
        }),
        ..with_routes(vec![answer])
    };
    let paths = [("listeners[0].authorization", "spec")];
    document(listener, Vec::new()).map_err(|errors| renamed(errors, &paths))?;
    recorded_rules(rules)
}

/// Validates rules that an earlier version of this controller accepted: they stay in force if proxies can decode them.
///
/// # Errors
/// If proxies cannot.
pub fn recorded_rules(rules: &[raw::AuthorizationRule]) -> Result<(), SpecError> {
    let inbound = maglor_xds::Inbound {
        tls: Some(raw::MeshMode::Strict),
        authorization: Some(raw::Authorization {
            rules: rules.to_vec(),
            ..raw::Authorization::default()
        }),
        ..maglor_xds::Inbound::default()
    };
    encoding_check::inbound("policy", &inbound, &[])
        .map(drop)
        .map_err(|message| SpecError::Value {
            path: "spec.rules".to_owned(),
            message,
        })
}

fn with_routes(routes: Vec<raw::Route>) -> raw::Listener {
    raw::Listener {
        name: Some("policy".to_owned()),
        address: Some("127.0.0.1:0".to_owned()),
        http: Some(raw::Http {
            virtual_hosts: vec![raw::VirtualHost {
                domains: Some(raw::OneOrMany(vec!["*".to_owned()])),
                routes,
                ..raw::VirtualHost::default()
            }],
            ..raw::Http::default()
        }),
        ..raw::Listener::default()
    }
}

fn document(listener: raw::Listener, clusters: Vec<raw::Cluster>) -> Result<(), Vec<SpecError>> {
    let file = |name: &str| Some(format!("{name}.pem"));
    let document = raw::Document {
        listeners: vec![listener],
        clusters,
        identity: Some(raw::Identity {
            certificate: file("certificate"),
            private_key: file("key"),
            trust_bundle: file("bundle"),
            ..raw::Identity::default()
        }),
        ..raw::Document::default()
    };
    let yaml = document.to_yaml().map_err(|error| {
        vec![SpecError::Value {
            path: "spec".to_owned(),
            message: error.to_string(),
        }]
    })?;
    let Err(errors) = maglor_config::parse(&yaml, "spec") else {
        return Ok(());
    };
    let is_error = |one: &Diagnostic| one.severity == maglor_config::Severity::Error;
    let found: Vec<SpecError> = errors
        .0
        .into_iter()
        .filter(is_error)
        .map(|one| value(one.path.clone(), one))
        .collect();
    match found.is_empty() {
        true => Ok(()),
        false => Err(found),
    }
}

/// Joins errors into one, and replaces the beginnings of their paths.
fn renamed(errors: Vec<SpecError>, from: &[(&str, &str)]) -> SpecError {
    let renamed = errors.into_iter().map(|error| match error {
        SpecError::Value { mut path, message } => {
            for (from, to) in from {
                path = path.replace(from, to);
            }
            SpecError::Value { path, message }
        }
        foreign @ SpecError::Foreign { .. } => foreign,
    });
    all(renamed).unwrap_or_else(|| SpecError::Value {
        path: "spec".to_owned(),
        message: "the proxy would reject the configuration".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::TrafficPolicySpec;

    fn cluster(text: &str) -> raw::Cluster {
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn what_the_proxy_takes_is_taken() {
        let cluster = cluster(
            "{policy: maglev, limits: {max_requests: 10}, outlier_ejection: {interval: 1s}}",
        );
        let route: raw::Route = serde_yaml::from_str(
            "{timeout: 2s, retry: {attempts: 3, retry_on: [5xx]}, hash_policy: [{header: x-user}]}",
        )
        .unwrap();
        assert_eq!(blocks(Some(&cluster), Some(&route)), Ok(()));
        assert_eq!(blocks(None, None), Ok(()));
    }

    #[test]
    fn what_is_not_of_its_type_is_named_with_its_path() {
        let read = |text: &str| {
            let object: Value = serde_yaml::from_str(text).unwrap();
            spec::<TrafficPolicySpec>(&object).unwrap_err().to_string()
        };
        for (text, expected) in [
            (
                "spec: {cluster: {limits: {max_requests: -1}}}",
                "spec.cluster.limits.max_requests: ",
            ),
            (
                "spec: {cluster: {limits: {max_request: 1}}}",
                "did you mean `max_requests`?",
            ),
            (
                "spec: {route: {retry: {retriable_status_codes: x}}}",
                "spec.route.retry.retriable_status_codes",
            ),
            (
                "spec: {targetRefs: [{kind: Service, name: a}, {nam: a}]}",
                "spec.targetRefs[1]",
            ),
            ("spec: {bogus: 1}", "bogus"),
            ("spec: 5", "spec: "),
        ] {
            let error = read(text);
            assert!(
                error.starts_with("spec") && error.contains(expected),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn what_it_refuses_is_named_with_the_resources_path() {
        let error = blocks(Some(&cluster("{limits: {max_requests: 0}}")), None).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("spec.cluster.limits.max_requests: "),
            "{text}"
        );
        let error = blocks(Some(&cluster("{name: x}")), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.cluster.name is derived from the Service and its routes; remove the field"
        );
        let route: raw::Route = serde_yaml::from_str("{retry: {attempts: 99}}").unwrap();
        let text = blocks(None, Some(&route)).unwrap_err().to_string();
        assert!(text.starts_with("spec.route.retry.attempts: "), "{text}");
    }

    #[test]
    fn rules_are_checked() {
        let read = |text: &str| serde_yaml::from_str::<Vec<raw::AuthorizationRule>>(text).unwrap();
        assert_eq!(rules(&read("[{from: [{namespaces: [shop]}]}]")), Ok(()));
        let ports = read("[{to: [{ports: [8080, '9090']}]}]");
        let list = ports[0].to[0].ports.as_ref().map(|ports| ports.0.clone());
        assert_eq!(list, Some(vec!["8080".to_owned(), "9090".to_owned()]));
        assert_eq!(rules(&ports), Ok(()));
        let text = rules(&read("[{from: [{networks: [nowhere]}]}]"))
            .unwrap_err()
            .to_string();
        assert!(text.starts_with("spec.rules[0].from[0].networks"), "{text}");
    }
}
