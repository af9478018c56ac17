//! Axes: map values to positions, and choose the values of grid lines.

/// One axis, from `from` at 0 to `to` at 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    log: bool,
}

/// The approximate number of grid lines of an axis.
const NUMBERS: f64 = 6.0;

impl Scale {
    /// Returns an axis for these values that begins and ends with a round number.
    ///
    /// With `from_zero`, a linear axis begins at zero unless that would leave most of the chart empty. NaN has no
    /// position, nor have values that are not positive on a logarithmic axis.
    pub(super) fn around(values: impl Iterator<Item = f64>, log: bool, from_zero: bool) -> Self {
        let values = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if low > high {
            // No values.
            return Self {
                from: if log { 1.0 } else { 0.0 },
                to: if log { 10.0 } else { 1.0 },
                log,
            };
        }
        if log {
            return Self::logarithmic(low, high);
        }
        let low = if from_zero && low > 0.0 && low < 0.6 * high {
            0.0
        } else {
            low
        };
        let high = if high > low { high } else { low + 1.0 };
        let step = step(high - low);
        Self {
            from: (low / step + 1e-9).floor() * step,
            to: (high / step - 1e-9).ceil() * step,
            log,
        }
    }

    fn logarithmic(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low * 10.0 };
        let steps =
            || (-30..=30).flat_map(|decade| [1.0, 2.0, 5.0].map(|d| d * 10f64.powi(decade)));
        let below = |value: &f64| *value <= low * (1.0 + 1e-9);
        let above = |value: &f64| *value >= high * (1.0 - 1e-9);
        Self {
            from: steps().take_while(below).last().unwrap_or(low),
            to: steps().find(above).unwrap_or(high),
            log: true,
        }
    }

    /// Returns the position of a value: 0 at the beginning of the axis, 1 at its end. `None` if it
    /// has none.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = if self.log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        place.is_finite().then_some(place)
    }

    /// Returns the value on the axis that is nearest to this one.
    pub(super) fn clamp(&self, value: f64) -> f64 {
        value.clamp(self.from, self.to)
    }

    /// Returns the values with a grid line and a number.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.log {
            return self.logarithmic_ticks();
        }
        let step = step(self.to - self.from);
        let count = ((self.to - self.from) / step).round();
        (0..=count as usize)
            .map(|index| (self.from / step + index as f64).round() * step)
            .collect()
    }

    /// Returns powers of ten, with 2 and 5 between them if there is room.
    fn logarithmic_ticks(&self) -> Vec<f64> {
        let decades = (self.to / self.from).log10();
        let parts: &[f64] = if decades > 3.5 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let first = self.from.log10().floor() as i32;
        let last = self.to.log10().ceil() as i32;
        (first..=last)
            .flat_map(|decade| parts.iter().map(move |part| part * 10f64.powi(decade)))
            .filter(|value| *value > self.from * (1.0 - 1e-9) && *value < self.to * (1.0 + 1e-9))
            .collect()
    }
}

/// Returns the round distance (1, 2 or 5 times a power of ten) that divides a range into about six.
fn step(range: f64) -> f64 {
    let raw = range / NUMBERS;
    let magnitude = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0].map(|part| part * magnitude);
    let nearest = step.into_iter().find(|step| *step >= raw * (1.0 - 1e-9));
    nearest.unwrap_or(10.0 * magnitude)
}

/// Formats a number of an axis: without trailing zeros, and with a thousands suffix.
pub(super) fn number(value: f64) -> String {
    if value.abs() >= 1e6 {
        return format!("{:e}", (value * 1e-3).round() * 1e3);
    }
    // Multiples of a step have a rounding error.
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(number).collect()
    }

    #[test]
    fn a_linear_axis_has_round_numbers_and_begins_at_zero_if_that_is_near() {
        let scale = Scale::around([35.2, 61.0, 80.0].into_iter(), false, true);
        assert_eq!(numbers(&scale), ["0", "20", "40", "60", "80"]);
        assert_eq!(scale.place(20.0), Some(0.25));
        let scale = Scale::around([0.31, 0.95].into_iter(), false, true);
        assert_eq!(numbers(&scale), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        let scale = Scale::around([101.0, 108.0].into_iter(), false, true);
        assert_eq!(numbers(&scale), ["100", "102", "104", "106", "108"]);
        let scale = Scale::around([1.0, 4.0].into_iter(), false, false);
        assert_eq!(numbers(&scale)[0], "1");
    }

    #[test]
    fn a_logarithmic_axis_has_powers_of_ten_and_what_fits_between() {
        let scale = Scale::around([1.0, 200.0].into_iter(), true, true);
        assert_eq!(
            numbers(&scale),
            ["1", "2", "5", "10", "20", "50", "100", "200"]
        );
        assert_eq!(scale.place(-1.0), None);
        assert_eq!(scale.place(1.0), Some(0.0));
        let scale = Scale::around([0.02, 90_000.0].into_iter(), true, true);
        assert_eq!(
            numbers(&scale),
            ["0.1", "1", "10", "100", "1000", "10000", "100000"]
        );
    }

    #[test]
    fn an_axis_without_values_or_with_one_is_still_an_axis() {
        for log in [false, true] {
            for values in [vec![], vec![5.0], vec![f64::NAN], vec![0.0]] {
                let scale = Scale::around(values.iter().copied(), log, true);
                assert!(scale.ticks().len() >= 2, "{values:?} {log} {scale:?}");
            }
        }
    }
}
