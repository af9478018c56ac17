//! The default settings of all sidecars, which namespaces and pods override.

use serde::{Deserialize, Serialize};

use crate::inject::quantity::{is_quantity, quantity};
use crate::inject::skipped::{check_ports, check_subnets};
use crate::inject::yaml;

/// The port of the inbound listener, for connections from other pods.
pub(crate) const INBOUND_PORT: u16 = 15006;
/// The port of the outbound listener, for connections of the application.
pub(crate) const OUTBOUND_PORT: u16 = 15001;
/// The port of the admin server, for readiness, liveness, metrics, and the application's own probes.
pub const ADMIN_PORT: u16 = 15020;
/// The name of the admin port in pods.
pub const ADMIN_PORT_NAME: &str = "maglor-admin";
/// The user ID of the proxy, whose connections are not redirected.
pub const PROXY_UID: u32 = 2102;
/// The audience of the sidecar's token; the controller accepts no other audience.
pub(crate) const AUDIENCE: &str = "maglor.dev/identity";
/// The lifetime of the token in seconds. The kubelet renews the token after four fifths of it.
pub(crate) const TOKEN_SECONDS: u32 = 3600;
/// The name of the ConfigMap with the roots, which the controller maintains in every namespace.
pub(crate) const TRUST_BUNDLE: &str = "maglor-trust-bundle";

/// The default namespace and trust domain of the control plane.
pub(crate) const NAMESPACE: &str = "maglor";
pub(crate) const TRUST_DOMAIN: &str = "cluster.local";

/// The form of the sidecar's container.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// `native` if the API server supports it (Kubernetes 1.29), otherwise `container`.
    #[default]
    Auto,
    /// A plain container, which starts and stops at the same time as the application, in no particular order.
    Container,
    /// An init container that is always restarted. It starts before the application and stops after it.
    Native,
}

/// How the application's connections are directed to the sidecar.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Redirect {
    /// An init container with `NET_ADMIN` writes nftables rules, which is transparent to the application.
    #[default]
    Nftables,
    /// Connections are not redirected; the application gets HTTP proxy variables in its environment.
    None,
}

/// When the kubelet pulls the image of the sidecar.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum PullPolicy {
    /// Each time a container starts.
    Always,
    /// If the image is not on the node.
    #[default]
    IfNotPresent,
    /// Never; the image must be on the node.
    Never,
}

/// The settings of sidecars.
///
/// # Defaults
///
/// - `image`: `maglor-proxy` of this version; `image_pull_policy`: `IfNotPresent`.
/// - `control_plane`: `maglor-controller.maglor.svc:15010`; `trust_domain`, `cluster_domain`: `cluster.local`. The
///   controller sets its own namespace and trust domain ([`Settings::complete`]).
/// - `form`: `auto`; `redirect`: `nftables`; nothing is skipped.
/// - `cpu_request`: `10m`; `memory_request`: `16Mi`; no limits.
/// - `log_level`: `info`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Image of `maglor-proxy`, for the sidecar and its init container.
    pub image: String,
    /// When the kubelet pulls the image.
    pub image_pull_policy: PullPolicy,
    /// Address of the controller, `HOST:PORT`; empty = the default.
    pub control_plane: String,
    /// Trust domain of SPIFFE IDs; empty = the default.
    pub trust_domain: String,
    /// Domain of the names of Services.
    pub cluster_domain: String,
    /// Form of the sidecar's container.
    pub form: Form,
    /// How the application's connections are directed to the sidecar.
    pub redirect: Redirect,
    /// CPU request of the sidecar, such as `10m`.
    pub cpu_request: String,
    /// CPU limit of the sidecar, above which it is throttled; empty = none. A throttled proxy delays every request.
    pub cpu_limit: String,
    /// Memory request of the sidecar, such as `16Mi`.
    pub memory_request: String,
    /// Memory limit of the sidecar, above which the kernel kills it with all of its connections; empty = none.
    pub memory_limit: String,
    /// Log level of the sidecar: `error`, `warn`, `info`, `debug` or `trace`, or levels by module.
    pub log_level: String,
    /// Inbound ports that bypass the sidecar, and so mutual TLS and policies, such as `22,8000-8010`.
    pub skip_inbound_ports: String,
    /// Outbound ports that bypass the sidecar.
    pub skip_outbound_ports: String,
    /// Networks whose connections, inbound and outbound, bypass the sidecar.
    pub skip_subnets: String,
    /// Whether pods are annotated for Prometheus (`prometheus.io/scrape`), unless they are already.
    pub prometheus_annotations: bool,
    /// Revision of the control plane that injects; empty = the default one. Only the controller sets it.
    #[serde(skip)]
    pub revision: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            image: format!("maglor-proxy:{}", env!("CARGO_PKG_VERSION")),
            image_pull_policy: PullPolicy::default(),
            control_plane: String::new(),
            trust_domain: String::new(),
            cluster_domain: "cluster.local".to_owned(),
            form: Form::default(),
            redirect: Redirect::default(),
            cpu_request: "10m".to_owned(),
            cpu_limit: String::new(),
            memory_request: "16Mi".to_owned(),
            memory_limit: String::new(),
            log_level: "info".to_owned(),
            skip_inbound_ports: String::new(),
            skip_outbound_ports: String::new(),
            skip_subnets: String::new(),
            prometheus_annotations: false,
            revision: String::new(),
        }
    }
}

