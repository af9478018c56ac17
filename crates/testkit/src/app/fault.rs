//! Faults on demand.

use std::time::Duration;

use maglor_balance::Rng;
use serde::{Deserialize, Serialize};

/// The fault of requests to an instance, in the format of `PUT /faults`. The default has no effect.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// Share of the requests that are answered with `status` after their work, 0–1. They make
    /// no calls.
    pub status_share: f64,
    /// 400–599.
    pub status: u16,
    /// Share of the requests that are answered later, 0–1.
    pub delay_share: f64,
    /// By how many milliseconds, 0–3 600 000.
    pub delay_ms: u32,
}

impl Fault {
    /// Validates every number.
    ///
    /// # Errors
    ///
    /// The first one that is out of range, by name.
    pub fn check(&self) -> Result<(), String> {
        let shares = [
            ("status_share", self.status_share),
            ("delay_share", self.delay_share),
        ];
        for (name, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{name}: {share} is out of range; valid: 0-1"));
            }
        }
        if self.status_share > 0.0 && !(400..=599).contains(&self.status) {
            let status = self.status;
            return Err(format!("status: {status} is out of range; valid: 400-599"));
        }
        if self.delay_ms > 3_600_000 {
            let delay = self.delay_ms;
            return Err(format!(
                "delay_ms: {delay} is out of range; valid: 0-3600000"
            ));
        }
        Ok(())
    }

    /// Draws the fault of one request: its status, if it fails, and the delay of its response.
    pub(super) fn draw(&self, rng: &mut Rng) -> (Option<u16>, Duration) {
        let mut hit = |share: f64| share > 0.0 && rng.unit() < share;
        let status = hit(self.status_share).then_some(self.status);
        let delay = if hit(self.delay_share) {
            self.delay_ms
        } else {
            0
        };
        (status, Duration::from_millis(delay.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_hold_and_nonsense_is_named() {
        let fault = Fault {
            status_share: 0.3,
            status: 503,
            delay_share: 0.5,
            delay_ms: 7,
        };
        fault.check().unwrap();
        let mut rng = Rng::seed(crate::seed());
        let drawn: Vec<_> = (0..10_000).map(|_| fault.draw(&mut rng)).collect();
        let failed = drawn
            .iter()
            .filter(|(status, _)| *status == Some(503))
            .count();
        let late = drawn
            .iter()
            .filter(|(_, delay)| delay.as_millis() == 7)
            .count();
        assert!(failed.abs_diff(3000) < 250, "{failed}");
        assert!(late.abs_diff(5000) < 250, "{late}");
        let none = Fault::default().draw(&mut rng);
        assert_eq!(none, (None, Duration::ZERO));
        for (bad, name) in [
            (
                Fault {
                    status_share: 2.0,
                    ..fault
                },
                "status_share",
            ),
            (
                Fault {
                    delay_share: f64::NAN,
                    ..fault
                },
                "delay_share",
            ),
            (
                Fault {
                    status: 200,
                    ..fault
                },
                "status:",
            ),
            (
                Fault {
                    delay_ms: u32::MAX,
                    ..fault
                },
                "delay_ms",
            ),
        ] {
            let error = bad.check().unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
