//! Faults on purpose, and distance on purpose.
//!
//! A fault delays or refuses a share of the requests (Envoy's fault filter, Istio's
//! `HTTPFaultInjection`); the two draws are independent, and a request may get both. A distance
//! delays every request to a cluster, to emulate a far one.

use std::time::Duration;

use super::{GrpcStatus, Percent};
use crate::Rng;

/// What is done to a share of the requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FaultParams {
    /// Held back before it is forwarded.
    pub delay: Option<FaultDelay>,
    /// Answered by the proxy instead of being forwarded, after the delay if it gets both.
    pub abort: Option<FaultAbort>,
}

/// A delay of a share of the requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FaultDelay {
    /// Which share.
    pub percent: Percent,
    /// How long.
    pub fixed_delay: Duration,
}

/// A refusal of a share of the requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FaultAbort {
    /// Which share.
    pub percent: Percent,
    /// With what.
    pub answer: AbortAnswer,
}

/// The answer to a request that is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AbortAnswer {
    /// A gRPC status.
    Grpc(GrpcStatus),
    /// A status of HTTP, 200–599.
    Http(u16),
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Injected {
    /// Wait this long first.
    pub delay: Option<Duration>,
    /// Then answer with this.
    pub abort: Option<AbortAnswer>,
}

impl FaultParams {
    /// Decides about one request.
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
    /// The delay, there and back together.
    pub fixed: Duration,
    /// A uniform extra between 0 and this.
    pub jitter: Duration,
}

impl Distance {
    /// The delay of one request.
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
