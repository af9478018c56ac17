//! Redirects the kubelet's probes and hooks of an application to its sidecar.
//!
//! The kubelet does not use mutual TLS, so its requests to a redirected port are rejected where plain text is. It
//! cannot be recognized by its address, either: depending on the network, that is the address of the node, of a bridge
//! or of a tunnel. So probes are sent to the sidecar's admin port, which is not redirected, and the sidecar forwards
//! them to the application over loopback. Istio does the same. The targets are only in the sidecar's arguments, so that
//! the admin port sends only requests that the pod's author has configured.

use serde_json::{Map, Value, json};

use crate::inject::settings::{ADMIN_PORT, Settings};
use crate::inject::skipped::ports;

/// The probe fields of a container, and their names in the path.
const PROBES: [(&str, &str); 3] = [
    ("livenessProbe", "liveness"),
    ("readinessProbe", "readiness"),
    ("startupProbe", "startup"),
];
/// The hook fields below `lifecycle`, and their names in the path.
const HOOKS: [(&str, &str); 2] = [("postStart", "post-start"), ("preStop", "pre-stop")];

/// Redirects a container's probes to the sidecar; returns the arguments for them that the sidecar needs.
pub(crate) fn rewrite(
    container: &mut Map<String, Value>,
    settings: &Settings,
    notes: &mut Vec<String>,
) -> Vec<String> {
    let name = container.get("name").and_then(Value::as_str);
    let name = name.unwrap_or_default().to_owned();
    let declared = container.get("ports").cloned().unwrap_or_default();
    let skipped = ports(&settings.skip_inbound_ports).unwrap_or_default();
    let mut arguments = Vec::new();
    let mut ask = |holder: Option<&mut Value>, word: &str| {
        if holder
            .as_deref()
            .is_some_and(|handler| is_rewritten(handler, &name, word))
        {
            return;
        }
        let handler = holder.and_then(Value::as_object_mut);
        let Some((handler, target)) = handler.and_then(|handler| {
            let target = target(handler, &declared)?;
            let port = target.port;
            let past = skipped
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&port));
            (!past).then_some((handler, target))
        }) else {
            return;
        };
        if target.is_https {
            notes.push(format!(
                "{name}: the {word} probe only connects to port {}, without an HTTPS request",
                target.port
            ));
        }
        arguments.push(format!("{name}/{word}={}", target.text));
        let mut get = json!({"path": path(&name, word), "port": ADMIN_PORT});
        if let (Some(headers), Some(get)) = (target.headers, get.as_object_mut()) {
            get.insert("httpHeaders".to_owned(), headers);
        }
        for kind in ["grpc", "tcpSocket"] {
            handler.remove(kind);
        }
        handler.insert("httpGet".to_owned(), get);
    };
    for (field, word) in PROBES {
        ask(container.get_mut(field), word);
    }
    for (field, word) in HOOKS {
        let lifecycle = container.get_mut("lifecycle");
        ask(
            lifecycle.and_then(|lifecycle| lifecycle.get_mut(field)),
            word,
        );
    }
    arguments
}

/// Returns the redirected probes of a container, each as `CONTAINER/KIND`.
pub(crate) fn rewritten(container: &Value) -> Vec<String> {
    let name = container["name"].as_str().unwrap_or_default();
    let probes = PROBES.map(|(field, word)| (&container[field], word));
    let hooks = HOOKS.map(|(field, word)| (&container["lifecycle"][field], word));
    let all = probes.into_iter().chain(hooks);
    let ours = all.filter(|(handler, word)| is_rewritten(handler, name, word));
    ours.map(|(_, word)| format!("{name}/{word}")).collect()
}

fn is_rewritten(handler: &Value, container: &str, word: &str) -> bool {
    let get = &handler["httpGet"];
    get["port"] == ADMIN_PORT && get["path"] == path(container, word)
}

fn path(container: &str, word: &str) -> String {
    format!("/probe/{container}/{word}")
}

/// The target of a probe.
struct Target {
    port: u16,
    /// The target in the sidecar's notation: `http:8080/path`, `tcp:8080`, `grpc:8080/service`.
    text: String,
    headers: Option<Value>,
    is_https: bool,
}

