//! Pod templates in objects of Kubernetes.

/// Returns the path of the pod template in objects of a kind (RFC 6901); empty for a pod itself.
pub(crate) fn template(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Pod" => "",
        "CronJob" => "/spec/jobTemplate/spec/template",
        "DaemonSet"
        | "Deployment"
        | "Job"
        | "ReplicaSet"
        | "ReplicationController"
        | "StatefulSet" => "/spec/template",
        _ => return None,
    })
}
