//! Outlier ejection: endpoints whose answers are bad are left out for a while.
//!
//! Every worker writes to the [`Monitor`] of the endpoint that it has an answer from; a monitor says
//! at once when failures in a row reach a threshold. One [`Detector`] a cluster, owned by the task that
//! builds its views, decides: it alone knows how many are out already. What it decides it returns
//! as [`Event`]s, for [`EndpointStats::set_ejected`], metrics and logs.
//!
//! ```text
//! serving ──► ejected (base time × recent ejections) ──► probed ──► serving, with slow start
//!    ▲   found, and the guard has room        ▲             │ failed: again after `probe_interval`
//!    │                                        └─────────────┘
//! ```
//!
//! The guard: `max_ejection_percent` of the endpoints, rounded down, all but one at most
//! ([`OutlierParams::max_ejections`]). It is enforced by counts at every ejection and at every change
//! of the set: when endpoints leave, those whose time ends first return early.
//!
//! The way back: an endpoint that has served its time is probed (a health check, where there is one;
//! a connection or a single request otherwise) every `probe_interval` until it answers. When no
//! endpoint in service answers well any more, ejections do not last their time: all that are out are
//! probed, so the first one that recovers is found within `probe_interval`. A caller without probes
//! answers [`Event::Probe`] with success at once, and has Envoy's behaviour.
//!
//! Detectors and numbers are Envoy's; the differences are in [`OutlierParams`]. One is not there: an endpoint
//! whose answers have statuses that its peers' have not, 4xx included, is found without any volume to configure. A failure without
//! answer counts as a server error and a gateway failure, too, as with Envoy's
//! `split_external_local_origin_errors` off.
//!
//! [`EndpointStats::set_ejected`]: crate::EndpointStats::set_ejected

mod detector;
mod difference;
mod monitor;
mod params;
mod rates;

use std::time::Duration;

pub use detector::{Detector, Watched};
pub use monitor::{Monitor, Sample};
pub use params::{Enforcing, OutlierParams};

use super::Percent;
use crate::Time;

/// What is wrong with an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// `consecutive_5xx` server errors in a row.
    Consecutive5xx,
    /// `consecutive_gateway_failure` gateway errors in a row.
    ConsecutiveGatewayFailure,
    /// `consecutive_local_origin_failure` failures without answer in a row.
    ConsecutiveLocalOriginFailure,
    /// Too large a part of its requests failed.
    FailurePercentage {
        /// Which part, 0–100.
        percent: f64,
    },
    /// It succeeds less than the others.
    SuccessRate {
        /// Its success rate, 0–100.
        rate: f64,
        /// What it should have been.
        threshold: f64,
    },
    /// It answers requests with errors, those of clients (4xx) included, that its peers answer well.
    StatusDifference {
        /// Which part of its answers were errors, 0–100.
        percent: f64,
        /// Which part of the other endpoints' were, 0–100.
        peers: f64,
    },
}

impl Finding {
    /// Every name.
    pub const NAMES: [&str; 6] = [
        "consecutive-5xx",
        "consecutive-gateway-failure",
        "consecutive-local-origin-failure",
        "failure-percentage",
        "success-rate",
        "status-difference",
    ];

    /// The reason in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.number()]
    }

    /// Its position in [`Self::NAMES`].
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

/// What the detector decided about the endpoint with this id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// It is out: leave it out of the view.
    Ejected {
        /// Which endpoint.
        id: u64,
        /// Why.
        finding: Finding,
        /// For how long at least.
        time: Duration,
        /// How often recently, this time included.
        count: u32,
    },
    /// It may return: probe it, and report the result to [`Detector::probed`].
    Probe {
        /// Which endpoint.
        id: u64,
    },
    /// It is back: put it into the view, with `added_at` now for slow start.
    Returned {
        /// Which endpoint.
        id: u64,
        /// How long it was out.
        after: Duration,
    },
    /// It was found but stays, for metrics.
    Spared {
        /// Which endpoint.
        id: u64,
        /// What was found.
        finding: Finding,
        /// Why it stays.
        why: Spared,
    },
}

/// Why an endpoint that was found stays in service.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Spared {
    /// As many as may be are out already.
    MaxEjectionPercent,
    /// The detector is not enforced, or this time not.
    NotEnforced,
}

impl Spared {
    /// The reason in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxEjectionPercent => "max-ejection-percent",
            Self::NotEnforced => "not-enforced",
        }
    }
}

/// Where an endpoint stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EjectionState {
    /// It is out.
    Ejected {
        /// Since when.
        since: Time,
        /// It is probed from here.
        until: Time,
        /// Why.
        finding: Finding,
    },
    /// It serves.
    Serving,
}
