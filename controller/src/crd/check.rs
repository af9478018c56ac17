//! Whether what a resource says can be used: the proxy's own checks, with the resource's own paths.

use maglor_config::raw;

use super::traffic_policy::foreign_fields;

/// Why a resource is not used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// A field that Kubernetes or a route decides.
    #[error("spec.{field} is decided by the Service and its routes; remove it")]
    Foreign {
        /// Which one, as `cluster.endpoints`.
        field: String,
    },
    /// A value that the proxy would refuse.
    #[error("{path}: {message}")]
    Value {
        /// Where it stands, as `spec.cluster.limits.max_requests`.
        path: String,
        /// What is wrong with it, and what to write instead.
        message: String,
    },
}

const ROUTE: &str = "listeners[0].http.virtual_hosts[0].routes[0]";

/// Checks the blocks of a `TrafficPolicy` or `MeshConfig`.
///
/// # Errors
/// The first thing that is wrong.
pub fn blocks(cluster: Option<&raw::Cluster>, route: Option<&raw::Route>) -> Result<(), SpecError> {
    if let Some(field) = foreign_fields(cluster, route).into_iter().next() {
        return Err(SpecError::Foreign { field });
    }
    let cluster = raw::Cluster {
        name: Some("service".to_owned()),
        ..cluster.cloned().unwrap_or_default()
    };
    let route = raw::Route {
        cluster: Some("service".to_owned()),
        ..route.cloned().unwrap_or_default()
    };
    let in_spec = |error| match error {
        SpecError::Value { path, message } => SpecError::Value {
            path: path.replace(ROUTE, "spec.route"),
            message,
        },
        other => other,
    };
    document(with_routes(vec![route]), vec![cluster]).map_err(in_spec)
}

/// Checks routes that have no action yet, or answer by themselves.
///
/// # Errors
/// The first thing that is wrong, and with which of them.
pub fn routes(mut routes: Vec<raw::Route>) -> Result<(), (Option<usize>, String)> {
    for route in &mut routes {
        if route.redirect.is_none() && route.direct_response.is_none() {
            route.cluster = Some("service".to_owned());
        }
    }
    let cluster = raw::Cluster {
        name: Some("service".to_owned()),
        ..raw::Cluster::default()
    };
    let Err(error) = document(with_routes(routes), vec![cluster]) else {
        return Ok(());
    };
    let text = error.to_string();
    let rest = text.strip_prefix("listeners[0].http.virtual_hosts[0].routes[");
    let Some((at, message)) = rest.and_then(|rest| rest.split_once(']')) else {
        return Err((None, text));
    };
    Err((at.parse().ok(), message.trim_start_matches('.').to_owned()))
}

/// Checks the rules of an `AuthorizationPolicy`.
///
/// # Errors
/// The first thing that is wrong.
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
    document(listener, Vec::new())
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

fn document(listener: raw::Listener, clusters: Vec<raw::Cluster>) -> Result<(), SpecError> {
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
    let yaml = document.to_yaml().map_err(|error| SpecError::Value {
        path: "spec".to_owned(),
        message: error.to_string(),
    })?;
    let Err(errors) = maglor_config::parse(&yaml, "spec") else {
        return Ok(());
    };
    let Some(first) = errors.0.into_iter().next() else {
        return Ok(());
    };
    let path = first
        .path
        .replace("clusters[0]", "spec.cluster")
        .replace("listeners[0].authorization", "spec");
    let message = match first.help {
        Some(help) => format!("{}; {help}", first.message),
        None => first.message,
    };
    Err(SpecError::Value { path, message })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "spec.cluster.name is decided by the Service and its routes; remove it"
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
