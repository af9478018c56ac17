//! The type of a plain scalar: null, boolean, number or text (YAML 1.2.2, §10.3.2).

/// A plain scalar with its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    /// `true`, `false`.
    Bool(bool),
    /// A number with a fraction or exponent, or an infinite one.
    Float(f64),
    /// An empty value, `~` or `null`.
    Null,
    /// A negative whole number.
    Signed(i64),
    /// Any other text.
    Text(&'a str),
    /// A whole number.
    Unsigned(u64),
}

/// Assigns a type to a plain scalar.
pub(crate) fn resolve(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" => return Scalar::Bool(true),
        "false" | "False" | "FALSE" => return Scalar::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Scalar::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        _ => {}
    }
    whole(text)
        .or_else(|| float(text))
        .unwrap_or(Scalar::Text(text))
}

/// Parses an integer: decimal without leading zero, `0x`, `0o`, `0b`.
fn whole(text: &str) -> Option<Scalar<'_>> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        _ => (10, digits),
    };
    let leading_zero = radix == 10 && digits.len() > 1 && digits.starts_with('0');
    if leading_zero || digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        let value = 0i64.checked_sub_unsigned(value)?;
        return Some(if value == 0 {
            Scalar::Unsigned(0)
        } else {
            Scalar::Signed(value)
        });
    }
    Some(Scalar::Unsigned(value))
}

/// Parses digits with a fraction or exponent; rejects the words that Rust's parser accepts.
fn float(text: &str) -> Option<Scalar<'_>> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let number = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.contains(|c: char| c.is_ascii_digit())
        && unsigned
            .chars()
            .all(|c| matches!(c, '0'..='9' | '.' | 'e' | 'E' | '-' | '+'));
    let leading_zeros = unsigned.len() > 1 && unsigned.chars().all(|c| c.is_ascii_digit());
    let leading_zeros = leading_zeros && unsigned.starts_with('0');
    if !number || leading_zeros {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(Scalar::Float(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_have_the_type_of_the_core_schema() {
        assert_eq!(resolve("~"), Scalar::Null);
        assert_eq!(resolve("True"), Scalar::Bool(true));
        assert_eq!(resolve("0x10"), Scalar::Unsigned(16));
        assert_eq!(resolve("-5"), Scalar::Signed(-5));
        assert_eq!(resolve("-0"), Scalar::Unsigned(0));
        assert_eq!(resolve("1.5"), Scalar::Float(1.5));
        assert_eq!(resolve("1e3"), Scalar::Float(1000.0));
        for text in [
            "007",
            "yes",
            "on",
            "1.2.3",
            "127.0.0.1:80",
            "1_000",
            "-",
            ".",
            "+",
            "5s",
        ] {
            assert_eq!(resolve(text), Scalar::Text(text), "{text}");
        }
        assert_eq!(
            resolve("99999999999999999999"),
            Scalar::Float(99_999_999_999_999_999_999.0)
        );
    }
}
