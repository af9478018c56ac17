//! Parses quantities in Kubernetes' notation: `10m`, `16Mi`, `1.5`, `1e3`.

/// Returns the value of a quantity (k8s.io/apimachinery, `resource.Quantity`): `10m` is 0.01, `16Mi` is 16777216.
/// `None` if the text is invalid or the quantity is negative.
#[must_use]
pub fn quantity(text: &str) -> Option<f64> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if !(digits(whole) && digits(fraction) && whole.len() + fraction.len() > 0) {
        return None;
    }
    let number: f64 = number.parse().ok()?;
    factor(suffix).map(|factor| number * factor)
}

/// Returns whether a text is a non-negative quantity.
pub(crate) fn is_quantity(text: &str) -> bool {
    quantity(text).is_some()
}

fn factor(suffix: &str) -> Option<f64> {
    let binary = |power| Some(1024_f64.powi(power));
    match suffix {
        "n" => Some(1e-9),
        "u" => Some(1e-6),
        "m" => Some(1e-3),
        "" => Some(1.0),
        "k" => Some(1e3),
        "M" => Some(1e6),
        "G" => Some(1e9),
        "T" => Some(1e12),
        "P" => Some(1e15),
        "E" => Some(1e18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            // Clamped: larger exponents give infinity or zero anyway.
            let power = whole.then(|| exponent.parse().unwrap_or(400).clamp(-400, 400));
            power.map(|power: i32| 10_f64.powi(power))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_distinguished_from_other_words() {
        for text in [
            "0", "10m", "16Mi", "1.5", ".5", "5.", "1e3", "2E", "1E-2", "100k",
        ] {
            assert!(is_quantity(text), "{text}");
        }
        for text in [
            "", ".", "m", "-1", "1 Mi", "1mi", "1.2.3", "1e", "1MiB", "ten",
        ] {
            assert!(!is_quantity(text), "{text}");
        }
    }

    #[test]
    fn amounts_are_what_kubernetes_means() {
        for (text, amount) in [
            ("250m", 0.25),
            ("16Mi", 16_777_216.0),
            ("1.5", 1.5),
            ("1e3", 1000.0),
            ("2E", 2e18),
            ("1E-2", 0.01),
            ("64974Ki", 66_533_376.0),
        ] {
            assert_eq!(quantity(text), Some(amount), "{text}");
        }
    }
}
