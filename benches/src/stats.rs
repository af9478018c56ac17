//! Medians, quantiles and paired ratios.

use std::time::Duration;

/// Returns the median; the mean of the two middle values for an even count. `None` when empty.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values
        .into_iter()
        .filter(|value| value.is_finite())
        .collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Returns the value in milliseconds that the fraction `q` of `sorted` does not exceed; NaN when
/// empty.
pub(crate) fn quantile(sorted: &[Duration], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    let value = sorted.get(rank.saturating_sub(1));
    value.map_or(f64::NAN, |value| value.as_secs_f64() * 1e3)
}

/// Returns the median of `a / b` over the rounds in which both were measured.
///
/// Values of the same round share the noise of that minute, which a ratio of medians would not
/// cancel.
pub(crate) fn paired_ratio(a: &[(u32, f64)], b: &[(u32, f64)]) -> Option<f64> {
    paired(a, b, |x, y| x / y)
}

/// Returns the median of `a - b` over the rounds in which both were measured.
pub(crate) fn paired_difference(a: &[(u32, f64)], b: &[(u32, f64)]) -> Option<f64> {
    paired(a, b, |x, y| x - y)
}

fn paired(a: &[(u32, f64)], b: &[(u32, f64)], join: fn(f64, f64) -> f64) -> Option<f64> {
    median(a.iter().filter_map(|(round, x)| {
        let (_, y) = b.iter().find(|(other, _)| other == round)?;
        Some(join(*x, *y))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([f64::NAN, 7.0]), Some(7.0));
    }

    #[test]
    fn quantiles() {
        let times: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        assert!((quantile(&times, 0.99) - 99.0).abs() < 1e-9);
        assert!((quantile(&times, 0.5) - 50.0).abs() < 1e-9);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn ratios_pair_within_rounds() {
        let quiet_then_noisy = [(0, 10.0), (1, 100.0), (2, 30.0)];
        let peer = [(0, 20.0), (1, 200.0), (3, 1.0)];
        assert_eq!(paired_ratio(&quiet_then_noisy, &peer), Some(0.5));
        assert_eq!(paired_difference(&quiet_then_noisy, &peer), Some(-55.0));
        assert_eq!(paired_ratio(&quiet_then_noisy, &[]), None);
    }
}
