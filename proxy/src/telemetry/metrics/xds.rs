//! Metrics of the connection to the control plane.

use maglor_telemetry::{Counter, Gauge, Registry};

/// Metric handles for the connection to the control plane.
#[derive(Debug)]
pub(crate) struct XdsMetrics {
    pub(crate) connected: Gauge,
    pub(crate) targets: Gauge,
    pub(crate) inbound: Gauge,
    /// Whether cached resources are in use; also shown by `/ready`.
    pub(crate) cached: Gauge,
    pub(crate) accepted: Counter,
    pub(crate) refused: Counter,
}

impl XdsMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let gauge = |name, help| registry.gauge(name, help, &[]).with(&[]);
        let updates = registry.counter(
            "xds_updates_total",
            "Responses of the control plane, by result.",
            &["result"],
        );
        Self {
            connected: gauge("xds_connected", "1 if connected to the control plane."),
            targets: gauge(
                "xds_targets",
                "Hosts and addresses that are subscribed to on demand.",
            ),
            inbound: gauge(
                "xds_inbound",
                "Inbound listeners configured by the control plane.",
            ),
            cached: gauge(
                "xds_cached",
                "1 if the proxy uses cached resources because the control plane has not answered since the start.",
            ),
            accepted: updates.with(&["accepted"]),
            refused: updates.with(&["refused"]),
        }
    }
}
