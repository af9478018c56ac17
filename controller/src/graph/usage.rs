//! CPU and memory in use, from the metrics API (`metrics.k8s.io/v1beta1`), where something serves it
//! (metrics-server does). Without, nothing is known of them.
//!
//! The kubelets know the same, but the way there through the API server (`nodes/proxy`) is a right to run
//! anything in any pod: the controller does not ask for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use maglor_inject::quantity;
use serde_json::Value;

use super::{Graphs, Usage};
use crate::index::facts::Key;

/// As often as metrics-server measures: what is older is a burst that is answered later.
const PERIOD: Duration = Duration::from_secs(15);
/// Where nobody serves it, it is looked for again.
const ABSENT: Duration = Duration::from_secs(300);

/// Asks again and again; never returns.
pub(crate) async fn follow(client: Client, graphs: Arc<Graphs>) {
    let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", "PodMetrics");
    let resource = ApiResource::from_gvk_with_plural(&kind, "pods");
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    loop {
        let rest = match api.list(&ListParams::default()).await {
            Ok(list) => {
                graphs.set_usage(list.items.iter().filter_map(used).collect());
                PERIOD
            }
            Err(error) => {
                tracing::debug!(%error, "no metrics API: CPU and memory in use are not known");
                graphs.set_usage(HashMap::new());
                ABSENT
            }
        };
        tokio::time::sleep(rest).await;
    }
}

/// What a pod uses: all its containers together, and each of which both is known.
fn used(pod: &DynamicObject) -> Option<(Key, Usage)> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let key = Key::new(namespace, pod.metadata.name.as_deref()?);
    let containers = pod.data.get("containers")?.as_array()?;
    let amount = |container: &Value, name: &str| {
        let amount = container.pointer(&format!("/usage/{name}"));
        quantity(amount.and_then(Value::as_str)?)
    };
    let mut usage = Usage::default();
    for container in containers {
        let cpu = amount(container, "cpu").map(|cores| cores * 1000.0);
        let memory = amount(container, "memory").map(|bytes| bytes / 1_048_576.0);
        usage.cpu_millis += cpu.unwrap_or(0.0);
        usage.memory_mib += memory.unwrap_or(0.0);
        let name = container.get("name").and_then(Value::as_str);
        if let (Some(name), Some(cpu), Some(memory)) = (name, cpu, memory) {
            usage.containers.push((name.into(), cpu, memory));
        }
    }
    Some((key, usage))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_add_up_and_are_known_each() {
        let pod = json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
            "metadata": {"name": "web-0", "namespace": "shop"},
            "containers": [
                {"name": "web", "usage": {"cpu": "12500000n", "memory": "20480Ki"}},
                {"name": "maglor-proxy", "usage": {"cpu": "2500u", "memory": "6Mi"}},
                {"name": "odd", "usage": {"cpu": "much"}},
            ],
        });
        let pod: DynamicObject = serde_json::from_value(pod).unwrap();
        let (key, usage) = used(&pod).unwrap();
        assert_eq!(key, Key::new("shop", "web-0"));
        assert!((usage.cpu_millis - 15.0).abs() < 1e-9, "{usage:?}");
        assert!((usage.memory_mib - 26.0).abs() < 1e-9, "{usage:?}");
        let names: Vec<&str> = usage.containers.iter().map(|one| &*one.0).collect();
        assert_eq!(names, ["web", "maglor-proxy"], "of one too little is known");
        let (_, cpu, memory) = usage.containers[0];
        assert!((cpu - 12.5).abs() < 1e-9 && (memory - 20.0).abs() < 1e-9);
    }
}
