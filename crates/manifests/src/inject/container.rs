//! The additions to a pod with a sidecar: two containers and two volumes.

use serde_json::{Map, Value, json};

use crate::inject::settings::{
    ADMIN_PORT, ADMIN_PORT_NAME, AUDIENCE, Form, INBOUND_PORT, OUTBOUND_PORT, PROXY_UID, Redirect,
    Settings, TOKEN_SECONDS, TRUST_BUNDLE,
};
use crate::inject::{INIT, PROXY};

/// The name of the volume with the token and the roots.
pub(crate) const IDENTITY_VOLUME: &str = "maglor-identity";
/// The name of the volume for the proxy's last configuration.
pub(crate) const CACHE_VOLUME: &str = "maglor-cache";
const IDENTITY_FOLDER: &str = "/var/run/secrets/maglor";
const CACHE_FOLDER: &str = "/var/lib/maglor";

/// The number of seconds for which the sidecar may be unready before the kubelet restarts it. A sidecar without a
/// certificate is unready: if the controller is unavailable for a while, the sidecars must not all be in a restart
/// back-off when it returns.
const START_SECONDS: u32 = 600;

/// Returns the init container that writes the redirection.
pub(crate) fn init(settings: &Settings) -> Value {
    let skipped = match settings.skip_inbound_ports.as_str() {
        "" => ADMIN_PORT.to_string(),
        ports => format!("{ADMIN_PORT},{ports}"),
    };
    let mut args = vec![
        "init".to_owned(),
        format!("--inbound-port={INBOUND_PORT}"),
        format!("--outbound-port={OUTBOUND_PORT}"),
        format!("--proxy-uid={PROXY_UID}"),
        format!("--skip-inbound-ports={skipped}"),
    ];
    if !settings.skip_outbound_ports.is_empty() {
        let ports = &settings.skip_outbound_ports;
        args.push(format!("--skip-outbound-ports={ports}"));
    }
    if !settings.skip_subnets.is_empty() {
        args.push(format!("--skip-subnets={}", settings.skip_subnets));
    }
    json!({
        "name": INIT,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": args,
        "resources": resources(settings),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            // For any other user the kernel would not grant the capability: containers have no
            // ambient ones.
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
            "privileged": false,
            "readOnlyRootFilesystem": true,
            "runAsGroup": 0,
            "runAsNonRoot": false,
            "runAsUser": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    })
}

/// Returns the sidecar container.
pub(crate) fn proxy(settings: &Settings, probes: Vec<String>) -> Value {
    let mut args = vec![
        "sidecar".to_owned(),
        format!("--control-plane={}", settings.control_plane),
        format!("--trust-domain={}", settings.trust_domain),
        format!("--cluster-domain={}", settings.cluster_domain),
    ];
    args.extend(credentials());
    args.extend([
        format!("--inbound-port={INBOUND_PORT}"),
        format!("--outbound-port={OUTBOUND_PORT}"),
        format!("--admin-port={ADMIN_PORT}"),
        format!("--log-level={}", settings.log_level),
    ]);
    args.extend(probes.into_iter().map(|probe| format!("--probe={probe}")));
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str, failures: u32, seconds: u32| {
        json!({
            "httpGet": {"path": path, "port": ADMIN_PORT},
            "failureThreshold": failures,
            "periodSeconds": seconds,
            "timeoutSeconds": 3,
        })
    };
    let mut container = json!({
        "name": PROXY,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": args,
        "env": [
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
            field("POD_IPS", "status.podIPs"),
            field("NODE_NAME", "spec.nodeName"),
            field("SERVICE_ACCOUNT", "spec.serviceAccountName"),
        ],
        "ports": [{"name": ADMIN_PORT_NAME, "containerPort": ADMIN_PORT, "protocol": "TCP"}],
        "startupProbe": probe("/ready", START_SECONDS, 1),
        "readinessProbe": probe("/ready", 3, 2),
        "livenessProbe": probe("/live", 3, 10),
        "resources": resources(settings),
        "securityContext": security_context(),
        "volumeMounts": mounts(),
    });
    match settings.form {
        // The kubelet starts the containers listed after it when the hook has ended.
        Form::Container => {
            let wait = [
                "/maglor-proxy".to_owned(),
                "wait".to_owned(),
                format!("--admin-port={ADMIN_PORT}"),
            ];
            container["lifecycle"] = json!({"postStart": {"exec": {"command": wait}}});
        }
        Form::Auto | Form::Native => container["restartPolicy"] = json!("Always"),
    }
    container
}

/// Returns the `securityContext` of every container with a proxy. It satisfies the Pod Security Standard `restricted`,
/// and has a user of its own.
#[must_use]
pub fn security_context() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "privileged": false,
        "readOnlyRootFilesystem": true,
        "runAsGroup": PROXY_UID,
        "runAsNonRoot": true,
        "runAsUser": PROXY_UID,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

fn resources(settings: &Settings) -> Value {
    let pick = |cpu: &str, memory: &str| {
        let pairs = [("cpu", cpu), ("memory", memory)].into_iter();
        let input = pairs.filter(|(_, amount)| !amount.is_empty());
        let map: Map<_, _> = input
            .map(|(name, amount)| (name.to_owned(), json!(amount)))
            .collect();
        map
    };
    let mut resources = Map::new();
    for (name, map) in [
        (
            "requests",
            pick(&settings.cpu_request, &settings.memory_request),
        ),
        ("limits", pick(&settings.cpu_limit, &settings.memory_limit)),
    ] {
        if !map.is_empty() {
            resources.insert(name.to_owned(), Value::Object(map));
        }
    }
    Value::Object(resources)
}

/// Returns the flags of a proxy for the paths of its token, roots and cache.
#[must_use]
pub fn credentials() -> [String; 3] {
    [
        format!("--token-file={IDENTITY_FOLDER}/token"),
        format!("--trust-bundle={IDENTITY_FOLDER}/ca.pem"),
        format!("--cache-dir={CACHE_FOLDER}"),
    ]
}

/// Returns the mounts of the [`volumes`] in a proxy's container.
#[must_use]
pub fn mounts() -> [Value; 2] {
    [
        json!({"name": IDENTITY_VOLUME, "mountPath": IDENTITY_FOLDER, "readOnly": true}),
        json!({"name": CACHE_VOLUME, "mountPath": CACHE_FOLDER}),
    ]
}

/// Returns the volumes of a pod with a proxy, for its credentials and its cache.
#[must_use]
pub fn volumes() -> [Value; 2] {
    let token = json!({"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"});
    let bundle = json!({"name": TRUST_BUNDLE, "items": [{"key": "ca.pem", "path": "ca.pem"}]});
    [
        json!({
            "name": IDENTITY_VOLUME,
            "projected": {"sources": [{"serviceAccountToken": token}, {"configMap": bundle}]},
        }),
        // On disk, not in memory: it survives the reboot of a node that cannot reach a controller.
        json!({"name": CACHE_VOLUME, "emptyDir": {"sizeLimit": "64Mi"}}),
    ]
}

/// Returns the environment variables that configure an HTTP proxy in an application; `None` if connections are
/// redirected.
pub(crate) fn environment(settings: &Settings) -> Option<[(&'static str, String); 2]> {
    (settings.redirect == Redirect::None).then(|| {
        [
            ("http_proxy", format!("http://127.0.0.1:{OUTBOUND_PORT}")),
            ("no_proxy", "localhost,127.0.0.1,::1".to_owned()),
        ]
    })
}
