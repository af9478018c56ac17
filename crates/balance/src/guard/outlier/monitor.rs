//! Counts the responses of one endpoint: written by every worker, read by the detector.

use super::{Finding, OutlierParams};
use crate::guard::{GrpcStatus, Percent};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The result of a request, as classified by outlier ejection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Sample {
    /// A client error by its status: 400–499, or a gRPC status other than `OK`. It counts as a success, except in the
    /// comparison with peers.
    ClientError,
    /// A gateway error: 502, 503, 504, or gRPC `UNAVAILABLE`, `DEADLINE_EXCEEDED`.
    GatewayError,
    /// No response: connect failure, reset, timeout of the attempt. Failures on the client's side, such as its
    /// disconnection, are not counted at all.
    LocalFailure,
    /// Another server error: 500–599, or gRPC `UNKNOWN`, `INTERNAL`, `DATA_LOSS`.
    ServerError,
    /// Any other response.
    Success,
}

impl Sample {
    /// Classifies a response with this HTTP status.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            502..=504 => Self::GatewayError,
            400..=499 => Self::ClientError,
            500..=599 => Self::ServerError,
            _ => Self::Success,
        }
    }

    /// Classifies a gRPC response. `PERMISSION_DENIED`, `UNIMPLEMENTED`, `RESOURCE_EXHAUSTED` and similar statuses
    /// concern the call, not the endpoint.
    #[must_use]
    pub const fn of_grpc(status: GrpcStatus) -> Self {
        match status {
            GrpcStatus::UNAVAILABLE | GrpcStatus::DEADLINE_EXCEEDED => Self::GatewayError,
            GrpcStatus::DATA_LOSS | GrpcStatus::INTERNAL | GrpcStatus::UNKNOWN => Self::ServerError,
            GrpcStatus::OK => Self::Success,
            _ => Self::ClientError,
        }
    }

    /// Returns whether the endpoint worked correctly; client errors are not faults of the endpoint.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::ClientError | Self::Success)
    }
}

/// The number of bits of each streak; thresholds above 2^20 − 1 cannot be reached.
const BITS: u32 = 20;
const MASK: u64 = (1 << BITS) - 1;

/// The counts of one endpoint's responses, shared by all threads.
///
/// They have a cache line of their own, so that endpoints do not disturb each other. All accesses are `Relaxed`: each
/// word is complete in itself.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Monitor {
    /// The numbers of consecutive server errors, gateway errors and failures without response.
    streaks: AtomicU64,
    /// Successes in the upper half, failures in the lower half, both modulo 2^32. A carry from one into the other, once
    /// in 2^32 failures, is harmless.
    counts: AtomicU64,
    /// Client errors, which are also among the successes, modulo 2^32.
    client_errors: AtomicU32,
}

/// The numbers of all responses of an endpoint so far, each modulo 2^32.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) successes: u32,
    /// Client errors, which are also among the successes.
    pub(super) client_errors: u32,
    pub(super) failures: u32,
}

impl Monitor {
    /// Creates the monitor of an endpoint without responses.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a sample. Returns a finding if a streak reaches its threshold, after which the streak starts again. The
    /// caller passes the finding to the detector's owner.
    #[inline]
    pub fn record(&self, sample: Sample, params: &OutlierParams) -> Option<Finding> {
        if sample.is_success() {
            if sample == Sample::ClientError {
                self.client_errors.fetch_add(1, Ordering::Relaxed);
            }
            self.counts.fetch_add(1 << 32, Ordering::Relaxed);
            // Reading first keeps the line clean in the usual case.
            if self.streaks.load(Ordering::Relaxed) != 0 {
                self.streaks.store(0, Ordering::Relaxed);
            }
            return None;
        }
        self.record_failure(sample, params)
    }

    #[cold]
    fn record_failure(&self, sample: Sample, params: &OutlierParams) -> Option<Finding> {
        self.counts.fetch_add(1, Ordering::Relaxed);
        let mut word = self.streaks.load(Ordering::Relaxed);
        loop {
            let (next, found) = Streaks::unpack(word).then(sample, params);
            let swapped = self.streaks.compare_exchange_weak(
                word,
                next.pack(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => return found,
                Err(seen) => word = seen,
            }
        }
    }

    /// Returns the successes so far, modulo 2^32.
    #[must_use]
    pub fn successes(&self) -> u32 {
        self.totals().successes
    }

    pub(super) fn totals(&self) -> Totals {
        let word = self.counts.load(Ordering::Relaxed);
        Totals {
            successes: (word >> 32) as u32,
            client_errors: self.client_errors.load(Ordering::Relaxed),
            failures: word as u32,
        }
    }

    /// Resets the streaks, after the endpoint has returned to service.
    pub(super) fn forgive(&self) {
        self.streaks.store(0, Ordering::Relaxed);
    }
}

/// The number of consecutive failures of each kind.
#[derive(Clone, Copy)]
struct Streaks {
    server: u64,
    gateway: u64,
    local: u64,
}

impl Streaks {
    fn unpack(word: u64) -> Self {
        Self {
            server: word & MASK,
            gateway: word >> BITS & MASK,
            local: word >> (2 * BITS) & MASK,
        }
    }

    fn pack(self) -> u64 {
        self.server | self.gateway << BITS | self.local << (2 * BITS)
    }

