//! Numbers as shown: rounded, so that patches contain only visible changes.

use serde_json::{Map, Value};

/// Rounds to four significant digits.
pub(crate) fn rounded(number: f64) -> Option<Value> {
    if !number.is_finite() {
        return None;
    }
    if number == 0.0 {
        return Some(0.into());
    }
    let digits = 3 - number.abs().log10().floor() as i32;
    let factor = 10_f64.powi(digits.clamp(-12, 12));
    let value = (number * factor).round() / factor;
    let whole = value.fract() == 0.0 && value.abs() < 1e15;
    Some(match whole {
        true => (value as i64).into(),
        false => value.into(),
    })
}

/// The fields of an object, of which unknown ones are left out.
#[derive(Debug, Default)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Adds a field.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Adds a field if its value is known.
    pub(crate) fn set_known(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// Adds a number if it is known, rounded.
    pub(crate) fn number(&mut self, name: &str, number: Option<f64>) {
        self.set_known(name, number.and_then(rounded));
    }

    /// Adds a field if it is true.
    pub(crate) fn flag(&mut self, name: &str, set: bool) {
        if set {
            self.set(name, true);
        }
    }

    /// Adds all fields of another object.
    pub(crate) fn extend(&mut self, other: Fields) {
        self.0.extend(other.0);
    }
}

impl From<Fields> for Value {
    fn from(fields: Fields) -> Self {
        Self::Object(fields.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        for (number, expected) in [
            (0.0, json!(0)),
            (123.456, json!(123.5)),
            (0.012_345_6, json!(0.01235)),
            (99_999.0, json!(100_000)),
            (-3.0, json!(-3)),
            (1e-20, json!(0)),
        ] {
            assert_eq!(rounded(number), Some(expected), "{number}");
        }
        assert_eq!(rounded(f64::NAN), None);
    }
}
