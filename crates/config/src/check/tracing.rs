//! Validates the export of spans.

use std::collections::BTreeMap;

use super::{Scope, rule};
use crate::raw;
use crate::report::At;
use crate::tracing::{OtlpTransport, TraceSampling, Tracing};

const DEFAULT_PATH: &str = "/v1/traces";
const DEFAULT_SERVICE: &str = "maglor-proxy";
/// The attribute that has a field of its own.
const SERVICE_NAME: &str = "service.name";
/// The longest key or value of an attribute in bytes.
const LONGEST: usize = 255;

/// Validates the export of spans of a configuration.
pub(crate) fn tracing(raw: &raw::Document, at: &At<'_>, scope: &Scope<'_>) -> Option<Tracing> {
    let settings = raw.tracing.as_ref()?;
    let at = at.field("tracing");
    match &settings.cluster {
        None => at.missing("cluster", "set the cluster of the collectors"),
        Some(name) => drop(scope.resolve_cluster(name, &at.field("cluster"))),
    }
    Some(Tracing {
        cluster: settings.cluster.as_deref().unwrap_or_default().into(),
        transport: transport(settings, &at),
        resource: resource(settings, raw.control_plane.as_ref(), &at),
        sampling: sampling(settings.sampling.as_ref(), &at.field("sampling")),
    })
}

fn transport(settings: &raw::Tracing, at: &At<'_>) -> OtlpTransport {
    let path = settings.path.as_deref();
    match settings.protocol {
        Some(raw::OtlpProtocol::Http) => {
            let path = path.unwrap_or(DEFAULT_PATH);
            let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
            if !path.starts_with('/') || !path.bytes().all(is_plain) {
                let help = format!("write the path of a URL, as in `{DEFAULT_PATH}`");
                at.field("path").error("this is not a path").help(help);
            }
            OtlpTransport::Http {
                path: path.to_owned(),
            }
        }
        Some(raw::OtlpProtocol::Grpc) | None => {
            if path.is_some() {
                at.field("path")
                    .error("`path` is that of `protocol: http`")
                    .on_key()
                    .help("add `protocol: http`, or remove `path`");
            }
            OtlpTransport::Grpc
        }
    }
}

/// Returns the attributes: those of the node first, which the file may replace.
fn resource(
    settings: &raw::Tracing,
    control_plane: Option<&raw::ControlPlane>,
    at: &At<'_>,
) -> BTreeMap<String, String> {
    let mut resource = BTreeMap::new();
    let mut set = |key: &str, value: &str| drop(resource.insert(key.to_owned(), value.to_owned()));
    let node = control_plane.and_then(|one| one.node.as_ref());
    if let Some(id) = node.and_then(|node| node.id.as_deref()) {
        set("service.instance.id", id);
        if let Some((namespace, pod)) = id.split_once('/') {
            set("k8s.namespace.name", namespace);
            set("k8s.pod.name", pod);
        }
    }
    let attributes = at.field("attributes");
    for (key, value) in &settings.attributes {
        let at = attributes.field(key);
        if key == SERVICE_NAME {
            at.error("`service.name` cannot be set as an attribute")
                .on_key()
                .help("write `service_name: NAME` in `tracing`");
        } else if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            at.error("the key is empty, or has characters other than visible ASCII")
                .on_key();
        }
        limit(key, &at);
        limit(value, &at);
        set(key, value);
    }
    let service = settings.service_name.as_deref().unwrap_or(DEFAULT_SERVICE);
    let at = at.field("service_name");
    if service.is_empty() {
        at.error("the name is empty");
    }
    limit(service, &at);
    set(SERVICE_NAME, service);
    resource
}

fn limit(text: &str, at: &At<'_>) {
    if text.len() > LONGEST {
        at.error(format!("this has more than {LONGEST} bytes"));
    }
}

fn sampling(raw: Option<&raw::TraceSampling>, at: &At<'_>) -> TraceSampling {
    let raw = raw.cloned().unwrap_or_default();
    let percent = |value, name: &str| rule::percent(value, &at.field(name), 1.0);
    TraceSampling {
        share: percent(raw.percent, "percent"),
        parent_based: raw.parent_based.unwrap_or(true),
        errors: raw.errors.unwrap_or(true),
        slowest: percent(raw.slowest_percent, "slowest_percent"),
    }
}
