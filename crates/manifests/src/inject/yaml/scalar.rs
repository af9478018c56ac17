//! The type of an unquoted scalar, by the rules of go-yaml v2 (`resolve.go`), which `sigs.k8s.io/yaml` uses.

use serde_json::Value;

/// The largest integer up to which all integers are exact as floating point numbers.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Returns the value of a plain scalar; `None` if it is a number that JSON cannot represent.
pub(super) fn resolve(text: &str) -> Option<Value> {
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => return None,
        _ if text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            number(&text.replace('_', "")).unwrap_or_else(|| Value::from(text))
        }
        _ => Value::from(text),
    };
    Some(value)
}

fn number(text: &str) -> Option<Value> {
    if let Some(whole) = whole(text) {
        return Some(whole);
    }
    let float = text.parse::<f64>().ok().filter(|_| is_decimal(text))?;
    // Normalized as in JSON: 1.0 is 1.
    let value = match float.fract() == 0.0 && float.abs() < EXACT {
        true => Value::from(float as i64),
        false => Value::from(float),
    };
    float.is_finite().then_some(value)
}

/// Parses an integer, whose base depends on its prefix; a leading 0 alone means octal.
fn whole(text: &str) -> Option<Value> {
    let (negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let (digits, radix) = match digits.get(..2) {
        Some("0x" | "0X") => (&digits[2..], 16),
        Some("0o" | "0O") => (&digits[2..], 8),
        Some("0b" | "0B") => (&digits[2..], 2),
        Some(two) if two.starts_with('0') => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // Rust accepts a sign here, too.
    let digits = digits
        .bytes()
        .all(|c| c.is_ascii_hexdigit())
        .then_some(digits)?;
    let magnitude = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -magnitude } else { magnitude };
    let signed = i64::try_from(value).map(Value::from);
    signed
        .or_else(|_| u64::try_from(value).map(Value::from))
        .ok()
}

/// Matches `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_decimal(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.map(|text| text.strip_prefix(['+', '-']).unwrap_or(text));
    digits(before)
        && digits(after)
        && !(before.is_empty() && after.is_empty())
        && exponent.is_none_or(|text| !text.is_empty() && digits(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The expected values are those of `kubectl annotate --local -o json`, version 1.34.
    #[test]
    fn words_are_what_kubectl_takes_them_for() {
        for (text, value) in [
            ("y", json!(true)),
            ("N", json!(false)),
            ("yes", json!(true)),
            ("yEs", json!("yEs")),
            ("on", json!(true)),
            ("Off", json!(false)),
            ("TRUE", json!(true)),
            ("tRUE", json!("tRUE")),
            ("~", json!(null)),
            ("0644", json!(420)),
            ("-0644", json!(-420)),
            ("+0644", json!(420)),
            ("0o17", json!(15)),
            ("0O17", json!(15)),
            ("0x1F", json!(31)),
            ("-0x1F", json!(-31)),
            ("0b11", json!(3)),
            ("1_000", json!(1000)),
            ("_1", json!("_1")),
            ("0_7", json!(7)),
            ("0_x1", json!(1)),
            ("089", json!(89)),
            ("00", json!(0)),
            ("-0", json!(0)),
            ("+1", json!(1)),
            ("1e3", json!(1000)),
            ("1e-3", json!(0.001)),
            (".5", json!(0.5)),
            ("5.", json!(5)),
            ("+.5", json!(0.5)),
            (".5_0", json!(0.5)),
            ("1_0.5", json!(10.5)),
            ("1.e3", json!(1000)),
            ("01.5", json!(1.5)),
            ("-0.0", json!(0)),
            ("1.10", json!(1.1)),
            ("18446744073709551615", json!(u64::MAX)),
            ("12345678901234567890123", json!(1.234_567_890_123_456_8e22)),
            ("1:30", json!("1:30")),
            ("2026-01-01", json!("2026-01-01")),
            ("0x", json!("0x")),
            ("0xg", json!("0xg")),
            ("0x-1", json!("0x-1")),
            ("0b2", json!("0b2")),
            ("1e", json!("1e")),
            (".", json!(".")),
            ("+", json!("+")),
            ("-", json!("-")),
            (".e3", json!(".e3")),
            ("1.2.3", json!("1.2.3")),
            ("1e400", json!("1e400")),
            ("0x1.8p1", json!("0x1.8p1")),
            ("inf", json!("inf")),
            ("NaN", json!("NaN")),
            ("-infinity", json!("-infinity")),
            ("=", json!("=")),
        ] {
            assert_eq!(resolve(text), Some(value), "{text}");
        }
        for text in [".nan", ".inf", "-.INF", "+.Inf"] {
            assert_eq!(resolve(text), None, "{text}");
        }
    }
}
