//! Fixed-point codes of measured values, a series' sample in 8 bytes.

use crate::dashboard::page::model::Signals;

/// A sample of a vertex or an edge.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Record {
    rps: u16,
    p50: u16,
    p99: u16,
    failed: u8,
    in_flight: u8,
}

/// A logarithmic code: 0 = zero, the largest = unknown, and equal ratios between.
struct Code {
    least: f64,
    /// The logarithm of the ratio of two successive codes.
    step: f64,
    unknown: u16,
}

/// 0.001 to 10⁹ in steps of 0.042 %.
const WIDE: Code = Code {
    least: 1e-3,
    step: 4.215e-4,
    unknown: u16::MAX,
};
/// 0.1 to 100 000 in steps of 5.6 %.
const QUEUE: Code = Code {
    least: 0.1,
    step: 0.0546,
    unknown: 255,
};
/// 0.0001 to 1 in steps of 3.7 %.
const SHARE: Code = Code {
    least: 1e-4,
    step: 0.036_55,
    unknown: 255,
};

impl Code {
    fn encode(&self, value: Option<f64>) -> u16 {
        match value.filter(|value| value.is_finite()) {
            None => self.unknown,
            Some(value) if value < self.least * (-0.5 * self.step).exp() => 0,
            Some(value) => {
                let code = 1.0 + ((value / self.least).ln() / self.step).round();
                code.min(f64::from(self.unknown - 1)) as u16
            }
        }
    }

    fn decode(&self, code: u16) -> Option<f64> {
        match code {
            0 => Some(0.0),
            code if code == self.unknown => None,
            code => Some(self.least * (f64::from(code - 1) * self.step).exp()),
        }
    }
}

impl Record {
    /// The sample of a series that did not exist.
    pub(super) const ABSENT: Self = Self {
        rps: u16::MAX,
        p50: u16::MAX,
        p99: u16::MAX,
        failed: u8::MAX,
        in_flight: u8::MAX,
    };

    pub(super) fn of(signals: &Signals) -> Self {
        let small = |code: u16| u8::try_from(code).unwrap_or(u8::MAX);
        let failed = signals.success().map(|success| 1.0 - success);
        Self {
            rps: WIDE.encode(Some(signals.rps)),
            p50: WIDE.encode(signals.p50_ms),
            p99: WIDE.encode(signals.p99_ms),
            failed: small(SHARE.encode(failed)),
            in_flight: small(QUEUE.encode(Some(signals.in_flight))),
        }
    }

    pub(super) fn signals(self) -> Option<Signals> {
        let rps = WIDE.decode(self.rps)?;
        Some(Signals {
            rps,
            failures: SHARE.decode(u16::from(self.failed)).unwrap_or(0.0) * rps,
            mean_ms: None,
            p50_ms: WIDE.decode(self.p50),
            p99_ms: WIDE.decode(self.p99),
            in_flight: QUEUE.decode(u16::from(self.in_flight)).unwrap_or(0.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lose_little() {
        assert_eq!(size_of::<Record>(), 8);
        for (code, error, most) in [
            (&WIDE, 2.2e-4, 1e9),
            (&QUEUE, 0.028, 1e5),
            (&SHARE, 0.019, 1.0),
        ] {
            let mut value = code.least;
            while value <= most * 0.99 {
                let decoded = code.decode(code.encode(Some(value))).unwrap();
                assert!((decoded / value - 1.0).abs() <= error, "{value}: {decoded}");
                value *= 1.37;
            }
            assert_eq!(code.decode(code.encode(Some(0.0))), Some(0.0));
            assert_eq!(code.decode(code.encode(None)), None);
            assert_eq!(code.decode(code.encode(Some(f64::NAN))), None);
            assert!(code.decode(code.encode(Some(f64::MAX))).is_some());
        }
        assert_eq!(Record::ABSENT.signals(), None);
    }
}
