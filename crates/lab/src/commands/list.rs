//! Options with several numbers, for sweeps: `1,20,200`, `0.1:0.9:0.2`, or both.

use std::str::FromStr;

/// The limit of numbers in an option.
const MOST: usize = 10_000;

/// The largest whole number of a range that is exact as a floating-point number.
const LARGEST: f64 = 9_007_199_254_740_992.0;

/// The numbers of an option, in the order in which they are written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

/// A type of numbers.
pub(crate) trait Number: FromStr {
    /// The correction of a wrong one.
    const EXPECTED: &'static str;

    /// Converts a number of a range; `None` if the type has no such number.
    fn of(value: f64) -> Option<Self>;
}

impl Number for f64 {
    const EXPECTED: &'static str =
        "expected a number, such as 0.75, a list 0.5,0.75, or a range FROM:TO:STEP";

    fn of(value: f64) -> Option<Self> {
        // Multiples of a step have a rounding error.
        format!("{value:.12}").parse().ok()
    }
}

impl Number for u32 {
    const EXPECTED: &'static str = WHOLE;

    fn of(value: f64) -> Option<Self> {
        u64::of(value).and_then(|whole| whole.try_into().ok())
    }
}

impl Number for u64 {
    const EXPECTED: &'static str = WHOLE;

    fn of(value: f64) -> Option<Self> {
        let is_whole = value.fract() == 0.0 && (0.0..=LARGEST).contains(&value);
        is_whole.then_some(value as Self)
    }
}

const WHOLE: &str = "write a whole number, a list 1,20,200, or a range FROM:TO:STEP";

impl<T: Number> FromStr for List<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = Vec::new();
        for part in text.split(',').map(str::trim) {
            match part.contains(':') {
                true => numbers.extend(range(part)?),
                false => numbers.push(part.parse().map_err(|_| T::EXPECTED.to_owned())?),
            }
            if numbers.len() > MOST {
                return Err(format!("more than {MOST} numbers"));
            }
        }
        Ok(Self(numbers))
    }
}

/// `FROM:TO:STEP`, with both ends; `FROM:TO` in steps of 1.
fn range<T: Number>(text: &str) -> Result<Vec<T>, String> {
    let wrong = || T::EXPECTED.to_owned();
    let ends: Result<Vec<f64>, _> = text.split(':').map(str::parse).collect();
    let (from, to, step) = match ends.map_err(|_| wrong())?[..] {
        [from, to] => (from, to, 1.0),
        [from, to, step] => (from, to, step),
        _ => return Err(wrong()),
    };
    let count = (to - from) / step + 1e-9;
    if !(step > 0.0 && (0.0..MOST as f64).contains(&count)) {
        return Err(format!(
            "the range {text} must go up, in at most {MOST} steps above 0"
        ));
    }
    let numbers = (0..=count as usize).map(|at| T::of(at as f64 * step + from).ok_or_else(wrong));
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Result<Vec<u32>, String> {
        text.parse().map(|List(numbers)| numbers)
    }

    fn real(text: &str) -> Result<Vec<f64>, String> {
        text.parse().map(|List(numbers)| numbers)
    }

    #[test]
    fn numbers_lists_and_ranges_can_be_mixed() {
        assert_eq!(whole("20"), Ok(vec![20]));
        assert_eq!(whole("1, 20,200"), Ok(vec![1, 20, 200]));
        assert_eq!(whole("1:3,10:30:10"), Ok(vec![1, 2, 3, 10, 20, 30]));
        assert_eq!(real("0.1:0.5:0.2,0.95"), Ok(vec![0.1, 0.3, 0.5, 0.95]));
        assert_eq!(whole("5:5"), Ok(vec![5]));
    }

    #[test]
    fn mistakes_are_answered_with_what_to_write() {
        for wrong in ["many", "", "1,,2", "1.5", "-1", "0:1:0.5", "1:x", "1:2:3:4"] {
            let error = whole(wrong).unwrap_err();
            assert!(error.contains("whole number"), "{wrong}: {error}");
        }
        for wrong in ["3:1", "1:3:0", "1:3:-1", "1:1e9", "nan:1"] {
            let error = whole(wrong).unwrap_err();
            assert!(error.contains("must go up"), "{wrong}: {error}");
        }
        assert!(real("75%").unwrap_err().contains("such as 0.75"));
    }
}
