//! Durations and sizes.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// A duration: numbers with units, `250ms`, `5s`, `1m30s`, `1h`; the largest unit first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct TimeSpan(pub Duration);

/// Units of time, largest first, in nanoseconds.
const TIME_UNITS: &[(&str, u64)] = &[
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
/// Maximum duration in a configuration: 10 years.
const MAX_TIME: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The reason why a notation is invalid; the help follows after `; `.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotationError(String);

impl NotationError {
    pub(super) fn new(message: String) -> Self {
        Self(message)
    }
}

impl FromStr for TimeSpan {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Self, NotationError> {
        let bad = |why: &str| {
            let guess = crate::hints::shapes::time(text).filter(|guess| *guess <= MAX_TIME);
            let guess = guess.map(TimeSpan);
            let text = crate::yaml::short(text);
            NotationError(match guess {
                Some(guess) => format!("`{text}` is not a time; write `{guess}`"),
                None => format!("`{text}` is not a time; {why}, as in `250ms`, `5s` or `1m30s`"),
            })
        };
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        let (mut rest, mut units, mut total) = (text, TIME_UNITS, 0u64);
        while !rest.is_empty() {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, tail) = rest.split_at(digits);
            let letters = tail.len() - tail.trim_start_matches(|c: char| c.is_alphabetic()).len();
            let (unit, tail) = tail.split_at(letters);
            if number.is_empty() {
                return Err(bad("write whole numbers with units"));
            }
            if tail.starts_with('.') {
                return Err(bad("write whole numbers, with a smaller unit for the rest"));
            }
            if unit.is_empty() {
                return Err(bad("add a unit to each number (ms, s, m, h, d)"));
            }
            let Some(at) = units.iter().position(|(name, _)| *name == unit) else {
                return Err(bad(
                    "the units are d, h, m, s, ms, us, ns, each once, largest first",
                ));
            };
            let nanos = number.parse::<u64>().ok();
            let nanos = nanos.and_then(|n| n.checked_mul(units[at].1));
            total = nanos
                .and_then(|n| n.checked_add(total))
                .filter(|n| Duration::from_nanos(*n) <= MAX_TIME)
                .ok_or_else(|| bad("the maximum is 3650d"))?;
            (rest, units) = (tail, &units[at + 1..]);
        }
        if text.is_empty() {
            return Err(bad("write a number with a unit"));
        }
        Ok(Self(Duration::from_nanos(total)))
    }
}

impl Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, size) in TIME_UNITS {
            // Days only if nothing remains: 36h is easier to read than 1d12h.
            if (*unit == "d" && !rest.is_multiple_of(*size)) || rest < *size {
                continue;
            }
            write!(f, "{}{unit}", rest / size)?;
            rest %= size;
        }
        Ok(())
    }
}

/// A number of bytes: `64KiB`, `1MiB`, or a plain number.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Size(pub u64);

const SIZE_UNITS: &[(&str, u64)] = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl FromStr for Size {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Self, NotationError> {
        let bad = |why: String| {
            let guess = crate::hints::shapes::size(text).map(Size);
            let text = crate::yaml::short(text);
            NotationError(match guess {
                Some(guess) => {
                    format!("`{text}` is not a size; units are powers of 1024: write `{guess}`")
                }
                None => format!("`{text}` is not a size; {why}"),
            })
        };
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
        let unit = text[digits.len()..].trim();
        let factor = match SIZE_UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() || unit == "B" => 1,
            None => {
                let letter = unit.chars().next().unwrap_or('K').to_ascii_uppercase();
                let unit = if matches!(letter, 'M' | 'G') {
                    letter
                } else {
                    'K'
                };
                return Err(bad(format!(
                    "units are powers of 1024: write `{digits}{unit}iB`"
                )));
            }
        };
        let number: Option<u64> = digits.parse().ok();
        number
            .and_then(|number| number.checked_mul(factor))
            .map(Self)
            .ok_or_else(|| bad("write a whole number, as in `64KiB`".into()))
    }
}

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = SIZE_UNITS
            .iter()
            .find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size));
        match unit {
            Some((unit, size)) => write!(f, "{}{unit}", self.0 / size),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A string, or a plain number taken as a string.
struct Notation<T>(&'static str, PhantomData<T>);

impl<T: FromStr<Err = NotationError>> Visitor<'_> for Notation<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        number.to_string().parse().map_err(E::custom)
    }
}

macro_rules! notation {
    ($type:ty, $name:literal, $expected:literal, $schema:tt) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Notation($expected, PhantomData))
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

notation!(TimeSpan, "TimeSpan", "a time such as `250ms` or `1m30s`", {
    "description": "A length of time: whole numbers with units, the largest first, such as `250ms`, `5s`, `1m30s` or `1h`.",
    "type": ["string", "integer"],
    "pattern": "^(0|([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?([0-9]+us)?([0-9]+ns)?)$",
    "maximum": 0,
    "minimum": 0,
});
notation!(Size, "Size", "a size such as `64KiB`", {
    "description": "A number of bytes, such as `64KiB` or `1MiB`.",
    "type": ["string", "integer"],
    "pattern": "^[0-9]+ ?(B|KiB|MiB|GiB)?$",
    "minimum": 0,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (text, millis) in [
            ("0s", 0),
            ("250ms", 250),
            ("5s", 5000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("36h", 129_600_000),
            ("2d", 172_800_000),
        ] {
            let span: TimeSpan = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_millis(millis), "{text}");
            assert_eq!(span.to_string(), text);
        }
        for bad in [
            "",
            "5",
            "s",
            "1.5s",
            "-1s",
            "5 s",
            "30s1m",
            "1s1s",
            "1x",
            "4000d",
            "99999999999999999999s",
        ] {
            assert!(bad.parse::<TimeSpan>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [("64KiB", 65_536), ("1MiB", 1 << 20), ("100", 100)] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.0, size.to_string()), (bytes, text.to_owned()));
        }
        let error = "64k".parse::<Size>().unwrap_err().to_string();
        assert!(error.contains("write `64KiB`"), "{error}");
        assert!("99999999999GiB".parse::<Size>().is_err());
        assert!("KiB".parse::<Size>().is_err());
    }
}
