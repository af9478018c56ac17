//! Checks pods: whether their proxies are connected and of this version, which pods lack a proxy,
//! and which clients strict mTLS rejects.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::ListParams;
use maglor_config::raw::MeshMode;
use maglor_controller::crd::{MESH_CONFIG_NAME, MeshConfig};
use maglor_telemetry::scrape::Meter;

use super::report::{Advice, Report, some_of};
use crate::live::LiveError;
use crate::live::access::{Cluster, Instance, Pods, asked, has_proxy, workload};

const PROXIES: &str = "proxies";
const PODS: &str = "pods";
/// The label of namespaces, and label or annotation of pods, that enables injection.
const INJECT: &str = maglor_manifests::inject::INJECT;
/// Namespaces without injection.
const SYSTEM: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];
/// Remaining validity in seconds below which a certificate should already have been renewed.
const SOON: f64 = 3600.0;

/// Proxies with errors, by error.
#[derive(Debug, Default)]
struct Wrong {
    silent: Vec<String>,
    unconnected: Vec<String>,
    expiring: Vec<String>,
    unusable: Vec<String>,
    versions: BTreeMap<String, Vec<String>>,
}

pub(super) async fn check(cluster: &Cluster, report: &mut Report) -> Result<(), LiveError> {
    let everywhere = Pods {
        all_namespaces: true,
        ..Pods::default()
    };
    proxies(&cluster.proxies(&everywhere, None).await?, report).await;
    pods(cluster, report).await
}

/// Checks the proxies of these pods.
pub(super) async fn proxies(all: &[Instance], report: &mut Report) {
    let mut wrong = Wrong::default();
    for proxy in all {
        if look(proxy, &mut wrong).await.is_err() {
            wrong.silent.push(name(proxy));
        }
    }
    wrong.add(all.len(), report);
}

fn name(proxy: &Instance) -> String {
    match &proxy.namespace {
        Some(namespace) => format!("{namespace}/{}", proxy.name),
        None => proxy.name.clone(),
    }
}

async fn look(proxy: &Instance, wrong: &mut Wrong) -> Result<(), LiveError> {
    let page = proxy.admin.get("/metrics").await?;
    let page = String::from_utf8_lossy(&page);
    let samples = Meter::default().grown(&page);
    let value = |name: &str| {
        let found = samples.iter().find(|sample| sample.name == name);
        found.map(|sample| sample.value)
    };
    let version = samples
        .iter()
        .find(|sample| sample.name == "maglor_build_info");
    let version = version.and_then(|sample| sample.label("version"));
    let version = version.unwrap_or("unknown").to_owned();
    wrong.versions.entry(version).or_default().push(name(proxy));
    if value("maglor_xds_connected") != Some(1.0) {
        wrong.unconnected.push(name(proxy));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0.0, |now| now.as_secs_f64());
    let expires = value("maglor_identity_expiry_seconds").filter(|at| *at > 0.0);
    // Proxies of earlier versions do not report whether their identity is usable.
    let is_unusable = value("maglor_identity_usable") == Some(0.0);
    match expires {
        Some(_) if is_unusable => wrong.unusable.push(name(proxy)),
        Some(at) if at < now + SOON => wrong.expiring.push(name(proxy)),
        Some(_) | None => {}
    }
    Ok(())
}

impl Wrong {
    fn add(&self, count: usize, report: &mut Report) {
        let lists = [
            &self.silent,
            &self.unconnected,
            &self.expiring,
            &self.unusable,
        ];
        if lists.iter().all(|list| list.is_empty()) {
            report.good(
                PROXIES,
                format!("{count} proxies respond and are connected"),
            );
        }
        let mut add = |list: &[String], what: &str, hint: &str, document| {
            if !list.is_empty() {
                let what = format!("{what}: {}", some_of(list));
                report.bad(PROXIES, what, Advice(hint.to_owned(), document));
            }
        };
        add(
            &self.silent,
            "no response",
            "kubectl logs POD -c maglor-proxy",
            "sidecar.md",
        );
        add(
            &self.unconnected,
            "not connected to the controller",
            "the proxies keep their last configuration; see the log of the proxy",
            "xds.md#the-proxy-as-a-client",
        );
        add(
            &self.expiring,
            "the certificate expires within the hour, or has expired",
            "see the log of the proxy for the reason why it is not renewed",
            "identity.md",
        );
        add(
            &self.unusable,
            "the certificate has expired or its root is no longer trusted: peers reject these proxies",
            "see /ready of the proxy's admin port for the reason why it is not renewed",
            "identity.md#certified-by-the-control-plane",
        );
        let own = env!("CARGO_PKG_VERSION");
        for (version, list) in &self.versions {
            if version != own {
                report.warning(
                    PROXIES,
                    format!("version {version} instead of {own}: {}", some_of(list)),
                    Advice(
                        "run kubectl rollout restart to update the proxies".to_owned(),
                        "sidecar.md",
                    ),
                );
            }
        }
    }
}