/// Reads the target of a handler; `None` if the sidecar is not involved, because the handler is a command in the
/// container or has another host.
fn target(handler: &Map<String, Value>, declared: &Value) -> Option<Target> {
    let plain = |port: u16, text: String| Target {
        port,
        text,
        headers: None,
        is_https: false,
    };
    if let Some(grpc) = handler.get("grpc") {
        let port = number(&grpc["port"], declared)?;
        let service = grpc["service"].as_str().unwrap_or_default();
        return Some(plain(port, format!("grpc:{port}/{service}")));
    }
    let of_this_pod = |kind: &str| {
        let asked = handler.get(kind)?;
        let host = asked["host"].as_str().unwrap_or_default();
        host.is_empty().then_some(asked)
    };
    if let Some(socket) = of_this_pod("tcpSocket") {
        let port = number(&socket["port"], declared)?;
        return Some(plain(port, format!("tcp:{port}")));
    }
    let get = of_this_pod("httpGet")?;
    let port = number(&get["port"], declared)?;
    if get["scheme"] == "HTTPS" {
        return Some(Target {
            is_https: true,
            ..plain(port, format!("tcp:{port}"))
        });
    }
    let path = get["path"].as_str().unwrap_or_default();
    let path = path.strip_prefix('/').unwrap_or(path);
    Some(Target {
        headers: get.get("httpHeaders").cloned(),
        ..plain(port, format!("http:{port}/{path}"))
    })
}

/// Resolves a port by number, or by its name in the container.
fn number(port: &Value, declared: &Value) -> Option<u16> {
    let number = match port.as_str() {
        None => port.as_u64(),
        Some(name) => {
            let named = declared.as_array().into_iter().flatten();
            let mut named = named.filter(|port| port["name"] == name);
            named.next().and_then(|port| port["containerPort"].as_u64())
        }
    };
    number.and_then(|number| u16::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(mut container: Value, skip: &str) -> (Value, Vec<String>, Vec<String>) {
        let settings = Settings {
            skip_inbound_ports: skip.to_owned(),
            ..Settings::default()
        };
        let mut notes = Vec::new();
        let arguments = rewrite(container.as_object_mut().unwrap(), &settings, &mut notes);
        (container, arguments, notes)
    }

    #[test]
    fn questions_go_by_way_of_the_sidecar() {
        let (container, arguments, notes) = rewritten(
            json!({
                "name": "web",
                "ports": [{"name": "http", "containerPort": 8080}],
                "livenessProbe": {"httpGet": {"path": "/live?deep=1", "port": "http",
                    "httpHeaders": [{"name": "X", "value": "y"}]}, "periodSeconds": 7},
                "readinessProbe": {"tcpSocket": {"port": 9000}},
                "startupProbe": {"grpc": {"port": 9001, "service": "a.B"}},
                "lifecycle": {"preStop": {"httpGet": {"port": 8080}}, "postStart": {"exec": {}}},
            }),
            "",
        );
        assert_eq!(
            arguments,
            [
                "web/liveness=http:8080/live?deep=1",
                "web/readiness=tcp:9000",
                "web/startup=grpc:9001/a.B",
                "web/pre-stop=http:8080/",
            ]
        );
        assert_eq!(
            container["livenessProbe"],
            json!({"httpGet": {"path": "/probe/web/liveness", "port": 15020,
                "httpHeaders": [{"name": "X", "value": "y"}]}, "periodSeconds": 7})
        );
        let asked =
            |word: &str| json!({"httpGet": {"path": format!("/probe/web/{word}"), "port": 15020}});
        assert_eq!(container["readinessProbe"], asked("readiness"));
        assert_eq!(container["startupProbe"], asked("startup"));
        assert_eq!(container["lifecycle"]["preStop"], asked("pre-stop"));
        assert!(notes.is_empty());
    }

    #[test]
    fn what_the_sidecar_has_no_part_in_stays() {
        let container = json!({
            "name": "web",
            "livenessProbe": {"exec": {"command": ["true"]}},
            "readinessProbe": {"httpGet": {"host": "example.com", "port": 80}},
            "startupProbe": {"httpGet": {"port": "unknown"}},
        });
        let (same, arguments, _) = rewritten(container.clone(), "");
        assert_eq!((same, arguments.len()), (container, 0));
        let skipped = json!({"name": "web", "livenessProbe": {"httpGet": {"port": 8081}}});
        assert_eq!(rewritten(skipped.clone(), "8000-8100").0, skipped);
    }

    #[test]
    fn of_https_only_the_connection_is_asked() {
        let probe =
            json!({"name": "web", "livenessProbe": {"httpGet": {"port": 8443, "scheme": "HTTPS"}}});
        let (_, arguments, notes) = rewritten(probe, "");
        assert_eq!(arguments, ["web/liveness=tcp:8443"]);
        assert!(
            notes[0].contains("web: the liveness probe only connects"),
            "{notes:?}"
        );
    }
}
