//! Explains why a proxy pod is not ready, if this will not resolve by itself.

use serde_json::Value;

/// Maximum length of a message in characters; messages of container runtimes may be pages long.
const LONGEST: usize = 300;

/// Returns the reason for the first pod that needs an intervention: no node has room for it, its image is
/// unavailable, or its container terminates repeatedly. `None` if there is no such pod.
pub(super) fn why(pods: &[Value]) -> Option<String> {
    let stays = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
    let why = pods.iter().filter(stays).find_map(of)?;
    Some(shortened(why))
}

fn of(pod: &Value) -> Option<String> {
    let problem = unscheduled(pod).or_else(|| stopped(pod))?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    Some(format!("pod {name}: {problem}"))
}

fn unscheduled(pod: &Value) -> Option<String> {
    let mut conditions = pod["status"]["conditions"].as_array()?.iter();
    let scheduled = conditions.find(|one| one["type"] == "PodScheduled")?;
    // A scheduler that has not handled the pod yet sets no reason.
    (scheduled["status"] == "False").then(|| said(scheduled))?
}

fn stopped(pod: &Value) -> Option<String> {
    let statuses = ["initContainerStatuses", "containerStatuses"];
    let containers = statuses
        .iter()
        .filter_map(|name| pod["status"][name].as_array());
    containers.flatten().find_map(|container| {
        let waiting = &container["state"]["waiting"];
        // These states are temporary.
        let begins = ["ContainerCreating", "PodInitializing"].map(Value::from);
        if waiting.is_object() && !begins.contains(&waiting["reason"]) {
            return said(waiting);
        }
        let ended = &container["state"]["terminated"];
        (ended["exitCode"].as_i64()? != 0).then(|| said(ended))?
    })
}

/// Formats the reason and the message as `REASON: message`, or the one of them that is set.
fn said(state: &Value) -> Option<String> {
    let text = |name: &str| state[name].as_str().filter(|text| !text.is_empty());
    match (text("reason"), text("message")) {
        (Some(reason), Some(message)) => Some(format!("{reason}: {message}")),
        (only, None) | (None, only) => only.map(ToOwned::to_owned),
    }
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &Value) -> Value {
        json!({"metadata": {"name": "p-1"}, "status": status})
    }

    fn waiting(reason: &str, message: &str) -> Value {
        let state = json!({"waiting": {"reason": reason, "message": message}});
        pod(&json!({"containerStatuses": [{"name": "proxy", "ready": false, "state": state}]}))
    }

    #[test]
    fn what_will_not_pass_by_itself_is_said() {
        let nowhere = pod(&json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
             "message": "0/2 nodes are available: 2 Insufficient cpu."},
        ]}));
        let expected = "pod p-1: Unschedulable: 0/2 nodes are available: 2 Insufficient cpu.";
        assert_eq!(why(&[pod(&json!({})), nowhere]).as_deref(), Some(expected));
        let pull = waiting("ImagePullBackOff", "Back-off pulling image \"x\"");
        let expected = "pod p-1: ImagePullBackOff: Back-off pulling image \"x\"";
        assert_eq!(why(&[pull]).as_deref(), Some(expected));
        let ended = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        let ended = pod(&json!({"containerStatuses": [{"state": ended}]}));
        assert_eq!(why(&[ended]).as_deref(), Some("pod p-1: Error"));
    }

    #[test]
    fn what_passes_is_not_said() {
        let scheduled = json!({"type": "PodScheduled", "status": "True"});
        let running = json!({"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
        let fine = pod(&json!({"conditions": [scheduled], "containerStatuses": [running]}));
        let done = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        let prepared = pod(&json!({"initContainerStatuses": [{"state": done}]}));
        let begins = waiting("ContainerCreating", "");
        assert_eq!(why(&[fine, prepared, begins]), None);
        let mut ends = waiting("ImagePullBackOff", "x");
        ends["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(why(&[ends]), None);
    }

    #[test]
    fn long_messages_are_cut() {
        let long = waiting("CreateContainerError", &"ä".repeat(5000));
        let said = why(&[long]).unwrap();
        assert_eq!(said.chars().count(), LONGEST + 1);
    }
}