    /// Returns the streaks after one more failure, and the finding, if there is one. A failure without response counts
    /// as all three kinds. Any response ends the streak of failures without response, and a server error that is not a
    /// gateway error ends the streak of gateway errors. A finding resets all streaks.
    fn then(self, failure: Sample, params: &OutlierParams) -> (Self, Option<Finding>) {
        let longer = |streak: u64| (streak + 1).min(MASK);
        let next = Self {
            server: longer(self.server),
            gateway: match failure {
                Sample::ServerError => 0,
                _ => longer(self.gateway),
            },
            local: match failure {
                Sample::LocalFailure => longer(self.local),
                _ => 0,
            },
        };
        let found = next.found(params);
        let after = if found.is_some() {
            Self::unpack(0)
        } else {
            next
        };
        (after, found)
    }

    /// Returns, among the streaks that have reached their thresholds, the one with the highest enforcement; among equal
    /// ones the most specific, which is the most informative.
    fn found(self, params: &OutlierParams) -> Option<Finding> {
        let streaks = [
            (self.server, params.consecutive_5xx, Finding::Consecutive5xx),
            (
                self.gateway,
                params.consecutive_gateway_failure,
                Finding::ConsecutiveGatewayFailure,
            ),
            (
                self.local,
                params.consecutive_local_origin_failure,
                Finding::ConsecutiveLocalOriginFailure,
            ),
        ];
        streaks
            .into_iter()
            .filter(|(streak, threshold, finding)| {
                let off = *threshold == 0 || finding.enforced(params) == Percent::NONE;
                !off && *streak >= u64::from(*threshold)
            })
            .map(|(_, _, finding)| finding)
            .max_by_key(|finding| finding.enforced(params))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(params: &OutlierParams, samples: &[(Sample, usize)]) -> Vec<Finding> {
        let monitor = Monitor::new();
        let samples = samples
            .iter()
            .flat_map(|(s, n)| std::iter::repeat_n(*s, *n));
        samples
            .filter_map(|sample| monitor.record(sample, params))
            .collect()
    }

    #[test]
    fn statuses_are_classified() {
        assert_eq!(Sample::of_status(399), Sample::Success);
        assert_eq!(Sample::of_status(499), Sample::ClientError);
        assert_eq!(Sample::of_status(500), Sample::ServerError);
        assert_eq!(Sample::of_status(503), Sample::GatewayError);
        assert_eq!(Sample::of_status(599), Sample::ServerError);
        assert_eq!(Sample::of_status(600), Sample::Success);
        for (code, sample) in [
            (0, Sample::Success),
            (2, Sample::ServerError),
            (4, Sample::GatewayError),
            (5, Sample::ClientError),
            (7, Sample::ClientError),
            (8, Sample::ClientError),
            (12, Sample::ClientError),
            (13, Sample::ServerError),
            (14, Sample::GatewayError),
            (15, Sample::ServerError),
            (16, Sample::ClientError),
        ] {
            assert_eq!(Sample::of_grpc(GrpcStatus::new(code)), sample, "{code}");
        }
    }

    #[test]
    fn streaks_need_failures_in_a_row() {
        let params = OutlierParams::default();
        let (good, bad) = (Sample::Success, Sample::ServerError);
        assert_eq!(findings(&params, &[(bad, 4), (good, 1), (bad, 4)]), []);
        let five = [Finding::Consecutive5xx];
        assert_eq!(findings(&params, &[(bad, 5)]), five);
        assert_eq!(findings(&params, &[(bad, 10)]).len(), 2, "and again");
        assert_eq!(
            findings(&params, &[(Sample::GatewayError, 5)]),
            [Finding::ConsecutiveGatewayFailure]
        );
        assert_eq!(
            findings(&params, &[(Sample::LocalFailure, 5)]),
            [Finding::ConsecutiveLocalOriginFailure]
        );
        // An answer, even a bad one, ends a streak of silence.
        let mixed = [
            (Sample::LocalFailure, 3),
            (bad, 1),
            (Sample::LocalFailure, 1),
        ];
        assert_eq!(findings(&params, &mixed), five);
    }

    #[test]
    fn a_threshold_of_zero_finds_nothing() {
        let off = OutlierParams {
            consecutive_5xx: 0,
            consecutive_gateway_failure: 0,
            consecutive_local_origin_failure: 0,
            ..OutlierParams::default()
        };
        assert_eq!(findings(&off, &[(Sample::LocalFailure, 3_000_000)]), []);
    }

    #[test]
    fn what_is_enforced_most_is_found() {
        let mut params = OutlierParams::default();
        params.enforcing.consecutive_local_origin_failure = Percent::NONE;
        params.enforcing.consecutive_gateway_failure = Percent::whole(50);
        let silence = [(Sample::LocalFailure, 14)];
        assert_eq!(findings(&params, &silence), [Finding::Consecutive5xx; 2]);
        params.consecutive_5xx = 0;
        let gateway = [Finding::ConsecutiveGatewayFailure; 2];
        assert_eq!(findings(&params, &silence), gateway);
    }

    #[test]
    fn one_line_each() {
        assert_eq!(size_of::<Monitor>(), 64);
        let monitor = Monitor::new();
        let params = OutlierParams::default();
        for _ in 0..7 {
            let _ = monitor.record(Sample::Success, &params);
        }
        let _ = monitor.record(Sample::GatewayError, &params);
        let _ = monitor.record(Sample::ClientError, &params);
        let totals = monitor.totals();
        let counts = (totals.successes, totals.failures, totals.client_errors);
        assert_eq!(counts, (8, 1, 1));
        assert_eq!(monitor.successes(), 8);
    }
}
