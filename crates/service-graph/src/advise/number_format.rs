//! Formats numbers for reasons, and rounds them for settings.

use std::time::Duration;

/// Formats a number with three significant digits.
pub(super) fn number(value: f64) -> String {
    if value <= 0.0 {
        return "0".to_owned();
    }
    let digits = 2 - value.log10().floor() as i32;
    let text = format!("{value:.*}", digits.clamp(0, 9) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Formats a share in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

/// Formats a time in milliseconds, or in seconds from one second on.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds < 1.0 {
        true => format!("{} ms", number(seconds * 1e3)),
        false => format!("{} s", number(seconds)),
    }
}

/// Rounds up to two significant digits, so that settings are easy to read.
pub(super) fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let unit = 10f64.powi(value.log10().floor() as i32 - 1).max(1.0);
    // The tolerance absorbs errors in the last bit of a float.
    (value / unit - 1e-9).ceil() * unit
}

/// Converts a rate to a count of at most `most`.
pub(super) fn count(value: f64, most: u32) -> u32 {
    value.ceil().clamp(0.0, f64::from(most)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.012_345, "0.0123"),
            (1.5, "1.5"),
            (12.0, "12"),
            (123.4, "123"),
            (98_765.4, "98765"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(percent(0.015), "1.5 %");
        assert_eq!(span(Duration::from_millis(187)), "187 ms");
        assert_eq!(span(Duration::from_millis(1500)), "1.5 s");
    }

    #[test]
    fn settings_are_round() {
        for (value, round) in [
            (0.0, 0.0),
            (3.2, 4.0),
            (32.0, 32.0),
            (321.0, 330.0),
            (1001.0, 1100.0),
        ] {
            assert_eq!(round_up(value), round);
        }
    }
}
