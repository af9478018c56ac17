//! Outlier ejection: endpoints with bad responses are removed from balancing for a while.
//!
//! Every worker writes to the [`Monitor`] of the endpoint whose response it received; a monitor
//! reports immediately when consecutive failures reach a threshold. One [`Detector`] per cluster, owned
//! by the task that builds its views, decides: only it knows how many are ejected already. It
//! returns its decisions as [`Event`]s, for [`EndpointStats::set_ejected`], metrics and logs.
//!
//! ```text
//! serving ──► ejected (base time × recent ejections) ──► probed ──► serving, with slow start
//!    ▲   found, and the guard has room        ▲             │ failed: again after `probe_interval`
//!    │                                        └─────────────┘
//! ```
//!
//! The limit: `max_ejection_percent` of the endpoints, rounded down, all but one at most
//! ([`OutlierParams::max_ejections`]). It is enforced by counts at every ejection and at every
//! change of the set: when endpoints leave, those whose ejection ends first return early.
//!
//! The return: after its ejection time an endpoint is probed (by a health check, if configured; by
//! a connection or a single request otherwise) every `probe_interval` until a probe succeeds. When
//! no endpoint in service responds successfully any more, ejections end early: all ejected ones are
//! probed, so the first one that recovers is found within `probe_interval`. A caller without probes
//! responds to [`Event::Probe`] with success at once, and has Envoy's behaviour.
//!
//! Detectors and numbers are Envoy's; the differences are in [`OutlierParams`]. One detector does
//! not exist in Envoy: an endpoint whose responses have statuses that its peers' have not,
//! including 4xx, is detected without a configured volume. A failure without response counts as a
//! server error and a gateway failure, too, as with Envoy's `split_external_local_origin_errors`
//! off.
//!
//! [`EndpointStats::set_ejected`]: crate::EndpointStats::set_ejected

mod difference;
mod ejector;
mod monitor;
mod params;
mod rates;

use std::time::Duration;

pub use ejector::{Detector, Watched};
pub use monitor::{Monitor, Sample};
pub use params::{Enforcing, OutlierParams};

use super::Percent;
use crate::Time;

/// The reason for an ejection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// `consecutive_5xx` consecutive server errors.
    Consecutive5xx,
    /// `consecutive_gateway_failure` consecutive gateway errors.
    ConsecutiveGatewayFailure,
    /// `consecutive_local_origin_failure` consecutive failures without a response.
    ConsecutiveLocalOriginFailure,
    /// Too large a share of the endpoint's requests failed.
    FailurePercentage {
        /// The share of failures in percent, 0–100.
        percent: f64,
    },
    /// The endpoint's success rate is lower than those of the others.
    SuccessRate {
        /// The success rate in percent, 0–100.
        rate: f64,
        /// The success rate, in percent, below which an endpoint is an outlier, 0–100.
        threshold: f64,
    },
    /// The endpoint responds with errors, including client errors (4xx), to requests to which its peers respond
    /// successfully.
    StatusDifference {
        /// The share of the endpoint's responses that were errors, in percent, 0–100.
        percent: f64,
        /// The share of the other endpoints' responses that were errors, in percent, 0–100.
        peers: f64,
    },
}

impl Finding {
    /// The names of all findings.
    pub const NAMES: [&str; 6] = [
        "consecutive-5xx",
        "consecutive-gateway-failure",
        "consecutive-local-origin-failure",
        "failure-percentage",
        "success-rate",
        "status-difference",
    ];

    /// Returns the name of the finding in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.number()]
    }

    /// Returns the index of the finding in [`Self::NAMES`].
    #[must_use]
    pub const fn number(self) -> usize {
        match self {
            Self::Consecutive5xx => 0,
            Self::ConsecutiveGatewayFailure => 1,
            Self::ConsecutiveLocalOriginFailure => 2,
            Self::FailurePercentage { .. } => 3,
            Self::SuccessRate { .. } => 4,
            Self::StatusDifference { .. } => 5,
        }
    }

    fn enforced(self, params: &OutlierParams) -> Percent {
        let enforcing = &params.enforcing;
        match self {
            Self::Consecutive5xx => enforcing.consecutive_5xx,
            Self::ConsecutiveGatewayFailure => enforcing.consecutive_gateway_failure,
            Self::ConsecutiveLocalOriginFailure => enforcing.consecutive_local_origin_failure,
            Self::FailurePercentage { .. } => enforcing.failure_percentage,
            Self::SuccessRate { .. } => enforcing.success_rate,
            Self::StatusDifference { .. } => enforcing.status_difference,
        }
    }
}

/// A decision of the detector about an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The endpoint is ejected: remove it from the view.
    Ejected {
        /// The id of the endpoint.
        id: u64,
        /// The reason.
        finding: Finding,
        /// The minimum duration of the ejection.
        time: Duration,
        /// The number of recent ejections of the endpoint, including this one.
        count: u32,
    },
    /// The ejection time is over: probe the endpoint, and report the result to [`Detector::probed`].
    Probe {
        /// The id of the endpoint.
        id: u64,
    },
    /// The endpoint returns: add it to the view, with the present time as `added_at`, for slow start.
    Returned {
        /// The id of the endpoint.
        id: u64,
        /// The duration of the ejection.
        after: Duration,
    },
    /// The endpoint was detected but not ejected; for metrics.
    Spared {
        /// The id of the endpoint.
        id: u64,
        /// The reason of the detection.
        finding: Finding,
        /// The reason why the endpoint was not ejected.
        why: Spared,
    },
}

/// The reason why a detected endpoint stays in service.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Spared {
    /// The maximum number of endpoints is already ejected.
    MaxEjectionPercent,
    /// The detector is not enforced, or not for this finding.
    NotEnforced,
}

impl Spared {
    /// Returns the name of the reason in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxEjectionPercent => "max-ejection-percent",
            Self::NotEnforced => "not-enforced",
        }
    }
}

/// The ejection state of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EjectionState {
    /// The endpoint is ejected.
    Ejected {
        /// When the ejection began.
        since: Time,
        /// When the ejection time ends, after which the endpoint is probed.
        until: Time,
        /// The reason.
        finding: Finding,
    },
    /// The endpoint is in service.
    Serving,
}
