//! The HorizontalPodAutoscaler of the proxies.

use serde_json::{Value, json};

use super::manifests::{deployment_name, marked, of_service, text};
use crate::crd::ProxyServiceSpec;

/// Looks at fewer proxies only after so long: they come for a burst, and the next one may follow.
const LESS_AFTER_SECONDS: u32 = 300;

/// The autoscaler of the proxies, where there is to be one. It goes by the proxies' own container.
#[must_use]
pub fn autoscaler(service: &Value, claim: &ProxyServiceSpec) -> Option<Value> {
    let wanted = claim.autoscaling.as_ref()?;
    let (least, most) = wanted.range();
    let kind = "HorizontalPodAutoscaler";
    let mut made = of_service(service, "autoscaling/v2", kind, deployment_name);
    made["spec"] = json!({
        "scaleTargetRef": {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": deployment_name(text(&service["metadata"]["name"])),
        },
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": [{
            "type": "ContainerResource",
            "containerResource": {
                "name": "cpu",
                "container": "maglor-proxy",
                "target": {"type": "Utilization", "averageUtilization": wanted.cpu_percent()},
            },
        }],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": LESS_AFTER_SECONDS}},
    });
    Some(marked(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_where_it_is_asked_for() {
        let service = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u1"}});
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
    }
}
