//! The bars of an experiment: its required results, and whether they are reached.

use crate::report::{Table, number};

/// The highest values of Maglor over those of linkerd2-proxy.
pub(crate) mod beside_linkerd {
    /// Processor time per request, as a single proxy and as a pair.
    pub(crate) const CPU: f64 = 0.40;
    pub(crate) const CPU_OF_PAIR: f64 = 0.33;
    /// Memory, by each way to count it.
    pub(crate) const MEMORY: f64 = 0.25;
}

/// A condition on a measured value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    what: String,
    limit: Limit,
    measured: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    pub(crate) fn at_least(what: impl Into<String>, least: f64, measured: Option<f64>) -> Self {
        Self {
            what: what.into(),
            limit: Limit::AtLeast(least),
            measured,
        }
    }

    pub(crate) fn at_most(what: impl Into<String>, most: f64, measured: Option<f64>) -> Self {
        Self {
            what: what.into(),
            limit: Limit::AtMost(most),
            measured,
        }
    }

    /// Returns whether it was reached; without a measurement it was not.
    pub(crate) fn is_reached(&self) -> bool {
        self.measured.is_some_and(|measured| match self.limit {
            Limit::AtLeast(least) => measured >= least,
            Limit::AtMost(most) => measured <= most,
        })
    }
}

/// Formats the bars as a table.
pub(crate) fn table(bars: &[Bar]) -> String {
    let mut table = Table::new(["bar", "wanted", "measured", "verdict"]);
    for bar in bars {
        let wanted = match bar.limit {
            Limit::AtLeast(least) => format!("≥ {}", number(Some(least))),
            Limit::AtMost(most) => format!("≤ {}", number(Some(most))),
        };
        let verdict = if bar.is_reached() { "pass" } else { "FAIL" };
        table.row(vec![
            bar.what.clone(),
            wanted,
            number(bar.measured),
            verdict.into(),
        ]);
    }
    table.markdown()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let bars = [
            Bar::at_most("a", 1.25, Some(1.25)),
            Bar::at_most("b", 1.25, Some(1.3)),
            Bar::at_least("c", 2.0, Some(3.0)),
            Bar::at_least("d", 2.0, None),
        ];
        let reached: Vec<_> = bars.iter().map(Bar::is_reached).collect();
        assert_eq!(reached, [true, false, true, false]);
        let text = table(&bars);
        assert_eq!(text.matches("FAIL").count(), 2, "{text}");
        assert!(text.contains("≥ 2.00"), "{text}");
    }
}
