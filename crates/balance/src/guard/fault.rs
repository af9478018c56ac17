//! Fault injection, and emulation of network distance.
//!
//! A fault delays or aborts a share of the requests (Envoy's fault filter, Istio's `HTTPFaultInjection`). The two draws
//! are independent, so a request may be delayed and aborted. A distance delays every request to a cluster, to emulate a
//! remote cluster.

use std::time::Duration;

use super::{GrpcStatus, Percent};
use crate::Rng;

/// The faults that are injected into a share of the requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FaultParams {
    /// The delay before a request is forwarded; `None` = no delays.
    pub delay: Option<FaultDelay>,
    /// The response of the proxy instead of forwarding; `None` = no aborts. A request that gets both is answered after
    /// the delay.
    pub abort: Option<FaultAbort>,
}

/// A delay of a share of the requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FaultDelay {
    /// The share of the requests that are delayed.
    pub percent: Percent,
    /// The length of the delay.
    pub fixed_delay: Duration,
}

/// An abort of a share of the requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FaultAbort {
    /// The share of the requests that are aborted.
    pub percent: Percent,
    /// The response to an aborted request.
    pub answer: AbortAnswer,
}

/// The response to an aborted request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AbortAnswer {
    /// A gRPC status.
    Grpc(GrpcStatus),
    /// An HTTP status, 200–599.
    Http(u16),
}

/// The faults of one request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Injected {
    /// The delay before the request is forwarded or aborted; `None` = none.
    pub delay: Option<Duration>,
    /// The response to the request, after the delay; `None` = the request is forwarded.
    pub abort: Option<AbortAnswer>,
}

impl FaultParams {
    /// Draws the faults of one request.
    pub fn decide(&self, rng: &mut Rng) -> Injected {
        let delay = self.delay.filter(|delay| delay.percent.hits(rng));
        let abort = self.abort.filter(|abort| abort.percent.hits(rng));
        Injected {
            delay: delay.map(|delay| delay.fixed_delay),
            abort: abort.map(|abort| abort.answer),
        }
    }
}

/// A delay of every request to a cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Distance {
    /// The round-trip delay.
    pub fixed: Duration,
    /// The maximum of the uniform random addition to the delay.
    pub jitter: Duration,
}

impl Distance {
    /// Draws the delay of one request.
    pub fn draw(&self, rng: &mut Rng) -> Duration {
        if self.jitter.is_zero() {
            return self.fixed;
        }
        self.fixed.saturating_add(self.jitter.mul_f64(rng.unit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_and_abort_are_drawn_apart() {
        let fault = FaultParams {
            delay: Some(FaultDelay {
                percent: Percent::whole(20),
                fixed_delay: Duration::from_millis(500),
            }),
            abort: Some(FaultAbort {
                percent: Percent::whole(30),
                answer: AbortAnswer::Http(500),
            }),
        };
        let (mut rng, mut seen) = (Rng::seed(11), [0_u32; 3]);
        for _ in 0..50_000 {
            let got = fault.decide(&mut rng);
            let both = got.delay.is_some() && got.abort.is_some();
            seen[0] += u32::from(got.delay.is_some());
            seen[1] += u32::from(got.abort.is_some());
            seen[2] += u32::from(both);
        }
        // 5 standard deviations of binomials with n = 50 000 and p = 0.2, 0.3, 0.06.
        assert!(seen[0].abs_diff(10_000) < 450, "{seen:?}");
        assert!(seen[1].abs_diff(15_000) < 520, "{seen:?}");
        assert!(seen[2].abs_diff(3_000) < 270, "{seen:?}");
        assert_eq!(FaultParams::default().decide(&mut rng), Injected::default());
    }

    #[test]
    fn a_distance_stays_within_its_jitter() {
        let mut rng = Rng::seed(12);
        let far = Distance {
            fixed: Duration::from_millis(20),
            jitter: Duration::from_millis(5),
        };
        for _ in 0..1000 {
            let drawn = far.draw(&mut rng);
            assert!(drawn >= far.fixed && drawn < far.fixed + far.jitter);
        }
    }
}
