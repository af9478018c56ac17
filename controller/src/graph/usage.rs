//! Reads CPU and memory usage from the metrics API (`metrics.k8s.io/v1beta1`), if it is served (by metrics-server,
//! for example). Otherwise usage is unknown.
//!
//! The kubelets have the same data, but access to them through the API server (`nodes/proxy`) includes the permission
//! to execute commands in any pod, which the controller should not have.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use maglor_manifests::inject::quantity;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::{Reading, Usage, UsageSource};
use crate::index::facts::Key;

/// Age up to which values are used without another request, the same as the interval of metrics-server's measurements,
/// so that bursts are handled soon.
const FRESH: Duration = Duration::from_secs(15);
/// Age up to which the last values stay valid after an error: a restart of metrics-server or of the API server does
/// not mean that the usage has changed.
const KEPT: Duration = Duration::from_secs(60);
/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(4);

/// Reads the usage when it is needed, since the metrics API has no watches.
pub(crate) struct Source {
    api: Api<DynamicObject>,
    readings: Mutex<Readings>,
}

impl Source {
    /// Reads usage with this client.
    pub(crate) fn new(client: Client) -> Self {
        let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", "PodMetrics");
        let resource = ApiResource::from_gvk_with_plural(&kind, "pods");
        Self {
            api: Api::all_with(client, &resource),
            readings: Mutex::default(),
        }
    }

    /// Requests new values, unless the last request was made less than [`FRESH`] ago.
    async fn request(&self) -> Option<HashMap<Key, Usage>> {
        if !self.readings().begin(Instant::now()) {
            return None;
        }
        let listed = timeout(PATIENCE, self.api.list(&ListParams::default())).await;
        let answer = listed.unwrap_or_else(|late| Err(kube::Error::Service(late.into())));
        let answer = answer.map(|list| list.items.iter().filter_map(used).collect());
        self.readings().after(answer, Instant::now())
    }

    fn readings(&self) -> MutexGuard<'_, Readings> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UsageSource for Source {
    fn read(&self) -> Reading<'_> {
        Box::pin(self.request())
    }

    fn is_outdated(&self) -> bool {
        self.readings().expire(Instant::now())
    }
}

/// The usage kept between responses.
#[derive(Default)]
struct Readings {
    /// The time of the last request.
    asked: Option<Instant>,
    /// When the current values were read; `None` if there are none.
    read: Option<Instant>,
}

impl Readings {
    /// Returns whether to request new values, which the caller then does.
    fn begin(&mut self, now: Instant) -> bool {
        let is_due = |asked: Instant| now.saturating_duration_since(asked) >= FRESH;
        let due = self.asked.is_none_or(is_due);
        if due {
            self.asked = Some(now);
        }
        due
    }

    /// Drops values that are older than [`KEPT`]. Returns whether they were.
    fn expire(&mut self, now: Instant) -> bool {
        let old = |read: &mut Instant| now.saturating_duration_since(*read) > KEPT;
        self.read.take_if(old).is_some()
    }

    /// Returns the new values after a response; `None` if they have not changed.
    fn after(
        &mut self,
        answer: Result<HashMap<Key, Usage>, kube::Error>,
        now: Instant,
    ) -> Option<HashMap<Key, Usage>> {
        let error = match answer {
            Ok(usage) => {
                self.read = Some(now);
                return Some(usage);
            }
            Err(error) => error,
        };
        let absent = matches!(&error, kube::Error::Api(status) if status.code == 404);
        if self.expire(now) || (absent && self.read.take().is_some()) {
            tracing::warn!(%error, "pod metrics unavailable; the graph has no CPU and memory usage");
            return Some(HashMap::new());
        }
        tracing::debug!(%error, "cannot read pod metrics; keeping the last values");
        None
    }
}

/// Returns the usage of a pod: the sum of its containers, and each container for which both values are known.
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
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    fn refused(code: u16) -> Result<HashMap<Key, Usage>, kube::Error> {
        let status = Status::failure("storage is (re)initializing", "TooManyRequests");
        Err(kube::Error::Api(Box::new(status.with_code(code))))
    }

    /// A CustomResourceDefinition that was just created, or an API server that was just started, causes 429 and 503
    /// responses for a few seconds.
    #[test]
    fn an_error_that_passes_keeps_the_values_for_a_minute() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut readings = Readings::default();
        assert!(readings.after(refused(429), start).is_none());
        let used = HashMap::from([(Key::new("shop", "web-0"), Usage::default())]);
        let read = readings.after(Ok(used), start).unwrap();
        assert_eq!(read.len(), 1);
        for (seconds, code) in [(15, 429), (30, 503), (60, 500)] {
            assert!(readings.after(refused(code), after(seconds)).is_none());
        }
        let kept = readings.after(refused(503), after(75)).unwrap();
        assert!(kept.is_empty(), "they are too old");
        assert!(readings.after(refused(503), after(90)).is_none());
    }

    #[test]
    fn values_are_requested_when_they_are_needed_and_expire() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut readings = Readings::default();
        assert!(!readings.expire(start), "there are none");
        assert!(readings.begin(start));
        readings.after(Ok(HashMap::new()), start).unwrap();
        assert!(!readings.begin(after(14)), "those are used");
        assert!(readings.begin(after(15)));
        assert!(!readings.expire(after(60)));
        assert!(readings.expire(after(61)));
        assert!(!readings.expire(after(120)), "they are dropped already");
    }

    #[test]
    fn without_the_api_nothing_is_known_at_once() {
        let now = Instant::now();
        let mut readings = Readings::default();
        let used = HashMap::from([(Key::new("shop", "web-0"), Usage::default())]);
        readings.after(Ok(used), now).unwrap();
        assert!(readings.after(refused(404), now).unwrap().is_empty());
    }

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