/// The reason why settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The document does not have the fields of sidecar settings.
    #[error("sidecar settings: {0}")]
    Form(#[from] serde_yaml::Error),
    /// There is more than one document.
    #[error("sidecar settings: more than one document, see line {0}")]
    Second(usize),
    /// The text is not valid YAML.
    #[error("sidecar settings: {0}")]
    Syntax(#[from] yaml::ReadError),
    /// A value is invalid.
    #[error("sidecar settings: {field}: {reason}")]
    Value {
        /// The field.
        field: &'static str,
        /// The reason, with a valid alternative.
        reason: String,
    },
}

impl Settings {
    /// Reads settings in YAML or JSON, and validates them.
    ///
    /// # Errors
    /// The first error, with its field.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        // Limits the expansion of aliases.
        let documents = yaml::documents(text)?;
        if let Some(second) = documents.get(1) {
            return Err(SettingsError::Second(second.line));
        }
        // Parsed from the text itself, so that an unquoted port can be a text. An empty text means
        // all defaults.
        let settings: Option<Self> = serde_yaml::from_str(text)?;
        let settings = settings.unwrap_or_default();
        settings.check()?;
        Ok(settings)
    }

    /// Sets the namespace and the trust domain of the control plane, unless they are set.
    pub fn complete(&mut self, namespace: &str, trust_domain: &str) {
        if self.control_plane.is_empty() {
            let separator = if self.revision.is_empty() { "" } else { "-" };
            self.control_plane = format!(
                "maglor-controller{separator}{}.{namespace}.svc:15010",
                self.revision
            );
        }
        if self.trust_domain.is_empty() {
            trust_domain.clone_into(&mut self.trust_domain);
        }
    }

    /// Validates the values.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), SettingsError> {
        let wrong = |field, reason: String| Err(SettingsError::Value { field, reason });
        for (field, text, may_be_empty) in [
            ("image", &self.image, false),
            ("controlPlane", &self.control_plane, true),
            ("trustDomain", &self.trust_domain, true),
            ("clusterDomain", &self.cluster_domain, false),
            ("logLevel", &self.log_level, false),
        ] {
            if text.is_empty() && !may_be_empty || text.contains(char::is_whitespace) {
                return wrong(field, "must be non-empty and without spaces".to_owned());
            }
        }
        for (field, text) in [
            ("cpuRequest", &self.cpu_request),
            ("cpuLimit", &self.cpu_limit),
            ("memoryRequest", &self.memory_request),
            ("memoryLimit", &self.memory_limit),
        ] {
            if !(text.is_empty() || is_quantity(text)) {
                return wrong(
                    field,
                    format!("invalid quantity `{text}`, expected for example 10m or 16Mi"),
                );
            }
        }
        if let Some((request, limit)) = self.above_limit() {
            let field = match request == self.cpu_request {
                true => "cpuRequest",
                false => "memoryRequest",
            };
            let reason = format!("`{request}` exceeds the limit, `{limit}`");
            return wrong(field, reason);
        }
        if let Err(reason) = check_log_level(&self.log_level) {
            return wrong("logLevel", reason);
        }
        for (field, text) in [
            ("skipInboundPorts", &self.skip_inbound_ports),
            ("skipOutboundPorts", &self.skip_outbound_ports),
        ] {
            if let Err(reason) = check_ports(text) {
                return wrong(field, reason);
            }
        }
        match check_subnets(&self.skip_subnets) {
            Ok(()) => Ok(()),
            Err(reason) => wrong("skipSubnets", reason),
        }
    }
}

