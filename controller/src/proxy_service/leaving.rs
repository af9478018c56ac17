//! Removes a Service from a group in which other Services stay.
//!
//! Dedicated proxies terminate as pods do: they accept connections until every node has stopped sending to them, and
//! finish their requests. Shared proxies do the same for the ports of the Service. The start time is stored in the
//! target Service:
//!
//! ```text
//! no endpoint is a proxy ─► [`LEFT`] ─► farewell ─► the ports are closed ─► open requests finish ─► done
//! ```

use jiff::Timestamp;
use serde_json::{Value, json};

use super::group::Group;
use super::manifests::{marked, of_target};
use super::observed::Observed;
use crate::crd::DRAIN_SECONDS;
use crate::index::facts::service::PROXY_PORTS;
use crate::proxy_pod::{FAREWELL_SECONDS, grace_seconds};

/// The annotation of the target Service that contains the time since which no client of the Service is sent to shared
/// proxies (RFC 3339).
pub(super) const LEFT: &str = maglor_manifests::inject::keys::LEFT;

/// The next action for a leaving Service.
#[derive(Debug, PartialEq)]
pub(super) enum Leaving {
    /// Apply this target Service.
    Apply(Value),
    /// There is nothing left to wait for.
    Done,
    /// Wait until the next check.
    Wait,
}

/// Returns the next action for a Service whose own selector is restored, in a group with other members. `target` is
/// the Service's target Service.
pub(super) fn leave(seen: &Observed, target: &Value) -> Leaving {
    if seen.service.is_none() || target["metadata"]["deletionTimestamp"].is_string() {
        return Leaving::Done;
    }
    if seen.sends_to_proxies() {
        return Leaving::Wait;
    }
    let annotations = &target["metadata"]["annotations"];
    let left = annotations[LEFT].as_str();
    let Some(left) = left.and_then(|text| text.parse::<Timestamp>().ok()) else {
        return Leaving::Apply(noted(target, seen.now, true));
    };
    // The time may be from another clock, so a time in the future counts as now.
    let past = seen.now.as_second().saturating_sub(left.as_second()).max(0);
    if past < i64::from(FAREWELL_SECONDS) {
        return Leaving::Wait;
    }
    if annotations[PROXY_PORTS].is_string() {
        return Leaving::Apply(noted(target, left, false));
    }
    let pod = seen
        .deployment
        .as_ref()
        .map(|one| &one["spec"]["template"]["spec"]);
    let grace = pod.and_then(|pod| pod["terminationGracePeriodSeconds"].as_i64());
    match past < grace.unwrap_or_else(|| i64::from(grace_seconds(DRAIN_SECONDS))) {
        true => Leaving::Wait,
        false => Leaving::Done,
    }
}

/// Returns the target Service with its annotation, with or without the proxies' ports.
fn noted(target: &Value, left: Timestamp, with_ports: bool) -> Value {
    let mut wanted = of_target(target);
    wanted["metadata"]["annotations"][LEFT] = json!(left.to_string());
    if !with_ports && let Some(all) = wanted["metadata"]["annotations"].as_object_mut() {
        all.remove(PROXY_PORTS);
    }
    marked(wanted)
}

/// Returns whether a Service belongs to a group with other members.
pub(super) fn leaves_others(seen: &Observed) -> bool {
    seen.group
        .as_ref()
        .is_some_and(|group: &Group| !group.is_alone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy_service::LABEL;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn target() -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "web-target", "namespace": "shop", "uid": "u2", "resourceVersion": "7",
                "labels": {LABEL: "web"},
                "annotations": {PROXY_PORTS: "80=20001", "maglor.dev/applied": "old"},
                "ownerReferences": [{"kind": "Service", "name": "web", "uid": "u1"}],
            },
            "spec": {"clusterIP": "10.0.0.9", "type": "ClusterIP", "selector": {"app": "web"},
                     "ports": [{"port": 80, "targetPort": "http", "name": "http"}]},
        })
    }

    #[test]
    fn ports_are_closed_when_nodes_know_and_gone_when_all_is_finished() {
        let spec = json!({"template": {"spec": {"terminationGracePeriodSeconds": 40}}});
        let mut seen = Observed {
            service: Some(json!({})),
            deployment: Some(json!({"spec": spec})),
            now: at(1000),
            ..Observed::default()
        };
        seen.endpoints.insert("10.0.0.1".into());
        seen.proxies.insert("10.0.0.1".into());
        assert_eq!(leave(&seen, &target()), Leaving::Wait, "requests go there");
        seen.proxies.clear();
        let Leaving::Apply(left) = leave(&seen, &target()) else {
            panic!("it is not noted when");
        };
        let annotations = &left["metadata"]["annotations"];
        assert_eq!(annotations[PROXY_PORTS], "80=20001");
        assert_ne!(annotations["maglor.dev/applied"], "old");
        assert!(left["metadata"]["uid"].is_null() && left["spec"]["clusterIP"].is_null());
        assert_eq!(left["spec"]["ports"], target()["spec"]["ports"]);
        seen.now = at(1004);
        assert_eq!(leave(&seen, &left), Leaving::Wait);
        seen.now = at(1005);
        let Leaving::Apply(closed) = leave(&seen, &left) else {
            panic!("the ports stay");
        };
        assert!(closed["metadata"]["annotations"][PROXY_PORTS].is_null());
        seen.now = at(1039);
        assert_eq!(leave(&seen, &closed), Leaving::Wait);
        seen.now = at(1040);
        assert_eq!(leave(&seen, &closed), Leaving::Done);
        // The clock is behind.
        seen.now = at(900);
        assert_eq!(leave(&seen, &closed), Leaving::Wait);
    }
}
