//! The HorizontalPodAutoscaler of the proxies.

use serde_json::{Value, json};

use super::Front;
use super::manifests::{Owned, marked};
use crate::crd::ProxyServiceSpec;
use crate::external_metrics::{GROUP, REQUESTS, SERVICE};

/// Returns the `replicas` to apply to a Deployment whose number is set by an autoscaler: the current number, because
/// Kubernetes resets a field that is no longer applied to one. The first applied value is the minimum, since an
/// autoscaler is inactive at zero. `None` if there is no autoscaler.
pub(super) fn replicas(claim: &ProxyServiceSpec, there: Option<&Value>) -> Option<u64> {
    let (least, most) = claim.autoscaling.as_ref()?.range();
    let now = there.and_then(|there| there["spec"]["replicas"].as_u64());
    Some(now.unwrap_or(0).clamp(least.into(), most.max(least).into()))
}

/// Returns the autoscaler of the proxies if one is configured. It scales by the CPU usage of the proxies' container,
/// or by their total requests per second, which the controller serves as an external metric.
pub(super) fn autoscaler(owned: &Owned, claim: &ProxyServiceSpec) -> Option<Value> {
    let wanted = claim.autoscaling.as_ref()?;
    let (least, most) = wanted.range();
    let (label, name) = match &owned.front {
        Front::Group(group) => (GROUP, group),
        Front::Service(service) => (SERVICE, service),
    };
    let cpu = wanted.cpu_percent().map(|percent| {
        json!({
            "type": "ContainerResource",
            "containerResource": {
                "name": "cpu",
                "container": "maglor-proxy",
                "target": {"type": "Utilization", "averageUtilization": percent},
            },
        })
    });
    let requests = wanted.requests_per_second.map(|rate| {
        json!({
            "type": "External",
            "external": {
                "metric": {"name": REQUESTS, "selector": {"matchLabels": {label: name}}},
                "target": {"type": "AverageValue", "averageValue": rate.to_string()},
            },
        })
    });
    let metrics: Vec<Value> = cpu.into_iter().chain(requests).collect();
    let mut made = owned.resource("autoscaling/v2", "HorizontalPodAutoscaler");
    made["spec"] = json!({
        "scaleTargetRef": {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": owned.front.name(),
        },
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": metrics,
        "behavior": {"scaleDown": {
            "stabilizationWindowSeconds": wanted.stabilization_seconds(),
        }},
    });
    Some(marked(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(front: Front) -> Owned {
        let service = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u1"}});
        Owned::by_service(front, &service)
    }

    #[test]
    fn it_is_made_where_it_is_asked_for() {
        let service = owned(Front::Service("web".into()));
        let claim = |text: &str| serde_yaml::from_str::<ProxyServiceSpec>(text).unwrap();
        let none = claim("{targetRef: {name: web}, replicas: 2}");
        assert_eq!(autoscaler(&service, &none), None);
        let some = claim("{targetRef: {name: web}, autoscaling: {minReplicas: 2, maxReplicas: 5}}");
        let made = autoscaler(&service, &some).unwrap();
        assert_eq!(made["spec"]["scaleTargetRef"]["name"], "web-proxy-service");
        let range = (&made["spec"]["minReplicas"], &made["spec"]["maxReplicas"]);
        assert_eq!(range, (&json!(2), &json!(5)));
        let metric = &made["spec"]["metrics"][0]["containerResource"];
        assert_eq!(metric["target"]["averageUtilization"], 70);
        let less = &made["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"];
        assert_eq!(less, 300);
    }

    #[test]
    fn the_number_of_proxies_is_left_where_it_is() {
        let claim = |text: &str| serde_yaml::from_str::<ProxyServiceSpec>(text).unwrap();
        let some = claim("{targetRef: {name: web}, autoscaling: {minReplicas: 2, maxReplicas: 5}}");
        let there = |count: u64| json!({"spec": {"replicas": count}});
        for (there, expected) in [
            (None, 2),
            (Some(there(0)), 2),
            (Some(there(4)), 4),
            (Some(there(9)), 5),
        ] {
            assert_eq!(replicas(&some, there.as_ref()), Some(expected));
        }
        let none = claim("{targetRef: {name: web}}");
        assert_eq!(replicas(&none, Some(&there(4))), None);
    }

    #[test]
    fn it_scales_by_requests_where_configured() {
        let metrics_of = |front: Front, more: &str| {
            let text =
                format!("{{targetRef: {{name: web}}, autoscaling: {{maxReplicas: 5, {more}}}}}");
            let made = autoscaler(&owned(front), &serde_yaml::from_str(&text).unwrap()).unwrap();
            made["spec"]["metrics"].clone()
        };
        let metrics = |more: &str| metrics_of(Front::Service("web".into()), more);
        let all = metrics_of(Front::Group("low".into()), "requestsPerSecond: 400");
        let selector = &all[0]["external"]["metric"]["selector"];
        assert_eq!(*selector, json!({"matchLabels": {"group": "low"}}));
        let one = metrics("requestsPerSecond: 400");
        assert_eq!(one.as_array().unwrap().len(), 1);
        let external = &one[0]["external"];
        assert_eq!(external["target"]["averageValue"], "400");
        let selector = json!({"matchLabels": {"service": "web"}});
        assert_eq!(external["metric"]["selector"], selector);
        let both = metrics("requestsPerSecond: 400, cpuPercent: 50");
        assert_eq!(
            (&both[0]["type"], &both[1]["type"]),
            (&json!("ContainerResource"), &json!("External"))
        );
    }
}
