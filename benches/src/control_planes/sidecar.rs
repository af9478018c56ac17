//! The ports of a pod and of its sidecar.

/// The port of the application.
pub(super) const APPLICATION: u16 = 8080;

/// What the sidecars of a control plane have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sidecar {
    /// The name of the container that the control plane injects.
    pub(super) container: &'static str,
    /// The audience of tokens with which proxies authenticate.
    pub(super) audience: &'static str,
    /// The port for connections to the application.
    pub(super) inbound: u16,
    /// The port for connections from the application.
    pub(super) outbound: u16,
    /// Port and path of the metrics.
    pub(super) metrics: (u16, &'static str),
    /// Ports of the pod's loopback that lead to these ports of control-plane programs.
    pub(super) control: &'static [(u16, u16)],
}
