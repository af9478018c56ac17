//! The outcome of an injection: the changed pod, or the reason why it gets no sidecar.

use serde_json::Value;

/// The outcome of an injection.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The pod got a sidecar.
    Injected(Injected),
    /// The pod already had a sidecar, and later changes by other webhooks were adapted to it.
    Repaired(Injected),
    /// The pod is unchanged, for this reason.
    Skipped(Skip),
}

/// A pod with its sidecar.
#[derive(Clone, Debug, PartialEq)]
pub struct Injected {
    /// The whole pod.
    pub pod: Value,
    /// Warnings for the author of the pod, one message each.
    pub notes: Vec<String>,
}

/// The reason why a pod is unchanged, as in logs, events and metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Skip {
    /// The pod already has the init container.
    #[error("the container `maglor-proxy` already exists")]
    AlreadyInjected,
    /// The pod or its namespace disables injection.
    #[error("`maglor.dev/inject` is `disabled`")]
    Disabled,
    /// The pod uses the network of the node, so that the redirection would apply to every pod on the node.
    #[error("hostNetwork: redirection would affect the node's own connections")]
    HostNetwork,
    /// Injection is not enabled for the pod.
    #[error("neither the pod nor its namespace has `maglor.dev/inject: enabled`")]
    NotEnabled,
    /// The pod's operating system is not Linux.
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

    /// Returns the label of the reason in metrics.
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

/// The reason why a pod that should have a sidecar cannot have one. The pod is rejected rather than started without a
/// sidecar: a user who relies on mutual TLS and policies would not notice their absence.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// An annotation or the label is invalid.
    #[error("{name}: {reason}")]
    Annotation {
        /// The key of the annotation or label.
        name: &'static str,
        /// The reason, with a valid alternative.
        reason: String,
    },
    /// Two objects have the same name.
    #[error("{field}: the name `{name}` is reserved for the sidecar; choose another one")]
    Name {
        /// The field of the second object.
        field: &'static str,
        /// The duplicate name.
        name: String,
    },
    /// A container uses a port that the sidecar needs.
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
        /// The type that the field must have.
        expected: &'static str,
    },
    /// A container runs as the proxy's user. The redirection recognizes the proxy by this user, so the container's
    /// connections would not be redirected.
    #[error("{container}: runAsUser 2102 is reserved for the sidecar; choose another one")]
    User {
        /// The name of the container.
        container: String,
    },
}
