//! Numbers and lists in sentences.

/// Formats milliseconds: `0.4 ms`, `12 ms`, `2.1 s`.
#[must_use]
pub fn duration(ms: f64) -> String {
    if ms >= 10_000.0 {
        format!("{:.0} s", ms / 1000.0)
    } else if ms >= 1000.0 {
        format!("{:.1} s", ms / 1000.0)
    } else if ms >= 10.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{ms:.1} ms")
    }
}

/// Formats a part of a whole by the unit of the whole: `212 of 230 ms`.
pub(super) fn part(ms: f64, of: f64) -> String {
    let (ms, of) = (duration(ms), duration(of));
    match (ms.split_once(' '), of.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} of {of}"),
        _ => format!("{ms} of {of}"),
    }
}

/// Formats a number with a noun: `1 request`, `3 requests`.
pub(super) fn count(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Joins a list: `a`, `a and b`, `a, b and c`.
pub(super) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_or_three_digits() {
        let of = |ms| duration(ms);
        assert_eq!(of(0.42), "0.4 ms");
        assert_eq!(of(212.4), "212 ms");
        assert_eq!(of(2130.0), "2.1 s");
        assert_eq!(of(61_000.0), "61 s");
        assert_eq!(part(212.0, 230.0), "212 of 230 ms");
        assert_eq!(part(212.0, 2300.0), "212 ms of 2.3 s");
    }

    #[test]
    fn lists_end_with_and() {
        let parts = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(list(&parts), "a, b and c");
        assert_eq!(list(&parts[..2]), "a and b");
        assert_eq!(count(1_u32, "request"), "1 request");
    }
}