async fn pods(cluster: &Cluster, report: &mut Report) -> Result<(), LiveError> {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let namespaces = namespaces.list(&ListParams::default()).await;
    let namespaces = namespaces.map_err(asked("namespaces"))?.items;
    let injected = |namespace: &Namespace| {
        let labels = namespace.metadata.labels.as_ref();
        let value = labels.and_then(|labels| labels.get(INJECT));
        value.is_some_and(|value| says(value, true))
    };
    let injected: Vec<String> = namespaces
        .iter()
        .filter(|namespace| injected(namespace))
        .filter_map(|namespace| namespace.metadata.name.clone())
        .collect();
    let api: Api<Pod> = Api::all(cluster.client.clone());
    let list = api.list(&ListParams::default()).await;
    let list = list.map_err(asked("pods"))?.items;
    let mut missing = Vec::new();
    let mut others = Vec::new();
    for pod in list.iter().filter(|pod| could_have_a_proxy(cluster, pod)) {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let name = workload(pod).or_else(|| pod.metadata.name.clone());
        let name = format!("{namespace}/{}", name.unwrap_or_default());
        let wanted = wants(pod).unwrap_or_else(|| injected.contains(&namespace));
        let list = if wanted { &mut missing } else { &mut others };
        if !list.contains(&name) {
            list.push(name);
        }
    }
    match missing.is_empty() {
        true => report.good(PODS, "all pods with injection enabled have a proxy"),
        false => report.warning(
            PODS,
            format!(
                "no proxy although injection is enabled: {}",
                some_of(&missing)
            ),
            Advice(
                "the pods were created before the webhook, or while it was unavailable: run kubectl rollout restart"
                    .to_owned(),
                "injection.md",
            ),
        ),
    }
    strict(cluster, &[missing, others].concat(), report).await
}

/// Reports clients that can no longer call workloads of the mesh.
async fn strict(
    cluster: &Cluster,
    without: &[String],
    report: &mut Report,
) -> Result<(), LiveError> {
    let api: Api<MeshConfig> = Api::all(cluster.client.clone());
    let config = match api.get_opt(MESH_CONFIG_NAME).await {
        Ok(config) => config,
        // The missing definition has already been reported.
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        Err(error) => return Err(asked("the MeshConfig")(error)),
    };
    let mtls = config.and_then(|config| config.spec.mtls);
    match (mtls, without.is_empty()) {
        (Some(MeshMode::Strict), true) => {
            report.good(PODS, "mTLS is strict, and all pods have a proxy");
        }
        (Some(MeshMode::Strict), false) => report.warning(
            PODS,
            format!(
                "mTLS is strict: these pods cannot call the mesh: {}",
                some_of(without)
            ),
            Advice(
                "inject a proxy into these pods, or set the annotation maglor.dev/mtls of the namespace"
                    .to_owned(),
                "policies.md",
            ),
        ),
        (_, _) => report.good(
            PODS,
            "mTLS is permissive: clients outside the mesh may call workloads of the mesh",
        ),
    }
    Ok(())
}

fn says(value: &str, wanted: bool) -> bool {
    match wanted {
        true => matches!(value, "enabled" | "true"),
        false => matches!(value, "disabled" | "false"),
    }
}

/// Returns the injection setting of a pod as the webhook reads it; `None` if it has none. `disabled` in a label or
/// annotation takes precedence. An annotation alone enables nothing, because the API server does not call the webhook
/// for such a pod.
fn wants(pod: &Pod) -> Option<bool> {
    let says = |map: Option<&BTreeMap<String, String>>| {
        let value = map?.get(INJECT)?;
        let mut words = [true, false].into_iter();
        words.find(|wanted| says(value, *wanted))
    };
    let label = says(pod.metadata.labels.as_ref());
    let annotation = says(pod.metadata.annotations.as_ref());
    match annotation {
        Some(false) => Some(false),
        Some(true) | None => label,
    }
}

/// Returns whether a pod runs without a proxy and is not part of the system.
fn could_have_a_proxy(cluster: &Cluster, pod: &Pod) -> bool {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let host = pod.spec.as_ref().and_then(|spec| spec.host_network);
    phase == Some("Running")
        && pod.metadata.deletion_timestamp.is_none()
        && host != Some(true)
        && !has_proxy(pod)
        && namespace != cluster.mesh_namespace
        && !SYSTEM.contains(&namespace)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_speaks_for_itself() {
        let pod = |labels, annotations| -> Pod {
            let meta = json!({"labels": labels, "annotations": annotations});
            serde_json::from_value(json!({"metadata": meta})).unwrap()
        };
        assert_eq!(wants(&pod(json!({}), json!({}))), None);
        assert_eq!(
            wants(&pod(json!({INJECT: "enabled"}), json!({}))),
            Some(true)
        );
        assert_eq!(
            wants(&pod(json!({}), json!({INJECT: "disabled"}))),
            Some(false)
        );
        assert_eq!(wants(&pod(json!({INJECT: "odd"}), json!({}))), None);
        for (label, annotation, expected) in [
            ("enabled", "disabled", Some(false)),
            ("disabled", "enabled", Some(false)),
            ("true", "true", Some(true)),
        ] {
            let pod = pod(json!({INJECT: label}), json!({INJECT: annotation}));
            assert_eq!(wants(&pod), expected, "{label} {annotation}");
        }
        let alone = pod(json!({}), json!({INJECT: "enabled"}));
        assert_eq!(wants(&alone), None, "no check is needed");
    }
}