impl Settings {
    /// Returns a resource request that is above its limit, and the limit; `None` if there is none.
    pub(crate) fn above_limit(&self) -> Option<(&str, &str)> {
        let pairs = [
            (&self.cpu_request, &self.cpu_limit),
            (&self.memory_request, &self.memory_limit),
        ];
        let above = |(request, limit): &(&String, &String)| {
            let both = quantity(request).zip(quantity(limit));
            both.is_some_and(|(request, limit)| request > limit)
        };
        let (request, limit) = pairs.into_iter().find(above)?;
        Some((request, limit))
    }
}

/// Validates a value of `--log-level`, since the proxy would not start with an invalid one.
pub(crate) fn check_log_level(text: &str) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let is_level = |text: &str| {
        let text = text.trim();
        LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text))
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_:-.".contains(c);
    let fits = |part: &&str| match part.split_once('=') {
        Some((target, level)) => {
            let target = target.trim();
            !target.is_empty() && target.chars().all(is_part) && is_level(level)
        }
        None => is_level(part),
    };
    match text.split(',').find(|part| !fits(part)) {
        None => Ok(()),
        Some(part) => Err(format!(
            "unknown value `{part}`, expected one of {} or TARGET=LEVEL",
            LEVELS.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_has_its_default() {
        assert_eq!(Settings::parse("").unwrap(), Settings::default());
        assert_eq!(Settings::parse("{}").unwrap(), Settings::default());
        let settings = Settings::parse(r#"{"form": "container", "imagePullPolicy": "Never"}"#);
        let settings = settings.unwrap();
        assert_eq!(settings.form, Form::Container);
        assert_eq!(settings.image_pull_policy, PullPolicy::Never);
        // As `--set sidecar.skipInboundPorts=22` writes it.
        let settings = Settings::parse("skipInboundPorts: 22\n").unwrap();
        assert_eq!(settings.skip_inbound_ports, "22");
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_field() {
        for (text, expected) in [
            ("{image: ''}", "image: must be non-empty and without spaces"),
            (
                "{memoryLimit: 16 MB}",
                "memoryLimit: invalid quantity `16 MB`",
            ),
            (
                "{skipInboundPorts: '80,x'}",
                "skipInboundPorts: invalid port `x`",
            ),
            (
                "{skipSubnets: 10.0.0.0/33}",
                "skipSubnets: invalid network `10.0.0.0/33`",
            ),
            (
                "{logLevel: loud}",
                "logLevel: unknown value `loud`, expected one of off",
            ),
            (
                "{cpuLimit: 5m}",
                "cpuRequest: `10m` exceeds the limit, `5m`",
            ),
            ("{imge: a}", "unknown field `imge`"),
            ("{form: other}", "unknown variant `other`"),
        ] {
            let error = Settings::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
