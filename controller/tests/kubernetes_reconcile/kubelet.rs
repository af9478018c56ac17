//! A node that exists only in the API: its pods are ready as soon as they are assigned to it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

/// The name of the node.
pub(crate) const NODE: &str = "simulated";
/// Interval of the node's heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Runs the node; never returns.
pub(crate) async fn run(client: Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let room = json!({"cpu": "32", "memory": "64Gi", "pods": "1000"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    let node = serde_json::from_value(node).unwrap();
    nodes.create(&Default::default(), &node).await.unwrap();
    let alive = async {
        loop {
            let now = jiff::Timestamp::now().to_string();
            let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": now,
                "reason": "Simulated", "message": ""});
            let status = json!({"conditions": [ready], "capacity": room, "allocatable": room});
            let patch = Patch::Strategic(json!({"status": status}));
            let _ = nodes
                .patch_status(NODE, &PatchParams::default(), &patch)
                .await;
            tokio::time::sleep(HEARTBEAT).await;
        }
    };
    tokio::join!(alive, pods(client));
}

async fn pods(client: Client) {
    let next = AtomicU8::new(1);
    let own = watcher::Config::default().fields(&format!("spec.nodeName={NODE}"));
    let mut stream = Box::pin(watcher(Api::<Pod>::all(client.clone()), own).default_backoff());
    while let Some(event) = stream.next().await {
        let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event else {
            continue;
        };
        let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            let now = DeleteParams::default().grace_period(0);
            let _ = pods.delete(&name, &now).await;
        } else if pod
            .status
            .as_ref()
            .is_none_or(|status| status.pod_ip.is_none())
        {
            let address = format!("10.231.200.{}", next.fetch_add(1, Ordering::Relaxed));
            let status = Patch::Merge(json!({"status": running(&address)}));
            let _ = pods
                .patch_status(&name, &PatchParams::default(), &status)
                .await;
        }
    }
}

fn running(address: &str) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    let conditions = ["Initialized", "ContainersReady", "Ready", "PodScheduled"].map(condition);
    json!({
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": conditions,
    })
}
