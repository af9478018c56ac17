//! The pod templates in Kubernetes objects.

/// Returns the path (RFC 6901) of the pod template in objects of a kind; empty for a pod itself, `None` for kinds
/// without a pod template.
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
