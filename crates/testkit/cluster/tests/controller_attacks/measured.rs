//! Service of the controller during the attack: admissions, pushes, memory, the Lease.

use std::fs;
use std::time::Duration;

use maglor_testkit::cluster::{Cluster, Forward, Kubectl};
use serde_json::Value;

use crate::support::api_server::ApiServer;
use crate::support::installed::until;

/// Pods that are admitted, one after another.
pub(crate) const ADMISSIONS: usize = 100;
/// Policies that are changed.
pub(crate) const PUSHES: usize = 5;

const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "namespace": "shop"},
    "spec": {"containers": [{"name": "a", "image": "a"}]}}"#;

/// Durations, the shortest first.
pub(crate) struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The given percentile of the durations.
    pub(crate) fn percentile(&self, share: usize) -> Duration {
        self.0[(self.0.len() * share).div_ceil(100) - 1]
    }
}

/// Pods that the API server asks the webhook about, over one connection to it. All are admitted, with a sidecar.
pub(crate) fn admissions(kubectl: &Kubectl) -> Times {
    let server = ApiServer::of(kubectl);
    let create = |manager: &str, more: &[&str]| {
        let pods = format!("/api/v1/namespaces/shop/pods?dryRun=All&fieldManager={manager}");
        let post = [
            "--max-time",
            "60",
            "-H",
            "content-type: application/json",
            "-d",
            POD,
        ];
        server.curl(&pods, &[&post[..], more].concat())
    };
    let created = create("one", &[]);
    assert!(created.contains("maglor-proxy"), "{created}");
    let each = ["-o", "/dev/null", "-w", "%{http_code} %{time_total}\n"];
    let lines = create(&format!("n[1-{ADMISSIONS}]"), &each);
    let time = |line: &str| {
        let (status, seconds) = line.split_once(' ').unwrap();
        assert_eq!(status, "201", "{lines}");
        Duration::from_secs_f64(seconds.parse().unwrap())
    };
    let times: Vec<_> = lines.lines().map(time).collect();
    assert_eq!(times.len(), ADMISSIONS);
    Times::new(times)
}

/// Changes of a policy, each of which all proxies that use it have acknowledged: by the controller's receipts, from
/// when it knew the change.
pub(crate) fn pushes(kubectl: &Kubectl, admin: &Forward) -> Times {
    let mut took = Vec::new();
    for _ in 0..PUSHES {
        let before = newest(admin).0;
        // Different from the last one, regardless of earlier measurements.
        let limit = 1000 + before % 1000;
        let policy = format!(
            "{{apiVersion: maglor.dev/v1alpha1, kind: TrafficPolicy, metadata: {{name: details, namespace: shop}}, \
             spec: {{targetRefs: [{{name: details}}], cluster: {{limits: {{max_requests: {limit}}}}}}}}}"
        );
        kubectl.apply(&policy).unwrap();
        let mut pushed = None;
        until("a push", || {
            let (number, time) = newest(admin);
            pushed = time.filter(|_| number > before);
            pushed.is_some()
        });
        took.extend(pushed);
    }
    Times::new(took)
}

/// The last change of the cluster `details` that has reached all of its clients: its number, and its delay.
fn newest(admin: &Forward) -> (u64, Option<Duration>) {
    let receipts = admin
        .get("/receipts")
        .expect("the admin port answers over loopback");
    let receipts: Value = serde_json::from_str(&receipts).unwrap();
    let receipts = receipts.as_array().into_iter().flatten();
    let done = receipts.filter_map(|receipt| {
        let name = receipt["name"].as_str()?;
        let is_done = name.contains("details.shop") && receipt["complete"] == true;
        is_done.then_some((receipt["change"].as_u64()?, receipt["took_ms"].as_f64()))
    });
    let newest = done.max_by_key(|(number, _)| *number);
    newest.map_or((0, None), |(number, took)| {
        (number, took.map(|took| Duration::from_secs_f64(took / 1e3)))
    })
}

/// Memory of a pod's process: proc_pid_status(5).
pub(crate) struct Memory(u32);

impl Memory {
    pub(crate) fn of(cluster: &Cluster, namespace: &str, pod: &str) -> Self {
        Self(cluster.pod_process(namespace, pod).unwrap())
    }

    /// Forgets the most that it has had.
    pub(crate) fn begin(&self) {
        // proc_pid_clear_refs(5): resets the high water mark.
        fs::write(format!("/proc/{}/clear_refs", self.0), "5").unwrap();
    }

    /// The most that it has had since, in bytes.
    pub(crate) fn most(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<u64>().unwrap() * 1024
    }
}

/// The term of the Lease: its holder, the number of transitions, the time of renewal.
pub(crate) fn lease(kubectl: &Kubectl) -> [String; 3] {
    let lease = kubectl.json(&["get", "lease", "maglor-controller", "-n", "maglor"]);
    let spec = &lease.unwrap()["spec"];
    ["holderIdentity", "leaseTransitions", "renewTime"].map(|name| spec[name].to_string())
}
