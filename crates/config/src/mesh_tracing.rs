//! The export of spans of a mesh, merged into a configuration: `tracing`, and the cluster of the collector.

use crate::resource::{self, PARTS};
use crate::{Diagnostic, Errors, check, raw};

/// The name of the cluster of the collector.
const CLUSTER: &str = "tracing-collector";

/// Adds the export to a configuration, unless that has one of its own.
pub(crate) fn add(tracing: &raw::MeshTracing, document: &mut raw::Document) {
    if document.tracing.is_some() {
        return;
    }
    let raw::MeshTracing {
        collector,
        protocol,
        path,
        service_name,
        attributes,
        sampling,
    } = tracing.clone();
    document.tracing = Some(raw::Tracing {
        cluster: Some(CLUSTER.to_owned()),
        protocol,
        path,
        service_name,
        attributes,
        sampling,
    });
    let endpoint = raw::Endpoint {
        address: collector,
        ..raw::Endpoint::default()
    };
    document.clusters.push(raw::Cluster {
        name: Some(CLUSTER.to_owned()),
        endpoints: vec![raw::Short(endpoint)],
        ..raw::Cluster::default()
    });
}

/// Validates it by the rules of a file; paths of errors begin with `tracing`. `name` is the name of the text in messages.
///
/// # Errors
/// All errors.
pub fn check(tracing: &raw::MeshTracing, name: &str) -> Result<(), Errors> {
    let mut document = raw::Document::default();
    add(tracing, &mut document);
    let judged = resource::judge(&document, PARTS, name, |at, scope| {
        let cluster = &document.clusters[0];
        let at_cluster = at.field("clusters");
        check::one_cluster(cluster, &at_cluster.index(0), scope)?;
        check::tracing(&document, at, scope)
    });
    judged.map(drop).map_err(|Errors(errors)| {
        let named = |error: Diagnostic| Diagnostic {
            path: match error.path.starts_with("tracing.") {
                true => error.path,
                false => "tracing.collector".to_owned(),
            },
            ..error
        };
        Errors(errors.into_iter().map(named).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(yaml: &str) -> Vec<String> {
        let tracing: raw::MeshTracing = serde_yaml::from_str(yaml).unwrap();
        let errors = check(&tracing, "test").err().map(|Errors(errors)| errors);
        errors
            .into_iter()
            .flatten()
            .map(|error| error.path)
            .collect()
    }

    #[test]
    fn each_field_is_validated() {
        assert_eq!(
            paths("{collector: 'otel.monitoring:4317', sampling: {percent: 5}}"),
            [""; 0]
        );
        assert_eq!(paths("{collector: otel}"), ["tracing.collector"]);
        assert_eq!(paths("{protocol: http}"), ["tracing.collector"]);
        assert_eq!(
            paths(
                "{collector: 'otel:1', path: /x, service_name: '', sampling: {slowest_percent: 200}}"
            ),
            [
                "tracing.path",
                "tracing.service_name",
                "tracing.sampling.slowest_percent"
            ]
        );
    }
}
