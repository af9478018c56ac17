//! The outcome of an injection: the changed pod, or the reason why it gets no sidecar.

use serde_json::Value;

/// The outcome of an injection.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The pod got a sidecar.
    Injected(Injected),
    /// The pod had a sidecar, and later changes of other webhooks were adapted to it.
    Repaired(Injected),
    /// The pod is unchanged.
    Skipped(Skip),
}

/// A pod with its sidecar.
#[derive(Clone, Debug, PartialEq)]
pub struct Injected {
    /// The whole pod.
    pub pod: Value,
    /// Warnings for the author, one message each.
    pub notes: Vec<String>,
}

/// The reason why a pod is left unchanged, as in logs, events and metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Skip {
    /// It has the init container already.
    #[error("the container `maglor-proxy` already exists")]
    AlreadyInjected,
    /// The pod or its namespace disables injection.
    #[error("`maglor.dev/inject` is `disabled`")]
    Disabled,
    /// The redirection would apply to the node's network, and so to every pod on it.
    #[error("hostNetwork: redirection would affect the node's own connections")]
    HostNetwork,
    /// Injection is not enabled.
    #[error("neither the pod nor its namespace has `maglor.dev/inject: enabled`")]
    NotEnabled,
    /// The operating system is not Linux.
    #[error("the pod's operating system is not Linux")]
    OtherSystem,
}

impl Skip {
    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::AlreadyInjected,
        Self::Disabled,
        Self::HostNetwork,
        Self::NotEnabled,
        Self::OtherSystem,
    ];

    /// Returns the metric label.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::AlreadyInjected => "already-injected",
            Self::Disabled => "disabled",
            Self::HostNetwork => "host-network",
            Self::NotEnabled => "not-enabled",
            Self::OtherSystem => "other-system",
        }
    }
}

/// The reason why a pod that should have a sidecar cannot have one. It is not started without one:
/// a user who relies on mutual TLS and policies would not notice that there are none.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// An annotation, or the label, is invalid.
    #[error("{name}: {reason}")]
    Annotation {
        /// Its key.
        name: &'static str,
        /// The error, and what to write instead.
        reason: String,
    },
    /// Two objects have the same name.
    #[error("{field}: the name `{name}` is reserved for the sidecar; choose another one")]
    Name {
        /// The field of the second one.
        field: &'static str,
        /// The duplicate name.
        name: String,
    },
    /// A container uses a port of the sidecar.
    #[error("{container}: port {port} is reserved for the sidecar; choose another one")]
    Port {
        /// The name of the container.
        container: String,
        /// The port.
        port: u16,
    },
    /// The pod has an invalid structure.
    #[error("{field}: must be {expected}")]
    Shape {
        /// The invalid field.
        field: String,
        /// The expected type.
        expected: &'static str,
    },
    /// A container runs as the proxy's user, by which the redirection recognizes the proxy: its
    /// connections would not be redirected.
    #[error("{container}: runAsUser 2102 is reserved for the sidecar; choose another one")]
    User {
        /// The name of the container.
        container: String,
    },
}
