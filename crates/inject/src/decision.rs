//! Reasons why a pod has no sidecar.

/// Why a pod is left as it is. The words are those of logs, events and metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Skip {
    /// Its init container is there.
    #[error("the container `maglor-proxy` already exists")]
    AlreadyInjected,
    /// It says so itself, or its namespace does.
    #[error("`maglor.dev/inject` is `disabled`")]
    Disabled,
    /// The redirection would be the node's, of every pod on it.
    #[error("hostNetwork: redirection would affect the node's own connections")]
    HostNetwork,
    /// Injection is not enabled.
    #[error("neither the pod nor its namespace has `maglor.dev/inject: enabled`")]
    NotEnabled,
    /// The proxy runs on Linux.
    #[error("its operating system is not Linux")]
    OtherSystem,
}

impl Skip {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::AlreadyInjected,
        Self::Disabled,
        Self::HostNetwork,
        Self::NotEnabled,
        Self::OtherSystem,
    ];

    /// In one word, for metrics.
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

/// Why a pod that should have a sidecar cannot have one. It is not started without one: a user who relies on mutual
/// TLS and policies would not notice that there are none.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// An annotation, or the label, cannot be read.
    #[error("{name}: {reason}")]
    Annotation {
        /// Its name.
        name: &'static str,
        /// The error, and what to write instead.
        reason: String,
    },
    /// Two of the same name.
    #[error("{field}: the name `{name}` is reserved for the sidecar; choose another one")]
    Name {
        /// Where it stands.
        field: &'static str,
        /// The name.
        name: String,
    },
    /// The sidecar listens there.
    #[error("{container}: port {port} is reserved for the sidecar; choose another one")]
    Port {
        /// Whose it is.
        container: String,
        /// The port.
        port: u16,
    },
    /// The pod does not have the shape of one.
    #[error("{field}: must be {expected}")]
    Shape {
        /// Which field.
        field: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// The proxy is known by its user: connections of another container of this user would not be redirected.
    #[error("{container}: runAsUser 2102 is reserved for the sidecar; choose another one")]
    User {
        /// Whose it is.
        container: String,
    },
}
